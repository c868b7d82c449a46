"""Many inputs from a file: rows of a table, or lines that are JSON objects with the options of one input."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import typer

from microagents.actors.registry import TASKS
from microagents.base.errors import InputMismatch, InvalidUsage, TaskFailed, read_failure
from microagents.base.user_code import called
from microagents.cli.options import task_of, task_options
from microagents.replies.chat import Prompt
from microagents.runs.row_files import read_cells
from microagents.runs.settings import TABLES, validated
from microagents.runs.task_list import TaskList, compact_options
from microagents.systems.chains.row_task import RowTask
from microagents.task import Task

STDIN = "-"
MAX_LINE_BYTES = 16 << 20
"""Longest line of a file with inputs: a file without line breaks must not fill the memory."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Given(NamedTuple):
    """Task of a command line, or the inputs of its file."""

    work: Task | Sequence[Task]
    first: Task
    source: str = ""
    """Name of the file in error messages."""
    numbers: Sequence[int] = ()
    """For each input of the file the number of its line, from 1. Blank lines have no input."""

    @contextmanager
    def name_lines(self) -> Iterator[None]:
        """Add the line of the input to an `InputMismatch`."""
        try:
            yield
        except InputMismatch as error:
            if error.input < len(self.numbers):
                error.add_note(f"this input is in line {self.numbers[error.input]} of {self.source}")
            raise


def given_by(task: str, options: list[str], file: str | None) -> Given:
    """Build the task that the command line names, or the inputs of a file.

    Args:
        task: name of the task.
        options: words NAME=VALUE for the task, or for all inputs; the options of a line override them.
        file: path of the file, or ``-`` for stdin; None for a single task.

    Raises:
        InvalidUsage: the file cannot be read, or a line is not a valid input. The message names the line.
    """
    if file is None:
        alone = task_of(task, options, "--inputs FILE or -o")
        return Given(alone, alone)
    kind = TASKS.find(task, Task)
    shared = task_options(kind, options)
    source = "stdin" if file == STDIN else repr(file)
    numbers = array("Q")

    def given(options: dict[str, Any]) -> dict[str, Any]:
        return {**shared, "row": options} if issubclass(kind, RowTask) and options else {**shared, **options}

    def rows(stream: IO[bytes]) -> Iterator[Task]:
        for number, cells in read_cells(stream, source, TABLES[Path(file).suffix.lower()]):
            yield validated(kind, f"line {number} of {source}", given(cells), flag="-o")
            numbers.append(number)

    def tasks(stream: IO[bytes]) -> Iterator[Task]:
        for number, line in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), 1):
            if len(line) > MAX_LINE_BYTES:
                raise InvalidUsage(
                    f"line {number} of {source} is longer than {MAX_LINE_BYTES >> 20} MiB; nothing was started; write one JSON object a "
                    "line, and name a large file in it instead of its text"
                )
            text = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
            if text.strip():
                where = f"line {number} of {source}"
                yield validated(kind, where, given(_parse_line(text, where, kind)), flag="-o")
                numbers.append(number)

    with _open(file) as stream:
        first, own = compact_options((rows if TABLES.get(Path(file).suffix.lower()) else tasks)(stream))
    if not own:
        raise InvalidUsage(f"{source} holds no input; write a row, or a JSON object, for each")
    inputs = TaskList(kind, first, own)
    _check_columns(inputs[0], source)
    return Given(inputs, inputs[0], source, numbers)


def _check_columns(first: Task, source: str) -> None:
    """Refuse rows that lack a column of their task's prompt, before each of them fails."""
    if isinstance(first, RowTask):
        try:
            called(first.prompt, first.row, gives=Prompt)
        except TaskFailed as error:
            if isinstance(error.__cause__, KeyError):
                raise InvalidUsage(
                    f"{source} has no column {error.__cause__}, which {type(first).__name__}.prompt needs; it has {', '.join(first.row)}; "
                    "nothing was started"
                ) from None


@contextmanager
def _open(file: str) -> Iterator[IO[bytes]]:
    if file == STDIN:
        yield typer.get_binary_stream("stdin")
        return
    try:
        with Path(file).open("rb") as stream:
            yield stream
    except OSError as error:
        raise InvalidUsage(f"{file!r} cannot be read: {read_failure(error)}") from None


def _parse_line(text: bytes, where: str, kind: type[Task]) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidUsage(
            f"{where} is not JSON: {error}; write a JSON object with the options of {kind.__name__}"
        ) from None
    if not isinstance(found, dict):
        raise InvalidUsage(
            f"{where} is not a JSON object: {text.decode().strip()!r:.100}; write one, with the options of {kind.__name__}"
        )
    return found
