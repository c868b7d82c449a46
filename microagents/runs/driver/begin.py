"""The Python interface of runs: `run` begins or continues a run, `resume` continues one from nothing but its journal."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Unpack, overload

from msgspec import structs

from microagents.actors.registry import TASKS, unknown
from microagents.actors.role import Strategy
from microagents.base.aio import run_to_end
from microagents.base.errors import Interrupted, InvalidUsage
from microagents.base.logs import log
from microagents.base.messages import address_of
from microagents.base.named_values import stated
from microagents.base.trust import JOURNALS
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import Reader, journal_of
from microagents.journal.sharded import MOST_SHARDS, reader_of
from microagents.runs.driver.conducting import unless_ended
from microagents.runs.driver.execute import execute_plan
from microagents.runs.driver.keywords import RunControl, SharedKeywords, check_arguments, without_control
from microagents.runs.driver.notebook import notebook_progress
from microagents.runs.driver.output import Outputs
from microagents.runs.driver.tool_lists import with_tools_of_servers
from microagents.runs.inspection.row_table import task_class
from microagents.runs.inspection.runs import decide, recorded_result
from microagents.runs.plan import RunPlan, plan_of, recorded_limits, settings_of, what_stranger_names
from microagents.runs.result import Result, Results
from microagents.runs.row_files import PARQUET, check_new, write_rows
from microagents.runs.row_forms import ending_of
from microagents.runs.settings import OptionKeywords, SettingKeywords, Settings, options_in, validated
from microagents.runs.strategies import Models, check_for_ray, model_pools, strategy_of
from microagents.runs.task_list import Tasks, tasks_of
from microagents.runs.words.money import prices_of, specs_in
from microagents.runs.words.verdict import WAITS
from microagents.systems.agents.agent import AgentTask
from microagents.systems.documents.document import text_in
from microagents.task import Task, V

NOTHING_NEW = (
    "it was undecided before, and nothing was asked again, because nothing is new: change one of these, or resume with "
    "a higher -s max_draws=N"
)


class ResumeKeywords(SharedKeywords, OptionKeywords, total=False):
    """Keywords of `resume`: differences from the recorded run."""


class RunKeywords(ResumeKeywords, total=False):
    """Keywords of `run`, besides the models."""

    strategy: str | Strategy | None
    """A name or an instance; None for the task's default strategy."""
    run_id: str | None
    """Name of the run; by default a new one."""
    runs_dir: str | Path | None
    """The folder of journals, by default ``runs``; None for a run that cannot be resumed."""
    accept_changes: Sequence[str]
    """Names of fields that may differ from the recorded experiment."""
    inputs: Sequence[int] | None
    """Numbers of the inputs to do in this sitting, from 0; None for all."""
    shards: int | str | None
    """Number of runs that the inputs are dealt to, each with a journal of its own; ``auto`` is one a CPU; None for one run."""


@overload
async def run(task: Task[V], *, models: Models, **given: Unpack[RunKeywords]) -> Result[V]: ...
@overload
async def run(task: Sequence[Task[V]], *, models: Models, **given: Unpack[RunKeywords]) -> Result[Results[V]]: ...
async def run(task: Tasks, *, models: Models, **given: Unpack[RunKeywords]) -> Result:
    """Do a task without an error. With the ``run_id`` of an earlier run, continue that run: recorded steps are not done again.

    Args:
        task: the task; or a list of tasks of one class, which are done side by side. The failure of one does not stop the others.
        models: a spec, a model, an async function, a pool of these that samples rotate through, or pools by role.
        given: as `RunKeywords` says, such as ``k=2``, which is short for ``options={"k": 2}``; callbacks (`RunControl`), such as
            ``on_decision=print``; and `SettingKeywords`, such as ``max_calls=1000`` or ``runtime="ray"``. An earlier run keeps its
            limits unless they are given; None lifts one.

    Raises:
        InvalidUsage: an argument is wrong; nothing was started.
        JournalMismatch: the journal belongs to another experiment; nothing was changed.
        TakenOver: another process has taken over the run.
        RoleFailed: code of a task or of a role raised.
        PeerLost: a role's process died too often, or it finds no room.
        ModelUnavailable: a provider refuses the request for good.
    """
    check_arguments(stated(given))
    plan, runs_dir = new_plan(task, models, given), given.get("runs_dir", "runs")
    if runs_dir is not None and given.get("run_id") is not None:
        recorded = recorded_limits(Path(runs_dir), plan.settings["run_id"])
        kept = {name: value for name, value in recorded.items() if name not in given}
        plan = structs.replace(plan, settings=plan.settings | kept)
    only, accepted = given.get("inputs"), given.get("accept_changes", ())
    inputs = range(len(plan.tasks)) if plan.listed else ()
    if only is not None and not {*only} <= {*inputs}:
        raise InvalidUsage(
            f"inputs must be numbers of a list of tasks, counted from 0, not {only!r:.100}; nothing was started"
        )
    return await _carry_out(plan, given, runs_dir=runs_dir, only=only, accepted=accepted)


