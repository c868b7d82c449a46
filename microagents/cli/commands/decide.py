"""`microagents decide`."""

from __future__ import annotations

from typing import Annotated

import typer

from microagents.cli.options import RUNS, RunName, RunsDir
from microagents.cli.reporting import EXIT_CODES
from microagents.runs.inspection.runs import decide, inspect_run
from microagents.runs.words.summary import printable


def command(
    run: RunName,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="Path of what is undecided, such as 0/step/17; `show` names it. step/17 will do if one waits there.",
        ),
    ],
    value: Annotated[
        list[str],
        typer.Argument(
            metavar="VALUE...",
            help="The reply to decide for, as a JSON object. Of an agent's call: approve, reject TEXT, done VALUE or not-done.",
        ),
    ],
    runs_dir: RunsDir = RUNS,
) -> None:
    """Decide an undecided election yourself, or say what an agent waits for.

    An action that waits for an approval takes `approve` or `reject TEXT`. A call that may or may not have been made takes `done VALUE`,
    with what it returned, or `not-done`: then it is made.

    The next `resume` continues with this decision. A run that is under way continues with it at once, also if the election is open. It
    is marked as the decision of a person.
    """
    at, reply = decide(runs_dir, run, path, " ".join(value))
    go_on = inspect_run(runs_dir, run).go_on
    then = "the run continues with it" if go_on is None else f"go on: {go_on}"
    typer.echo(printable(f"{at} of run {run} is decided by you: {reply}; {then}"))
    raise typer.Exit(EXIT_CODES["completed"])
