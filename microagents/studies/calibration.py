"""Calibrations of models on random steps of a task: what their votes will do, before a long run is paid for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Unpack

import msgspec
from msgspec import Struct

from microagents.actors.registry import TASKS, reference_to
from microagents.base.durations import quantile_s
from microagents.base.errors import InvalidUsage
from microagents.base.messages import address_of
from microagents.journal.reading import reader_of
from microagents.runs.arguments import check_arguments
from microagents.runs.driver.keywords import SharedKeywords, without_control
from microagents.runs.inspection.runs import recorded_result
from microagents.runs.references import references_in
from microagents.runs.result import Result, Results
from microagents.runs.settings import OneModel, validated
from microagents.runs.task_list import dump_options
from microagents.studies.input_plans import plans_of_inputs
from microagents.studies.measured import SHOWN_KS, Latency, ModelCalibration
from microagents.studies.sampling.agreement import Agreement
from microagents.studies.sampling.calibration import Calibrated, Calibration
from microagents.studies.sampling.input_calibration import InputCalibration
from microagents.studies.series import Series, SeriesOutcome, SeriesRun
from microagents.studies.states import States
from microagents.studies.study import check_studied, plans_of
from microagents.task import Task


class MissedTogether(Struct, frozen=True, kw_only=True):
    """Errors of two models at the same steps."""

    models: tuple[str, str]
    together: float
    """Share of the steps at which a sample of each is wrong."""
    independent: float
    """The same if the errors of the one said nothing of the other's."""


