"""Execution of a run for the terminal: the live display, Ctrl-C and SIGTERM, the summary and the exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import typer
from msgspec import structs

from microagents.cli.reporting import EXIT_CODES
from microagents.journal.messages import InputEnding
from microagents.runs.execute import RunControl
from microagents.runs.prices import prices_of
from microagents.runs.result import Result, Results
from microagents.runs.summary import options_text, resume_command, summary

ALL_ENDED = ("completed", "undecided", "failed")
"""Outcomes with which all of many inputs have ended. The list of results is printed only then: otherwise most of it is missing."""
STDERR = 2
RESULTS_PER_WRITE = 1000
_RESULTS = "\0 results \0"
"""Stands for the results of many inputs in an object whose other values are encoded at once."""
T = TypeVar("T")


class TerminalControl(RunControl, frozen=True, kw_only=True):
    """The control of a run, or of several, by a person at a terminal."""

    set_title: Callable[[str], None]
    """Change the title of the live display, such as to the next row of a comparison."""


class Watched(NamedTuple):
    """What the live display shows of a run besides its progress."""

    title: str
    """The first title."""
    unit: str
    """Name of a unit of progress."""
    models: Iterable[str]
    """Specs of all models."""


def run_in_terminal(
    watched: Watched, start: Callable[[TerminalControl], Coroutine[None, None, T]], *, as_json: bool, stream: bool = False
) -> T:
    """Execute a run, or several, with a live display.

    Args:
        watched: the run.
        start: starts the run.
        as_json: whether stdout must have nothing but JSON.
        stream: whether to print the ending of each of many inputs.
    """
    # With --json, a user's code that prints must not mix its output with the JSON object.
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        return asyncio.run(_run_with_display(watched, start, stream=stream))


def show_and_exit(result: Result, options: Mapping[str, object], runs_dir: Path, *, as_json: bool, stream: bool = False) -> None:
    """Print the result of a run, and exit with its code. The results of inputs that were streamed are not printed again.

    Raises:
        typer.Exit: always.
    """
    if as_json:
        _print_json(result, runs_dir)
    else:
        is_listed = result.failed_inputs is not None
        typer.echo(summary(result, options_text(options), resume_command(result.run_id, result.outcome, runs_dir)), err=is_listed)
        if is_listed and result.outcome in ALL_ENDED and not stream:
            _print_results(result.value, "\n")
            typer.echo()
    raise typer.Exit(EXIT_CODES[result.outcome])


def _print_json(result: Result, runs_dir: Path) -> None:
    """Print the object of ``--json``. The results of many inputs are not held in memory."""
    if not isinstance(result.value, Results):
        typer.echo(json.dumps(result_as_json(result, runs_dir)))
        return
    before, after = json.dumps(result_as_json(structs.replace(result, value=_RESULTS), runs_dir)).split(json.dumps(_RESULTS))
    typer.echo(f"{before}[", nl=False)
    _print_results(result.value, ", ")
    typer.echo(f"]{after}")


def _print_results(results: Results, between: str) -> None:
    for start in range(0, len(results), RESULTS_PER_WRITE):
        some = [json.dumps(each) for each in results[start : start + RESULTS_PER_WRITE]]
        typer.echo(between * bool(start) + between.join(some), nl=False)


def result_as_json(result: Result, runs_dir: Path) -> dict[str, Any]:
    """The object that ``--json`` prints for a run."""
    return {**result.as_json(), "go_on": resume_command(result.run_id, result.outcome, runs_dir) if result.journal is not None else None}


async def _run_with_display(watched: Watched, start: Callable[[TerminalControl], Coroutine[None, None, T]], *, stream: bool) -> T:
    """Execute a run, and end it on signals.

    The first Ctrl-C ends it after the calls in flight, SIGTERM and SIGHUP end it at once; its journal is complete in both cases. A second
    Ctrl-C exits at once.
    """
    from microagents.cli.display import live_display  # noqa: PLC0415 - rich, which --help does not need

    interrupt, terminate = asyncio.Event(), asyncio.Event()
    loop, stdout = asyncio.get_running_loop(), sys.stdout  # the live display of a terminal replaces sys.stdout

    with live_display(watched.title, unit=watched.unit, price=prices_of(watched.models)) as display:

        def stop() -> None:
            interrupt.set()
            # The second Ctrl-C needs a plain signal handler: the loop's handlers do not run while a user's code blocks the loop.
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, _exit_at_once)
            display.notify("interrupted: waiting for the calls in flight; Ctrl-C again leaves at once")

        def print_ending(ending: InputEnding) -> None:
            try:
                if stdout.isatty():
                    display.print_above(_ending_text(ending))
                else:
                    print(_ending_text(ending), file=stdout, flush=True)
            except BrokenPipeError:  # the reader has left, as `head` does: end in order, without a word
                os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
                interrupt.set()

        loop.add_signal_handler(signal.SIGINT, stop)
        loop.add_signal_handler(signal.SIGTERM, terminate.set)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores SIGHUP, and the run must survive it then
            loop.add_signal_handler(signal.SIGHUP, terminate.set)
        control = TerminalControl(
            on_progress=display.show,
            on_solution=display.draw,
            on_ending=print_ending if stream else None,
            interrupt=interrupt,
            terminate=terminate,
            set_title=display.set_title,
        )
        return await start(control)


def _ending_text(ending: InputEnding) -> str:
    """The ending of an input as a line of JSON."""
    result = None if ending.result is None else json.loads(ending.result)
    return json.dumps({"input": ending.input, "outcome": ending.outcome, "reason": ending.reason, "result": result})


def _exit_at_once(*_: object) -> None:
    """Exit without cleanup, even if a role blocks the event loop. Only the cursor, which the live display hides, is shown again."""
    if os.isatty(STDERR):
        os.write(STDERR, b"\x1b[?25h\n")  # not through the live display: this handler may have interrupted one of its writes
    os._exit(EXIT_CODES["interrupted"])
