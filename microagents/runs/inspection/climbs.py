"""The steps that climbed a ladder, as a journal records them: how far, at what cost, and what would have been decided without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct

from microagents.elections.election import ESCALATED, Ballot, total_usd
from microagents.errors import MicroagentsError
from microagents.journal.messages import Recalled
from microagents.journal.queries import Row
from microagents.journal.reading import Reader
from microagents.replies.chat import Reply, decoder_of, vote_of
from microagents.runs.plan import plan_of
from microagents.strategies.ladder import names_in
from microagents.strategies.lookahead import lookahead_in
from microagents.task import ChainTask, chain_types

LOOKAHEAD = "lookahead"
RUNG_DEPTH = 3
"""Number of components in the path of a step, such as 0/step/17, and in the place of a rung, such as step/17/judge."""
DECIDING = ("decided", "inferred")
"""Outcomes of a rung that decided its step."""
Votes = list[tuple[Any, int]]
"""For each distinct vote its first-launched reply, as JSON-like values, and its count; the most votes first."""
ReadVote = Callable[[bytes], Hashable]


class TriedRung(Struct, frozen=True, kw_only=True):
    """A rung that was tried at a step."""

    name: str
    outcome: str | None
    """`decided` or `inferred` if it decided the step, `contested` if not; None where it had nothing to ask, and while it is tried."""
    votes: Votes
    """Its votes; a judge's are labels. Empty for a lookahead that decided nothing, of which the journal has only the rollouts."""
    samples: int
    """Counted samples, flagged ones included: its ballots, texts and reasons, and the rollouts that were drawn for it."""
    cost_usd: float | None
    """Cost of these; None where a price is unknown."""


class Climb(Struct, frozen=True, kw_only=True):
    """A step that its vote did not decide, and that climbed the ladder."""

    path: str
    votes: Votes
    """The step's own vote."""
    rungs: list[TriedRung]
    """The rungs that were tried, in the order of the ladder."""
    decided_by: str | None
    """Name of the rung that decided the step; where none did `leader`, `person`, the spec of another model, or `vote` for its own vote in a
    later sitting with a higher cap; None while undecided."""
    value: Any
    """The decided reply, as JSON-like values; None while undecided."""
    without: Any
    """The reply that led the step's own vote: what would have been decided without the ladder; None without a valid reply."""
    differs: bool | None
    """Whether the two are different votes; None while one is missing. Without the task's code they are compared to the letter."""
    samples: int
    """Samples of all rungs. A rollout counts at the first step that used it."""
    cost_usd: float | None
    """Cost of these; None where a price is unknown."""


def climbs_of(reader: Reader, of_input: int) -> list[Climb]:
    """The steps of an input that climbed, in their order, as far as they are recorded.

    Raises:
        InvalidUsage: there is no such input, or the journal is damaged.
    """
    reader.experiment.check_there([of_input])
    found = [row for row in reader.decisions_below(f"{of_input}/step") if row[0].count("/") >= RUNG_DEPTH]
    return list(_Climbs(reader, of_input).read(found)) if found else []


def step_of(path: str) -> str:
    """The path of the step that a path is at or below."""
    return "/".join(path.split("/")[:RUNG_DEPTH])


Below = dict[str, dict[str, Recalled]]
"""Rows below a step by their paths, by the name that follows the step's path."""


