"""Execution of a plan in the driver's process: prepared, driven, concluded. Roles, runtime and journal meet only here."""

from __future__ import annotations

import gc
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from microagents.actors.registry import RUNTIMES, STRATEGIES, TASKS
from microagents.actors.role import Context, Deployment, Strategy
from microagents.base.aio import finish, loop_has_threads
from microagents.base.errors import (
    Aborted,
    InvalidDefinition,
    InvalidUsage,
    MicroagentsError,
    NoHandler,
    RoleFailed,
    Stopped,
    TaskFailed,
    Undecided,
)
from microagents.base.logs import log
from microagents.base.messages import address_of
from microagents.journal.messages import Account, InputEnding, RecallDecidedInputs, Report, RunOutcome
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import Reader, journal_of
from microagents.roles.recorder import RecordEnding, Recorder
from microagents.runs.driver.batch import Batch, undecided_elections
from microagents.runs.driver.conducting import INTERRUPTED, End, conduct_until_end, never, unless_ended
from microagents.runs.driver.control import RunControl
from microagents.runs.driver.deploying import deployments_of, journaling_to
from microagents.runs.driver.effects import inputs_that_go_on, leave_effects
from microagents.runs.driver.following import follow_solution, read_solution
from microagents.runs.driver.forecast import Forecast, forecast_of
from microagents.runs.driver.output import Outputs
from microagents.runs.inspection.runs import remove_run
from microagents.runs.plan import RunPlan, check_reading, experiment_of
from microagents.runs.result import Result, results_of
from microagents.runs.task_list import dump_options
from microagents.runtimes.dispatcher import RoleMessenger
from microagents.runtimes.runtime import Runtime
from microagents.systems.agents.agent import AgentTask
from microagents.systems.chains.known_inputs import check_oracle
from microagents.task import near_misses
from microagents.telemetry.starting import telemetry_of
from microagents.work.conductor import Conduct

if TYPE_CHECKING:
    from microagents.telemetry.exporting import Telemetry

YOUNG_OBJECTS = 50_000
"""New objects after which Python's garbage collector runs while a run of this process is open."""
_thresholds: list[tuple[int, int, int]] = []
"""For each open run of this process, the thresholds of the collector before the first of them."""


