"""Inspection of a run by its journal, also during the run; and decisions of a person."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from microagents.actors.registry import STRATEGIES, TASKS, unknown
from microagents.base.errors import AlreadyDecided, InvalidUsage, MicroagentsError, refusing
from microagents.base.messages import resolve
from microagents.base.trust import without_code_of
from microagents.elections.election import input_of
from microagents.elections.rules import FirstValid
from microagents.journal.books import UndecidedElection
from microagents.journal.ending import RunEnding
from microagents.journal.interventions import ask_live, decide_in, remove
from microagents.journal.lease import Lease
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import SUFFIX, Reader, journal_of
from microagents.journal.requests import Decide, PersonDecision, decided_already, pause_among, said_by
from microagents.journal.sharded import open_run, reader_of
from microagents.replies.persons import ANSWERED, CustomerAnswer, PersonReply
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import decoder_of, encode_reply, json_form
from microagents.replies.typed import fields_in, fields_of, reply_json
from microagents.runs.accuracy import Accuracy
from microagents.runs.cells import cells_in
from microagents.runs.inspection.rebuilding import asked_at
from microagents.runs.inspection.replay import drawn_work
from microagents.runs.judging import accuracy_of
from microagents.runs.plan import plan_of, settings_of
from microagents.runs.result import Result, Results, facts_in, results_of
from microagents.systems.agents.notes import AgentRecord
from microagents.systems.chains.row_task import RowTask
from microagents.task import flag_of

MAX_UNSOLVED = 500
"""Inputs that did not complete which are read for a list of runs, or for a page."""


def inspect_run(runs_dir: Path, run_id: str) -> Result:
    """Return the result of a run as far as it is recorded."""
    with reader_of(runs_dir, run_id, watched=True) as reader:
        return recorded_result(reader)


def recorded_result(reader: Reader, *, whole: bool = True, imports: bool = False) -> Result:
    """Return the result of a run as far as an open journal records it.

    Args:
        reader: the journal.
        whole: whether to read what takes longer the more was done: the results of many inputs, and all those that did not complete
            beyond the first `MAX_UNSOLVED`.
        imports: whether to import the code of rows, which judges them. Else it does so only if it is imported already.
    """
    ending = _ending_now(reader)
    value = msgspec.json.decode(ending.result or "null")
    failed = accuracy = None
    if reader.experiment.listed and whole:
        value, failed = results_of(reader.input_endings(), reader.experiment.inputs)
        with nullcontext() if imports else without_code_of(reader.experiment.run_id):
            accuracy = _accuracy(reader, value)
    elif reader.experiment.listed:
        failed = tuple(reader.input_endings(unsolved=MAX_UNSOLVED))
    account = structs.replace(
        reader.account(is_cut_off=ending.outcome == "cut off"),
        paused=said_by(pause_among(reader.requests())),
    )
    if not whole:  # of a run that is looked at; a whole result equals the one that its run returned
        account = structs.replace(account, state=ending.outcome, renewals=reader.lease().renewals)
    return Result(
        recorded=value,
        source=reader.experiment.recipe.task,
        settings=settings_of(reader.experiment),
        account=account,
        wall_s=reader.wall_s(),
        journal=reader.path,
        accuracy=accuracy,
        failed_inputs=failed,
        by_persons=_decided_by_persons(reader, account.undecided_at),
        created_at=reader.created_at,
        shards=reader.shards(),
        **facts_in(reader.experiment, ending),
    )


def _decided_by_persons(reader: Reader, undecided_at: Sequence[str]) -> dict[str, PersonDecision]:
    """Return the decisions of persons on undecided elections, which the next sitting takes up."""
    if not undecided_at:
        return {}
    persons = reader.persons()
    return {path: persons[path] for path in undecided_at if path in persons}


def _accuracy(reader: Reader, value: Results) -> Accuracy | None:
    """Judge the rows of a run; None if they are no rows, or their code is not there."""
    with suppress(MicroagentsError):
        if "row" in reader.experiment.recipe.options:
            return accuracy_of(plan_of(reader).tasks, value)
    return None


def _ending_now(reader: Reader) -> RunEnding:
    """Return the recorded ending of a run. One with a lease is running; one without lease and ending was cut off."""
    lease = reader.lease()
    if lease.holder is not None and not lease.is_free:
        return RunEnding(outcome="running", reason=f"{lease.holder} is running it{_remark(lease)}")
    why = "its process ended without recording an outcome; all decisions so far are kept"
    return reader.ending() or RunEnding(outcome="cut off", reason=why)


def _remark(lease: Lease) -> str:
    remedy = None if lease.holder is None else lease.holder.remedy()
    if remedy is not None:
        return f"; {remedy}"
    if lease.state() == "held":
        return ""
    return ", or was: it cannot be looked up from here, and is watched"


def solution_of(reader: Reader, of_input: int) -> Struct:
    """Return the work on an input as its conductor notes it in a replay, as far as it is recorded. The task's code runs again."""
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
    try:
        return _with_persons(drawn_work(reader, plan, of_input), reader)
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything, and so may damaged rows
        if isinstance(error, InvalidUsage):
            reason = str(error)
        else:
            reason = f"{type(error).__name__}: {error}"
        raise InvalidUsage(
            f"the work of run {run} cannot be drawn from its journal ({reason}); the rest of `show` does not depend on it"
        ) from None


