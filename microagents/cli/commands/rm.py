"""`microagents rm`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from microagents.base.errors import InvalidUsage
from microagents.base.printing import printable
from microagents.cli.options import RUNS, RunName, RunsDir
from microagents.cli.reporting import echo
from microagents.runs.inspection.runs import inspect_run, is_empty, remove_run
from microagents.runs.words.verdict import counted, progress_text


def command(
    run: RunName,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Remove the journal of a run.

    Its decisions are lost, and it cannot be resumed. A run that is running is refused. On a terminal the command asks first.
    """
    if is_empty(runs_dir, run):
        held = "nothing is recorded"
    else:
        result = inspect_run(runs_dir, run)
        held = f"{result.outcome}, {result.task}: {progress_text(result)}, {counted(result.calls, 'call')}"
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise InvalidUsage(f"run {run} was kept: nobody can be asked here whether to remove it; add --yes")
        if not typer.confirm(printable(f"Remove run {run} ({held})?"), err=True):
            raise InvalidUsage(f"run {run} was kept")
    removed = remove_run(runs_dir, run)
    echo(printable(f"removed {', '.join(map(str, removed))}"))
