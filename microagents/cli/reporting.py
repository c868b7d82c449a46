"""What every command does alike: logs to stderr, expected trouble in one sentence, exit codes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from microagents.errors import InvalidDefinition, InvalidUsage, MicroagentsError, NoHandler, Stopped
from microagents.runs.result import Result

EXIT_CODES = {"completed": 0, "failed": 1, "stopped": 3, "undecided": 4, "interrupted": 130}
WRONG_USAGE = 2
FAILURE, STOPPED = EXIT_CODES["failed"], EXIT_CODES["stopped"]


def log_to_stderr() -> None:
    """Structured logs on stderr: for people on a terminal, as JSON otherwise; warnings and worse, or $MICROAGENTS_LOG."""
    import structlog  # noqa: PLC0415 - a tenth of a second that --help does not need

    level = logging.getLevelNamesMapping().get(os.environ.get("MICROAGENTS_LOG", "warning").upper(), logging.WARNING)
    if sys.stderr is None:  # closed by the shell
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    tty = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(sort_keys=False) if tty else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # What stderr is when something is logged: while a live line is shown there, others go above it.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


@contextmanager
def one_sentence() -> Iterator[None]:
    """Expected trouble ends the command with one sentence on stderr, without a traceback.

    Raises:
        typer.Exit: with 2 for what was asked, with 3 for what a limit or a full disk stopped, with 1 for all else that went wrong.
    """
    try:
        yield
    except (InvalidUsage, InvalidDefinition, NoHandler) as error:
        _say(error)
        raise typer.Exit(WRONG_USAGE) from None
    except Stopped as error:
        _say(error)
        raise typer.Exit(STOPPED) from None
    except MicroagentsError as error:
        _say(error)
        raise typer.Exit(FAILURE) from None


def _say(error: MicroagentsError) -> None:
    """On one line, and without what a terminal would act on: parts of it may come from a file or a model."""
    line = "; ".join(" ".join(said.split()) for said in (str(error), *getattr(error, "__notes__", ())))
    typer.echo(f"microagents: {printable(line)}", err=True)


def how_far(result: Result) -> str:
    """How many inputs and steps are done."""
    account = result.account
    total = "" if account.total_steps is None else f" of {account.total_steps:,}"
    inputs = "" if result.failed_inputs is None else f"{account.inputs_done:,} of {account.inputs:,} inputs, "
    return f"{inputs}{account.steps:,}{total} steps"


def printable(text: str) -> str:
    """The text without what a terminal would act on."""
    return "".join(each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text)
