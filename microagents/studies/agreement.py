"""Agreement of models with themselves on given states: what can be known of their errors if no reply is known to be right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import Any, Unpack

import msgspec
from msgspec import Struct

from microagents.actors.registry import TASKS
from microagents.base.errors import InvalidUsage
from microagents.base.messages import address_of
from microagents.elections.error_rates import exact_interval
from microagents.runs.arguments import check_arguments
from microagents.runs.driver.keywords import SharedKeywords, without_control
from microagents.runs.result import Result
from microagents.runs.settings import OneModel
from microagents.runs.task_list import dump_options
from microagents.studies.analysis import Proportion
from microagents.studies.sampling.agreement import Agreed, AgreedStep, Agreement
from microagents.studies.sampling.calibration import FIRST
from microagents.studies.series import Series, SeriesOutcome, SeriesRun
from microagents.studies.states import States
from microagents.studies.study import plans_of
from microagents.task import Task

UNKNOWN = (
    "whether the replies are right is not known: a step that a model gets wrong the same way each time looks like an easy one. So there "
    "is no chance and no k; they need the task's `oracle`"
)
"""What agreement cannot show."""


class ModelAgreement(Struct, frozen=True, kw_only=True, dict=True):
    """What was found about one model."""

    model: str
    run_id: str
    total: int
    """Number of states that the sampled ones were chosen from."""
    steps: tuple[AgreedStep, ...]
    calls: int
    cost_usd: float | None
    """None if a price is unknown."""

    @cached_property
    def agreement(self) -> Proportion:
        """Share of the steps at which both samples give the same vote, among those with two valid ones.

        Raises:
            InvalidUsage: there are none.
        """
        compared = [each.same for each in self.steps if each.same is not None]
        if not compared:
            raise InvalidUsage(f"{self.model} gave no two valid replies to any of {len(self.steps):,} steps")
        return _proportion(sum(compared), len(compared))

    @property
    def p_low(self) -> float:
        """Lower bound of the share of right replies if each step's most frequent reply is right.

        Two samples of a step agree with the chance of the sum of squares of the shares of its replies, which is at most the largest share.
        """
        return self.agreement.low

    @property
    def p_high(self) -> float:
        """Upper bound of the share of right replies, whatever is right: of a right share p, two samples agree in at least its square."""
        return sqrt(self.agreement.high)

    @cached_property
    def valid(self) -> Proportion:
        """Share of the replies without a red flag, over steps."""
        return _proportion(sum(each.valid for each in self.steps) / FIRST, len(self.steps))

    @cached_property
    def as_decided(self) -> Proportion | None:
        """Share of the valid replies that an earlier run decided, over steps; None without such a run."""
        shares = [each.as_decided / each.valid for each in self.steps if each.as_decided is not None and each.valid]
        return _proportion(sum(shares), len(shares)) if shares else None

    @property
    def differing(self) -> list[int]:
        """Numbers of the steps at which the samples differ."""
        return [each.number for each in self.steps if each.same is False]

    def as_json(self) -> dict[str, Any]:
        """Build the object that ``--json`` prints."""
        return {
            "model": self.model,
            "run_id": self.run_id,
            "steps": len(self.steps),
            "total": self.total,
            "calls": self.calls,
            "cost_usd": self.cost_usd,
            "agreement": self.agreement,
            "p_low": self.p_low,
            "p_high": self.p_high,
            "valid": self.valid,
            "as_decided": self.as_decided,
            "differing": self.differing,
        }


class AgreementReport(Struct, frozen=True, kw_only=True):
    """The findings on given states."""

    outcome: SeriesOutcome
    reason: str | None
    """Why it ended early, in one sentence; None if it is completed."""
    task: str
    options: dict[str, Any]
    seed: int
    source: str
    """What the states are from."""
    models: tuple[ModelAgreement, ...]
    recorded_at: str | None = None
    """When the first of the recorded runs began that gave all answers; None if a sample was drawn by this call."""

    def as_json(self) -> dict[str, Any]:
        """Build the object that ``--json`` prints."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__ if name != "models"}
        return {**found, "models": [each.as_json() for each in self.models], "unknown": UNKNOWN}


async def measure_agreement(
    task: Task,
    *,
    states: States,
    models: Sequence[OneModel],
    steps: int = 1_000,
    runs_dir: str | Path = "runs",
    run_id: str | None = None,
    on_model: Callable[[str], None] | None = None,
    **given: Unpack[SharedKeywords],
) -> AgreementReport:
    """Ask models twice in random ones of given states, and compare the replies. The same call again continues it.

    Args:
        task: a chain. It needs no oracle.
        states: the states.
        models: the models, each on its own, all on the same states.
        steps: number of states, at most all.
        runs_dir: the folder of journals; each model has one.
        run_id: prefix of the names of the models' runs; by default made from the arguments.
        on_model: called with the spec of each model as its run begins.
        given: see `study`.

    Raises:
        InvalidUsage: an argument is wrong; nothing was started.
        MicroagentsError: the run of a model failed, see `run`; the samples so far are kept.
    """
    check_arguments({"runs_dir": runs_dir, **given})
    if not models or steps < 1:
        raise InvalidUsage("a calibration needs at least one model and one step")
    strategy = Agreement(states=states.chosen(steps, given.get("seed", 0)))
    plans = plans_of("agreement", task, strategy, models, run_id=run_id, settings=without_control(given))
    series = Series("calibration", [SeriesRun(*each) for each in plans.items()], Path(runs_dir), ended=("completed",))
    outcome, reason, begun = await series.do(given, on_model)
    return AgreementReport(
        outcome=outcome,
        reason=reason,
        task=TASKS.name_of(address_of(type(task))),
        options=dump_options(task),
        seed=plans[next(iter(plans))].settings.seed,
        source=states.source,
        models=tuple(
            [
                _findings(spec, result, len(states.given))
                for spec, result in zip(plans, begun, strict=False)
                if result.outcome == "completed"
            ]
        ),
        recorded_at=series.recorded_at,
    )


def _findings(spec: str, result: Result, total: int) -> ModelAgreement:
    found = msgspec.convert(result.value, Agreed)
    return ModelAgreement(
        model=spec,
        run_id=result.run_id,
        total=total,
        steps=found.steps,
        calls=result.calls,
        cost_usd=result.cost_usd,
    )


def _proportion(found: float, steps: int) -> Proportion:
    low, high = exact_interval(found, steps)
    return Proportion(share=found / steps, low=low, high=high)
