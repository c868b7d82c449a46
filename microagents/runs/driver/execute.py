"""Execution of a plan in the driver's process. Roles, runtime and journal meet only here."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import structlog
from msgspec import Struct

import microagents.roles  # noqa: F401 - names the roles of an election
from microagents.actors import Context, Deployment, Strategy
from microagents.aio import TaskScope
from microagents.elections.admission import Drain
from microagents.errors import InvalidUsage, MicroagentsError, Stopped, Undecided
from microagents.journal.experiment import Experiment
from microagents.journal.messages import Account, InputEnding, RecallDecidedInputs, Report, RunOutcome
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import Reader, journal_of
from microagents.messages import address_of
from microagents.registry import RUNTIMES, STRATEGIES, TASKS, unknown
from microagents.roles.decision_teller import OnDecision
from microagents.roles.limits.limiter import Limiter
from microagents.roles.recorder import AwaitFailure, JournalConfig, RecordEnding, Recorder
from microagents.runs.driver.batch import Batch, OnEnding, undecided_elections
from microagents.runs.driver.following import OnSolution, follow_solution, read_solution
from microagents.runs.driver.forecast import OnForecast, forecast_of
from microagents.runs.driver.output import Outputs
from microagents.runs.plan import Plan, experiment_of
from microagents.runs.result import Result, results_of, whole
from microagents.runs.settings import Settings, validated
from microagents.runs.task_list import dump_options
from microagents.runtimes.dispatcher import RoleMessenger
from microagents.runtimes.runtime import Runtime
from microagents.runtimes.testing.virtual import VirtualLoop
from microagents.strategies.known_inputs import check_oracle
from microagents.task import near_misses
from microagents.work.conductor import Conduct

PROGRESS_EVERY_S = 0.2
"""Interval between calls of ``on_progress``."""
VIRTUAL_COMMIT_S = 0.005
"""Duration of a commit in virtual time."""
YOUNG_OBJECTS = 50_000
"""New objects after which Python's garbage collector runs while a run of this process is open."""
_thresholds: list[tuple[int, int, int]] = []
"""For each open run of this process, the thresholds of the collector before the first of them."""
OnProgress = Callable[[Account], None]
End = tuple[RunOutcome, str | None, bytes | None]
"""Outcome of a run, the reason for it, and the result as JSON."""

INTERRUPTED: End = ("interrupted", "interrupted before its end; all decisions so far are kept", None)


class RunControl(Struct, frozen=True, kw_only=True):
    """Callbacks and events by which a caller watches a run and ends it early."""

    on_progress: OnProgress | None = None
    """Called a few times a second with the account as of the last commit."""
    on_decision: OnDecision | None = None
    """Called with each decision once it is durable, in the order of commits; a plain function or an async one."""
    on_solution: OnSolution | None = None
    """Called about once a second with the recorded work on the only input, such as a `DocumentRecord`, if its strategy draws it and a
    journal records it. It returns whether it wants further calls."""
    on_ending: OnEnding | None = None
    """Called with the ending of each of many inputs, once it is durable."""
    on_forecast: OnForecast | None = None
    """Called with the expected cost before the run begins, if it asks models at a known price."""
    interrupt: asyncio.Event | None = None
    """Ends the run after the calls in flight."""
    terminate: asyncio.Event | None = None
    """Ends the run at once."""


