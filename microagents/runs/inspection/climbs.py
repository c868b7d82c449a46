"""The steps that climbed a ladder, as a journal records them: how far, at which cost, and with which decision otherwise."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable
from typing import Any

import msgspec
from msgspec import Struct

from microagents.base.errors import MicroagentsError
from microagents.elections.election import ESCALATED, OPEN_OUTCOMES, Ballot, total_usd
from microagents.journal.digests import in_order
from microagents.journal.messages import Recalled
from microagents.journal.reading import Reader
from microagents.replies.reply_forms import decoder_of
from microagents.runs.plan import plan_of
from microagents.systems.chains.ladder import names_in
from microagents.systems.chains.lookahead import Lookahead, lookahead_in
from microagents.task import ChainTask

_STEP = re.compile(r"\d+/step/\d+(?:/agent/\d+/step/\d+)*")
"""Path of a step, also of an agent that work was handed off to."""
_OF_ACTIONS = ("agent", "call", "read", "summary", "turn")
"""Names below the step of an agent that are no rungs."""
Votes = list[tuple[Any, int]]
"""For each distinct vote its first-launched reply, as JSON-like values, and its count; the most votes first."""
Rows = dict[str, Recalled]
"""Rows by path."""


class TriedRung(Struct, frozen=True, kw_only=True):
    """A rung that was tried at a step."""

    name: str
    outcome: str | None
    """`decided` or `inferred` if it decided the step, `climbed` if something else did, `undecided` or `contested` if nothing did; None
    if it had nothing to ask, and while it is tried."""
    votes: Votes
    """Its votes; a judge's are labels. Empty for a lookahead that decided nothing, since the journal has only its rollouts."""
    samples: int
    """Counted samples, flagged ones included: its ballots, texts and reasons, and the rollouts that were drawn for it."""
    cost_usd: float | None
    """Cost of these; None if a price is unknown."""


class Climb(Struct, frozen=True, kw_only=True):
    """A step that its vote did not decide, and that climbed the ladder."""

    path: str
    votes: Votes
    """The step's own vote."""
    rungs: list[TriedRung]
    """The rungs that were tried, in the order of the ladder."""
    decided_by: str | None
    """Name of the rung that decided the step; if none did `leader`, `person`, the spec of another model, or `vote` for its own vote in a
    later sitting with a higher cap; None while undecided."""
    value: Any
    """The decided reply, as JSON-like values; None while undecided."""
    without: Any
    """The reply that led the step's own vote, which would have decided the step without the ladder; None without a valid reply."""
    differs: bool | None
    """Whether the two are different votes; None while one is missing. Without the task's code they are compared to the letter."""
    samples: int
    """Samples of all rungs. A rollout counts at the first step that used it."""
    cost_usd: float | None
    """Cost of these; None if a price is unknown."""


def climbs_of(reader: Reader, of_input: int) -> list[Climb]:
    """Return the steps of an input that climbed, in their order, as far as they are recorded."""
    reader.experiment.check_there([of_input])
    below: dict[str, Rows] = {}
    for at, row in reader.decisions_below(f"{of_input}/step"):
        step = step_of(at)
        if at != step:
            below.setdefault(step, {})[at] = row
    if not below:
        return []
    climbs = _Climbs(reader, of_input)
    read = [climbs.climb(step, below[step]) for step in sorted(below, key=in_order)]
    return [each for each in read if each is not None]


def step_of(path: str) -> str:
    """Return the path of the step that a path is at or below; the path itself if there is none."""
    found = _STEP.match(path)
    return path if found is None else found[0]