class _Climbs:
    """Reads the climbs of one input."""

    def __init__(self, reader: Reader, of_input: int) -> None:
        self._reader = reader
        self._options = reader.experiment.recipe.strategy_options
        self._settled = reader.account().settled_at
        ladder = self._options.get("ladder")
        self._names = list(names_in(ladder)) if isinstance(ladder, str) else []
        self._input = of_input
        self._rollouts = dict(reader.decisions_below(f"{of_input}/rollout"))
        """Rollouts that no step has used yet, by path."""
        self._vote_of = _vote_reader(reader, of_input)

    def read(self, found: Sequence[Row]) -> Iterator[Climb]:
        """The climbs among all rows below the steps."""
        for path, rows in groupby(found, key=lambda row: step_of(row[0])):
            below: Below = {}
            for at, row in rows:
                below.setdefault(at.split("/")[RUNG_DEPTH], {})[at] = row
            own, names = self._reader.decision_at(path), self._names_in(path, below)
            held = [own, *(below[name].get(f"{path}/{name}") for name in names)]
            # Another strategy may have questions of its own below a step.
            if not {*names}.isdisjoint(self._names) or any(row is not None and row.outcome == "contested" for row in held):
                yield self._climb(path, own, below, names)

    def _names_in(self, path: str, below: Below) -> list[str]:
        """The rungs below a step in the order of the ladder, then those of a strategy's own code, of which one that decided is the last."""
        known = [name for name in self._names if name in below]
        rows = {name: below[name].get(f"{path}/{name}") for name in below if name not in known and f"/{name}" != ESCALATED}
        decided = {name: row.outcome in DECIDING for name, row in rows.items() if row is not None}
        return known + sorted(decided, key=lambda name: decided[name])

    def _climb(self, path: str, row: Recalled | None, below: Below, names: Sequence[str]) -> Climb:
        tried = [self._tried(path, name, below[name]) for name in names]
        votes = [] if row is None else _tally(row, self._vote_of)
        without = row.value if row is not None and row.outcome == "contested" else votes[0][0] if votes else None
        decided_by, value = self._decision(path, row, below, tried)
        return Climb(
            path=path,
            votes=[(_decoded(each), count) for each, count in votes],
            rungs=tried,
            decided_by=decided_by,
            value=None if value is None else _decoded(value),
            without=None if without is None else _decoded(without),
            differs=None if value is None or without is None else self._vote_of(value) != self._vote_of(without),
            samples=sum(each.samples for each in tried),
            cost_usd=total_usd([each.cost_usd for each in tried]),
        )

    def _tried(self, step: str, name: str, rows: dict[str, Recalled]) -> TriedRung:
        own = rows.get(f"{step}/{name}")
        paid = [each for each in rows.values() if each.outcome not in ("inferred", "once")]
        if own is not None and name == LOOKAHEAD:
            paid += self._new_rollouts(int(step.split("/")[2]), len(own.ballots))
        voted = rows.get(f"{step}/{name}/vote", own)
        return TriedRung(
            name=name,
            outcome=None if own is None else own.outcome,
            votes=[] if voted is None else [(_decoded(each), count) for each, count in _tally(voted, self._vote_of)],
            samples=sum(len(each.ballots) for each in paid),
            cost_usd=total_usd([each.cost_usd for each in paid]),
        )

    def _new_rollouts(self, number: int, count: int) -> list[Recalled]:
        """The rollouts of a step that no step before it has used. One that decided nothing has no count: it drew up to its cap."""
        lookahead = lookahead_in(self._options)
        places = (
            f"{self._input}/{lookahead.place(number, seq)}"
            for seq in range(count or self._options.get("max_draws", self._options.get("samples", 0)))
        )
        return [self._rollouts.pop(place) for place in places if place in self._rollouts]

    def _decision(self, path: str, row: Recalled | None, below: Below, tried: Iterable[TriedRung]) -> tuple[str | None, bytes | None]:
        """Who decided a step, and for what."""
        for each in tried:
            if each.outcome in DECIDING:
                return each.name, below[each.name][f"{path}/{each.name}"].value
        for place, at in ((path, row), (path + ESCALATED, below.get(ESCALATED[1:], {}).get(path + ESCALATED))):
            if at is not None and at.value is not None and at.outcome != "contested":
                return self._settled.get(place, "vote"), at.value
        return None, None


def _tally(row: Recalled, read_vote: ReadVote) -> list[tuple[bytes, int]]:
    """For each distinct vote its first-launched reply and its count; the most votes first, among equals the first launched."""
    values = [ballot.value for ballot in row.ballots if isinstance(ballot, Ballot)]
    first: dict[Hashable, bytes] = {}
    for value in values:
        first.setdefault(read_vote(value), value)
    return [(first[vote], count) for vote, count in Counter(map(read_vote, values)).most_common()]


def _vote_reader(reader: Reader, of_input: int) -> ReadVote:
    """What reads the vote of a reply; the reply itself where the task's code is not there, or the reply is of another class."""
    try:
        task = plan_of(reader).tasks[of_input]
    except MicroagentsError:
        return bytes
    reply: type[Reply] | None = chain_types(type(task))[1] if isinstance(task, ChainTask) else None
    if reply is None:
        return bytes
    decode = decoder_of(reply).decode

    def read(value: bytes) -> Hashable:
        try:
            return vote_of(decode(value))
        except (MicroagentsError, msgspec.MsgspecError):
            return value

    return read


def _decoded(value: bytes) -> Any:
    return msgspec.json.decode(value)