def new_plan(task: Tasks, models: Models, given: RunKeywords) -> RunPlan:
    """Return the plan of a new run.

    Raises:
        InvalidUsage: an argument is wrong.
    """
    tasks, run_id = tasks_of(task), given.get("run_id")
    chosen = strategy_of(given.get("strategy"), tasks[0], options_in(given))
    for name, value in given.items():
        if name in type(chosen).model_fields and name not in RunKeywords.__annotations__:
            given_as = f"strategy={type(chosen).__name__}({name}={value!r:.100})"
            raise InvalidUsage(f"{name!r} is an option of the strategy: give it as {given_as}")
        if name not in RunKeywords.__annotations__:
            raise InvalidUsage(
                unknown("argument of run() called", name, ["task", "models", *RunKeywords.__annotations__])
            )
    settings = {name: value for name, value in given.items() if name in SettingKeywords.__annotations__}
    pools = model_pools(models, [chosen])
    named = {"models": pools.pools, "run_id": new_run_id(tasks[0]) if run_id is None else run_id}
    own = validated(Settings, "the run", {**settings, **named})
    check_for_ray(settings, own["runtime"])
    return RunPlan(
        tasks=tasks,
        listed=not isinstance(task, Task),
        strategy=chosen,
        settings=own,
        model_objects=pools.objects,
        shards=_shards_in(given.get("shards")),
    )


def _shards_in(wanted: int | str | None) -> int:
    """Return the number of shards; 0 of a run without shards."""
    if wanted is None:
        return 0
    if wanted == "auto":
        return os.cpu_count() or 1
    if str(wanted).isdecimal() and 1 <= int(wanted) <= MOST_SHARDS:
        return int(wanted)
    raise InvalidUsage(f"--shards is a number from 1 to {MOST_SHARDS:,} or `auto`, not {wanted!r:.100}")


async def resume(
    run_id: str,
    *,
    runs_dir: str | Path = "runs",
    inputs: Sequence[int] | None = None,
    accept_changes: Sequence[str] = (),
    trust_journal: bool = False,
    answers: Mapping[str, str] | None = None,
    **changed: Unpack[ResumeKeywords],
) -> Result:
    """Continue a run from nothing but its journal.

    Args:
        run_id: name of the run.
        runs_dir: the folder of journals.
        inputs: numbers of the inputs to do, from 0; None for all that are not completed, failed ones included.
        accept_changes: names of fields that may differ from the recorded experiment.
        trust_journal: whether the journal of a run that this user did not begin here may name the code and the hosts to use.
        answers: customers' answers by the places that wait for them (`Result.waiting`). One that was given before is no second one.
        changed: settings that differ from the recorded ones, such as ``on_undecided="leader"``; options of the strategy;
            and callbacks, as for `run`.

    Raises:
        InvalidUsage: no such run or input exists, its task cannot be imported, or its journal is not trusted.
        MicroagentsError: see `run`.
    """
    check_arguments(
        {
            "run_id": run_id,
            "runs_dir": runs_dir,
            "inputs": inputs,
            "accept_changes": accept_changes,
            "answers": answers or {},
            **changed,
        }
    )
    with reader_of(Path(runs_dir), run_id, trust=trust_journal) as reader:
        if (stranger := what_stranger_names(reader)) is not None:
            raise InvalidUsage(f"{stranger}; if you trust it, pass trust_journal=True")
        if reader.experiment.of_inputs is not None:
            raise InvalidUsage(
                f"{run_id} is a shard, and has some of the inputs of a run; resume that run: {Path(runs_dir).stem}"
            )
        reader.experiment.check_there(inputs or ())
    for place, text in (answers or {}).items():
        decide(Path(runs_dir), run_id, place, f"answer {text}")
    with reader_of(Path(runs_dir), run_id, trust=trust_journal) as reader:
        before = recorded_result(reader, whole=False)
        if before.outcome == "completed" and not accept_changes:
            recorded = settings_of(reader.experiment)
            given = {name: value for name, value in changed.items() if name in ("output", "output_dialect")}
            settings = validated(Settings, "the run", {**recorded, **given})
            result, kind = recorded_result(reader, imports=True), task_class(reader)
            if kind is not None:
                result = structs.replace(result, source=kind)
            result = _with_outputs(reader, result)
            return _with_table(result, settings, is_kept="output" not in given)
        plan = _changed_plan(plan_of(reader, whole=True), changed)
    result = await _carry_out(plan, changed, runs_dir=runs_dir, only=inputs, accepted=accept_changes)
    if {before.outcome, result.outcome} <= {*WAITS} and result.calls == before.calls:
        return structs.replace(result, reason=f"{result.reason}; {NOTHING_NEW}")
    return result


