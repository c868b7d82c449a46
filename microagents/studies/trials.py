"""Trials of an agent: it acts as in a run, and the task's `check` judges the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import count
from pathlib import Path

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.elections.election import Ballot
from microagents.elections.laws import Proportion, proportion
from microagents.journal.reading import Reader
from microagents.journal.sharded import reader_of
from microagents.replies.reply_forms import decoder_of
from microagents.runs.plan import plan_of
from microagents.runs.result import Result
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import Action
from microagents.systems.agents.agent import AgentTask


class AgentMeasurement(Struct, frozen=True, kw_only=True, dict=True):
    """Findings from an agent's trials about one model, or about a pool, with some margins."""

    models: tuple[str, ...]
    """One model, or those of a pool, whose samples alternate."""
    run_id: str
    margins: Mapping[str, int]
    """The margin of each kind of action."""
    trials: int
    succeeded: int
    """Number of trials that `check` finds right."""
    unseen: int
    """Number of other trials in which all votes on every action agreed: errors that no vote sees, and no margin mends."""
    calls: int
    cost_usd: float | None

    @property
    def name(self) -> str:
        """Names of the models."""
        return ", ".join(self.models)

    @cached_property
    def success(self) -> Proportion:
        """Share of the trials that succeed."""
        return proportion(self.succeeded, self.trials)


def check_judged(task: AgentTask) -> None:
    """Refuse an agent whose trials nothing judges.

    Raises:
        InvalidUsage: it has no `check`.
    """
    if type(task).check is AgentTask.check:
        raise InvalidUsage(f"{type(task).__name__} has no method `check`, so its trials cannot be judged")


def trials_in(runs_dir: Path, result: Result) -> AgentMeasurement:
    """Read the trials of a run of many inputs from its journal.

    Raises:
        InvalidUsage: nothing judges them.
    """
    with reader_of(runs_dir, result.run_id) as reader:
        plan = plan_of(reader)
        task, strategy = plan.tasks[0], plan.strategy
        assert isinstance(task, AgentTask)
        assert isinstance(strategy, Act)
        check_judged(task)
        failed = [number for number, value in enumerate(result.recorded) if not (value and value["correct"])]
        unseen = sum(all(_is_unanimous(reader, task, number)) for number in failed)
    trials = len(result.recorded)
    return AgentMeasurement(
        models=tuple(result.models),
        run_id=result.run_id,
        margins=margins_of(strategy),
        trials=trials,
        succeeded=trials - len(failed),
        unseen=unseen,
        calls=result.calls,
        cost_usd=result.cost_usd,
    )


def _is_unanimous(reader: Reader, task: AgentTask, of_input: int) -> Iterator[bool]:
    """Yield for each decided action of a trial whether all votes on it agreed."""
    decode = decoder_of(Action).decode
    for step in count():
        recorded = reader.decision_at(f"{of_input}/step/{step}")
        if recorded is None or recorded.value is None:
            return
        votes = {task.vote_of(decode(each.value)) for each in recorded.ballots if isinstance(each, Ballot)}
        yield len(votes) == 1


def margins_of(strategy: Act) -> dict[str, int]:
    """Return the margin of each kind of action."""
    return {name.removeprefix("k_"): value for name, value in strategy.model_dump().items() if name.startswith("k_")}
