"""The Python interface of runs: `run` begins or continues a run, `resume` continues one from its journal alone."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from microagents.actors import Strategy
from microagents.documents.document import text_in
from microagents.errors import InvalidUsage
from microagents.journal.reading import Reader, reader_of
from microagents.messages import address_of
from microagents.registry import TASKS, unknown
from microagents.roles.decision_teller import OnDecision
from microagents.runs.arguments import check_arguments
from microagents.runs.driver.batch import OnEnding
from microagents.runs.driver.execute import OnProgress, RunControl, execute_plan
from microagents.runs.driver.following import OnSolution
from microagents.runs.driver.forecast import OnForecast
from microagents.runs.driver.notebook import notebook_progress
from microagents.runs.driver.output import Outputs
from microagents.runs.inspection.runs import recorded_result
from microagents.runs.plan import Plan, plan_of, recorded_limits
from microagents.runs.result import Result
from microagents.runs.settings import Models, Settings, check_address, check_lanes, model_pools, plain_type, strategy_of, validated
from microagents.runs.task_list import tasks_of
from microagents.task import Task
from microagents.words.prices import prices_of, specs_in

F = TypeVar("F", bound=Callable[..., Any])

NOTHING_NEW = (
    "it was undecided before, and nothing was asked again, because nothing is new: change one of these, or resume with a higher --max-draws"
)
SHORT_FORMS = ("k", "speculate", "known_inputs", "max_draws")
"""Options of strategies that `resume` also accepts as keywords."""


def takes_settings(function: F) -> F:
    """Add the fields of `Settings` to the signature of a function that accepts them as ``**settings``, for ``help()`` and ``inspect``."""
    signature = inspect.signature(function)
    named = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    fields = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if info.is_required() else info.default,
            annotation=plain_type(info.annotation),
        )
        for name, info in Settings.model_fields.items()
        if name not in signature.parameters
    ]
    vars(function).update(__signature__=signature.replace(parameters=[*named, *fields]))
    return function


@takes_settings
async def run(
    task: Task | Sequence[Task],
    *,
    models: Models,
    strategy: str | Strategy | None = None,
    k: int | None = None,
    speculate: bool | None = None,
    known_inputs: bool | None = None,
    run_id: str | None = None,
    runs_dir: str | Path | None = "runs",
    accept_changes: Sequence[str] = (),
    on_progress: OnProgress | None = None,
    on_decision: OnDecision | None = None,
    on_solution: OnSolution | None = None,
    on_ending: OnEnding | None = None,
    on_forecast: OnForecast | None = None,
    interrupt: asyncio.Event | None = None,
    terminate: asyncio.Event | None = None,
    **settings: Any,
) -> Result:
    """Do a task without an error. With the ``run_id`` of an earlier run, continue that run: recorded steps are not done again.

    Args:
        task: the task; or a list of tasks of one class, which are done side by side. The failure of one does not stop the others.
        models: a spec, a model, an async function, a pool of these that samples rotate through, or pools by role.
        strategy: a name or an instance; None for the task's default strategy.
        k: short for the strategy's option of this name.
        speculate: short for the strategy's option of this name; a strategy without it ignores it.
        known_inputs: short for the strategy's option of this name.
        run_id: name of the run; by default a new one.
        runs_dir: the folder of journals; None for a run that cannot be resumed.
        accept_changes: names of fields that may differ from the recorded experiment.
        on_progress: called a few times a second with the account as of the last commit.
        on_decision: called with each `RecordedDecision` once it is durable, in the order of commits; a plain function or an async one. What
            it raises ends the run.
        on_solution: called about once a second with the recorded work on the only input, where the strategy draws it and there is a
            journal; it returns whether it wants further calls.
        on_ending: called with the ending of each of many inputs, once it is durable.
        on_forecast: called with the expected cost (`Forecast`) before the run begins, where it asks models at a known price; what it raises
            ends the call, and nothing was started.
        interrupt: once set, the run ends as ``interrupted`` after the calls in flight.
        terminate: once set, the run ends as ``interrupted`` at once.
        settings: fields of `Settings`, such as ``max_calls=1000`` or ``runtime="ray"``. An earlier run keeps its limits unless they are
            given; None lifts one.

    Raises:
        InvalidUsage: an argument is wrong; nothing was started.
        JournalMismatch: the journal belongs to another experiment; nothing was changed.
        TakenOver: another process has taken over the run.
        RoleFailed: code of a task or of a role raised.
        PeerLost: a role's process died too often, or there is no room for it.
        ModelUnavailable: a provider refuses the request for good.
    """
    check_address(settings.get("address"), settings.get("runtime", "local"))
    check_arguments(
        runs_dir="" if runs_dir is None else runs_dir,
        accept_changes=accept_changes,
        on_progress=on_progress,
        on_decision=on_decision,
        on_solution=on_solution,
        on_ending=on_ending,
        on_forecast=on_forecast,
        interrupt=interrupt,
        terminate=terminate,
    )
    tasks = tasks_of(task)
    chosen = strategy_of(strategy, tasks[0], {}, {"k": k, "speculate": speculate, "known_inputs": known_inputs})
    for name, value in settings.items():
        if name not in Settings.model_fields:
            if name in type(chosen).model_fields:
                given_as = f"strategy={type(chosen).__name__}({name}={value!r:.100})"
                raise InvalidUsage(f"{name!r} is an option of the strategy: give it as {given_as}")
            raise InvalidUsage(unknown("argument of run() called", name, list(inspect.signature(run).parameters)))
    given = model_pools(models, [chosen])
    named = {"models": given.pools, "run_id": new_run_id(tasks[0]) if run_id is None else run_id}
    own = validated(Settings, "the run", {**settings, **named})
    check_lanes(settings.get("lanes"), own.runtime)
    if runs_dir is not None and run_id is not None:
        kept = {name: value for name, value in recorded_limits(Path(runs_dir), run_id).items() if name not in settings}
        own = own.model_copy(update=kept)
    plan = Plan(
        tasks=tasks,
        listed=not isinstance(task, Task),
        strategy=chosen,
        settings=own,
        model_objects=given.objects,
    )
    control = RunControl(
        on_progress=on_progress,
        on_decision=on_decision,
        on_solution=on_solution,
        on_ending=on_ending,
        on_forecast=on_forecast,
        interrupt=interrupt,
        terminate=terminate,
    )
    return await _with_progress(
        plan,
        control,
        lambda shown: execute_plan(plan, runs_dir=runs_dir, accepted=accept_changes, control=shown, outputs=Outputs(plan.tasks)),
    )


async def resume(
    run_id: str,
    *,
    runs_dir: str | Path = "runs",
    inputs: Sequence[int] | None = None,
    accept_changes: Sequence[str] = (),
    on_progress: OnProgress | None = None,
    on_decision: OnDecision | None = None,
    on_solution: OnSolution | None = None,
    on_ending: OnEnding | None = None,
    on_forecast: OnForecast | None = None,
    interrupt: asyncio.Event | None = None,
    terminate: asyncio.Event | None = None,
    **changed: Any,
) -> Result:
    """Continue a run from its journal alone.

    Args:
        run_id: name of the run.
        runs_dir: the folder of journals.
        inputs: numbers of the inputs to do, from 0; None for all that are not completed, failed ones included.
        accept_changes: names of fields that may differ from the recorded experiment.
        on_progress: called a few times a second with the account as of the last commit.
        on_decision: called with each `RecordedDecision` once it is durable, in the order of commits; a plain function or an async one. What
            it raises ends the run.
        on_solution: called about once a second with the recorded work on the only input, where the strategy draws it and there is a
            journal; it returns whether it wants further calls.
        on_ending: called with the ending of each of many inputs, once it is durable.
        on_forecast: called with the expected cost (`Forecast`) before the run begins, where it asks models at a known price; what it raises
            ends the call, and nothing was started.
        interrupt: once set, the run ends as ``interrupted`` after the calls in flight.
        terminate: once set, the run ends as ``interrupted`` at once.
        changed: settings that differ from the recorded ones, such as ``on_undecided="leader"``; also ``k``, ``max_draws``,
            ``speculate`` and ``known_inputs``.

    Raises:
        InvalidUsage: there is no such run or input, or its task cannot be imported.
        MicroagentsError: see `run`.
    """
    check_arguments(
        run_id=run_id,
        runs_dir=runs_dir,
        inputs=inputs,
        accept_changes=accept_changes,
        on_progress=on_progress,
        on_decision=on_decision,
        on_solution=on_solution,
        on_ending=on_ending,
        on_forecast=on_forecast,
        interrupt=interrupt,
        terminate=terminate,
    )
    with reader_of(Path(runs_dir), run_id) as reader:
        reader.experiment.check_there(inputs or ())
        ending = reader.ending()
        if ending is not None and ending.outcome == "completed" and not accept_changes:
            return _with_outputs(reader, recorded_result(reader))
        calls_before = reader.account().calls if ending is not None and ending.outcome == "undecided" else None
        plan = plan_of(reader)
    short = {name: changed.pop(name, None) for name in SHORT_FORMS}
    settings = validated(Settings, "the run", {**plan.settings.model_dump(), **changed})
    check_address(changed.get("address"), settings.runtime)
    check_lanes(changed.get("lanes"), settings.runtime)
    plan = structs.replace(plan, settings=settings, strategy=strategy_of(plan.strategy, plan.tasks[0], {}, short))
    control = RunControl(
        on_progress=on_progress,
        on_decision=on_decision,
        on_solution=on_solution,
        on_ending=on_ending,
        on_forecast=on_forecast,
        interrupt=interrupt,
        terminate=terminate,
    )
    result = await _with_progress(
        plan,
        control,
        lambda shown: execute_plan(
            plan, runs_dir=runs_dir, only=inputs, accepted=accept_changes, control=shown, outputs=Outputs(plan.tasks)
        ),
    )
    if result.outcome == "undecided" and result.calls == calls_before:
        return structs.replace(result, reason=f"{result.reason}; {NOTHING_NEW}")
    return result


async def _with_progress(plan: Plan, control: RunControl, execute: Callable[[RunControl], Awaitable[Result]]) -> Result:
    """Execute a run. In a notebook its progress is shown, unless the caller has a callback for it."""
    if control.on_progress is not None:
        return await execute(control)
    kind = type(plan.tasks[0])
    show = notebook_progress(TASKS.name_of(address_of(kind)), kind.progress_unit, prices_of(specs_in(plan.settings.models)))
    result = await execute(structs.replace(control, on_progress=show))
    if show is not None:
        show(result.account)
    return result


def _with_outputs(reader: Reader, result: Result) -> Result:
    """The result of a completed run, with the outputs that are missing written."""
    values = [result.value] if result.failed_inputs is None else result.value
    if any(text_in(value) is not None for value in values):
        with suppress(InvalidUsage):  # the task's code may be gone; the result does not depend on it
            return Outputs(plan_of(reader).tasks).finished(result)
    return result


def run_sync(task: Task | Sequence[Task], **options: Any) -> Result:
    """Call `run` from code that is not async. It has the same arguments and the same result.

    Where an event loop runs already, as in a notebook, the run gets a loop and a thread of its own, and the running loop waits. There
    ``await run(...)`` does not block. Ctrl-C ends the run at once: its decisions are kept, and a note of the `KeyboardInterrupt` names it.
    """
    given = options.get("run_id")
    named = {**options, "run_id": new_run_id(tasks_of(task)[0]) if given is None else given}
    try:
        return _run_in_thread(task, named) if _has_running_loop() else asyncio.run(run(task, **named))
    except KeyboardInterrupt as error:
        if options.get("runs_dir", "runs") is not None:
            error.add_note(f"all decisions so far are kept; resume run {named['run_id']}")
        raise


def _run_in_thread(task: Task | Sequence[Task], options: Mapping[str, Any]) -> Result:
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def cancellable() -> Result:
        current = asyncio.current_task()
        assert current is not None
        running.append((asyncio.get_running_loop(), current))
        return await run(task, **options)

    with ThreadPoolExecutor(1, thread_name_prefix="run") as pool:
        # A notebook knows by the context to which cell an output belongs.
        ended = pool.submit(copy_context().run, asyncio.run, cancellable())
        try:
            return ended.result()
        except KeyboardInterrupt:
            for loop, started in running:
                loop.call_soon_threadsafe(started.cancel)
            raise


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def new_run_id(task: Task) -> str:
    """The name of a new run of a task."""
    return f"{TASKS.name_of(address_of(type(task))).lower()}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
