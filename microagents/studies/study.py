"""Studies of models on the steps of a task: a run for each model, and the analysis of what it recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, get_args

import msgspec
from msgspec import Struct, structs

from microagents.actors.registry import TASKS, unknown
from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage
from microagents.base.messages import address_of
from microagents.base.user_code import called
from microagents.journal.reading import reader_of
from microagents.runs.arguments import check_arguments
from microagents.runs.driver.keywords import SharedKeywords, without_control
from microagents.runs.plan import RunPlan
from microagents.runs.result import Result
from microagents.runs.settings import OneModel, Settings, check_for_ray, model_pools, strategy_of, validated
from microagents.runs.task_list import dump_options
from microagents.studies.analysis import (
    Distances,
    Errors,
    FieldAccuracies,
    RolloutAccuracy,
    distances_between,
    errors_in,
    lookahead_in,
    parts_in,
)
from microagents.studies.flags import FlagFindings, flags_in
from microagents.studies.sampling.study import Studied, Study
from microagents.studies.series import Series, SeriesOutcome, SeriesRun, short_digest
from microagents.task import ChainTask, Task

Kind = Literal["errors", "lookahead", "distance", "parts", "flags"]
"""Error rates of single steps; accuracies of rollouts; distances between models; accuracies of the fields of a reply; what flags gain."""
KINDS: tuple[Kind, ...] = get_args(Kind)
DEFAULT_HORIZON = 8
MIN_COMPARED = 2
"""Models, and samples of each step, that distances need."""


class ModelStudy(Struct, frozen=True, kw_only=True):
    """What a study found about one model."""

    model: str
    run_id: str
    calls: int
    cost_usd: float | None
    """None if a price is unknown."""
    flagged: int
    """Number of flagged samples. They count for nothing."""
    steps: int
    """Number of steps of the task."""
    errors: Errors | None = None
    lookahead: RolloutAccuracy | None = None
    parts: FieldAccuracies | None = None
    flags: FlagFindings | None = None


class StudyReport(Struct, frozen=True, kw_only=True):
    """Findings of one study."""

    outcome: SeriesOutcome
    reason: str | None
    """Why the study ended early, in one sentence; None if it is completed."""
    kind: Kind
    task: str
    options: dict[str, Any]
    """Options of the task."""
    seed: int
    samples: int
    """Number of samples of each step; of `lookahead` also the number of rollouts from each."""
    horizon: int | None
    """Number of steps in a rollout; None without rollouts."""
    models: tuple[ModelStudy, ...]
    """The models whose samples are complete, in the order given."""
    distances: Distances | None = None
    recorded_at: str | None = None
    """When the first of the recorded runs began that gave all answers; None if a sample was drawn by this call."""


async def study(
    task: Task,
    kind: Kind,
    *,
    models: Sequence[OneModel],
    samples: int = 20,
    horizon: int | None = None,
    runs_dir: str | Path = "runs",
    run_id: str | None = None,
    on_model: Callable[[str], None] | None = None,
    **given: Unpack[SharedKeywords],
) -> StudyReport:
    """Study models on every step of a task, one model after the other. The same call again continues it.

    Args:
        task: a chain with an oracle.
        kind: what is studied.
        models: the models, each on its own.
        samples: number of samples of each step; of ``lookahead`` also the number of rollouts from each.
        horizon: number of steps in a rollout, for ``lookahead``; by default 8, or all steps of a shorter task.
        runs_dir: the folder of journals; each model has one.
        run_id: prefix of the names of the models' runs; by default made from the arguments.
        on_model: called with the spec of each model as its run begins.
        given: callbacks (`RunControl`), which get the run that is done, and the expected cost of all that is left; and fields of `Settings`
            for all runs, such as ``seed``. The limits hold over all models and sittings.

    Raises:
        InvalidUsage: an argument is wrong; nothing was started.
        MicroagentsError: the run of a model failed, see `run`; the samples so far are kept.
    """
    check_arguments({"runs_dir": runs_dir, **given})
    check_studied(task)
    _check_kind(kind, models, samples)
    horizon = _horizon(task, kind, horizon)
    rollouts = {} if horizon is None else {"rollouts": samples, "horizon": horizon}
    strategy = validated(Study, "the study", {"samples": samples, **rollouts})
    settings = without_control(given)
    if kind == "flags":  # the texts are read again, so all are kept, in a run of its own
        settings = {**settings, "keep_texts": "all"}
    runs = "study-flags" if kind == "flags" else "study"
    plans = plans_of(runs, task, strategy, models, run_id=run_id, settings=settings)
    series = Series("study", [SeriesRun(*each) for each in plans.items()], Path(runs_dir), ended=("completed",))
    outcome, reason, begun = await series.do(given, on_model)
    results = {spec: result for spec, result in zip(plans, begun, strict=False) if result.outcome == "completed"}
    studied = {spec: msgspec.convert(result.value, Studied) for spec, result in results.items()}
    return StudyReport(
        outcome=outcome,
        reason=reason,
        kind=kind,
        task=TASKS.name_of(address_of(type(task))),
        options=dump_options(task),
        seed=plans[next(iter(plans))].settings.seed,
        samples=samples,
        horizon=horizon,
        models=tuple(
            [
                structs.replace(
                    _findings(spec, results[spec], studied[spec], kind, horizon),
                    flags=_flags(task, Path(runs_dir), results[spec]) if kind == "flags" else None,
                )
                for spec in results
            ]
        ),
        distances=distances_between(studied) if kind == "distance" and outcome == "completed" else None,
        recorded_at=series.recorded_at,
    )


def check_studied(task: Task, otherwise: str = "") -> None:
    """Refuse a task whose steps cannot be studied; ``otherwise`` is what can be done without an oracle.

    Raises:
        InvalidUsage: it is not a chain, has no step, or has no oracle.
    """
    if not isinstance(task, ChainTask):
        raise InvalidUsage(
            f"a study asks the steps of a chain one by one, and {type(task).__name__} is not a chain of steps"
        )
    strategy_of(Study(), task, {})
    start = called(task.start)
    if called(task.done, start):
        raise InvalidUsage(f"{type(task).__name__} is done before its first step, so there is nothing to study")
    if called(task.oracle, start) is None:
        raise InvalidUsage(
            f"{type(task).__name__} has no oracle, so its replies cannot be judged; define the method `oracle`{otherwise}"
        )


def _check_kind(kind: Kind, models: Sequence[OneModel], samples: int) -> None:
    if kind not in KINDS:
        raise InvalidUsage(unknown("study", kind, KINDS))
    if not models:
        raise InvalidUsage("a study needs at least one model")
    if kind == "distance" and len(set(models)) < MIN_COMPARED:
        raise InvalidUsage("a distance is between two or more models; name each with --model SPEC")
    if kind == "distance" and samples < MIN_COMPARED:
        raise InvalidUsage(f"samples must be at least 2 for a distance, which compares their halves, not {samples!r}")


def _horizon(task: Task, kind: Kind, given: int | None) -> int | None:
    """Return the number of steps in a rollout; None for a study without rollouts."""
    if kind != "lookahead":
        if given is not None:
            raise InvalidUsage(f"horizon={given!r} belongs to the study lookahead; {kind} draws no rollouts")
        return None
    assert isinstance(task, ChainTask)
    total = called(task.steps)
    if given is not None and total is not None and given > total:
        raise InvalidUsage(f"horizon={given!r} goes beyond the end: {type(task).__name__} has {total:,} steps")
    return min(DEFAULT_HORIZON, total or DEFAULT_HORIZON) if given is None else given


def plans_of(
    kind: str,
    task: Task,
    strategy: Strategy,
    models: Sequence[OneModel],
    *,
    run_id: str | None,
    settings: Mapping[str, Any],
) -> dict[str, RunPlan]:
    """Build a plan for each model, by its spec. The kind of study begins the names of the runs."""
    plans = {}
    address = address_of(type(task))
    for model in models:
        given = model_pools(model, [strategy])
        shared = validated(Settings, f"the {kind}", {**settings, "models": given.pools, "run_id": run_id or kind})
        check_for_ray(settings, shared.runtime)
        spec = given.pools[""][0]
        studied = (address, dump_options(task), dump_options(strategy), shared.seed)
        prefix = run_id or f"{kind}-{TASKS.name_of(address).lower()}-{short_digest(studied)}"
        named = validated(Settings, f"the {kind}", {**shared.model_dump(), "run_id": f"{prefix}-{short_digest(spec)}"})
        plans[spec] = RunPlan(
            tasks=[task], listed=False, strategy=strategy, settings=named, model_objects=given.objects
        )
    return plans


def _flags(task: Task, runs_dir: Path, result: Result) -> FlagFindings:
    assert isinstance(task, ChainTask)
    with reader_of(runs_dir, result.run_id) as reader:
        return flags_in(reader, task)


def _findings(spec: str, result: Result, studied: Studied, kind: Kind, horizon: int | None) -> ModelStudy:
    return ModelStudy(
        model=spec,
        run_id=result.run_id,
        calls=result.calls,
        cost_usd=result.cost_usd,
        flagged=sum(result.account.flagged.values()),
        steps=len(studied.steps),
        errors=errors_in(studied) if kind in ("errors", "distance") else None,
        lookahead=None if horizon is None else lookahead_in(studied, horizon),
        parts=parts_in(studied) if kind == "parts" else None,
    )
