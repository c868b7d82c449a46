"""Execution of a plan in the driver's process, from its checks to its result. Roles, runtime and journal meet only here."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from microagents.actors.registry import RUNTIMES
from microagents.actors.role import Context, Deployment
from microagents.base.aio import finish
from microagents.base.errors import (
    Aborted,
    InvalidDefinition,
    InvalidUsage,
    JournalGone,
    MicroagentsError,
    NoHandler,
    RoleFailed,
    Stopped,
    TaskFailed,
)
from microagents.base.logs import log
from microagents.journal.ending import RunEnding
from microagents.journal.experiment import Experiment
from microagents.journal.messages import Account, InputEnding, Report
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import Reader
from microagents.journal.sharded import open_run
from microagents.journal.sitting import JournalConfig
from microagents.roles.keeper import End, Keeper
from microagents.runs.driver.batch import Batch, conduct_single_input, leave_effects, undecided_elections
from microagents.runs.driver.conducting import INTERRUPTED, conduct_until_end, report_progress, unless_ended
from microagents.runs.driver.deploying import deployments_of
from microagents.runs.driver.following import follow_solution, is_followed
from microagents.runs.driver.forecast import Forecast, forecast_of
from microagents.runs.driver.keywords import RunControl
from microagents.runs.driver.reuse import reused_samples
from microagents.runs.inspection.runs import recorded_result, remove_run
from microagents.runs.judging import accuracy_of
from microagents.runs.plan import RunPlan, check_batches, experiment_of
from microagents.runs.result import Result, facts_in, results_of
from microagents.runs.settings import check_promised, solver_pool
from microagents.runs.task_list import numbers_of
from microagents.runs.words.money import specs_in
from microagents.runtimes.dispatcher import RoleMessenger
from microagents.runtimes.runtime import Runtime
from microagents.systems.agents.agent import AgentTask
from microagents.systems.chains.known_inputs import check_oracle
from microagents.task import near_misses
from microagents.telemetry.providers import telemetry_of

_RESUMES = re.compile(r"^(?:(?:decide it yourself|say `microagents decide) .*)?resume(?: it| the run)?\b")
"""The beginning of advice to resume a run."""
CANCELLED = "the program that did it cancelled it; all decisions so far are kept"
IN_SHARDS = "microagents.shards.sharded_run:execute_in_shards"
YOUNG_OBJECTS = 50_000
"""New objects after which Python's garbage collector runs while a run of this process is open."""
_thresholds: list[tuple[int, int, int]] = []
"""For each open run of this process, the thresholds of the collector before the first of them."""


