"""`microagents decide`."""

from __future__ import annotations

from typing import Annotated

import typer

from microagents.cli.options import RUNS, RunName, RunsDir
from microagents.cli.reporting import EXIT_CODES
from microagents.runs.inspection.runs import decide, inspect_run
from microagents.words.summary import printable


def command(
    run: RunName,
    path: Annotated[str, typer.Argument(metavar="PATH", help="Path of the undecided election, such as 0/step/17; `show` names it.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The reply to decide for, as a JSON object.")],
    runs_dir: RunsDir = RUNS,
) -> None:
    """Decide an undecided election yourself.

    The next `resume` continues with this decision. A run that is under way continues with it at once, also where the election is open. It
    is marked as the decision of a person.
    """
    reply = decide(runs_dir, run, path, value)
    go_on = inspect_run(runs_dir, run).go_on
    then = "the run continues with it" if go_on is None else f"go on: {go_on}"
    typer.echo(printable(f"{path} of run {run} is decided by you: {reply}; {then}"))
    raise typer.Exit(EXIT_CODES["completed"])
