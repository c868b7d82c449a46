"""`microagents decide`."""

from __future__ import annotations

from typing import Annotated

import typer

from microagents.cli.options import RUNS, RunName, RunsDir
from microagents.cli.reporting import EXIT_CODES, log_to_stderr, one_sentence, printable
from microagents.cli.watching import how_to_go_on
from microagents.runs.inspection import decide


def command(
    run: RunName,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The place that is undecided, such as 0/step/17; `show` names it.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The reply, as a JSON object.")],
    runs_dir: RunsDir = RUNS,
) -> None:
    """Decide what models could not; the next `resume` goes on from it, and it is marked as a person's."""
    log_to_stderr()
    with one_sentence():
        read = decide(runs_dir, run, path, value)
    typer.echo(printable(f"{path} of run {run} is decided by you: {read}; go on with {how_to_go_on(run, 'undecided', runs_dir)}"))
    raise typer.Exit(EXIT_CODES["completed"])
