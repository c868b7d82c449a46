"""Trials of an agent: each action is drawn several times and decided by plurality, and the task's `check` judges the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import count
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Struct, structs
from pydantic import Field

from microagents.base.errors import InvalidUsage
from microagents.elections.election import Ballot
from microagents.elections.laws import Proportion, proportion
from microagents.elections.race_tables import ERRORS, Array, Raced, uneven_races
from microagents.elections.rules import BestOf, Rule
from microagents.elections.step_rates import SeenStep, StepRates, ends_of
from microagents.journal.reading import Reader
from microagents.journal.sharded import reader_of
from microagents.replies.chat import decoder_of
from microagents.runs.plan import plan_of
from microagents.runs.result import Result
from microagents.studies.measured import proportion_of
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import END, Action
from microagents.systems.agents.agent import AgentTask
from microagents.task import Task

KINDS = {"read_only": "read", "idempotent": "write", "destructive": "destructive", "agent": "destructive"}
"""The kind of action, as margins name it, by the effect of its tool."""


class ActingTrial(Act):
    """An agent whose every action is drawn several times; the most frequent one is taken."""

    changes_no_decision: ClassVar = Act.changes_no_decision

    draws: Annotated[int, Field(ge=1, le=1_000)] = 5
    """Number of samples of each action."""

    def rule_for(self, task: Task) -> Rule:  # noqa: ARG002 - the same for every tool
        """The plurality of the samples."""
        return BestOf(self.draws)


@lru_cache(maxsize=16)
def rates_of(seen: tuple[SeenStep, ...]) -> StepRates:
    """Return the error rates of actions by the votes for each."""
    return StepRates(seen, len(seen))


class MeasuredAction(Struct, frozen=True, kw_only=True):
    """Actions of one kind. Of a trial that fails, they are those up to the one with the least lead, which counts as the wrong one."""

    kind: str
    """`read`, `write`, `destructive` or `end`."""
    a_trial: float
    """Mean number in a trial that succeeds."""
    seen: tuple[SeenStep, ...]
    """Votes for each action."""
    p: Proportion
    """Share of the valid replies that are the right action, over actions."""
    same_wrong: float
    """Share of the other replies of an action that are its most frequent other one: 1 if all errors are one."""


class AgentMeasurement(Struct, frozen=True, kw_only=True, dict=True):
    """Findings from an agent's trials about one model, or about a pool."""

    models: tuple[str, ...]
    """One model, or those of a pool, whose samples alternate."""
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

    @property
    def name(self) -> str:
        """Names of the models."""
        return ", ".join(self.models)

    @cached_property
    def success(self) -> Proportion:
        """Share of the trials that succeed, with each action decided by plurality."""
        return proportion(self.succeeded, self.trials)

    def at(self, margins: Mapping[str, int]) -> tuple[Proportion, float]:
        """Compute the chance that a trial succeeds with margins by kind of action, and its calls.

        By the races of each kind at error rates that differ from action to action as its votes say, all wrong replies of an action being
        one that does harm.

        Raises:
            InvalidUsage: no trial succeeded, so nothing is known of the actions.
        """
        if not self.succeeded:
            raise InvalidUsage(f"no trial of {self.run_id!r} succeeded, so nothing is known of its actions")
        rates = [(each, rates_of(each.seen)) for each in self.actions]
        law = [(each.kind, Raced(each.a_trial, ERRORS, of.populations, of.replies[1])) for each, of in rates]
        kept, calls = trial_law(law, margins)
        return proportion_of(ends_of(kept)), calls


def trial_law(actions: Sequence[tuple[str, Raced]], margins: Mapping[str, int]) -> tuple[Array, float]:
    """Compute the chance that a trial succeeds, by draw, and its calls; for kinds of action, by the margin of each.

    The worst case: all wrong replies are one action that does harm, of the kind with the smallest margin.
    """
    # An end too early is always possible, and so is each effect of the agent.
    rival = min(margins[kind] for kind in {*(kind for kind, _ in actions), "end"} - {"read"})
    return uneven_races([(margins[kind], raced) for kind, raced in actions], rival)


def trials_in(runs_dir: Path, result: Result) -> AgentMeasurement:
    """Read the trials of a run from its journal."""
    with reader_of(runs_dir, result.run_id) as reader:
        plan = plan_of(reader)
        task, strategy = plan.tasks[0], plan.strategy
        assert isinstance(task, AgentTask)
        assert isinstance(strategy, ActingTrial)
        trials = [[*_actions(reader, task, number)] for number in range(len(result.recorded))]
    right = [bool(value and value["correct"]) for value in result.recorded]
    seen, done = defaultdict[str, list[SeenStep]](list), Counter[str]()
    unseen = 0
    for taken, succeeded in zip(trials, right, strict=True):
        unseen += not succeeded and all(each.right == each.valid for _, each in taken)
        if succeeded:
            done.update(kind for kind, _ in taken)
        elif taken:
            leads = [each.right - max(each.wrong, default=0) for _, each in taken]
            at = max(range(len(taken)), key=lambda at: (-leads[at], at))
            kind, least = taken[at]
            taken[at:] = [(kind, _as_wrong(least))]
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
