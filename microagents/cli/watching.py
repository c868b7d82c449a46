"""A run in the terminal: a live line while it goes on, Ctrl-C and SIGTERM that save, its summary, its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, TypeVar

import typer

from microagents.cli.options import RUNS
from microagents.cli.reporting import EXIT_CODES
from microagents.runs.execute import RunControl
from microagents.runs.result import Result

SHOWN_CHARS = 60
"""A task's option that is longer is shown by its length."""
ALL_ENDED = ("completed", "undecided", "failed")
"""Outcomes with which each of many inputs has ended: those of a run that was cut short would be mostly missing."""
STDERR = 2
T = TypeVar("T")


class TerminalControl(RunControl, frozen=True, kw_only=True):
    """Somebody at a terminal, who follows one run or several."""

    name: Callable[[str], None]
    """Called with what goes on next, where that is not what the command was given."""


def watch(title: str, start: Callable[[TerminalControl], Coroutine[None, None, T]], *, as_json: bool) -> T:
    """Carry a run out, or several, before somebody's eyes."""
    # What a user's code prints must not get between the JSON and whoever reads it.
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        return asyncio.run(_watched(title, start))


def leave(result: Result, options: Mapping[str, object], runs_dir: Path, *, as_json: bool) -> None:
    """Show how a run ended, and exit with its code.

    Raises:
        typer.Exit: always.
    """
    if as_json:
        typer.echo(json.dumps(as_shown(result, runs_dir)))
    else:
        from microagents.cli.display import summary  # noqa: PLC0415 - rich, which --json does not need

        is_listed = result.failed_inputs is not None
        typer.echo(summary(result, described(options), how_to_go_on(result.run_id, result.outcome, runs_dir)), err=is_listed)
        if is_listed and result.outcome in ALL_ENDED:
            typer.echo("\n".join([json.dumps(each) for each in result.value]))
    raise typer.Exit(EXIT_CODES[result.outcome])


def as_shown(result: Result, runs_dir: Path) -> dict[str, Any]:
    """What ``--json`` prints of a run."""
    return {**result.as_json(), "go_on": how_to_go_on(result.run_id, result.outcome, runs_dir) if result.journal is not None else None}


def how_to_go_on(run_id: str, outcome: str, runs_dir: Path) -> str | None:
    """The command that takes a run up again."""
    if outcome in ("completed", "running"):
        return None
    where = "" if runs_dir == RUNS else f" --runs-dir {shlex.quote(str(runs_dir))}"
    return f"microagents resume {run_id}{where}"


def described(options: Mapping[str, object]) -> str:
    """A task's options, in parentheses."""
    shown = ", ".join(f"{name}={_short(value)}" for name, value in options.items())
    return f" ({shown})" if shown else ""


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHOWN_CHARS and text.isprintable() else f"<{len(text):,} characters>"


async def _watched(title: str, start: Callable[[TerminalControl], Coroutine[None, None, T]]) -> T:
    """The first Ctrl-C ends the run after the calls in flight, SIGTERM at once; both save. A second Ctrl-C leaves at once."""
    from microagents.cli.display import live  # noqa: PLC0415 - rich, which --help does not need

    interrupt, terminate = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    with live(title) as display:

        def stop() -> None:
            interrupt.set()
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, _leave)
            display.say("interrupted: calls in flight are waited for; Ctrl-C again leaves at once")

        loop.add_signal_handler(signal.SIGINT, stop)
        loop.add_signal_handler(signal.SIGTERM, terminate.set)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup does
            loop.add_signal_handler(signal.SIGHUP, terminate.set)
        return await start(TerminalControl(on_progress=display.show, interrupt=interrupt, terminate=terminate, name=display.name))


def _leave(*_: object) -> None:
    """Leave at once, whatever a role is doing; the live line had hidden the cursor."""
    if os.isatty(STDERR):
        os.write(STDERR, b"\x1b[?25h\n")  # not through the live line, which may be under way
    os._exit(EXIT_CODES["interrupted"])
