"""Trials of an agent: each action is drawn several times and decided by plurality, and the task's `check` judges the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any, ClassVar

from msgspec import structs
from pydantic import Field

from microagents.elections.election import Ballot
from microagents.elections.rules import BestOf, Rule
from microagents.elections.step_rates import SeenStep
from microagents.journal.reading import Reader
from microagents.replies.chat import decoder_of
from microagents.runs.plan import plan_of
from microagents.runs.result import Result
from microagents.studies.measured import proportion_of
from microagents.studies.measured_agents import AgentMeasurement, MeasuredAction, rates_of
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import END, Action
from microagents.systems.agents.agent import AgentTask
from microagents.task import Task

KINDS = {"read_only": "read", "idempotent": "write", "destructive": "destructive"}
"""The kind of action, as margins name it, by the effect of its tool."""


class ActingTrial(Act):
    """An agent whose every action is drawn several times; the most frequent one is taken."""

    changes_no_decision: ClassVar = Act.changes_no_decision

    draws: Annotated[int, Field(ge=1, le=1_000)] = 5
    """Number of samples of each action."""

    def rule_for(self, task: Task) -> Rule:  # noqa: ARG002 - the same for every tool
        """The plurality of the samples."""
        return BestOf(self.draws)


def trials_in(reader: Reader, result: Result) -> AgentMeasurement:
    """Read the trials of a run from its journal."""
    plan = plan_of(reader)
    task, strategy = plan.tasks[0], plan.strategy
    assert isinstance(task, AgentTask)
    assert isinstance(strategy, ActingTrial)
    right = [bool(value and value["correct"]) for value in result.value]
    seen, done = defaultdict[str, list[SeenStep]](list), Counter[str]()
    unseen = 0
    for number, succeeded in enumerate(right):
        taken = [*_actions(reader, task, number)]
        unseen += not succeeded and all(each.right == each.valid for _, each in taken)
        if succeeded:
            done.update(kind for kind, _ in taken)
        elif taken:
            leads = [each.right - max(each.wrong, default=0) for _, each in taken]
            at = max(range(len(taken)), key=lambda at: (-leads[at], at))
            kind, least = taken[at]
            taken = [*taken[:at], (kind, _as_wrong(least))]
        for kind, each in taken:
            seen[kind].append(each)
    return AgentMeasurement(
        models=tuple(result.models),
        run_id=result.run_id,
        draws=strategy.draws,
        trials=len(right),
        succeeded=sum(right),
        unseen=unseen,
        actions=tuple([_measured(kind, each, done[kind] / max(1, sum(right))) for kind, each in seen.items()]),
        calls=result.calls,
        cost_usd=result.cost_usd,
    )


def _actions(reader: Reader, task: AgentTask[Any], of_input: int) -> Iterator[tuple[str, SeenStep]]:
    """Yield the kind of each action of a trial, and its votes, as if the one taken was right."""
    decoder = decoder_of(Action)
    for step in count():
        recorded = reader.decision_at(f"{of_input}/step/{step}")
        if recorded is None or recorded.value is None:
            return
        action = decoder.decode(recorded.value)
        votes = Counter(
            task.vote_of(decoder.decode(each.value)) for each in recorded.ballots if isinstance(each, Ballot)
        )
        right = votes.pop(task.vote_of(action), 0)
        flagged = len(recorded.ballots) - right - votes.total()
        yield _kind(task, action), SeenStep(right=right, wrong=tuple(votes.values()), flagged=flagged, is_own=False)


def _as_wrong(seen: SeenStep) -> SeenStep:
    """Take the action that was taken for the most frequent wrong one, and its strongest rival for the right one."""
    right, *others = sorted(seen.wrong, reverse=True) or [0]
    return structs.replace(seen, right=right, wrong=(seen.right, *others))


def _kind(task: AgentTask[Any], action: Action) -> str:
    """Name the kind of an action: the most harmful one of its calls."""
    effects = [KINDS[task.toolbox.specs[call.tool].effect] for call in action.calls if call.tool != END]
    return max(effects, key=[*KINDS.values()].index, default="end")


def _measured(kind: str, seen: list[SeenStep], a_trial: float) -> MeasuredAction:
    wrong = [each.wrong for each in seen if any(each.wrong)]
    return MeasuredAction(
        kind=kind,
        a_trial=a_trial,
        seen=tuple(seen),
        p=proportion_of(rates_of(tuple(seen)).p),
        same_wrong=sum(map(max, wrong)) / sum(map(sum, wrong)) if wrong else 1.0,
    )


def margins_of(strategy: Act) -> dict[str, int]:
    """Return the margin of each kind of action."""
    return {name.removeprefix("k_"): value for name, value in strategy.model_dump().items() if name.startswith("k_")}
