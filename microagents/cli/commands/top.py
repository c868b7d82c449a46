"""`microagents top`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.commands.list import lines_of
from microagents.cli.options import RUNS, RunsDir
from microagents.runs.inspection.runs import runs_in
from microagents.runs.words.summary import columns_of_stdout

LOOK_EVERY_S = 1.0


def command(runs_dir: RunsDir = RUNS) -> None:
    """Show all runs of a folder live, those under way first. Ctrl-C ends the display alone; without a terminal they are shown once."""
    from rich.console import Console  # noqa: PLC0415 - which --help does not need
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    if not console.is_terminal:
        for line in _lines(runs_dir, columns_of_stdout(sys.maxsize)):
            typer.echo(line)
        return
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                shown = list(_lines(runs_dir, console.width))[: console.height - 1]
                live.update(Text("\n".join(shown), no_wrap=True, overflow="ellipsis"), refresh=True)
                time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        pass


def _lines(runs_dir: Path, columns: int) -> Iterator[str]:
    rows = list(runs_in(runs_dir, digests=False))[::-1]
    if not rows:
        yield f"there is no run in {str(runs_dir)!r}"
    rows.sort(key=lambda row: isinstance(row[1], InvalidUsage) or row[1].outcome != "running")
    yield from lines_of(rows, columns)
