"""A run on rows as a table: some of its rows with the votes on their cells, and the figures by which all rows are ordered and chosen."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct, structs

from microagents.actors.registry import TASKS
from microagents.base.errors import InvalidUsage, MicroagentsError
from microagents.elections.election import ESCALATED
from microagents.journal.reading import Reader
from microagents.journal.requests import PersonDecision
from microagents.replies.reply_fields import fields_of
from microagents.runs.cells import RowVotes, TrustColumns
from microagents.runs.judging import judged
from microagents.runs.settings import validated
from microagents.systems.chains.row_task import RowTask
from microagents.task import Task

NO_VOTES = 2.0
"""Agreement of a row without an election."""


class ShownRow(RowVotes, Struct, frozen=True, kw_only=True):
    """A row of a table, and the votes on its cells."""

    input: int
    row: dict[str, Any]
    """The columns of the input."""
    reply: dict[str, Any] | None = None
    """The fields of the result, or ``result`` for one without fields; None if it has none."""
    outcome: str | None = None
    """Outcome of the input; None if it has not ended."""
    reason: str | None = None
    person: dict[str, Any] | None = None
    """The reply that a person decided; None if no person did."""
    person_fields: list[str] = []
    """Fields of it that the vote had left open, or decided otherwise."""
    waits: bool = False
    """Whether a person may decide it now."""
    said: PersonDecision | None = None
    """A person's decision that the next sitting takes up."""
    is_wrong: bool = False
    """Whether gold columns or the task's oracle refuse the result."""
    right: dict[str, Any] = {}
    """Right values of fields that have other ones."""


def is_table(reader: Reader) -> bool:
    """Whether the inputs of a run are rows."""
    experiment = reader.experiment
    if not experiment.listed or not isinstance(experiment.recipe.options.get("row"), dict):
        return False
    kind = task_class(reader)
    return kind is None or issubclass(kind, RowTask)


def task_class(reader: Reader) -> type[Task] | None:
    """Return the class of the task; None if its code is not here, or may not be imported."""
    with suppress(MicroagentsError):
        return TASKS.find(reader.experiment.recipe.task, Task)
    return None


def table_rows(reader: Reader, numbers: Sequence[int]) -> list[ShownRow]:
    """Return some rows of a table. Gold columns or the task's oracle judge them, if its code is here and the run has errors.

    Raises:
        InvalidUsage: the inputs of the run are no rows, or there is no input of a number.
    """
    experiment = reader.experiment
    experiment.check_there(numbers)
    if not is_table(reader):
        raise InvalidUsage(f"the inputs of run {experiment.run_id} are no rows")
    trusted, waiting, persons = TrustColumns(reader, task_class(reader)), reader.undecided(), reader.persons()
    judge = task_class(reader) if reader.account().errors else None
    rows = []
    for number, options, ending in reader.inputs(numbers):
        found: dict[str, Any] = {"input": number, "row": options["row"]}
        if ending is not None:
            found |= {"outcome": ending.outcome, "reason": ending.reason}
        if ending is not None and ending.result is not None:
            result = msgspec.json.decode(ending.result)
            found["reply"] = result if isinstance(result, dict) else {"result": result}
            with suppress(InvalidUsage):  # the list of wrong rows says why it marks none
                found |= _faults(judge, number, options, result)
        votes = trusted.votes_of(number, ending)
        if votes is not None and votes.path is not None:
            said = persons.get(votes.path) or persons.get(votes.path.removesuffix(ESCALATED))
            is_open = votes.path in waiting
            found |= structs.asdict(votes) | {"waits": is_open and said is None, "said": said if is_open else None}
            if said is not None or votes.by_person:
                reply = found.get("reply", {}) if said is None else msgspec.json.decode(said.value)
                found |= {"person": reply, "person_fields": _fields_of_person(votes, reply)}
        rows.append(ShownRow(**found))
    return rows


def _fields_of_person(votes: RowVotes, reply: dict[str, Any]) -> list[str]:
    """Fields of a person's reply that the vote had left open, or decided otherwise."""
    leading = {name: values[0][0] for name, values in votes.cells.items()}
    if not leading:
        return list(reply)
    return [name for name, value in leading.items() if name in votes.unsettled or reply.get(name) != value]


def row_agreements(reader: Reader) -> bytes:
    """For all inputs the least agreement of a field, from 0 to 1, then a 1 for each with a red flag: floats of 4 bytes."""
    inputs, trusted = reader.experiment.inputs, TrustColumns(reader, task_class(reader))
    least, flagged = array("f", [NO_VOTES]) * inputs, array("f", bytes(4 * inputs))
    for number, decision in reader.row_elections():
        if not 0 <= number < inputs:
            continue
        least[number] = 1.0
        if decision is not None:
            votes = trusted.votes_in(decision)
            shares = [own / given for own, given in votes.agreement.values()]
            least[number], flagged[number] = min(shares, default=0.0), votes.flagged > 0
    for number, asked in reader.equal_inputs():
        if 0 <= asked < inputs and 0 <= number < inputs:
            least[number], flagged[number] = least[asked], flagged[asked]
    return least.tobytes() + flagged.tobytes()


def wrong_rows(reader: Reader, within_s: float) -> tuple[list[int], int]:
    """Return the rows whose results gold columns or the task's oracle refuse, and the number of results that were judged in that time.

    Raises:
        InvalidUsage: the task's code cannot be found, or raised.
    """
    kind, ends_s = TASKS.find(reader.experiment.recipe.task, Task), time.monotonic() + within_s
    wrong, count = [], 0
    for number, options, ending in reader.inputs():
        if time.monotonic() > ends_s:
            break
        if ending is not None and ending.result is not None:
            count += 1
            if _faults(kind, number, options, msgspec.json.decode(ending.result)):
                wrong.append(number)
    return wrong, count


def _faults(kind: type[Task] | None, number: int, options: dict[str, Any], result: Any) -> dict[str, Any]:
    """Return the fields of `ShownRow` on a wrong result; none unless the task's code refuses it.

    Raises:
        InvalidUsage: the results of the task are no replies, or its code raised.
    """
    if kind is None:
        return {}
    task = validated(kind, f"input {number}", options)
    assert isinstance(task, RowTask)
    try:
        verdict = judged(task, result)
    except MicroagentsError as error:
        raise InvalidUsage(str(error)) from None
    except ValueError:  # msgspec's errors, too
        raise InvalidUsage(f"the results of {kind.__name__} are no replies, so they are not judged") from None
    if verdict is None or verdict.is_right:
        return {}
    names = {field.name: field.encode_name for field in fields_of(task.reply_type())}
    return {"is_wrong": True, "right": {names[name]: msgspec.json.decode(right) for name, right, _ in verdict.wrong}}