async def execute_plan(
    plan: RunPlan,
    journal: Path | None,
    *,
    only: Sequence[int] | None = None,
    accepted: Sequence[str] = (),
    control: RunControl,
) -> Result:
    """Begin a run or continue it, until it ends. A completed run is answered from its journal.

    Among many inputs it does those that are not completed, or ``only`` some; ``accepted`` fields may differ from the recorded experiment.
    """
    experiment, own = experiment_of(plan)
    if journal is not None and (completed := completed_result(journal, experiment, own, accepted)) is not None:
        return structs.replace(completed, source=type(plan.tasks[0]))
    check_plan(plan, journal)
    if plan.shards:
        in_shards = RUNTIMES.find_function(IN_SHARDS)  # on a higher floor
        found: Result = await in_shards(plan, journal, experiment, own, only=only, accepted=accepted, control=control)
        return found
    forecast = told_forecast(plan, journal, control)
    if plan.listed:
        batch = Batch(plan, journal, only=only, on_ending=control.get("on_ending"))
    else:
        batch = None
    context, began_s = plan.context(), time.monotonic()
    async with AsyncExitStack() as stack:
        telemetry = telemetry_of(
            context.run_id,
            type(plan.tasks[0]).__name__,
            specs_in(plan.settings["models"]),
            plan.settings["otel_sample"],
        )
        if telemetry is not None:
            context = structs.replace(context, tracing=stack.enter_context(telemetry).tracing())
        stack.enter_context(rare_garbage_collection())
        stack.enter_context(_no_empty_journal(journal))
        reused, saved_usd = reused_samples(plan, journal)
        journaling = JournalConfig(
            path=journal,
            experiment=experiment,
            own=own,
            numbers=numbers_of(plan.tasks),
            accepted=tuple(accepted),
            reused=tuple(reused),
            saved_usd=saved_usd,
            full=_needs_full_durability(plan),
        )
        options = {
            "journaling": journaling,
            "expected_usd": forecast and forecast.cost_usd,
            "promise": forecast and next(iter(forecast.promises), None),
            "on_decision": control.get("on_decision"),
            "telemetry": telemetry,
        }
        keeper = Deployment(role=Keeper, options=options, in_driver=True)
        runtime = runtime_of(plan.settings["runtime"], context, deployments_of(plan, keeper, control.get("on_ask")))
        on_start = (plan.settings["runtime"] == "ray" and control.get("on_start")) or (lambda _: None)
        on_start("starting on Ray")  # which takes seconds
        roles = await unless_ended(stack.enter_async_context(runtime), control)
        ending, account, kept = INTERRUPTED, Account(), journal
        if roles is not None:
            parts = ", ".join(f"{part} {part_s:.1f} s" for part, part_s in roles.start_s.items())
            on_start(f"started on Ray in {sum(roles.start_s.values()):.1f} s: {parts}")
            began_s = time.monotonic()
            with _naming_what_is_kept(journal, plan.settings["run_id"]):
                ending, account, kept = await _conduct_and_record(roles, plan, journal, batch, control)
    sitting_s = time.monotonic() - began_s
    with suppress(InvalidUsage):  # if the journal itself stopped the run, it may not be readable
        endings = () if batch is None else batch.endings(kept)
        return _result(plan, kept, ending, account, endings, sitting_s=sitting_s, experiment=experiment)
    return _result(plan, kept, ending, account, (), sitting_s=sitting_s, experiment=experiment)


def completed_result(
    journal: Path, experiment: Experiment, own: Sequence[str], accepted: Sequence[str]
) -> Result | None:
    """Return the recorded result of a completed run; None if the run is not completed, or is changed now."""
    if holds_nothing(journal):
        return None
    with open_run(journal) as reader:
        changes, ending = reader.changes_to(experiment, own, accepted), reader.ending()
        if ending is not None and ending.outcome == "completed" and not changes:
            return recorded_result(reader)
        return None


def told_forecast(plan: RunPlan, journal: Path | None, control: RunControl) -> Forecast | None:
    """Return the expected cost of a run as `forecast_of` does, after its caller has had it."""
    forecast, on_forecast = forecast_of(plan, journal, control.get("measurement")), control.get("on_forecast")
    if forecast is not None and on_forecast is not None:
        on_forecast(forecast)
    return forecast


def check_plan(plan: RunPlan, journal: Path | None) -> None:
    """Refuse the impossible, and warn of likely mistakes that may be meant."""
    # Ray removes the folder that a job was submitted with, after the job.
    if journal is not None and "runtime_resources" in Path(os.path.realpath(runs_dir := journal.parent)).parts:
        raise InvalidUsage(
            f"{str(runs_dir)!r} is in the folder of this Ray job, which Ray removes after the job, with the journal; name a folder that "
            "stays: --runs-dir /some/where/runs"
        )
    if dict(plan.strategy).get("promise"):
        check_promised(plan.settings)
    plan.strategy.check_models(solver_pool(plan.settings))
    check_batches(plan)
    if plan.strategy.knows_inputs:
        check_oracle(plan.tasks[0])
    kind = type(plan.tasks[0])
    for name, near in near_misses(kind):
        log().warning(f"{kind.__name__}.{name} overrides nothing; did you mean {near}?")
    if plan.strategy.caution is not None:
        log().warning(plan.strategy.caution)


