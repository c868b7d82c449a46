"""Trials of an agent: each action is drawn several times and decided by plurality, and the task's `check` judges the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from math import exp, fsum, log1p
from typing import Annotated, Any, ClassVar

from msgspec import Struct
from pydantic import Field

from microagents.base.errors import InvalidUsage
from microagents.elections.election import Ballot
from microagents.elections.laws import uneven_race_lost, uneven_race_votes
from microagents.elections.rules import BestOf, Rule
from microagents.journal.reading import Reader
from microagents.replies.chat import decoder_of
from microagents.runs.plan import plan_of
from microagents.runs.result import Result
from microagents.studies.measured import Proportion, proportion
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import END, Action
from microagents.systems.agents.agent import AgentTask
from microagents.task import Task

KINDS = {"read_only": "read", "idempotent": "write", "destructive": "destructive"}
"""The kind of action, as margins name it, by the effect of its tool."""
LEAST = 0.5001
"""Share of right replies below which an action counts as lost: votes decide for the rival."""


class ActingTrial(Act):
    """An agent whose every action is drawn several times; the most frequent one is taken."""

    changes_no_decision: ClassVar = Act.changes_no_decision

    draws: Annotated[int, Field(ge=1, le=1_000)] = 5
    """Number of samples of each action."""

    def rule_for(self, task: Task) -> Rule:  # noqa: ARG002 - the same for every tool
        """The plurality of the samples."""
        return BestOf(self.draws)


class MeasuredAction(Struct, frozen=True, kw_only=True):
    """Actions of one kind in trials that succeeded."""

    kind: str
    """`read`, `write`, `destructive` or `end`."""
    actions: int
    p: Proportion
    """Share of the valid replies that are the action taken, over actions."""
    same_wrong: float
    """Share of the other replies of an action that are its most frequent other one: 1 if all errors are one."""


class AgentMeasurement(Struct, frozen=True, kw_only=True, dict=True):
    """What trials of an agent say of one model."""

    model: str
    run_id: str
    draws: int
    """Number of samples of each action."""
    trials: int
    succeeded: int
    """Number of trials that `check` finds right."""
    unseen: int
    """Number of other trials in which every action had all its votes: errors that no vote sees, and no margin mends."""
    actions: tuple[MeasuredAction, ...]
    calls: int
    cost_usd: float | None

    @cached_property
    def success(self) -> Proportion:
        """Share of the trials that succeed, with each action decided by plurality."""
        return proportion(self.succeeded, self.trials)

    def at(self, margins: Mapping[str, int]) -> tuple[Proportion, float]:
        """Compute the chance that a trial succeeds with margins by kind of action, and its calls.

        By the races of each kind at its measured p, all wrong replies being one that does harm, and the share of trials with errors that
        no vote sees.

        Raises:
            InvalidUsage: no trial succeeded, so nothing is known of the actions.
        """
        if not self.actions:
            raise InvalidUsage(f"no trial of {self.run_id!r} succeeded, so nothing is known of its actions")
        each = [(kind.kind, kind.actions / self.succeeded, kind.p) for kind in self.actions]
        missed = proportion(self.unseen, self.trials)
        shares = {
            end: (1 - getattr(missed, other))
            * trial_law([(kind, n, getattr(p, end)) for kind, n, p in each], margins)[0]
            for end, other in (("share", "share"), ("low", "high"), ("high", "low"))
        }
        return Proportion(**shares), trial_law([(kind, n, p.share) for kind, n, p in each], margins)[1]


def trial_law(actions: Sequence[tuple[str, float, float]], margins: Mapping[str, int]) -> tuple[float, float]:
    """Compute the chance that a trial succeeds, and its votes, by MAKER's races between the margins of an action and of its rival.

    The worst case: all wrong replies are one action that does harm, of the kind with the smallest margin.

    Args:
        actions: for each kind of action its number and the share of right replies.
        margins: the margin of each kind.
    """
    # An end too early is always possible, and so is each effect of the agent.
    rival = min(margins[kind] for kind in {*[kind for kind, _, _ in actions], "end"} - {"read"})
    lost = fsum(n * log1p(-min(_lost(p, margins[kind], rival), 1 - 1e-12)) for kind, n, p in actions)
    return exp(lost), fsum(n * uneven_race_votes(max(p, LEAST), margins[kind], rival) for kind, n, p in actions)


def _lost(p: float, k: int, rival: int) -> float:
    return uneven_race_lost(p, k, rival) if p >= LEAST else 1.0


def trials_in(reader: Reader, spec: str, result: Result) -> AgentMeasurement:
    """Read the trials of a run from its journal."""
    plan = plan_of(reader)
    task, strategy = plan.tasks[0], plan.strategy
    assert isinstance(task, AgentTask)
    assert isinstance(strategy, ActingTrial)
    right = [bool(value and value["correct"]) for value in result.value]
    by_kind: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    unseen = 0
    for number, succeeded in enumerate(right):
        taken = [*_actions(reader, task, number)]
        unseen += not succeeded and all(same == valid for _, same, valid, _ in taken)
        for kind, same, valid, rival in taken if succeeded else ():
            by_kind[kind].append((same, valid, rival))
    return AgentMeasurement(
        model=spec,
        run_id=result.run_id,
        draws=strategy.draws,
        trials=len(right),
        succeeded=sum(right),
        unseen=unseen,
        actions=tuple([_measured(kind, each) for kind, each in by_kind.items()]),
        calls=result.calls,
        cost_usd=result.cost_usd,
    )


def _actions(reader: Reader, task: AgentTask[Any], of_input: int) -> Iterator[tuple[str, int, int, int]]:
    """Yield the kind of each action of a trial, the votes for it, all votes, and the votes for its strongest rival."""
    decoder = decoder_of(Action)
    for step in count():
        recorded = reader.decision_at(f"{of_input}/step/{step}")
        if recorded is None or recorded.value is None:
            return
        action = decoder.decode(recorded.value)
        votes = Counter(
            task.vote_of(decoder.decode(each.value)) for each in recorded.ballots if isinstance(each, Ballot)
        )
        same = votes.pop(task.vote_of(action), 0)
        yield _kind(task, action), same, same + votes.total(), max(votes.values(), default=0)


def _kind(task: AgentTask[Any], action: Action) -> str:
    """Name the kind of an action: the most harmful one of its calls."""
    effects = [KINDS[task.toolbox.specs[call.tool].effect] for call in action.calls if call.tool != END]
    return max(effects, key=[*KINDS.values()].index, default="end")


def _measured(kind: str, actions: list[tuple[int, int, int]]) -> MeasuredAction:
    shares = [same / valid for same, valid, _ in actions if valid]
    others = sum(valid - same for same, valid, _ in actions)
    return MeasuredAction(
        kind=kind,
        actions=len(actions),
        p=proportion(sum(shares), max(1, len(shares))),
        same_wrong=sum(rival for _, _, rival in actions) / others if others else 1.0,
    )


def margins_of(strategy: Act) -> dict[str, int]:
    """Return the margin of each kind of action."""
    return {name.removeprefix("k_"): value for name, value in strategy.model_dump().items() if name.startswith("k_")}
