"""Inspection of a run by its journal, also during the run; and decisions of a person."""

from __future__ import annotations

import getpass
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from microagents.elections.election import input_of
from microagents.errors import InvalidUsage
from microagents.journal.encoding import SIBLINGS, UNREADABLE
from microagents.journal.lease import read_lease
from microagents.journal.messages import RunOutcome
from microagents.journal.opening import connect
from microagents.journal.reading import Ending, Reader, reader_of
from microagents.journal.rows import Rows
from microagents.messages import resolve
from microagents.registry import STRATEGIES, TASKS, unknown
from microagents.replies.chat import Reply, json_form
from microagents.runs.plan import plan_of, settings_of
from microagents.runs.result import Result, results_of, whole
from microagents.task import flag_of


def inspect_run(runs_dir: Path, run_id: str) -> Result:
    """The result of a run as far as it is recorded.

    Raises:
        InvalidUsage: there is no such run, or its journal cannot be read.
    """
    with reader_of(runs_dir, run_id) as reader:
        return recorded_result(reader)


def recorded_result(reader: Reader) -> Result:
    """The result of a run as far as an open journal records it."""
    ending = reader.ending()
    outcome, reason = _outcome(reader, ending)
    recipe = reader.experiment.recipe
    value, failed = None if ending is None or ending.result is None else msgspec.json.decode(ending.result), None
    if reader.experiment.listed:
        value, failed = results_of(reader.input_endings(), reader.experiment.inputs)
    return Result(
        outcome=outcome,
        reason=reason,
        value=value,
        run_id=reader.experiment.run_id,
        task=TASKS.name_of(recipe.task),
        strategy=STRATEGIES.name_of(recipe.strategy),
        settings=settings_of(reader.experiment),
        account=reader.account(is_cut_off=outcome == "cut off"),
        wall_s=reader.wall_s(),
        journal=reader.path,
        options={} if reader.experiment.listed else recipe.options,
        failed_inputs=failed,
        created_at=reader.created_at,
        k=whole(recipe.strategy_options.get("k")),
        unit=reader.experiment.unit,
    )


def recorded_at(recorded: Sequence[Result | None]) -> str | None:
    """When the first of these runs began; None if one of them is not done."""
    began = [each.created_at for each in recorded if each is not None and each.created_at is not None]
    return min(began) if len(began) == len(recorded) else None


def _outcome(reader: Reader, ending: Ending | None) -> tuple[RunOutcome, str | None]:
    """The outcome of a run and its reason. A run with a lease is running; one without lease and ending was cut off."""
    lease = reader.lease()
    if lease.holder is not None and not lease.may_be_taken:
        return "running", f"process {lease.holder.pid} on {lease.holder.host} is running it"
    if ending is None:
        return "cut off", "its process ended without recording an outcome; all decisions so far are kept"
    return ending.outcome, ending.reason


def solution_of(reader: Reader, of_input: int) -> Struct:
    """The recorded work on an input, as its strategy tells it. It imports the task's module, which has the texts of the questions.

    Raises:
        InvalidUsage: the strategy keeps no such record, there is no such input, or the records are damaged.
    """
    experiment = reader.experiment
    run = experiment.run_id
    if not experiment.draws_solution:
        strategy = STRATEGIES.name_of(experiment.recipe.strategy)
        raise InvalidUsage(
            f"run {run} used the strategy {strategy}, whose decisions are its whole record; there is nothing to draw; "
            f"`microagents export {run}` writes them, and result.decisions() reads them"
        )
    experiment.check_there([of_input])
    plan = plan_of(reader)
    if not plan.strategy.draws_solution:
        raise InvalidUsage(
            f"the work of run {run} cannot be drawn: its journal says that it can, but its strategy {experiment.recipe.strategy} does not; "
            "the rest of `show` does not depend on it"
        )
    pools = plan.settings.pools
    rows, open_elections = reader.of_input(of_input)
    try:
        return plan.strategy.solution(of_input, plan.tasks[of_input], pools.get("solver") or pools[""], rows, open_elections)
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything, and so may damaged rows
        reason = f"{type(error).__name__}: {error}"
        raise InvalidUsage(
            f"the work of run {run} cannot be drawn from its journal ({reason}); the rest of `show` does not depend on it"
        ) from None


