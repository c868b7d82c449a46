"""The list of the runs of a folder on the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.text import Text

from microagents.base.errors import InvalidUsage
from microagents.cli.reporting import echo
from microagents.cli.views.lines import drawn, one_line
from microagents.cli.views.tables import WIDEST, Columns, laid_out, report_text
from microagents.models.model import without_options
from microagents.runs.inspection.runs import runs_in
from microagents.runs.result import Result
from microagents.runs.words.summary import columns_of_stdout
from microagents.runs.words.verdict import counted, local_time, outcome_text, verdict_on

COLUMNS = 8
LOOK_EVERY_S = 1.0


def list_runs(runs_dir: Path, *, live: bool) -> None:
    """Print the list once. A live one begins with the runs under way."""
    listed = _list(_rows(runs_dir, live=live), columns_of_stdout(WIDEST))
    echo(listed or f"there is no run in {str(runs_dir)!r}")


def show_live(runs_dir: Path) -> None:
    """Keep the list up to date on the terminal, until Ctrl-C."""
    console = Console(highlight=False)
    try:
        with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as display:
            while True:
                rows = _rows(runs_dir, live=True)[: console.height]
                display.update(Text(_list(rows, console.width)), refresh=True)
                time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        pass


def _list(rows: list[list[str]], columns: int) -> str:
    """Write a line for each run, in columns; where these are too wide, a sentence for each."""
    if not rows:
        return ""
    laid = laid_out(Columns(rows, to_the_left=range(COLUMNS)))
    lines = drawn(laid, WIDEST)
    if max(map(cell_len, lines.split("\n"))) <= columns:
        return lines
    return report_text([f"{name}: {', '.join(filter(None, cells))}" for name, *cells in rows])


def _rows(runs_dir: Path, *, live: bool) -> list[list[str]]:
    """Return the cells of each run. A live list begins with the runs under way, and then the most recent ones."""
    found = list(runs_in(runs_dir))
    if live:
        found.reverse()
        found.sort(key=_is_over)
    rows = []
    for name, row in found:
        if isinstance(row, InvalidUsage):
            texts = ["unreadable", *[""] * (COLUMNS - 3), str(row)]
        else:
            texts = [*_cells(row)]
        rows.append([name, *map(one_line, texts)])
    return rows


def _is_over(found: tuple[str, Result | InvalidUsage]) -> bool:
    return isinstance(found[1], InvalidUsage) or found[1].outcome != "running"


def _cells(result: Result) -> Iterator[str]:
    first, more = without_options(result.models[0]), len({*result.models}) - 1
    yield outcome_text(result)
    yield local_time(result.created_at or "")
    yield result.task
    yield f"{first} +{more}".removesuffix(" +0")
    yield counted(result.calls, "call")
    yield result.price(result.cost_usd)
    yield verdict_on(result).text
