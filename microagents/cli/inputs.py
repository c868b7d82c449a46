"""Many inputs from a file. Each line is a JSON object with the options of one input."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import typer

from microagents.actors.registry import TASKS
from microagents.base.errors import InputMismatch, InvalidUsage, read_failure
from microagents.cli.options import task_of, task_options
from microagents.runs.settings import validated
from microagents.runs.task_list import TaskList, compact_options
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
        alone = task_of(task, options)
        return Given(alone, alone)
    kind = TASKS.find(task, Task)
    shared = task_options(kind, options)
    source = "stdin" if file == STDIN else repr(file)
    numbers = array("Q")

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
                yield validated(kind, where, {**shared, **_parse_line(text, where, kind)}, flag="-o")
                numbers.append(number)

    with _open(file) as stream:
        first, own = compact_options(tasks(stream))
    if not own:
        raise InvalidUsage(f"{source} holds no input; write one JSON object a line, with the options of one input")
    inputs = TaskList(kind, first, own)
    return Given(inputs, inputs[0], source, numbers)


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
        found = json.loads(text.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidUsage(
            f"{where} is not JSON: {error}; write a JSON object with the options of {kind.__name__}"
        ) from None
    if not isinstance(found, dict):
        raise InvalidUsage(
            f"{where} is not a JSON object: {text.decode().strip()!r:.100}; write one, with the options of {kind.__name__}"
        )
    return found


def _refuse_constant(word: str) -> NoReturn:
    # Python's parser accepts NaN and Infinity, which are not JSON.
    raise ValueError(f"{word} is not a number")