class CalibrationReport(Struct, frozen=True, kw_only=True):
    """The findings of one calibration."""

    outcome: SeriesOutcome
    reason: str | None
    """Why it ended early, in one sentence; None if it is completed."""
    task: str
    options: dict[str, Any]
    seed: int
    source: str
    """What the states of the steps are from."""
    models: tuple[ModelCalibration, ...]
    missed: tuple[MissedTogether, ...]
    recorded_at: str | None = None
    """When the first of the recorded runs began that gave all answers; None if a sample was drawn by this call."""

    def as_json(self, target: float) -> dict[str, Any]:
        """Build the object that ``--json`` prints."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__ if name != "models"}
        return {**found, "models": [_facts(each, target) for each in self.models]}


async def calibrate(
    task: Task | Sequence[Task],
    *,
    models: Sequence[OneModel],
    steps: int = 1_000,
    states: States | None = None,
    runs_dir: str | Path = "runs",
    run_id: str | None = None,
    on_model: Callable[[str], None] | None = None,
    **given: Unpack[SharedKeywords],
) -> CalibrationReport:
    """Calibrate models on random steps of a task, one after the other. The same call again continues it.

    Args:
        task: a chain with an oracle; or inputs that are one question each: problems, or chains of one step.
        models: the models, each on its own, all on the same steps.
        steps: number of steps, at most all.
        states: the states of the steps; by default the oracle's.
        runs_dir: the folder of journals; each model has one.
        run_id: prefix of the names of the models' runs; by default made from the arguments.
        on_model: called with the spec of each model as its run begins.
        given: see `study`.

    Raises:
        InvalidUsage: an argument is wrong; nothing was started.
        MicroagentsError: the run of a model failed, see `run`; the samples so far are kept.
    """
    check_arguments({"runs_dir": runs_dir, **given})
    if not models:
        raise InvalidUsage("a calibration needs at least one model")
    strategy, settings = validated(Calibration, "the calibration", {"steps": steps}), without_control(given)
    if not isinstance(task, Task):
        if states is not None:
            raise InvalidUsage("states belong to one chain; leave out either them or the list of inputs")
        plans = plans_of_inputs(task, strategy.steps, models, run_id=run_id, settings=settings)
        first, source = task[0], f"{len(task):,} inputs, each one step"
    else:
        check_studied(task, ", or take the states of an earlier run or of a file: --states")
        first, source = task, "the oracle" if states is None else states.source
        if states is not None:
            chosen = states.chosen(strategy.steps, given.get("seed", 0))
            strategy = strategy.model_copy(update={"steps": len(chosen), "states": chosen, "of": len(states.given)})
        plans = plans_of("calibrate", task, strategy, models, run_id=run_id, settings=settings)
    series = Series("calibration", [SeriesRun(*each) for each in plans.items()], Path(runs_dir), ended=("completed",))
    outcome, reason, begun = await series.do(given, on_model)
    found = [
        _findings(spec, result) for spec, result in zip(plans, begun, strict=False) if result.outcome == "completed"
    ]
    return CalibrationReport(
        outcome=outcome,
        reason=reason,
        task=TASKS.name_of(address_of(type(first))),
        options=dump_options(first) if isinstance(task, Task) else {},
        seed=plans[next(iter(plans))].settings.seed,
        source=source,
        models=tuple(found),
        missed=tuple([_missed(*each) for each in combinations(found, 2)]),
        recorded_at=series.recorded_at,
    )


def calibration_from(runs_dir: Path, run_id: str, task: Task | None = None) -> ModelCalibration:
    """Read a calibration from the journal of its run; if a task is given, of it, perhaps with other options, such as another size.

    Raises:
        InvalidUsage: the run is unknown, is not a completed calibration, or is another task's.
    """
    with reader_of(runs_dir, run_id) as reader:
        recipe, result, is_known = reader.experiment.recipe, recorded_result(reader), reader.is_known
    if recipe.strategy == reference_to(Agreement):
        raise InvalidUsage(f"run {run_id!r} had no oracle, and agreement by itself promises nothing")
    if recipe.strategy not in (reference_to(Calibration), reference_to(InputCalibration)):
        raise InvalidUsage(f"run {run_id!r} is not a calibration; make one: microagents calibrate {result.task}")
    own = result.task if task is None else TASKS.name_of(address_of(type(task)))
    if result.task != own:
        raise InvalidUsage(
            f"run {run_id!r} is a calibration of {result.task}, not of {own}; make one: microagents calibrate {own}"
        )
    if result.outcome != "completed":
        raise InvalidUsage(f"the calibration {run_id!r} has not ended; the command that began it continues it")
    if not is_known and (named := references_in([("model", result.models[0])])):
        raise InvalidUsage(
            f"you did not begin the calibration {run_id!r} here, and it gives {named[0]}, which may send your keys elsewhere; if you trust "
            f"it: microagents show {run_id} --code"
        )
    return _findings(result.models[0], result)


def _findings(spec: str, result: Result) -> ModelCalibration:
    values = result.value if isinstance(result.value, Results) else [result.value]
    found = msgspec.convert(list(values), list[Calibrated])
    account = result.account
    return ModelCalibration(
        model=spec,
        run_id=result.run_id,
        total=found[0].total,
        steps=tuple([step for each in found for step in each.steps]),
        calls=result.calls,
        input_tokens=account.input_tokens,
        output_tokens=account.output_tokens,
        cost_usd=result.cost_usd,
        cached_tokens=account.cached_tokens,
        prices=result.settings.prices,
        limits=account.limits.get(spec, {}),
        latency=_latency(result.account.durations),
    )


def _latency(durations: Mapping[int, int]) -> Latency | None:
    p50, p95, p99 = [quantile_s(durations, share) for share in (0.5, 0.95, 0.99)]
    return None if p50 is None or p95 is None or p99 is None else Latency(p50=p50, p95=p95, p99=p99)


def _missed(one: ModelCalibration, other: ModelCalibration) -> MissedTogether:
    rates = [{each.number: each.wrong / each.valid for each in model.steps if each.valid} for model in (one, other)]
    both = [(rate, rates[1][number]) for number, rate in rates[0].items() if number in rates[1]]
    count = max(1, len(both))
    means = [sum(pair[side] for pair in both) / count for side in (0, 1)]
    together = sum(left * right for left, right in both) / count
    return MissedTogether(models=(one.model, other.model), together=together, independent=means[0] * means[1])


def _facts(found: ModelCalibration, target: float) -> dict[str, Any]:
    kind, said = found.verdict(target)
    return {
        "model": found.model,
        "run_id": found.run_id,
        "steps": len(found.steps),
        "total": found.total,
        "draws": found.draws,
        "calls": found.calls,
        "cost_usd": found.cost_usd,
        "call_usd": found.call_usd,
        "input_tokens": found.input_tokens,
        "output_tokens": found.output_tokens,
        "latency": found.latency,
        "limits": found.limits,
        "p": found.p,
        "valid": found.valid,
        "correlation": found.rates.correlation,
        "hard": found.hard,
        "most_hard": found.most_hard(found.total),
        "mistakes": found.mistakes,
        "agreement": found.agreement,
        "chances": [found.chances(k) for k in SHOWN_KS],
        "condition": found.condition(found.total),
        "verdict": kind,
        "said": said,
    }
