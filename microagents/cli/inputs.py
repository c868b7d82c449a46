"""Many inputs from a file: rows of a table, or lines that are JSON objects with the options of one input."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import typer

from microagents.actors.registry import TASKS
from microagents.base.errors import InputMismatch, InvalidUsage, TaskFailed
from microagents.base.user_code import called
from microagents.cli.options import task_of, task_options
from microagents.replies.chat import Prompt
from microagents.runs.row_files import opened, read_rows, readable, unpacked
from microagents.runs.row_forms import Dialect, Peekable, ending_of
from microagents.runs.settings import validated
from microagents.runs.task_list import TaskList, Tasks, compact_options
from microagents.systems.chains.row_task import RowTask, check_gold
from microagents.task import Task

STDIN = "-"


class Given(NamedTuple):
    """Task of a command line, or the inputs of its file."""

    work: Tasks
    first: Task
    source: str = ""
    """Name of the file in error messages."""
    numbers: Sequence[int] = ()
    """For each input of the file the number of its unit, from 1. Blank lines have no input."""
    unit: str = "line"
    dialect: Dialect = Dialect()

    @contextmanager
    def name_lines(self) -> Iterator[None]:
        """Add the line of the input to an `InputMismatch`."""
        try:
            yield
        except InputMismatch as error:
            if error.input < len(self.numbers):
                error.add_note(f"this input is {self.unit} {self.numbers[error.input]} of {self.source}")
            raise


def given_by(
    task: str, options: list[str], file: str | None, gold: Sequence[str] = (), *, is_labelled: bool = True
) -> Given:
    """Build the task that the command line names, or the inputs of a file.

    Args:
        task: name of the task.
        options: words NAME=VALUE for the task, or for all inputs; the options of a line override them.
        file: path of the file, or ``-`` for stdin; None for a single task.
        gold: words COLUMN or COLUMN=FIELD: columns of the file that hold right values.
        is_labelled: whether some row must have a right value.

    Raises:
        InvalidUsage: the file cannot be read, or a line is not a valid input. The message names the line.
    """
    if file is None:
        if gold:
            raise InvalidUsage(f"--gold {gold[0]} names a column of rows: give them with --inputs FILE")
        alone = task_of(task, options, "--inputs FILE or -o")
        return Given(alone, alone)
    kind = TASKS.find(task, Task)
    shared: dict[str, Any] = {**task_options(kind, options), **_gold_option(kind, gold)}
    source = "stdin" if file == STDIN else repr(file)
    numbers = array("Q")

    def given(options: dict[str, Any]) -> dict[str, Any]:
        if issubclass(kind, RowTask) and options:
            return {**shared, "row": options}
        return {**shared, **options}

    with _opened(file) as stream:
        found = read_rows(stream, source, ending_of(Path(file)))

        def tasks() -> Iterator[Task]:
            for number, row in found.rows:
                place = f"{found.unit} {number} of {source}"
                with _naming_options(kind, task, shared, "" if numbers else place):
                    made = validated(kind, place, given(row), flag="-o")
                yield made
                numbers.append(number)

        first, own = compact_options(tasks())
    if not own:
        raise InvalidUsage(f"{source} holds no input; write a row, or a JSON object, for each")
    inputs = TaskList(kind, first, own)
    if is_labelled:
        check_gold(inputs, source)
    _check_columns(inputs[0], source)
    return Given(inputs, inputs[0], source, numbers, found.unit, found.dialect)


@contextmanager
def _naming_options(kind: type[Task], task: str, options: dict[str, Any], first: str) -> Iterator[None]:
    """Refuse the options of all inputs, not the first input, if one with an empty row is refused in the same words.

    Args:
        kind: the class of the task.
        task: its name.
        options: the options.
        first: name of the first input in error messages; empty for later ones, whose options were valid before.

    Raises:
        InvalidUsage: the input, or the options, are refused.
    """
    subject = f"task {task!r}"
    try:
        yield
    except InvalidUsage as refused:
        if first:
            try:
                validated(kind, subject, {**options, "row": {"": ""}}, flag="-o")
            except InvalidUsage as error:
                if str(error) == str(refused).replace(first, subject, 1):
                    raise error from None
        raise


def _gold_option(kind: type[Task], words: Sequence[str]) -> dict[str, Any]:
    """Return the option of the task with the fields of its gold columns; none without such columns."""
    if not words:
        return {}
    if not issubclass(kind, RowTask):
        raise InvalidUsage(f"--gold {words[0]} judges replies to rows, and {kind.__name__} has none; leave it out")
    pairs = [word.partition("=") for word in words]
    return {"gold": {column: field or column for column, _, field in pairs}}


def _check_columns(first: Task, source: str) -> None:
    """Refuse rows that lack a column of their task's prompt, before each of them fails."""
    if isinstance(first, RowTask):
        asked_of = called(first.start)
        try:
            called(first.prompt, asked_of, gives=Prompt)
        except TaskFailed as error:
            if isinstance(error.__cause__, KeyError):
                without = " besides its gold columns" * bool(first.gold)
                raise InvalidUsage(
                    f"{source} has no column {error.__cause__}, which {type(first).__name__}.prompt needs; it has "
                    f"{', '.join(asked_of)}{without}; nothing was started"
                ) from None


@contextmanager
def _opened(file: str) -> Iterator[Peekable]:
    if file != STDIN:
        with opened(file) as stream:
            yield stream
        return
    stdin = io.BufferedReader(typer.get_binary_stream("stdin"))  # type: ignore[type-var]  # a raw stream to a reader
    try:
        with readable("stdin"):
            yield unpacked(stdin, "stdin")
    finally:
        stdin.detach()
