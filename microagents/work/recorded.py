"""Work as a journal has recorded it. A system is described once: with `Work` it runs, with `RecordedWork` it is replayed for ``show``."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Generic, Self, TypeVar

from microagents.actors.role import G, T
from microagents.elections.election import ESCALATED, Ballot, Flagged, total_usd
from microagents.journal.messages import OpenElection, Recalled
from microagents.replies.chat import A, decoder_of
from microagents.work.durable import Work

V = TypeVar("V")


class NotRecorded(Exception):
    """Work comes to a call that is not recorded yet."""


class RecordedWork(Generic[T, G]):
    """Calls of `Work` that a system may make, answered from a journal. Nothing is asked, recorded or waited for."""

    def __init__(
        self, of_input: int, task: T, strategy: G, rows: Mapping[str, Recalled], open_elections: Iterable[OpenElection]
    ) -> None:
        self.input, self.task, self.strategy = of_input, task, strategy
        self.rows = rows
        """Decisions, answers and undecided elections by path."""
        self.bought: dict[str, list[Ballot | Flagged]] = {}
        """The paid samples of elections without a verdict, by path."""
        for each in open_elections:
            self.bought.setdefault(each.id.path, []).extend(each.ballots)
        self._paid: dict[str, list[tuple[int, float | None]]] = {}
        """By place, the number and the cost of the samples of each election at it or below it."""
        paid = [(path, len(row.ballots), row.cost_usd) for path, row in rows.items() if row.ballots]
        paid += [(path, 1, each.cost_usd) for path, ballots in self.bought.items() for each in ballots]
        for path, calls, cost_usd in paid:
            for place in accumulate(path.split("/"), "{}/{}".format):
                self._paid.setdefault(place, []).append((calls, cost_usd))

    def replay(self, work: Coroutine[Any, Any, object]) -> None:
        """Run work with these calls to its end, or to the first call that is not recorded."""
        with suppress(NotRecorded):
            Replayed(work).result()

    def scope(self) -> RecordedScope:
        """An owner of work side by side."""
        return RecordedScope()

    def path_of(self, at: str) -> str:
        """Return the path of a place."""
        return f"{self.input}/{at}"

    def progress(self, done: int, total: int | None = None) -> None:
        """Do nothing."""

    def row(self, at: str) -> Recalled:
        """Return the record at a place: that of another model, where one was asked after an undecided election."""
        path = self.path_of(at)
        row = self.rows.get(path + ESCALATED) or self.rows.get(path)
        if row is None:
            raise NotRecorded(path)
        return row

    def value(self, at: str, reply: type[A]) -> A:
        """Return the decided reply at a place."""
        row = self.row(at)
        if row.value is None or row.outcome == "climbed":
            raise NotRecorded(self.path_of(at))
        found: A = decoder_of(reply).decode(row.value)
        return found

    def replies(self, at: str, reply: type[A]) -> list[A]:
        """Return the valid replies at a place in launch order, or the one that a person gave."""
        row = self.row(at)
        drawn = [ballot.value for ballot in row.ballots if isinstance(ballot, Ballot)]
        return [decoder_of(reply).decode(value) for value in drawn or ([] if row.value is None else [row.value])]

    def ballots(self, at: str) -> Sequence[Ballot | Flagged]:
        """Return the samples at a place so far."""
        path = self.path_of(at)
        return self.rows[path].ballots if path in self.rows else self.bought.get(path, ())

    def spent(self, at: str | None = None) -> tuple[int, float | None]:
        """Number and cost of all samples at a place and below it; by default of the whole work."""
        paid = self._paid.get(str(self.input) if at is None else self.path_of(at), [])
        return sum(calls for calls, _ in paid), total_usd([cost_usd for _, cost_usd in paid])


AnyWork = Work[T, G] | RecordedWork[T, G]
"""Work that is done, or replayed."""


class RecordedScope:
    """Does at once what a `TaskScope` does side by side."""

    def start(self, coroutine: Coroutine[Any, Any, V]) -> Replayed[V]:
        """Run a coroutine to its end."""
        return Replayed(coroutine)

    async def join(self) -> None:
        """Do nothing: everything has ended."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Do nothing, as above."""


class Replayed(Generic[V]):
    """End of a coroutine that waits for nothing but recorded calls."""

    def __init__(self, coroutine: Coroutine[Any, Any, V]) -> None:
        self._error: BaseException | None = None
        try:
            coroutine.send(None)
        except StopIteration as end:
            self._result: V = end.value
        except Exception as error:  # noqa: BLE001 - raised where the result is asked for
            self._error = error
        else:
            coroutine.close()
            self._error = RuntimeError("work that is replayed waited for something that is not recorded")

    def result(self) -> V:
        """Return the result, or the error that it ended with."""
        if self._error is not None:
            raise self._error
        return self._result

    def __await__(self) -> Generator[Any, None, V]:
        """Give the result."""
        yield from ()
        return self.result()