def _needs_full_durability(plan: RunPlan) -> bool:
    """Whether records must survive a power cut: if the settings say so, or since effects that are done do survive it."""
    first = plan.tasks[0]
    return plan.settings["durability"] == "full" or (isinstance(first, AgentTask) and first.has_effects)


def runtime_of(name: str, context: Context, deployments: Sequence[Deployment]) -> Runtime:
    """Build the runtime of a name with its deployments."""
    kind: Any = RUNTIMES.find(name, object)
    runtime: Runtime = kind(context, deployments)
    return runtime


async def _conduct_and_record(
    roles: Runtime, plan: RunPlan, journal: Path | None, batch: Batch | None, control: RunControl
) -> tuple[RunEnding, Account, Path | None]:
    """Conduct all inputs until the run ends, and record how it ended; returns the path of the journal, too, or of its copy."""
    messenger, strategy = roles.messenger, plan.strategy
    listening = []
    if (on_progress := control.get("on_progress")) is not None:
        listening.append(report_progress(messenger, on_progress))
    if (on_solution := control.get("on_solution")) is not None and journal is not None and is_followed(plan):
        listening.append(follow_solution(journal, plan, messenger, on_solution))
    try:
        conducting = conduct_single_input(messenger) if batch is None else batch.conduct(messenger)
        try:
            ending = await conduct_until_end(messenger, conducting, listening, plan.settings, control)
        finally:
            await finish(partial(leave_effects, messenger))
        # Roles in other processes may still have records under way; the last account must contain them.
        await roles.flush()
        account = await messenger.ask(Report(when="written"))
        if batch is not None and ending.outcome == "completed":
            ending = await batch.ending(messenger, account)
        if account.undecided_at and strategy.passes_undecided and ending.outcome == "completed":
            reason = undecided_elections(account.undecided_at)
            ending = structs.replace(ending, outcome="undecided", reason=reason)
        if ending.outcome == "interrupted" and account.outage is not None:
            reason = f"{ending.reason}; it was interrupted while calls were tried again: {account.outage}"
            ending = structs.replace(ending, reason=reason)
        ending = await messenger.ask(End(ending=ending))
    except asyncio.CancelledError:
        await finish(partial(_record_cancelled, messenger))
        raise
    except Stopped as error:
        return await _stopped(messenger, error, journal)
    except MicroagentsError as error:
        await _record_failure(messenger, error)
        raise
    return ending, account, journal


async def _stopped(
    messenger: RoleMessenger, error: Stopped, journal: Path | None
) -> tuple[RunEnding, Account, Path | None]:
    """Ending a run whose journal cannot be written."""
    last = await _record_end(messenger, RunEnding(outcome="stopped", reason=str(error))) or error
    kept = last.copy if isinstance(last, JournalGone) else journal
    return RunEnding(outcome="stopped", reason=str(last)), await messenger.ask(Report()), kept


async def _record_end(messenger: RoleMessenger, ending: RunEnding) -> MicroagentsError | None:
    """Record an ending; returns why it cannot be recorded, or None."""
    try:
        await messenger.ask(End(ending=ending))
    except MicroagentsError as error:
        return error
    return None


async def _record_failure(messenger: RoleMessenger, error: MicroagentsError) -> None:
    ending = RunEnding(outcome="failed", reason=str(error), traceback=error.traceback)
    gone = await _record_end(messenger, ending)
    if isinstance(gone, JournalGone):
        error.add_note(str(gone))


async def _record_cancelled(messenger: RoleMessenger) -> None:
    """Record that the program cancelled the run: its process lives on, so the run was not cut off."""
    gone = await _record_end(messenger, RunEnding(outcome="interrupted", reason=CANCELLED))
    if isinstance(gone, JournalGone):
        log().error(str(gone))


