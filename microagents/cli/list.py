"""`microagents list`."""

from __future__ import annotations

import json

import typer

from microagents.cli.options import RUNS, AsJson, RunsDir
from microagents.cli.reporting import exit_on_error, log_to_stderr, printable, progress_text
from microagents.cli.watching import result_as_json
from microagents.errors import InvalidUsage
from microagents.runs.inspection import runs_in


def command(runs_dir: RunsDir = RUNS, as_json: AsJson = False) -> None:
    """List the runs of a folder, the most recent one at the end."""
    log_to_stderr()
    with exit_on_error():
        rows = list(runs_in(runs_dir))
    if as_json:
        found = [
            {"run_id": name, "error": str(row)} if isinstance(row, InvalidUsage) else result_as_json(row, runs_dir) for name, row in rows
        ]
        typer.echo(json.dumps(found))
        return
    if not rows:
        typer.echo(f"there is no run in {str(runs_dir)!r}")
    width = max((len(name) for name, _ in rows), default=0)
    for name, row in rows:
        if isinstance(row, InvalidUsage):
            typer.echo(printable(f"{name:<{width}}  {row}"))
            continue
        account = row.account
        typer.echo(printable(f"{name:<{width}}  {row.outcome:<11}  {row.task}: {progress_text(row)}, {account.calls:,} calls"))