def _with_persons(work: Struct, reader: Reader) -> Struct:
    """Say of an agent's calls that wait which of them a person has decided for the next sitting."""
    decided = {path.rpartition("/")[0] for path in reader.persons()}
    for action in work.actions if isinstance(work, AgentRecord) else ():
        for number, call in enumerate(action.calls):
            if call.outcome == "waits" and f"{action.path}/call/{number}" in decided:
                call.outcome = "decided, not yet resumed"
    return work


def runs_in(
    runs_dir: Path, *, since_s: float = 0.0, whole: bool = False
) -> Iterator[tuple[str, Result | InvalidUsage]]:
    """Yield the names and results of the runs in a folder, in the order of their last writes; see `recorded_result`."""
    for path in journals_in(runs_dir):
        if _last_write_s(path) < since_s:
            continue
        try:
            with open_run(path) as reader:
                yield path.stem, recorded_result(reader, whole=whole)
        except InvalidUsage as error:
            yield path.stem, error


def journals_in(runs_dir: Path) -> list[Path]:
    """List the journals of a folder, in the order of their last writes."""
    found = list[Path]()
    with refusing(f"the folder {str(runs_dir)!r} cannot be read"), suppress(FileNotFoundError):
        found = [each for each in runs_dir.iterdir() if each.suffix == SUFFIX]
    return sorted(found, key=_last_write_s)


def journal_into(output: Path, rows: int, runs_dir: Path) -> Path | None:
    """Return the journal of the last run of a folder with this output and number of rows; None if it is not there."""
    named = os.path.abspath(output)  # noqa: PTH100 - as a run names it: a path without its links resolved
    for journal in reversed(journals_in(runs_dir)):
        with suppress(InvalidUsage), Reader(journal) as reader:
            if reader.experiment.recipe.settings.get("output") == named and reader.experiment.inputs == rows:
                return journal
    return None


def _last_write_s(path: Path) -> float:
    found = 0.0
    for each in (path, path.with_name(f"{path.name}-wal")):
        with suppress(OSError):  # it was removed meanwhile
            found = max(found, each.lstat().st_mtime)  # of a link itself: what it points to may be missing
    return found


class PersonDecided(NamedTuple):
    """A decision of a person."""

    path: str
    reply: Any
    go_on: str | None
    """How to continue the run; None if it is under way."""
    replaced: PersonDecision | None = None
    """Another decision of a person there, which this one replaces."""


