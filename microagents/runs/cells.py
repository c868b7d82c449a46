"""Cells of a table: the votes on each field of a row, their agreement, and the source of the decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct, structs

from microagents.base.errors import MicroagentsError
from microagents.elections.election import ESCALATED, OPEN_OUTCOMES, AnyBallot, Ballot, Flagged
from microagents.elections.promises import NEVER
from microagents.journal.messages import InputEnding, Recalled
from microagents.journal.reading import Reader
from microagents.replies.reply_fields import unvoted_in
from microagents.replies.turns import canonical
from microagents.task import Task

OURS = ("state", "why", "samples", "settled_by", "open")
"""Columns that are neither the input's nor the reply's."""


class RowVotes(Struct, frozen=True, kw_only=True):
    """The election of a row, and its votes by field; by default none."""

    path: str | None = None
    """Place of the election: of an equal row's, if that one was asked."""
    samples: int = 0
    flagged: int = 0
    """Samples with a red flag."""
    cost_usd: float | None = None
    cells: dict[str, list[tuple[Any, int]]] = {}
    """Values of each voted field with their votes, the most frequent first."""
    agreement: dict[str, tuple[int, int]] = {}
    """For each voted field the votes for its decided or else most frequent value, and all votes."""
    unsettled: list[str] = []
    """Fields in which this value leads by less than k."""
    open: list[str] = []
    """The same, without a decision."""
    settled_by: str | None = None
    """Source of the decision, such as ``vote`` or ``a person``, or ``shared``; None without a decision."""
    by_person: bool = False
    """Whether a person did, also if it is shared."""


class TrustColumns:
    """The columns of ``--trust-columns`` for each input of a run.

    Args:
        reader: its journal.
        kind: the class of the task; None if it is not at hand.
    """

    def __init__(self, reader: Reader, kind: type[Task] | None) -> None:
        self._reader = reader
        self._k = reader.experiment.recipe.deciding_votes or 1
        self._strategy = reader.experiment.recipe.strategy_options
        self._settled = reader.settled_at()
        self._unvoted: tuple[str, ...] = ()
        with suppress(MicroagentsError):  # a damaged class
            reply = None if kind is None else kind.reply_at("step/0")
            self._unvoted = () if reply is None else unvoted_in(reply)

    def of(self, number: int, ending: InputEnding | None) -> dict[str, Any]:
        """Return ``FIELD_agreement`` for each field of the reply, ``samples``, ``settled_by``, and ``open``, its open fields."""
        votes = self.votes_of(number, ending)
        if votes is None:
            return {"samples": 0, "settled_by": None, "open": None}
        named = {f"{name}_agreement": f"{own}/{all_votes}" for name, (own, all_votes) in votes.agreement.items()}
        trust = {"samples": votes.samples, "settled_by": votes.settled_by, "open": ", ".join(votes.open) or None}
        return {**named, **trust}

    def votes_of(self, number: int, ending: InputEnding | None) -> RowVotes | None:
        """Return the votes of a row, or of the equal row that it ended like; None before its election ended."""
        same_as = None if ending is None else ending.same_as
        path = f"{number if same_as is None else same_as}/step/0"
        deciding = self._deciding(path)
        if deciding is None:
            return None
        place, decision = deciding
        votes = self.votes_in(decision)
        settled_by = self._settled_by(path, place, decision, is_certain=bool(votes.unsettled))
        return structs.replace(
            votes,
            path=place,
            open=votes.unsettled if settled_by is None else [],
            settled_by=settled_by if same_as is None else "shared",
            by_person=settled_by == "a person",
        )

    def _deciding(self, path: str) -> tuple[str, Recalled] | None:
        """Return the election that decided a row, and its place: the row's own, a rung's, or the escalated one."""
        own = self._reader.decision_at(path)
        found = None if own is None else (path, own)
        for place, row in self._reader.decisions_below(path):
            if row.is_decision or place == path + ESCALATED:
                found = place, row
        return found

    def votes_in(self, decision: Recalled) -> RowVotes:
        """Count the votes on each voted field of an election: by value, for the decided or else most frequent one, and too small leads."""
        decided = {} if decision.value is None else msgspec.json.decode(decision.value)
        cells = {name: votes for name, votes in cells_in(decision.ballots).items() if name not in self._unvoted}
        agreement, unsettled = {}, []
        for name, votes in cells.items():
            leader = decided.get(name, votes[0][0])
            own = sum(number for value, number in votes if value == leader)
            rivals = [number for value, number in votes if value != leader]
            agreement[name] = own, own + sum(rivals)
            if own - max(rivals, default=0) < self._k:
                unsettled.append(name)
        return RowVotes(
            samples=len(decision.ballots),
            flagged=sum(isinstance(each, Flagged) for each in decision.ballots),
            cost_usd=decision.cost_usd,
            cells=cells,
            agreement=agreement,
            unsettled=unsettled,
        )

    def _settled_by(self, path: str, place: str, decision: Recalled, *, is_certain: bool) -> str | None:
        """Name the source of a decision; None while it is open. A vote that ended before its margin was ended by a certificate."""
        settled = self._settled.get(path) or self._settled.get(path + ESCALATED)
        if settled == "person" or decision.outcome == "person":
            return "a person"
        if settled is not None:
            return settled
        if decision.outcome in OPEN_OUTCOMES:
            return None
        if place != path:
            return place.rpartition("/")[2]
        if "strong_from" in self._strategy:  # a cascade
            return "cheap" if self._strategy["cheap_from"] < NEVER else "strong"
        return "certificate" if is_certain else "vote"


def cells_in(ballots: Iterable[AnyBallot]) -> dict[str, list[tuple[Any, int]]]:
    """Count the values of each field of valid replies, as JSON has them: most frequent first, then in order of launch."""
    votes = Counter(each.value for each in ballots if isinstance(each, Ballot))
    replies = [(msgspec.json.decode(value), number) for value, number in votes.items()]
    found = {}
    for name in dict.fromkeys(chain.from_iterable(reply for reply, _ in replies)):
        counts = Counter[str]()
        for reply, number in replies:
            counts[canonical(reply.get(name))] += number
        found[name] = [(msgspec.json.decode(value), number) for value, number in counts.most_common()]
    return found