async def execute_plan(
    plan: RunPlan,
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
    if runs_dir is not None:
        _refuse_job_folder(Path(runs_dir))
    path = None if runs_dir is None else journal_of(Path(runs_dir), plan.settings.run_id)
    sitting = _Sitting(
        plan, path, only=only, accepted=accepted, control=control or RunControl(), outputs=outputs or Outputs(())
    )
    if (completed := sitting.completed_result()) is not None:
        return completed
    sitting.prepare()
    end, account = await sitting.drive()
    return sitting.conclude(end, account)


class _Sitting:
    """One sitting of a run: prepared, driven to its end, and concluded."""

    def __init__(
        self,
        plan: RunPlan,
        path: Path | None,
        *,
        only: Sequence[int] | None,
        accepted: Sequence[str],
        control: RunControl,
        outputs: Outputs,
    ) -> None:
        self._plan = plan
        self._path = path
        self._only = only
        self._accepted = accepted
        self._control = control
        self._outputs = outputs
        self._experiment, self._own = experiment_of(plan)
        self._forecast: Forecast | None = None
        self._inputs: Batch | None = None
        """The inputs of a listed run."""
        self._began_s = time.monotonic()

    def completed_result(self) -> Result | None:
        """Return the recorded result of a completed run; None if the run is not completed, or is changed now."""
        if self._path is None or holds_nothing(self._path):
            return None
        with Reader(self._path) as reader:
            changes = reader.changes_to(self._experiment, self._own, self._accepted)
            ending = reader.ending()
            if ending is None or ending.outcome != "completed" or changes:
                return None
            value = None if ending.result is None else ending.result.encode()
            result = self._result(
                ("completed", None, value), reader.account(), sitting_s=0.0, endings=reader.input_endings()
            )
        return self._outputs.finished(result)

    def prepare(self) -> None:
        """Refuse what cannot be done, and tell the expected cost."""
        plan = self._plan
        plan.strategy.check_models(plan.settings.solver_pool)
        check_reading(plan)
        if plan.strategy.knows_inputs:
            check_oracle(plan.tasks[0])
        _warn_of(plan)
        self._outputs.check(self._path, self._only)
        self._forecast = forecast_of(plan, self._path, self._control.get("calibration"))
        on_forecast = self._control.get("on_forecast")
        if self._forecast is not None and on_forecast is not None:
            on_forecast(self._forecast)
        if plan.listed:
            on_recorded = self._control.get("on_ending")
            self._inputs = Batch(
                plan, self._path, only=self._only, on_ending=self._outputs.end, on_recorded=on_recorded
            )

    async def drive(self) -> tuple[End, Account]:
        plan = self._plan
        context = plan.context()
        self._began_s = time.monotonic()
        async with AsyncExitStack() as stack:
            telemetry = telemetry_of(context.run_id, type(plan.tasks[0]).__name__, plan.settings.otel_sample)
            if telemetry is not None:
                context = structs.replace(context, tracing=stack.enter_context(telemetry).tracing())
            stack.enter_context(_rare_garbage_collection())
            stack.enter_context(_no_empty_journal(self._path))
            deployments = deployments_of(plan, self._recorder(stack, telemetry))
            runtime = runtime_of(plan.settings.runtime, context, deployments)
            roles = await unless_ended(stack.enter_async_context(runtime), self._control)
            if roles is None:
                return INTERRUPTED, Account()
            self._began_s = time.monotonic()  # a Ray takes seconds to start
            try:
                return await self._conduct_and_record(roles)
            except MicroagentsError as failed:
                # What a caller's own code raised reaches the caller as it is, except from another process.
                error = (isinstance(failed, Aborted) and failed.__cause__) or failed
                if self._path is not None and not _is_empty(self._path):
                    kept = f"all decisions so far are kept in {self._path}; correct the cause, then resume run {plan.settings.run_id}"
                    error.add_note(kept)
                if error is failed:
                    raise
                raise error from None

    def _recorder(self, stack: AsyncExitStack, telemetry: Telemetry | None) -> Deployment:
        path, settings = self._path, self._plan.settings
        if path is None and settings.runtime == "ray":  # the replacement of a role that died is restored from a journal
            path = journal_of(Path(stack.enter_context(TemporaryDirectory(prefix="microagents-"))), settings.run_id)
        first = self._plan.tasks[0]
        # A temporary journal need not outlive a power cut; but an effect that is done does, and so must its record.
        full = self._path is not None and (
            settings.durability == "full" or (isinstance(first, AgentTask) and first.has_effects)
        )
        options = {
            "journaling": path
            and journaling_to(
                path,
                self._experiment,
                self._own,
                self._accepted,
                survives_power_cut=full,
                is_kept=self._path is not None,
            ),
            "expected_usd": self._forecast and self._forecast.cost_usd,
            "promise": self._forecast and next(iter(self._forecast.promises), None),
            "on_decision": self._control.get("on_decision"),
            "telemetry": telemetry,
        }
        return Deployment(role=Recorder, options=options, in_driver=True)

    async def _conduct_and_record(self, roles: Runtime) -> tuple[End, Account]:
        messenger, strategy = roles.messenger, self._plan.strategy
        try:
            conducting = (
                _conduct_single_input(messenger, has_journal=self._path is not None)
                if self._inputs is None
                else self._inputs.conduct(messenger)
            )
            following = self._following(messenger)
            try:
                outcome, reason, value = await conduct_until_end(
                    messenger, conducting, self._plan.settings, self._control, following
                )
            finally:
                await finish(partial(leave_effects, messenger))
            # Roles in other processes may still have records under way; the last account must contain them.
            await roles.flush()
            account = await messenger.ask(Report(final=True))
            if self._inputs is not None and outcome == "completed":
                if strategy.passes_undecided:
                    account = await self._inputs.mark_undecided(messenger, account)
                outcome, reason = await self._inputs.outcome(messenger, account)
            outcome, reason = _adjust_outcome(outcome, reason, account, strategy)
            await messenger.ask(RecordEnding(outcome=outcome, reason=reason, result=value))
        except Stopped as error:  # the journal cannot be written
            return ("stopped", str(error), None), await messenger.ask(Report())
        except MicroagentsError as error:
            with suppress(MicroagentsError):
                await messenger.ask(
                    RecordEnding(outcome="failed", reason=str(error), result=None, traceback=error.traceback)
                )
            raise
        return (outcome, reason, value), account

    def _following(self, messenger: RoleMessenger) -> Coroutine[Any, Any, None]:
        """Follow the work on the only input in the journal, where a callback or an output file wants it."""
        plan = self._plan
        in_thread = [self._outputs.grow] if self._outputs.grows else []
        if self._path is None or plan.listed or not plan.strategy.draws_solution or not loop_has_threads():
            return never()
        return follow_solution(
            self._path, plan, lambda: messenger.ask(Report()), in_thread, self._control.get("on_solution")
        )

    def conclude(self, end: End, account: Account) -> Result:
        """Return the result of a run that has ended. Its texts are written; of a document that is not whole, the verified text."""
        sitting_s, endings = time.monotonic() - self._began_s, () if self._inputs is None else self._inputs.endings()
        try:
            result = self._result(end, account, sitting_s=sitting_s, endings=endings)
        except InvalidUsage:  # if the journal itself stopped the run, it may not be readable
            result = self._result(end, account, sitting_s=sitting_s, endings=())
        result = self._outputs.finished(result)
        if self._outputs.grows and self._path is not None and self._plan.strategy.draws_solution:
            solution = read_solution(
                self._path, self._plan
            )  # with the replies that came after the last read during the run
            if solution is not None:
                self._outputs.grow(solution)
        return result

    def _result(self, end: End, account: Account, *, sitting_s: float, endings: Iterable[InputEnding]) -> Result:
        (outcome, reason, given), plan = end, self._plan
        created_at, wall_s = (None, sitting_s) if self._path is None else _recorded_times(self._path, sitting_s)
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
            journal=self._path,
            options={} if plan.listed else dump_options(plan.tasks[0]),
            failed_inputs=failed,
            created_at=created_at,
            needs_program=self._experiment.recipe.needs_program,
            k=plan.strategy.deciding_votes,
            unit=type(plan.tasks[0]).progress_unit,
        )