def decide(
    runs_dir: Path, run_id: str, path: str, value: str | Mapping[str, str], *, again: bool = False
) -> PersonDecided:
    """Decide an undecided election: for the next `resume`, or in a run that is under way also an open one.

    Args:
        runs_dir: the folder of journals.
        run_id: name of the run.
        path: place of the decision. A short one, such as ``step/7``, names the item that waits there.
        value: the reply: as texts by its fields, also in one text as ``FIELD=VALUE FIELD=VALUE``, as JSON, or in words if only a person
            can give it, such as ``approve``. Of a row some of its fields are enough: the others are those that lead.
        again: whether to replace a different decision of a person. A customer's answer is never replaced.

    Raises:
        AlreadyDecided: a person has decided it otherwise.
        InvalidUsage: no election is undecided there, or the value is not a valid reply.
    """
    with reader_of(runs_dir, run_id, watched=True) as reader:
        path = _place_of(reader, path)
        is_live, journal = not reader.lease().is_free, reader.holding(path).path
        before = reader.persons().get(path)
        if before is not None and path.endswith(ANSWERED):
            reply = _parse_reply(_one_text(value, CustomerAnswer), CustomerAnswer)
            if msgspec.json.encode(reply).decode() != before.value:
                raise AlreadyDecided(decided_already(path, before))
            return PersonDecided(path, reply, recorded_result(reader, whole=False).go_on)
        undecided = _decidable(reader, path, is_live=is_live)
        task = plan_of(reader).tasks[input_of(path)]  # this imports the module of the reply class, too
        kind = resolve(undecided.reply, Reply)
        value = _one_text(value, kind)
        if isinstance(task, RowTask):
            value = _with_leading_cells(reader, path, value)
        reply = task.as_declared(_parse_reply(value, kind))
        if undecided.choices and reply.vote() not in undecided.choices:
            raise InvalidUsage(
                f"{value!r:.100} names none of the candidates at {path!r}; they are {', '.join(undecided.choices)}, and `microagents show "
                f"{run_id} {path}` shows their replies; nothing was changed"
            )
        if not isinstance(reply, PersonReply) and (flag := flag_of(task, reply, undecided.state.encode())) is not None:
            raise InvalidUsage(
                f"{type(task).__name__} red-flags {value!r:.100} as {flag!r}; nothing was changed; decide for another reply"
            )
    ask = Decide(path=path, value=encode_reply(reply).decode(), again=again and not isinstance(reply, CustomerAnswer))
    if not is_live:
        decide_in(journal, ask)
    elif not ask_live(journal, ask):
        _decide_once_ended(journal, ask)
    replaced = None if before is None or before.value == ask.value else before
    with reader_of(runs_dir, run_id, watched=True) as reader:
        return PersonDecided(path, reply, recorded_result(reader, whole=False).go_on, replaced)


def _decide_once_ended(journal: Path, ask: Decide) -> None:
    """Record a decision that a live run has not taken, unless it still runs: another one must not come first."""
    try:
        decide_in(journal, ask)
    except AlreadyDecided:
        raise
    except InvalidUsage:  # it runs, and takes the request later
        pass


class WaitingPlace(NamedTuple):
    """An election that waits for a person."""

    run_id: str
    path: str
    task: str


def waiting_in(runs_dir: Path, run_id: str | None = None) -> list[WaitingPlace]:
    """List all that waits for a person in a folder, or in one run of it: the oldest run first."""
    found = list[tuple[str, list[WaitingPlace]]]()
    names = [path.stem for path in journals_in(runs_dir)] if run_id is None else [run_id]
    for name in names:
        with suppress(InvalidUsage) if run_id is None else nullcontext(), reader_of(runs_dir, name) as reader:
            task = TASKS.name_of(reader.experiment.recipe.task)
            found.append((reader.created_at, [WaitingPlace(name, path, task) for path in reader.waiting()]))
    found.sort()
    return list(chain.from_iterable(places for _, places in found))


def _place_of(reader: Reader, path: str) -> str:
    """Return the one place that a path names: in full, without the number of its input, or by the step whose call waits there."""
    answered = [each for each in reader.persons() if each.endswith(ANSWERED)]
    waiting = list(dict.fromkeys([*reader.undecided(), *answered]))
    if path in waiting:
        return path
    steps = {each: each.partition("/call/")[0] for each in waiting}
    found = [each for each, step in steps.items() if path in (step, step.partition("/")[2], each.partition("/")[2])]
    if len(found) > 1:
        raise InvalidUsage(
            f"{path!r} names {len(found)} places in run {reader.experiment.run_id}; give one of {', '.join(found[:5])}"
        )
    if found:
        return found[0]
    return next((each for each in (path, f"0/{path}") if reader.open_elections(each)), path)


