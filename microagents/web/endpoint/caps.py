"""Caps on cost: a sample is sent once the most that it can cost is free, and gives the rest back with its reply."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import msgspec
from msgspec import Struct

from microagents.base.errors import InvalidUsage, MicroagentsError, read_failure
from microagents.base.files import is_there, replacing
from microagents.roles.limits.bounds import Bound, Queue, QueuedCall
from microagents.roles.limits.reservations import UNITS_PER_USD, units
from microagents.web.endpoint.callers import CostLimit

LEDGER = "serve-costs.jsonl"
"""Name of the file of costs by day, beside the journals."""
EVERYONE = ""
"""Stands for all callers together."""


class CapReached(MicroagentsError):
    """A cap has no room for a sample, and will have none; args: cap, cost that is left, most that the sample can cost."""

    def __str__(self) -> str:
        cap, left, most = self.args
        return f"the cap of {cap} is reached: {left} left, and a sample of this request may cost up to {most}"


class Reserved:
    """A reservation of one sample, until its cost is known."""

    def __init__(self, amount: int) -> None:
        self.spent = amount
        """Units that it has used up: all, unless its reply or its refusal says otherwise."""


class Caps:
    """Caps of all callers together, and of each.

    Args:
        limits: limits by the name of the caller.
        folder: folder of the ledger, by which limits of a day hold over restarts; None for none.
    """

    def __init__(self, limits: Mapping[str, CostLimit], folder: Path | None) -> None:
        self._limits = limits
        self._ledger = _Ledger(None if folder is None or not limits else folder / LEDGER)
        self._day = _today()
        self._bounds = {name: Bound(self._left(name), renews=False) for name in limits}
        self._queue = Queue(self._bounds)
        self._numbers = count()

    @property
    def are_set(self) -> bool:
        """Whether there is a limit."""
        return bool(self._limits)

    @contextmanager
    def settled(self, caller: str, granted: Reserved) -> Iterator[None]:
        """Hold a reservation as long as the block, and give back what it has not spent."""
        most = granted.spent
        day = _today()
        self._ledger.note(_Cost(day, caller, most))
        try:
            yield
        finally:
            self._ledger.note(_Cost(day, caller, granted.spent - most))
            for name in self._names(caller):
                self._bounds[name].give_back(most, granted.spent)
            self._deal()

    async def reserve(self, caller: str, election: int, seq: int, most_usd: float) -> Reserved:
        """Wait until the most that a sample can cost is free.

        Raises:
            CapReached: it will never be, though all other samples give back what they hold.
        """
        amount = max(1, units(most_usd))
        names = self._names(caller)
        if not names:
            return Reserved(amount)
        self._renew()
        answer: asyncio.Future[dict[str, int] | None] = asyncio.get_running_loop().create_future()
        place = f"0/{election}", seq, next(self._numbers)
        waiting = QueuedCall(place, dict.fromkeys(names, amount), {}, _answering(answer))
        self._queue.add(waiting)
        self._deal()
        try:
            granted = await answer
        except asyncio.CancelledError:
            for name, held in waiting.granted.items():
                self._bounds[name].give_back(held, 0)
            waiting.end()
            self._deal()
            raise
        if granted is None:
            name = min(names, key=lambda each: self._bounds[each].total)
            left = max(0, self._bounds[name].total) / UNITS_PER_USD
            raise CapReached(self._limits[name], f"${left:.4f}", f"${most_usd:.4f}")
        return Reserved(amount)

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def _names(self, caller: str) -> list[str]:
        return [name for name in dict.fromkeys((EVERYONE, caller)) if name in self._limits]

    def _left(self, name: str) -> int:
        limit = self._limits[name]
        spent = self._ledger.spent_on(self._day, name) if limit.each_day else 0
        return units(limit.usd) - spent

    def _renew(self) -> None:
        """Begin the limits of a day anew on the next."""
        today = _today()
        if today != self._day:
            self._day = today
            for name, limit in self._limits.items():
                if limit.each_day:
                    self._bounds[name].total = units(limit.usd)

    def _deal(self) -> None:
        """Grant room in the order of elections; refuse the samples that can never have it."""
        is_dealt = False
        while not is_dealt:
            is_dealt = True
            for waiting, lacking in list(self._queue.deal()):
                if any(waiting.amounts[name] > self._bounds[name].total for name in lacking):
                    waiting.end()
                    is_dealt = False


def _answering(answer: asyncio.Future[dict[str, int] | None]) -> Callable[[dict[str, int] | None], None]:
    def resolve(granted: dict[str, int] | None) -> None:
        if not answer.done():
            answer.set_result(granted)

    return resolve


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


class _Cost(Struct, frozen=True):
    """A change of the cost of a day: a reservation, or less than nothing for its rest."""

    day: str
    caller: str
    spent: int


_cost = msgspec.json.Decoder(_Cost)


class _Ledger:
    """Costs by day and caller. A reservation counts as soon as it is made, so a server that was killed has spent it."""

    def __init__(self, path: Path | None) -> None:
        self._before = Counter[tuple[str, str]]()
        """Units that earlier servers have spent."""
        self._file = None
        if path is None:
            return
        try:
            if is_there(path):
                self._read(path)
            with replacing(path) as new:
                lines = [_line(_Cost(*of, spent)) for of, spent in self._before.items()]
                new.write_bytes(b"".join(lines))
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise InvalidUsage(f"costs cannot be kept in {str(path)!r}: {read_failure(error)}") from None

    def spent_on(self, day: str, caller: str) -> int:
        """Return the units that a caller, or everyone, had spent on a day as the server began."""
        return sum(spent for (on, by), spent in self._before.items() if on == day and caller in (EVERYONE, by))

    def note(self, cost: _Cost) -> None:
        """Note a change."""
        if self._file is not None:
            self._file.write(_line(cost))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _read(self, path: Path) -> None:
        for line in path.read_bytes().split(b"\n"):
            with suppress(msgspec.DecodeError):  # the last one, of a server that was killed
                cost = _cost.decode(line)
                self._before[cost.day, cost.caller] += cost.spent


def _line(cost: _Cost) -> bytes:
    return msgspec.json.encode(cost) + b"\n"
