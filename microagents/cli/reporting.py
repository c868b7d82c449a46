"""Reporting that all commands share: logs, errors, exit codes and printable text."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import typer

from microagents.base.errors import (
    Interrupted,
    InvalidDefinition,
    InvalidUsage,
    MicroagentsError,
    NoHandler,
    Stopped,
    read_failure,
)
from microagents.base.foreign_text import json_escape, visible
from microagents.base.printing import printable, results

EXIT_CODES = {"completed": 0, "failed": 1, "stopped": 3, "cut off": 3, "undecided": 4, "refused": 6, "interrupted": 130}
WRONG_USAGE = 2
WRONG = 5
"""Exit code of a run that is completed, and that the task's own code finds wrong."""
READER_LEFT = 141
"""Exit code of a command whose stdout was closed before all was written, as `head` does, as of tools which SIGPIPE ends."""
LOG_LEVEL = "MICROAGENTS_LOG"
"""Environment variable with the level of logs. At the level debug, errors are shown with their tracebacks."""
_NOT_PLAIN = re.compile(r"[^\x00-\x7e]")
FAILURE, STOPPED = EXIT_CODES["failed"], EXIT_CODES["stopped"]


def log_to_stderr() -> None:
    """Configure structured logs on stderr: readable on a terminal, JSON otherwise. $MICROAGENTS_LOG sets the level, by default warning."""
    import structlog  # noqa: PLC0415 - its import takes a tenth of a second, and --help does not need it

    level = logging.getLevelNamesMapping().get(os.environ.get(LOG_LEVEL, "warning").upper(), logging.WARNING)
    if sys.stderr is None:  # the shell closed it
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    processors: list[Any] = [structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso")]
    if sys.stderr.isatty():
        processors += [structlog.dev.ConsoleRenderer(sort_keys=False, colors=False), _on_terminal]
    else:
        processors.append(structlog.processors.JSONRenderer())
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # sys.stderr is looked up at each log: the live display replaces it, so that log lines appear above the display.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


def json_text(value: object) -> str:
    """A value as JSON without hidden characters: a terminal may act on them."""
    text = visible(msgspec.json.encode(value).decode())
    encoding = getattr(results(), "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:  # a terminal that has ASCII only
        return _NOT_PLAIN.sub(json_escape, text)
    return text


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a result of the command on its stdout, or on stderr."""
    typer.echo(text, file=None if err else results(), nl=nl, err=err)


def say(text: str, *, err: bool = False) -> None:
    """Print sentences that may have texts of others: without control characters, and on a terminal wrapped at words to its width."""
    lines = printable(text).split("\n")
    if not err and results().isatty():
        width = shutil.get_terminal_size().columns
        lines = [textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False) for line in lines]
    echo("\n".join(lines), err=err)


@contextmanager
def exit_on_closed_stdout() -> Iterator[None]:
    """Exit without a word once stdout has no reader any more, and with one sentence if it is a file for which there is no room.

    Raises:
        typer.Exit: with `READER_LEFT`, or as a run that a full disk stopped.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EDQUOT):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more
        if error.errno == errno.EPIPE:
            raise typer.Exit(READER_LEFT) from None
        warn(f"stdout was not written to its end: {read_failure(error)}; runs stay in their journals")
        raise typer.Exit(STOPPED) from None


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Print a `MicroagentsError` as one sentence on stderr, at the log level debug behind its traceback, and exit.

    Raises:
        typer.Exit: with 2 for wrong usage, 3 for a run that a limit, an outage or a full disk stopped, 130 for one that was interrupted
            before it began, 1 for every other failure.
    """
    try:
        yield
    except MicroagentsError as error:
        _print_error(error)
        raise typer.Exit(_exit_code(error)) from None


def _exit_code(error: MicroagentsError) -> int:
    match error:
        case InvalidUsage() | InvalidDefinition() | NoHandler():
            return WRONG_USAGE
        case Interrupted():
            return EXIT_CODES["interrupted"]
        case Stopped():
            return STOPPED
    return FAILURE


def warn(line: str) -> None:
    """Print one line on stderr; the command continues. Control characters are replaced."""
    said = f"microagents: {printable(line)}"
    if sys.stderr is not None and sys.stderr.isatty():
        said = _on_terminal(None, "", said)
    typer.echo(said, err=True)


def _on_terminal(_logger: object, _method: str, line: object) -> str:
    """A line for the terminal, wrapped and indented at its width, so that no text of a model begins a line."""
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        printable(str(line)), width, subsequent_indent="    ", drop_whitespace=False, break_on_hyphens=False
    )


def _print_error(error: MicroagentsError) -> None:
    """Print an error and its notes on one line. Parts may come from a file or a model, so control characters are replaced."""
    if os.environ.get(LOG_LEVEL, "").lower() == "debug":
        trace = "".join(traceback.format_exception(error))
        typer.echo(printable(trace), err=True, nl=False)
    parts = [str(error), *getattr(error, "__notes__", ())]
    warn("; ".join(" ".join(part.split()) for part in parts))