async def execute_plan(
    plan: Plan,
    *,
    runs_dir: str | Path | None,
    only: Sequence[int] | None = None,
    accepted: Sequence[str] = (),
    control: RunControl | None = None,
    outputs: Outputs | None = None,
) -> Result:
    """Begin a run or continue it, until it ends. A completed run is answered from its journal.

    Args:
        plan: the run.
        runs_dir: the folder of journals; None for a run without one.
        only: numbers of the inputs to do, among many; None for all that are not completed.
        accepted: names of fields that may differ from the recorded experiment.
        control: progress and interruption.
        outputs: output files of documents; None to write none.
    """
    settings, control, outputs = plan.settings, control or RunControl(), outputs or Outputs(())
    experiment, own = experiment_of(plan)
    if runs_dir is not None:
        _refuse_job_folder(Path(runs_dir))
    path = None if runs_dir is None else journal_of(Path(runs_dir), settings.run_id)
    if path is not None and not holds_nothing(path) and (completed := _completed_result(path, plan, experiment, own, accepted)):
        return outputs.finished(completed)
    pools = settings.pools
    plan.strategy.check_models(pools.get("solver") or pools[""])
    if getattr(plan.strategy, "known_inputs", False):
        check_oracle(plan.tasks[0])
    _warn_of(plan)
    outputs.check(path, only)
    forecast = forecast_of(plan, path)
    if forecast is not None and control.on_forecast is not None:
        control.on_forecast(forecast)
    context = plan.context()
    inputs = None
    if plan.listed:
        inputs = Batch(
            path,
            len(plan.tasks),
            run_id=settings.run_id,
            only=only,
            concurrency=settings.concurrency,
            passes_undecided=plan.strategy.passes_undecided,
            on_ending=outputs.end,
            on_recorded=control.on_ending,
        )
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        stack.enter_context(_rare_garbage_collection())
        recorded_in = path
        if path is None and settings.runtime == "ray":  # the replacement of a role that died is restored from a journal
            recorded_in = journal_of(Path(stack.enter_context(TemporaryDirectory(prefix="microagents-"))), settings.run_id)
        full = settings.durability == "full" and path is not None  # a temporary journal need not outlive a power cut
        deployments = _deployments(
            plan,
            _recorder_deployment(
                recorded_in,
                experiment,
                own,
                accepted,
                full=full,
                on_decision=control.on_decision,
                expected_usd=None if forecast is None else forecast.cost_usd,
            ),
        )
        roles = await _start_roles(stack, runtime_of(settings.runtime, context, deployments), control)
        if roles is None:
            return _result(plan, path, INTERRUPTED, Account(), sitting_s=time.monotonic() - started, endings=())
        try:
            end, account = await _conduct_and_record(roles, inputs, plan, control, _following(roles, path, plan, control, outputs))
        except MicroagentsError as error:
            if path is not None:
                error.add_note(f"all decisions so far are kept in {path}; correct the cause, then resume run {settings.run_id}")
            raise
    sitting_s = time.monotonic() - started
    result = _result(plan, path, end, account, sitting_s=sitting_s, endings=())
    with suppress(InvalidUsage):  # if the journal itself stopped the run, it may not be readable
        result = _result(plan, path, end, account, sitting_s=sitting_s, endings=() if inputs is None else inputs.endings())
    return _write_outputs(outputs, result, plan)


def _warn_of(plan: Plan) -> None:
    """Name what looks like a mistake, but may be meant."""
    kind = type(plan.tasks[0])
    cautions = [f"{kind.__name__}.{name} overrides nothing; did you mean {near}?" for name, near in near_misses(kind)]
    for caution in [*cautions, *filter(None, [plan.strategy.caution])]:
        structlog.get_logger().warning(caution)


def _write_outputs(outputs: Outputs, result: Result, plan: Plan) -> Result:
    """Write the texts of a run that has ended; of a document that is not whole, the verified text."""
    result = outputs.finished(result)
    if outputs.grows and result.journal is not None and plan.strategy.draws_solution:
        solution = read_solution(result.journal, plan)  # with the replies that came after the last read during the run
        if solution is not None:
            outputs.grow(solution)
    return result


def runtime_of(name: str, context: Context, deployments: Sequence[Deployment]) -> Runtime:
    """Build the runtime of a name with its deployments.

    Raises:
        InvalidUsage: there is no such runtime.
        InvalidDefinition: the deployments do not fit together.
    """
    kind: Any = RUNTIMES.find(name, object)
    runtime: Runtime = kind(context, deployments)
    return runtime


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
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


async def _start_roles(stack: AsyncExitStack, runtime: Runtime, control: RunControl) -> Runtime | None:
    """Start the roles; returns the runtime, or None if the caller ended the run first. On a cluster the start may take a while."""
    scope = TaskScope()
    entering = scope.start(stack.enter_async_context(runtime))
    ends = [scope.start(event.wait()) for event in (control.interrupt, control.terminate) if event is not None]
    try:
        await _wait_for_first(entering, *ends)
        return await entering if entering.done() else None
    finally:
        await scope.close(within_s=None)  # a cluster may take long; else roles would start behind the back of a run that has ended


def _refuse_job_folder(runs_dir: Path) -> None:
    """Refuse the folder that a Ray job was submitted with: Ray removes it after the job."""
    if "runtime_resources" in runs_dir.resolve().parts:
        raise InvalidUsage(
            f"{str(runs_dir)!r} is in the folder of this Ray job, which Ray removes after the job, with the journal; name a folder that "
            "stays: --runs-dir /some/where/runs"
        )