def _decidable(reader: Reader, path: str, *, is_live: bool) -> UndecidedElection:
    run_id, undecided = reader.experiment.run_id, reader.undecided()
    if path in undecided:
        return undecided[path]
    open_elections = reader.open_elections(path) if is_live else []
    if not open_elections:
        if undecided:
            there = f"undecided is {', '.join(list(undecided)[:5])}"
        else:
            there = "no election is undecided"
        what = "neither undecided nor open" if is_live else "not undecided"
        raise InvalidUsage(f"{path!r} is {what} in run {run_id}; {there}")
    found = [asked_at(reader, path, each.id.question_digest) for each in open_elections]
    asked = next((asked for asked, _ in found if asked is not None), None)
    if asked is None:
        raise InvalidUsage(
            f"{path!r} is open in run {run_id}, but its question is unknown: {found[0][1]}; wait until it is undecided"
        )
    question = asked.question
    if isinstance(question.rule, FirstValid):
        raise InvalidUsage(f"samples are drawn at {path!r} without a vote, so there is nothing to decide")
    return UndecidedElection(
        valid=0, flagged={}, reply=question.reply, choices=question.choices, state=question.state.decode()
    )


def remove_run(runs_dir: Path, run_id: str) -> list[Path]:
    """Remove the journal of a run and the files beside it; returns the removed ones."""
    journal = journal_of(runs_dir, run_id)
    if not is_empty(runs_dir, run_id):
        with reader_of(runs_dir, run_id):
            pass  # the file is the journal of this run
    return remove(journal)


def is_empty(runs_dir: Path, run_id: str) -> bool:
    """Whether a run was killed before the first record of its journal."""
    journal = journal_of(runs_dir, run_id)
    return os.path.isfile(journal) and holds_nothing(journal)


def _with_leading_cells(reader: Reader, path: str, value: str) -> str:
    """Add to the fields that a person decided the leading values of the others."""
    with suppress(msgspec.DecodeError):
        given, row = msgspec.json.decode(value), reader.decision_at(path)
        election = next(iter(reader.open_elections(path)), None) if row is None else row
        if isinstance(given, dict) and election is not None:
            leading = {name: votes[0][0] for name, votes in cells_in(election.ballots).items()}
            return msgspec.json.encode({**leading, **given}).decode()
    return value


def _one_text(value: str | Mapping[str, str], kind: type[Reply]) -> str:
    """Return words, or JSON, of a reply whose fields a person may have typed."""
    if isinstance(value, str) and (value.startswith("{") or issubclass(kind, PersonReply)):
        return value
    texts = fields_in(value, kind) if isinstance(value, str) else value
    if not texts:
        return str(value)
    return reply_json(texts, kind)


def _parse_reply(value: str, kind: type[Reply]) -> Reply:
    if issubclass(kind, PersonReply):
        try:
            said = kind.in_words(value)
        except ValueError as error:
            raise InvalidUsage(f"{error}; nothing was changed") from None
        if said is not None:
            return said
        if not value.startswith("{"):
            raise InvalidUsage(
                f"say {' or '.join(f'`{each}`' for each in kind.words)} there, not {value!r:.100}; nothing was changed"
            )
    known = fields_of(kind)
    try:
        given = msgspec.json.decode(value)
        # msgspec ignores fields that it does not know; in a decision by hand they are typos.
        unknown_fields = [name for name in given if name not in known] if isinstance(given, dict) else []
        if unknown_fields:
            raise InvalidUsage(unknown(f"field of {kind.__name__} called", unknown_fields[0], known))
        reply: Reply = decoder_of(kind).decode(value)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        words = " ".join(f"{name}=VALUE" for name in known)
        raise InvalidUsage(
            f"{value!r:.100} is no {kind.__name__}: {error}; write {words} or as JSON, of the form {json_form(kind)}"
        ) from None
    return reply