@contextmanager
def _naming_what_is_kept(journal: Path | None, run_id: str) -> Iterator[None]:
    """Say in a failure that the decisions so far are kept, and raise the error of a caller's own code."""
    try:
        yield
    except MicroagentsError as failed:
        # What a caller's own code raised reaches the caller as it is, except from another process.
        error = (isinstance(failed, Aborted) and failed.__cause__) or failed
        if journal is not None and not _is_empty(journal):
            error.add_note(f"all decisions so far are kept in {journal}; correct the cause, then resume run {run_id}")
        if error is failed:
            raise
        raise error from None


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Let Python's garbage collector run every `YOUNG_OBJECTS` new objects, until the last run of this process has ended.

    Thousands of open calls are many objects that live for a while: with Python's threshold of 700, looking through them took half of the
    processor time of a run with 500 calls in flight over HTTP.
    """
    before = gc.get_threshold()
    if not _thresholds and 0 < before[0] < YOUNG_OBJECTS:
        gc.set_threshold(YOUNG_OBJECTS, *before[1:])
    _thresholds.append(_thresholds[0] if _thresholds else before)
    try:
        yield
    finally:
        restored = _thresholds.pop()
        if not _thresholds:
            gc.set_threshold(*restored)


@contextmanager
def _no_empty_journal(path: Path | None) -> Iterator[None]:
    """Remove the journal that a run begins, if code of the task or of the strategy fails before anything is asked or decided."""
    is_new = path is not None and holds_nothing(path)
    try:
        yield
    except (InvalidDefinition, InvalidUsage, NoHandler, RoleFailed, TaskFailed):
        with suppress(InvalidUsage):
            if path is not None and is_new and _is_empty(path):
                remove_run(path.parent, path.stem)
        raise


def _is_empty(path: Path) -> bool:
    if holds_nothing(path):
        return True
    try:
        with Reader(path) as reader:
            account = reader.account()
            asked = account.calls or account.lost_in_flight or account.refused
            return not asked and next(reader.decisions(), None) is None and next(reader.input_endings(), None) is None
    except InvalidUsage:  # it cannot be read
        return False


def _without_journal(reason: str | None) -> str | None:
    """Return a reason that promises nothing: without a journal no decision is kept, and the run cannot be resumed."""
    if reason is None:
        return None
    said = [_RESUMES.sub("begin it again", each) for each in reason.split("; ")]
    for number, clause in enumerate(said):
        if clause.endswith(("so far are kept", "so far is kept")):
            said[number] = "nothing is kept, since it ran without a journal"
    return "; ".join(said)


def _result(
    plan: RunPlan,
    journal: Path | None,
    ending: RunEnding,
    account: Account,
    endings: Iterable[InputEnding],
    *,
    sitting_s: float,
    experiment: Experiment,
) -> Result:
    created_at, wall_s = None, sitting_s
    if journal is None:
        ending = structs.replace(ending, reason=_without_journal(ending.reason))
        endings = [structs.replace(each, reason=_without_journal(each.reason)) for each in endings]
    else:
        # If it cannot be read, this sitting's result counts.
        with (
            suppress(InvalidUsage),
            Reader(journal) as reader,
        ):
            created_at, wall_s = reader.created_at, reader.wall_s()
    value, accuracy = msgspec.json.decode(ending.result or "null"), None
    failed: tuple[InputEnding, ...] | None = None
    if plan.of_inputs is not None:
        failed = ()  # the whole run has the results
    elif plan.listed:
        value, failed = results_of(endings, len(plan.tasks))
        accuracy = accuracy_of(plan.tasks, value)
    return Result(
        recorded=value,
        source=type(plan.tasks[0]),
        settings=plan.settings,
        account=account,
        wall_s=wall_s,
        journal=journal,
        accuracy=accuracy,
        failed_inputs=failed,
        created_at=created_at,
        **facts_in(experiment, ending),
    )