class _Climbs:
    """Reads the climbs of one input."""

    def __init__(self, reader: Reader, of_input: int) -> None:
        self._reader = reader
        self._options = reader.experiment.recipe.strategy_options
        self._ladder = {name: place for place, name in enumerate(names_in(self._options.get("ladder", "")))}
        self._settled = reader.settled_at()
        self._undecided = reader.undecided()
        self._rollouts = dict(reader.decisions_below(f"{of_input}/rollout"))
        """Rollouts that no step has used yet, by path."""
        self._task = _chain_of(reader, of_input)

    def climb(self, step: str, below: Rows) -> Climb | None:
        """Return the climb of a step; None if the rows below it are not rungs, but other questions of a strategy."""
        own = self._reader.decision_at(step)
        rows = below if own is None else {step: own, **below}
        names = [at.removeprefix(f"{step}/").partition("/")[0] for at in below if at != step + ESCALATED]
        found = dict.fromkeys(name for name in names if name not in _OF_ACTIONS)
        rungs = [f"{step}/{name}" for name in found]
        places = [at for at in (step, *rungs) if at in rows]
        if not self._ladder.keys() & found.keys() and not any(self._was_left(at, rows) for at in places):
            return None

        def order(name: str) -> tuple[int, bool]:
            """Order of the ladder. Of the rungs of a strategy's own code, one that decided is the last."""
            return self._ladder.get(name, len(self._ladder)), _decides(rows.get(f"{step}/{name}"))

        places_of = {f"{step}/{name}": name for name in sorted(found, key=order)}
        tried = [self._tried(step, name, rows) for name in places_of.values()]
        votes = self._tally(own)
        if own is not None and own.outcome == "climbed":
            without = own.value
        else:
            without = next((value for value, _ in votes), None)
        at = next((at for at in (*places_of, step, step + ESCALATED) if _decides(rows.get(at))), None)
        value = None if at is None else rows[at].value
        return Climb(
            path=step,
            votes=_decoded(votes),
            rungs=tried,
            decided_by=None if at is None else places_of.get(at) or self._settled.get(at, "vote"),
            value=msgspec.json.decode(value or b"null"),
            without=msgspec.json.decode(without or b"null"),
            differs=None if value is None or without is None else self._vote_of(value) != self._vote_of(without),
            samples=sum(each.samples for each in tried),
            cost_usd=total_usd([each.cost_usd for each in tried]),
        )

    def _was_left(self, at: str, rows: Rows) -> bool:
        """Return whether a step or a rung was left to the next rung, or a rung failed: it is undecided, and not for a person to decide."""
        failed = rows[at].outcome in OPEN_OUTCOMES and at != step_of(at) and at not in self._undecided
        return failed or rows[at].outcome == "climbed"

    def _tried(self, step: str, name: str, rows: Rows) -> TriedRung:
        at = f"{step}/{name}"
        own = rows.get(at)
        paid = [
            row
            for path, row in rows.items()
            if f"{path}/".startswith(f"{at}/") and row.outcome not in ("inferred", "once")
        ]
        if own is not None and name == Lookahead().name:
            paid += self._new_rollouts(step, len(own.ballots))
        return TriedRung(
            name=name,
            outcome=None if own is None else own.outcome,
            votes=_decoded(self._tally(rows.get(f"{at}/vote", own))),
            samples=sum(len(each.ballots) for each in paid),
            cost_usd=total_usd([each.cost_usd for each in paid]),
        )

    def _new_rollouts(self, step: str, count: int) -> list[Recalled]:
        """Return the rollouts of a step that no step before it has used. One that decided nothing has no count: it drew up to its cap."""
        of_input, _, number = step.split("/")
        drawn = range(count or self._options.get("max_draws", self._options.get("samples", 0)))
        places = [f"{of_input}/{lookahead_in(self._options).place(int(number), seq)}" for seq in drawn]
        return [self._rollouts.pop(place) for place in places if place in self._rollouts]

    def _tally(self, row: Recalled | None) -> list[tuple[bytes, int]]:
        """For each distinct vote its first-launched reply and its count; the most votes first, among equals the first launched."""
        if row is None:
            values = []
        else:
            values = [ballot.value for ballot in row.ballots if isinstance(ballot, Ballot)]
        first: dict[Hashable, bytes] = {}
        voted = [first.setdefault(self._vote_of(value), value) for value in values]
        return Counter(voted).most_common()

    def _vote_of(self, value: bytes) -> Hashable:
        """Return the vote of a reply; the reply itself if the task's code is not there, or the reply is of another class."""
        try:
            if self._task is None:
                return value
            decode = decoder_of(self._task.reply_type()).decode
            return self._task.vote_of(decode(value))
        except (MicroagentsError, msgspec.MsgspecError):
            return value


def _chain_of(reader: Reader, of_input: int) -> ChainTask | None:
    """Return the task of an input; None if its code is not there, or it has no steps."""
    try:
        task = plan_of(reader).tasks[of_input]
    except MicroagentsError:
        return None
    if not isinstance(task, ChainTask):
        return None
    return task


def _decides(row: Recalled | None) -> bool:
    return row is not None and row.is_decision


def _decoded(tally: list[tuple[bytes, int]]) -> Votes:
    return [(msgspec.json.decode(value), count) for value, count in tally]
