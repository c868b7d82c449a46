"""Notes of conductors on their work. `show`, `export`, the viewer and the live display draw those of a replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Protocol

from msgspec import Struct

from microagents.base.errors import Undecided
from microagents.elections.election import AnyBallot, total_usd
from microagents.journal.messages import OpenElection, Recalled


class NotRecorded(Undecided):
    """A replay comes to a question that the journal does not answer; args: path, 0, text. Other branches of the work go on."""

    def __init__(self, path: str) -> None:
        super().__init__(path, 0, "not recorded")


class Note(Protocol):
    """A part of the work on an input. A conductor notes it when it begins, and fills it in while it works."""

    def drawn(self, notes: Sequence[Note], records: Records) -> Struct:
        """Return the whole work, beginning with this note: all notes, this one included, are in their order."""


class Records:
    """Records of one input: samples, red flags and costs by place, which a conductor does not see.

    Decisions, answers and undecided elections stand by path; open elections have no verdict.
    """

    def __init__(self, of_input: int, rows: Mapping[str, Recalled], open_elections: Iterable[OpenElection]) -> None:
        self.rows = rows
        self.bought: dict[str, list[AnyBallot]] = {}
        """The paid samples of elections without a verdict, by path."""
        self._input = of_input
        for each in open_elections:
            self.bought.setdefault(each.id.path, []).extend(each.ballots)
        self._paid: dict[str, list[tuple[Sequence[AnyBallot], float | None]]] = {}
        """By place, the samples and the cost of each election at it or below it."""
        paid = [(path, row.ballots, row.cost_usd) for path, row in rows.items() if row.ballots]
        paid += [(path, (each,), each.cost_usd) for path, ballots in self.bought.items() for each in ballots]
        for path, samples, cost_usd in paid:
            for place in accumulate(path.split("/"), "{}/{}".format):
                self._paid.setdefault(place, []).append((samples, cost_usd))

    def path_of(self, at: str) -> str:
        """Return the path of a place."""
        return f"{self._input}/{at}"

    def row(self, at: str) -> Recalled | None:
        """Return the record at a place."""
        return self.rows.get(self.path_of(at))

    def ballots(self, at: str) -> Sequence[AnyBallot]:
        """Return the samples at a place so far."""
        row = self.row(at)
        if row is None:
            return self.bought.get(self.path_of(at), ())
        return row.ballots

    def paid(self, at: str | None = None) -> tuple[list[AnyBallot], float | None]:
        """All samples at a place and below it, and their cost; by default of the whole work."""
        paid = self._paid.get(str(self._input) if at is None else self.path_of(at), [])
        samples = chain.from_iterable(each for each, _ in paid)
        return list(samples), total_usd([cost_usd for _, cost_usd in paid])

    def spent(self, at: str | None = None) -> tuple[int, float | None]:
        """Number and cost of these samples."""
        samples, cost_usd = self.paid(at)
        return len(samples), cost_usd
