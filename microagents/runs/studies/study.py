"""Studies of models on the steps of a task: a run for each model, and the analysis of what it recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, structs

from microagents.errors import InvalidUsage, JournalMismatch
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import journal_of, reader_of
from microagents.messages import address_of
from microagents.registry import TASKS, unknown
from microagents.runs.arguments import check_arguments
from microagents.runs.driver.budget import Budget
from microagents.runs.driver.execute import OnProgress, RunControl, execute_plan
from microagents.runs.driver.forecast import OnForecast, announce_forecast
from microagents.runs.inspection.runs import recorded_at, recorded_result
from microagents.runs.plan import Plan, experiment_of
from microagents.runs.result import Result
from microagents.runs.settings import OneModel, Settings, check_address, model_pools, strategy_of, validated
from microagents.runs.studies.analysis import Distances, Errors, Lookahead, Parts, distances_between, errors_in, lookahead_in, parts_in
from microagents.runs.task_list import dump_options
from microagents.strategies.study import Studied, Study
from microagents.task import ChainTask, Task
from microagents.user_code import called

Kind = Literal["errors", "lookahead", "distance", "parts"]
"""Error rates of single steps; accuracies of rollouts; distances between models; accuracies of the fields of a reply."""
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
    """None where a price is unknown."""
    flagged: int
    """Number of flagged samples. They count for nothing."""
    steps: int
    """Number of steps of the task."""
    errors: Errors | None = None
    lookahead: Lookahead | None = None
    parts: Parts | None = None


class StudyReport(Struct, frozen=True, kw_only=True):
    """The findings of one study."""

    outcome: Literal["completed", "stopped", "interrupted"]
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
    max_calls: int | None = None,
    max_tokens: int | None = None,
    max_cost_usd: float | None = None,
    max_time_s: float | None = None,
    on_model: Callable[[str], None] | None = None,
    on_progress: OnProgress | None = None,
    on_forecast: OnForecast | None = None,
    interrupt: asyncio.Event | None = None,
    terminate: asyncio.Event | None = None,
    **settings: Any,
) -> StudyReport:
    """Study models on every step of a task, one model after the other. The same call again continues where it ended.

    Args:
        task: a chain with an oracle.
        kind: what is studied.
        models: the models, each on its own.
        samples: number of samples of each step; of ``lookahead`` also the number of rollouts from each.
        horizon: number of steps in a rollout, for ``lookahead``; by default 8, or all steps of a shorter task.
        runs_dir: the folder of journals; each model has one.
        run_id: prefix of the names of the models' runs; by default made from the arguments.
        max_calls: stop after this many calls, over all models and sittings.
        max_tokens: stop before these calls use more tokens.
        max_cost_usd: stop before these calls cost more.
        max_time_s: stop this many seconds after the call.
        on_model: called with the spec of each model as its run begins.
        on_progress: called a few times a second with the account of the current run.
        on_forecast: called with the expected cost of all that is left, as for `run`.
        interrupt: once set, the study ends as ``interrupted`` after the calls in flight.
        terminate: once set, the study ends as ``interrupted`` at once.
        settings: other fields of `Settings` for all runs, such as ``seed``.

    Raises:
        InvalidUsage: an argument is wrong; nothing was started.
        MicroagentsError: the run of a model failed, see `run`; the samples so far are kept.
    """
    check_address(settings.get("address"), settings.get("runtime", "local"))
    check_arguments(runs_dir=runs_dir, on_progress=on_progress, on_forecast=on_forecast, interrupt=interrupt, terminate=terminate)
    _check_task(task)
    _check_kind(kind, models, samples)
    horizon = _horizon(task, kind, horizon)
    rollouts = {} if horizon is None else {"rollouts": samples, "horizon": horizon}
    strategy = validated(Study, "the study", {"samples": samples, **rollouts})
    limits = {"max_calls": max_calls, "max_tokens": max_tokens, "max_cost_usd": max_cost_usd, "max_time_s": max_time_s}
    plans = _plans(task, strategy, models, run_id, {**settings, **limits})
    control = RunControl(on_progress=on_progress, interrupt=interrupt, terminate=terminate)
    recorded = _recorded(plans.values(), Path(runs_dir))
    announce_forecast([plan for plan in plans.values() if _done(recorded.get(plan.settings.run_id)) is None], runs_dir, on_forecast)
    outcome, reason, results = await _draw(plans, recorded, Path(runs_dir), control, on_model or (lambda _: None))
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
        models=tuple([_findings(spec, results[spec], studied[spec], kind, horizon) for spec in results]),
        distances=distances_between(studied) if kind == "distance" and outcome == "completed" else None,
        recorded_at=recorded_at([_done(recorded.get(plan.settings.run_id)) for plan in plans.values()]),
    )


def _check_task(task: Task) -> None:
    """Refuse a task that has no steps, or whose replies cannot be judged.

    Raises:
        InvalidUsage: as above.
    """
    if not isinstance(task, ChainTask):
        raise InvalidUsage(f"a study asks the steps of a chain one by one, and {type(task).__name__} is no chain of steps")
    strategy_of(Study(), task, {})
    start = called(task.start)
    if called(task.done, start):
        raise InvalidUsage(f"{type(task).__name__} is done before its first step, so there is nothing to study")
    if called(task.oracle, start) is None:
        raise InvalidUsage(f"{type(task).__name__} has no oracle, so its replies cannot be judged; define the method `oracle`")


def _check_kind(kind: Kind, models: Sequence[OneModel], samples: int) -> None:
    """Refuse an unknown kind, and distances where there is nothing to compare.

    Raises:
        InvalidUsage: as above.
    """
    if kind not in KINDS:
        raise InvalidUsage(unknown("study", kind, KINDS))
    if not models:
        raise InvalidUsage("a study needs at least one model")
    if kind == "distance" and len(set(models)) < MIN_COMPARED:
        raise InvalidUsage("a distance is between two or more models; name each with --model SPEC")
    if kind == "distance" and samples < MIN_COMPARED:
        raise InvalidUsage(f"samples={samples!r} will not do: a distance needs two halves of the samples of each step")


def _horizon(task: Task, kind: Kind, given: int | None) -> int | None:
    """The number of steps in a rollout; None for a study without rollouts.

    Raises:
        InvalidUsage: the kind has no rollouts, or they would go beyond the end of the task.
    """
    if kind != "lookahead":
        if given is not None:
            raise InvalidUsage(f"horizon={given!r} belongs to the study lookahead; {kind} draws no rollouts")
        return None
    assert isinstance(task, ChainTask)
    total = called(task.steps)
    if given is not None and total is not None and given > total:
        raise InvalidUsage(f"horizon={given!r} goes beyond the end: {type(task).__name__} has {total:,} steps")
    return min(DEFAULT_HORIZON, total or DEFAULT_HORIZON) if given is None else given


def _plans(task: Task, strategy: Study, models: Sequence[OneModel], run_id: str | None, settings: Mapping[str, Any]) -> dict[str, Plan]:
    """The run of each model, by its spec."""
    plans = {}
    address = address_of(type(task))
    for model in models:
        given = model_pools(model, [strategy])
        shared = validated(Settings, "the study", {**settings, "models": given.pools, "run_id": run_id or "study"})
        spec = given.pools[""][0]
        studied = (address, dump_options(task), dump_options(strategy), shared.seed)
        prefix = run_id or f"study-{TASKS.name_of(address).lower()}-{_digest(studied)}"
        named = validated(Settings, "the study", {**shared.model_dump(), "run_id": f"{prefix}-{_digest(spec)}"})
        plans[spec] = Plan(tasks=[task], listed=False, strategy=strategy, settings=named, model_objects=given.objects)
    return plans


async def _draw(
    plans: Mapping[str, Plan], recorded: Mapping[str, Result], runs_dir: Path, control: RunControl, on_model: Callable[[str], None]
) -> tuple[Literal["completed", "stopped", "interrupted"], str | None, dict[str, Result]]:
    """Draw the samples of one model after the other, until one is stopped; returns the results of the completed runs."""
    results: dict[str, Result] = {}
    budget = Budget(next(iter(plans.values())).settings, recorded)
    for spec, plan in plans.items():
        run_id = plan.settings.run_id
        before = _done(recorded.get(run_id))
        if before is not None:
            results[spec] = before
            continue
        if any(event is not None and event.is_set() for event in (control.interrupt, control.terminate)):
            return "interrupted", f"interrupted before {spec}", results
        if (limit := budget.spent_before(run_id)) is not None:
            return "stopped", f"{limit} is reached before {spec}", results
        on_model(spec)
        settings = plan.settings.model_copy(update=budget.left_for(run_id))
        result = await execute_plan(structs.replace(plan, settings=settings), runs_dir=runs_dir, control=control)
        budget.take(result)
        if result.outcome == "interrupted":
            return "interrupted", f"interrupted in {spec}", results
        if result.outcome != "completed":
            limit = budget.reached(result)
            return "stopped", f"{limit} is reached in {spec}" if limit else f"stopped in {spec}: {result.reason}", results
        results[spec] = result
    return "completed", None, results


def _recorded(plans: Iterable[Plan], runs_dir: Path) -> dict[str, Result]:
    """The results of runs that have journals, by their names.

    Raises:
        JournalMismatch: a journal belongs to another study; nothing was started.
    """
    found = {}
    for plan in plans:
        run_id = plan.settings.run_id
        if holds_nothing(journal_of(runs_dir, run_id)):
            continue
        with reader_of(runs_dir, run_id) as reader:
            try:
                reader.changes_to(*experiment_of(plan), ())
            except JournalMismatch as error:
                raise error.with_remedy(
                    f"run {run_id} belongs to another study, and a study changes no run; give another --run-id"
                ) from None
            found[run_id] = recorded_result(reader)
    return found


def _done(result: Result | None) -> Result | None:
    """A recorded result that needs no more work."""
    return result if result is not None and result.outcome == "completed" else None


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


def _digest(value: object) -> str:
    return blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=4).hexdigest()
