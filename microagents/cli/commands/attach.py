"""`microagents attach`."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

import typer

from microagents.cli.options import RUNS, AsJson, RunName, RunsDir
from microagents.cli.reporting import EXIT_CODES
from microagents.cli.watching import show_and_exit
from microagents.runs.inspection.control import status_of
from microagents.runs.result import Result
from microagents.runs.words.money import prices_of

LOOK_EVERY_S = 0.5


def command(run: RunName, runs_dir: RunsDir = RUNS, as_json: AsJson = False) -> None:
    """Watch a run that some process does, until it ends. Ctrl-C leaves it running; `microagents ctl RUN stop` ends it.

    Prints its summary and exits with its code, as `run` does.
    """
    try:
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            result = _watch(run, runs_dir)
    except KeyboardInterrupt:
        typer.echo(f"run {run} goes on", err=True)
        raise typer.Exit(EXIT_CODES["completed"]) from None
    show_and_exit(result, as_json=as_json)


def _watch(run: str, runs_dir: Path) -> Result:
    from microagents.cli.views.display import live_display  # noqa: PLC0415 - rich, which --help does not need

    status = status_of(runs_dir, run)
    with live_display(run, unit=status.result.unit, price=prices_of(status.result.models)) as display:
        while status.result.outcome == "running":
            display.show(status.result.account)
            time.sleep(LOOK_EVERY_S)
            status = status_of(runs_dir, run)
    return status.result