def runs_in(runs_dir: Path) -> Iterator[tuple[str, Result | InvalidUsage]]:
    """The names and results of all runs in a folder, in the order of their last writes."""
    found = sorted(runs_dir.glob("*.sqlite"), key=_last_write_s)
    for path in found:
        try:
            with Reader(path) as reader:
                yield path.stem, recorded_result(reader)
        except InvalidUsage as error:
            yield path.stem, error


def _last_write_s(path: Path) -> float:
    try:
        return path.lstat().st_mtime  # of a link itself: what it points to may be missing
    except OSError:  # it was removed meanwhile
        return 0.0


def decide(runs_dir: Path, run_id: str, path: str, value: str) -> Any:
    """Record a person's decision of an undecided election, for the next `resume`; returns the reply.

    Args:
        runs_dir: the folder of journals.
        run_id: name of the run.
        path: path of the undecided election.
        value: the reply, as JSON.

    Raises:
        InvalidUsage: no election is undecided there, the value is not a valid reply, or the run is running.
    """
    with reader_of(runs_dir, run_id) as reader:
        lease = reader.lease()
        if not lease.may_be_taken:
            raise InvalidUsage(f"run {run_id} is running; end it first (Ctrl-C), then decide, then resume")
        undecided = reader.undecided()
        if path not in undecided:
            there = ", ".join(list(undecided)[:5]) or "nothing"
            raise InvalidUsage(f"{path!r} is not undecided in run {run_id}; undecided is {there}")
        task = plan_of(reader).tasks[input_of(path)]  # this imports the module of the reply class, too
        reply = _parse_reply(value, resolve(undecided[path].reply, Reply))
        choices = undecided[path].choices
        if choices and reply.vote() not in choices:
            raise InvalidUsage(
                f"{value!r:.100} names none of the candidates at {path!r}; they are {', '.join(choices)}, and `microagents show {run_id} "
                "--json` shows the reply behind each label; nothing was changed"
            )
        if (flag := flag_of(task, reply, undecided[path].state.encode())) is not None:
            raise InvalidUsage(f"{type(task).__name__} red-flags {value!r:.100} as {flag!r}; nothing was changed; decide for another reply")
        journal = reader.path
    db = connect(journal)
    try:
        db.execute("BEGIN IMMEDIATE")
        who, now = f"{getpass.getuser()}@{socket.gethostname()}", datetime.now(UTC).isoformat(timespec="seconds")
        Rows(db).insert("person", [(path, msgspec.json.encode(reply).decode(), who, now)], "INSERT OR REPLACE")
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise InvalidUsage(f"the decision cannot be written: {error}; nothing was changed") from None
    finally:
        db.close()
    return reply


def remove_run(runs_dir: Path, run_id: str) -> list[Path]:
    """Remove the journal of a run, and the files that SQLite keeps beside it; returns what was removed.

    Raises:
        InvalidUsage: there is no such run, its file is no journal, it is running, or it cannot be removed. Nothing was removed.
    """
    with reader_of(runs_dir, run_id) as reader:
        journal = reader.path
    db = connect(journal)
    removed = []
    try:
        db.execute("BEGIN IMMEDIATE")  # no process can take the lease between the look at it and the end of the file
        lease = read_lease(Rows(db))
        if not lease.may_be_taken:
            raise InvalidUsage(f"run {run_id} is running, so it was kept; end it first (Ctrl-C)")
        for path in (journal, *(journal.with_name(journal.name + suffix) for suffix in SIBLINGS)):
            if path.exists():
                path.unlink()
                removed.append(path)
    except (OSError, *UNREADABLE) as error:
        kept = "" if removed else ", so it was kept"
        raise InvalidUsage(f"run {run_id} cannot be removed{kept}: {error}") from None
    finally:
        db.close()
    return removed


def _parse_reply(value: str, kind: type[Reply]) -> Reply:
    try:
        reply = msgspec.json.decode(value, type=kind)
        given, known = msgspec.json.decode(value), msgspec.json.decode(msgspec.json.encode(reply))
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise InvalidUsage(f"{value!r:.100} is no {kind.__name__}: {error}; write it as JSON, of the form {json_form(kind)}") from None
    # msgspec ignores fields that it does not know; in a decision by hand they are typos.
    if unknown_fields := sorted(set(given) - set(known)):
        raise InvalidUsage(unknown(f"field of {kind.__name__} called", unknown_fields[0], list(known)))
    return reply