def _completed_result(path: Path, plan: Plan, experiment: Experiment, own: Sequence[str], accepted: Sequence[str]) -> Result | None:
    """The recorded result of a completed run; None if the run is not completed, or is changed now."""
    with Reader(path) as reader:
        changes = reader.changes_to(experiment, own, accepted)
        ending = reader.ending()
        if ending is None or ending.outcome != "completed" or changes:
            return None
        value = None if ending.result is None else ending.result.encode()
        return _result(plan, path, ("completed", None, value), reader.account(), sitting_s=0.0, endings=reader.input_endings())


def _result(plan: Plan, path: Path | None, end: End, account: Account, *, sitting_s: float, endings: Iterable[InputEnding]) -> Result:
    outcome, reason, given = end
    created_at, wall_s = (None, sitting_s) if path is None else _recorded_times(path, sitting_s)
    value, failed = None if given is None else msgspec.json.decode(given), None
    if plan.listed:
        value, failed = results_of(endings, len(plan.tasks))
    return Result(
        outcome=outcome,
        reason=reason,
        value=value,
        run_id=plan.settings.run_id,
        task=TASKS.name_of(address_of(type(plan.tasks[0]))),
        strategy=STRATEGIES.name_of(address_of(type(plan.strategy))),
        settings=plan.settings,
        account=account,
        wall_s=wall_s,
        journal=path,
        options={} if plan.listed else dump_options(plan.tasks[0]),
        failed_inputs=failed,
        created_at=created_at,
        k=whole(getattr(plan.strategy, "k", None)),
        unit=type(plan.tasks[0]).progress_unit,
    )


def _recorded_times(path: Path, sitting_s: float) -> tuple[str | None, float]:
    """The start of a run, and the seconds of all its sittings; None and those of this sitting if the journal cannot be read."""
    try:
        with Reader(path) as reader:
            return reader.created_at, reader.wall_s()
    except InvalidUsage:
        return None, sitting_s


def _recorder_deployment(
    path: Path | None,
    experiment: Experiment,
    own: Sequence[str],
    accepted: Sequence[str],
    *,
    full: bool,
    on_decision: OnDecision | None,
    expected_usd: float | None,
) -> Deployment:
    # In virtual time there are no threads and no disk to wait for: the loop makes each commit itself.
    journaling, is_virtual = None, isinstance(asyncio.get_running_loop(), VirtualLoop)
    if path is not None:
        journaling = JournalConfig(
            path=path,
            experiment=experiment,
            own=own,
            accepted=tuple(accepted),
            full=full and not is_virtual,
            inline_s=VIRTUAL_COMMIT_S if is_virtual else None,
        )
    options = {"expected_usd": expected_usd, "on_decision": on_decision}
    return Deployment(role=Recorder, options={"journaling": journaling, **options}, in_driver=True)


def _deployments(plan: Plan, recorder: Deployment) -> list[Deployment]:
    """The roles of a run, in the order of their start. The recorder starts first, so that a wrong journal is refused before all else."""
    strategy, settings = plan.strategy, plan.settings
    limiter = Deployment(role=Limiter, in_driver=True)
    deployments = [
        recorder,
        limiter,
        *(_with_settings(each, settings) for each in (Deployment(role=strategy.conductor), *strategy.deployments())),
    ]
    movable = [deployment.role.__name__.lower() for deployment in deployments if not deployment.in_driver]
    for name in settings.deploy:
        if name.lower() not in movable:
            raise InvalidUsage(unknown("role to deploy called", name, movable))
    return deployments


def _with_settings(deployment: Deployment, settings: Settings) -> Deployment:
    """A deployment, changed as the run's ``deploy`` setting says."""
    name = deployment.role.__name__
    wanted = next((wanted for role, wanted in settings.deploy.items() if role.lower() == name.lower()), {})
    if not wanted:
        return deployment
    given = {field: getattr(deployment, field) for field in deployment.model_fields_set}
    return validated(Deployment, f"the deployment of {name}", {**given, **wanted})


def _following(roles: Runtime, path: Path | None, plan: Plan, control: RunControl, outputs: Outputs) -> Coroutine[Any, Any, None]:
    """Follow the work on the only input in the journal, where a callback or an output file wants it."""
    in_thread = [outputs.grow] if outputs.grows else []
    is_virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)  # it has no threads
    if path is None or plan.listed or not plan.strategy.draws_solution or is_virtual:
        return _never()
    return follow_solution(path, plan, lambda: roles.messenger.ask(Report()), in_thread, control.on_solution)


