"""`microagents list`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from microagents.base.errors import InvalidUsage
from microagents.base.printing import printable
from microagents.cli.options import RUNS, AsJson, RunsDir, complete_run
from microagents.cli.reporting import echo, json_text, say


def command(
    runs_dir: RunsDir = RUNS,
    live: Annotated[
        bool, typer.Option("--live", help="Keep the list up to date, runs under way first, until Ctrl-C.")
    ] = False,
    remove: Annotated[
        str | None,
        typer.Option(
            "--remove",
            metavar="RUN",
            help="Remove the journal of a run: its decisions are lost. A run that is running is refused. A terminal asks first.",
            autocompletion=complete_run,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --remove: do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs of a folder, the most recent one at the end, or remove one.

    Shows the outcome, the start, the task, the model, the calls, the cost, and how the run stands: what is wrong first.
    """
    if (live, as_json, remove is not None).count(True) > 1:
        raise InvalidUsage("--live draws on the terminal, --json prints one object, --remove removes; give one of them")
    if yes and remove is None:
        raise InvalidUsage("--yes goes with --remove RUN only; leave it out")
    if remove is not None:
        _remove(remove, runs_dir, yes=yes)
        return
    from microagents.cli.views.runs import list_runs, show_live
    from microagents.journal.opening import watch_unclear
    from microagents.runs.inspection.runs import journals_in, runs_in

    if live and sys.stdout is not None and sys.stdout.isatty():
        show_live(runs_dir)
        return
    watch_unclear(journals_in(runs_dir))
    if not as_json:
        list_runs(runs_dir, live=live)
        return
    found = []
    for name, row in runs_in(runs_dir, whole=True):
        found.append({"run_id": name, "error": str(row)} if isinstance(row, InvalidUsage) else row.as_json())
    echo(json_text(found))


def _remove(run: str, runs_dir: Path, *, yes: bool) -> None:
    from microagents.runs.inspection.runs import inspect_run, is_empty, remove_run
    from microagents.runs.words.verdict import counted, progress_text

    held = "nothing is recorded"
    if not is_empty(runs_dir, run):
        result = inspect_run(runs_dir, run)
        held = f"{result.outcome}, {result.task}: {progress_text(result)}, {counted(result.calls, 'call')}"
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise InvalidUsage(f"run {run} was kept: nobody can be asked here whether to remove it; add --yes")
        if not typer.confirm(printable(f"Remove run {run} ({held})?"), err=True):
            raise InvalidUsage(f"run {run} was kept")
    removed = remove_run(runs_dir, run)
    say(f"removed {', '.join(map(str, removed))}")
