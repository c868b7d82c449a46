"""`microagents report`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from microagents.base.errors import InvalidUsage, read_failure
from microagents.cli.options import RUNS, RunName, RunsDir, WithCode
from microagents.journal.reading import reader_of


def command(
    run: RunName,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="File to write. [default: RUN.html]")
    ] = None,
    code: WithCode = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Write what the pages of `view` show of a run into one file, which opens in a browser without a network.

    It has no code but its own, asks nothing of any host, and prints. An existing file is replaced.
    """
    from microagents.web.viewer.report import report  # noqa: PLC0415 - the code of tasks, which other commands do not need

    file = output or Path(f"{run}.html")
    with reader_of(runs_dir, run, trust=code) as reader, redirect_stdout(sys.stderr):  # the task's code may print
        written = report(reader)
    try:
        file.write_text(written, encoding="utf-8")
    except OSError as error:
        raise InvalidUsage(f"{str(file)!r} cannot be written: {read_failure(error)}") from None
    typer.echo(str(file))