async def _conduct_and_record(
    roles: Runtime, inputs: Batch | None, plan: Plan, control: RunControl, following: Coroutine[Any, Any, None]
) -> tuple[End, Account]:
    """Do the work, and record its ending; returns the ending and the last account."""
    messenger = roles.messenger
    try:
        conducting = _conduct_single_input(messenger) if inputs is None else inputs.conduct(messenger)
        outcome, reason, value = await _conduct_until_end(messenger, conducting, plan.settings, control, following)
        # Roles in other processes may still have records under way; the last account must contain them.
        await roles.flush()
        account = await messenger.ask(Report(final=True))
        if inputs is not None and outcome == "completed":
            if plan.strategy.passes_undecided:
                account = await inputs.mark_undecided(messenger, account)
            outcome, reason = await inputs.outcome(messenger, account)
        outcome, reason = _adjust_outcome(outcome, reason, account, plan.strategy)
        await messenger.ask(RecordEnding(outcome=outcome, reason=reason, result=value))
    except Stopped as error:  # the journal cannot be written
        return ("stopped", str(error), None), await messenger.ask(Report())
    except MicroagentsError as error:
        with suppress(MicroagentsError):
            await messenger.ask(RecordEnding(outcome="failed", reason=str(error), result=None, traceback=error.traceback))
        raise
    return (outcome, reason, value), account


def _adjust_outcome(outcome: RunOutcome, reason: str | None, account: Account, strategy: Strategy) -> tuple[RunOutcome, str | None]:
    """The outcome and its reason, changed where the account has undecided elections or an outage."""
    undecided = account.undecided_at
    if undecided and strategy.passes_undecided and outcome == "completed":
        return "undecided", undecided_elections(undecided)
    if outcome == "interrupted" and account.outage is not None:
        return outcome, f"{reason}; it was interrupted while calls were tried again: {account.outage}"
    return outcome, reason


async def _conduct_single_input(messenger: RoleMessenger) -> bytes:
    recalls = False
    while True:
        try:
            conducted = await messenger.ask(Conduct(input=0, recalls=recalls))
        except Undecided:
            if not await messenger.ask(RecallDecidedInputs()):
                raise
        else:
            if not await messenger.ask(RecallDecidedInputs()):
                return conducted.value
        recalls = True  # a person has decided meanwhile, so the work goes on from there


async def _conduct_until_end(
    messenger: RoleMessenger,
    conducting: Coroutine[Any, Any, bytes | None],
    settings: Settings,
    control: RunControl,
    following: Coroutine[Any, Any, None],
) -> End:
    """Do the work until it ends, the caller ends it, the recorder stops it or its time is over; returns the ending.

    A passed time limit and an interrupt first wait for the calls in flight. `terminate` and a failure end the work at once.
    """
    scope = TaskScope()

    def wait_for(event: asyncio.Event | None) -> asyncio.Task[Any]:
        return scope.start((event or asyncio.Event()).wait())

    try:
        work = scope.start(conducting)
        failure = scope.start(messenger.ask(AwaitFailure()))
        interrupt, terminate = wait_for(control.interrupt), wait_for(control.terminate)
        timer = scope.start(_never() if settings.max_time_s is None else asyncio.sleep(settings.max_time_s))
        progress = scope.start(_never() if control.on_progress is None else _report_progress(messenger, control.on_progress))
        followed = scope.start(following)
        await _wait_for_first(work, failure, interrupt, terminate, timer, progress, followed)
        if (interrupt.done() or timer.done()) and not work.done():
            # Calls in flight are paid for, so they are waited for. The work may end meanwhile: then its own outcome counts.
            await _wait_for_first(scope.start(messenger.ask(Drain())), work, failure, terminate, progress, followed)
        if not work.done():
            for each in (progress, followed, failure):
                if each.done():
                    await each  # raises the failure of a callback of the caller, or the recorder's reason to stop
            if timer.done():
                reason = f"--max-time {settings.max_time_s:g} is reached; all decisions so far are kept; resume it for as long again"
                return "stopped", reason, None
            return INTERRUPTED
        value = await work
    except Undecided as error:
        return "undecided", error.in_run(settings.run_id), None
    except Stopped as error:
        return "stopped", str(error), None
    finally:
        await scope.close()
    return "completed", None, value


async def _wait_for_first(*tasks: asyncio.Task[Any]) -> None:
    """Wait until one of the tasks has ended."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def _never() -> None:
    await asyncio.Event().wait()


async def _report_progress(messenger: RoleMessenger, on_progress: OnProgress) -> None:
    while True:
        await asyncio.sleep(PROGRESS_EVERY_S)
        on_progress(await messenger.ask(Report()))
