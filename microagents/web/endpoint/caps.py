"""Caps on cost: a sample is sent once the most that it can cost is free, and gives the rest back with its reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

from msgspec import Struct

from microagents.roles.limits.reservations import UNITS_PER_USD, units
from microagents.web.endpoint.callers import CostLimit
from microagents.web.endpoint.ledger import EVERYONE, Ledger
from microagents.web.endpoint.wires import Withheld


class Reserved(Struct):
    """A reservation of one sample, until its cost is known."""

    spent: int = 0
    """Units that it has used up: none until it has room, then all, unless its reply or its refusal says otherwise."""


class Cap:
    """The cap of one caller, or of all together. Samples get room in the order in which they ask for it.

    Args:
        limit: the limit.
        spent: units that are spent of it.
    """

    def __init__(self, limit: CostLimit, spent: int) -> None:
        self._limit = limit
        self._left = units(limit.usd) - spent
        self._held = 0
        self._day = today()
        self._turn = asyncio.Lock()
        self._settled = asyncio.Event()

    @asynccontextmanager
    async def held(self, amount: int, reserved: Reserved) -> AsyncIterator[None]:
        """Hold an amount as long as the block, once there is room, and give back what its reservation has not spent.

        Raises:
            Withheld: there will be none, though all other samples give back what they hold.
        """
        self._lacks_room(amount)  # refused at once, if it ever is
        async with self._turn:
            while self._lacks_room(amount):
                self._settled.clear()
                await self._settled.wait()
            self._held += amount
        try:
            yield
        finally:
            self._held -= amount
            self._left -= reserved.spent
            self._settled.set()

    def _lacks_room(self, amount: int) -> bool:
        if self._limit.each_day and self._day != today():
            self._day, self._left = today(), units(self._limit.usd)
        if self._left < amount:
            left_usd, most_usd = max(0, self._left) / UNITS_PER_USD, amount / UNITS_PER_USD
            raise Withheld(
                402,
                f"a sample of this request may cost up to ${most_usd:.4f}, and ${left_usd:.4f} are left of the cap of {self._limit}; "
                "a shorter prompt or fewer output tokens cost less",
            )
        return self._left - self._held < amount


class Caps:
    """Caps of all callers together, and of each.

    Args:
        limits: limits by the name of the caller, or None.
        ledger: keeps the costs, by which limits of a day hold over restarts.
    """

    def __init__(self, limits: Mapping[str, CostLimit | None], ledger: Ledger) -> None:
        self.cost_usd: float | None = 0.0
        """Cost of all replies; None if a price is unknown."""
        self._ledger = ledger
        self._caps: dict[str, Cap] = {}
        for name, limit in limits.items():
            if limit is None:
                continue
            spent = 0
            if limit.each_day:
                spent = ledger.spent(today(), name)
            self._caps[name] = Cap(limit, spent)

    @property
    def are_set(self) -> bool:
        """Whether there is a limit."""
        return bool(self._caps)

    def bound(self, caller: str) -> bool:
        """Whether the cost of a caller has a limit."""
        return caller in self._caps or EVERYONE in self._caps

    @asynccontextmanager
    async def reserved(self, caller: str, most_usd: float) -> AsyncIterator[Reserved]:
        """Hold the most that a sample can cost as long as the block, and note its cost if there is a cap.

        A server that is killed has spent all of it.

        Raises:
            Withheld: a cap has no room for it, and will have none.
            ModelUnavailable: the cost cannot be kept.
        """
        amount, reserved = max(1, units(most_usd)), Reserved()
        async with AsyncExitStack() as stack:
            for name in dict.fromkeys((caller, EVERYONE)):
                if name in self._caps:
                    await stack.enter_async_context(self._caps[name].held(amount, reserved))
            if self.are_set:
                day = today()
                self._ledger.spend(day, caller, amount)
                stack.callback(lambda: self._ledger.spend(day, caller, reserved.spent - amount))
            reserved.spent = amount
            yield reserved


def today() -> str:
    """Return the day, in UTC."""
    return datetime.now(UTC).date().isoformat()