def _changed_plan(plan: RunPlan, changed: ResumeKeywords) -> RunPlan:
    given = {
        name: value for name, value in without_control(changed).items() if name not in OptionKeywords.__annotations__
    }
    settings = validated(Settings, "the run", {**plan.settings, **given})
    check_for_ray(given, settings["runtime"])
    return structs.replace(
        plan, settings=settings, strategy=strategy_of(plan.strategy, plan.tasks[0], options_in(changed))
    )


async def _carry_out(
    plan: RunPlan,
    control: RunControl,
    *,
    runs_dir: str | Path | None,
    only: Sequence[int] | None = None,
    accepted: Sequence[str],
) -> Result:
    """Execute a run. In a notebook its progress is shown, unless the caller has a callback for it."""
    listed = await unless_ended(with_tools_of_servers(plan), control)
    if listed is None:
        raise Interrupted("interrupted while the tools of MCP servers were read; nothing was started")
    plan, journal = listed, None if runs_dir is None else journal_of(Path(runs_dir), listed.settings["run_id"])
    _tell_of_keys(plan, journal, control.get("on_start") or log().warning)
    kind, show = type(plan.tasks[0]), None
    if control.get("on_progress") is None:
        show = notebook_progress(
            TASKS.name_of(address_of(kind)), kind.progress_unit, prices_of(specs_in(plan.settings["models"]))
        )
        control = {**control, "on_progress": show}
    outputs, table = Outputs(plan, journal), plan.settings["output"]
    outputs.check(only)
    if table is not None:
        if journal is None:
            raise InvalidUsage("an output of rows is read from the journal; give a runs_dir, or leave the output out")
        if holds_nothing(journal):
            check_new(Path(table))
    result = await execute_plan(plan, journal, only=only, accepted=accepted, control=outputs.listening(control))
    if result.outcome == "interrupted" and journal is not None and holds_nothing(journal):
        raise Interrupted("interrupted before its first record; nothing was started, and the same command begins anew")
    if show is not None:
        show(result.account)
    result = outputs.finished(result)
    return _with_table(result, plan.settings)


def _with_table(result: Result, settings: Settings, *, is_kept: bool = False) -> Result:
    """Write the rows of a run into its output, if it has one; one that is there may be kept."""
    path = Path(settings["output"] or "")
    if settings["output"] is None or (is_kept and os.path.exists(path)):
        return result
    rows = partial(result.rows, as_json=ending_of(path) != PARQUET, trust=settings["trust_columns"])
    write_rows(path, rows, settings["output_dialect"])
    return structs.replace(result, outputs=(*result.outputs, path))


def _tell_of_keys(plan: RunPlan, journal: Path | None, tell: Callable[[str], None]) -> None:
    """Explain the consequences of an agent with effects that begins a journal under a name that another run has had."""
    first, run_id = plan.tasks[0], plan.settings["run_id"]
    if not isinstance(first, AgentTask) or not first.has_effects or re.search(NEW_NAME, run_id):
        return
    if journal is None or (holds_nothing(journal) and JOURNALS.names(journal.name)):
        tell(
            f"run {run_id} begins anew: its effects have the keys of every other run of this name, so a service that honours keys takes an "
            "equal effect for a repetition and does not make it; for new effects use another --run-id"
        )


def _with_outputs(reader: Reader, result: Result) -> Result:
    values = [result.recorded] if result.failed_inputs is None else result.recorded
    if any(text_in(value) is not None for value in values):
        with suppress(InvalidUsage):  # the task's code may be gone; the result does not depend on it
            return Outputs(plan_of(reader, whole=True), reader.path).finished(result)
    return result


@overload
def run_sync(task: Task[V], *, models: Models, **given: Unpack[RunKeywords]) -> Result[V]: ...
@overload
def run_sync(task: Sequence[Task[V]], *, models: Models, **given: Unpack[RunKeywords]) -> Result[Results[V]]: ...
def run_sync(task: Tasks, *, models: Models, **given: Unpack[RunKeywords]) -> Result:
    """Call `run` from code that is not async. It has the same arguments and the same result.

    If an event loop runs already, as in a notebook, the run gets a loop and a thread of its own, and the running loop waits. There
    ``await run(...)`` does not block. Ctrl-C ends the run at once: its decisions are kept, and a note of the `KeyboardInterrupt` names it.
    """
    run_id = given.get("run_id")
    named: dict[str, Any] = {
        **given,
        "models": models,
        "run_id": new_run_id(tasks_of(task)[0]) if run_id is None else run_id,
    }
    try:
        return run_to_end(run(task, **named))
    except KeyboardInterrupt as error:
        if given.get("runs_dir", "runs") is not None:
            error.add_note(f"all decisions so far are kept; resume run {named['run_id']}")
        raise


NEW_NAME = r"-\d{8}-\d{6}-[0-9a-f]{8}$"
"""The end of a name that no other run has."""


def new_run_id(task: Task) -> str:
    """Return the name of a new run of a task."""
    name = TASKS.name_of(address_of(type(task)))
    return f"{name.lower()}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