def _warn_of(plan: RunPlan) -> None:
    """Name what looks like a mistake, but may be meant."""
    kind = type(plan.tasks[0])
    cautions = [f"{kind.__name__}.{name} overrides nothing; did you mean {near}?" for name, near in near_misses(kind)]
    for caution in [*cautions, *filter(None, [plan.strategy.caution])]:
        log().warning(caution)


def runtime_of(name: str, context: Context, deployments: Sequence[Deployment]) -> Runtime:
    """Build the runtime of a name with its deployments."""
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


@contextmanager
def _no_empty_journal(path: Path | None) -> Iterator[None]:
    """Remove the journal that a run begins, where code of the task or of the strategy fails before anything is asked or decided."""
    is_new = path is not None and holds_nothing(path)
    try:
        yield
    except (InvalidDefinition, InvalidUsage, NoHandler, RoleFailed, TaskFailed):
        with suppress(InvalidUsage):
            if path is not None and is_new and _is_empty(path):
                remove_run(path.parent, path.stem)
        raise


def _is_empty(path: Path) -> bool:
    try:
        with Reader(path) as reader:
            account = reader.account()
            asked = account.calls or account.lost_in_flight or account.refused
            return not asked and next(reader.decisions(), None) is None and next(reader.input_endings(), None) is None
    except InvalidUsage:  # it cannot be read
        return False


def _refuse_job_folder(runs_dir: Path) -> None:
    """Refuse the folder that a Ray job was submitted with: Ray removes it after the job."""
    if "runtime_resources" in runs_dir.resolve().parts:
        raise InvalidUsage(
            f"{str(runs_dir)!r} is in the folder of this Ray job, which Ray removes after the job, with the journal; name a folder that "
            "stays: --runs-dir /some/where/runs"
        )


def _recorded_times(path: Path, sitting_s: float) -> tuple[str | None, float]:
    """Return the start of a run, and the seconds of all its sittings; None and those of this sitting if the journal cannot be read."""
    try:
        with Reader(path) as reader:
            return reader.created_at, reader.wall_s()
    except InvalidUsage:
        return None, sitting_s


def _adjust_outcome(
    outcome: RunOutcome, reason: str | None, account: Account, strategy: Strategy
) -> tuple[RunOutcome, str | None]:
    undecided = account.undecided_at
    if undecided and strategy.passes_undecided and outcome == "completed":
        return "undecided", undecided_elections(undecided)
    if outcome == "interrupted" and account.outage is not None:
        return outcome, f"{reason}; it was interrupted while calls were tried again: {account.outage}"
    return outcome, reason


async def _conduct_single_input(messenger: RoleMessenger, *, has_journal: bool) -> bytes:
    recalls = False
    while True:
        try:
            conducted = await messenger.ask(Conduct(input=0, recalls=recalls))
        except Undecided:
            if not await inputs_that_go_on(messenger, has_journal=has_journal):
                raise
        else:
            if not await messenger.ask(RecallDecidedInputs()):
                return conducted.value
        recalls = True  # what was unknown is known meanwhile, so the work goes on from there
