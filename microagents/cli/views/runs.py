"""The list of the runs of a folder on the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from microagents.base.errors import InvalidUsage
from microagents.base.printing import printable
from microagents.cli.reporting import echo
from microagents.cli.views.lines import wrapped_cells
from microagents.models.model import without_options
from microagents.runs.inspection.runs import runs_in
from microagents.runs.result import Result
from microagents.runs.words.money import prices_of
from microagents.runs.words.summary import columns_of_stdout
from microagents.runs.words.verdict import counted, local_time, outcome_text, verdict_on

GAP, INDENT = "  ", "    "
LOOK_EVERY_S = 1.0


def list_runs(runs_dir: Path, *, live: bool) -> None:
    """Print the list once. A live one begins with the runs under way."""
    for line in _list(runs_dir, columns_of_stdout(sys.maxsize), live=live):
        echo(line)


def show_live(runs_dir: Path) -> None:
    """Keep the list up to date on the terminal, until Ctrl-C."""
    console = Console(highlight=False)
    try:
        with Live(console=console, auto_refresh=False) as display:
            while True:
                shown = list(_list(runs_dir, console.width, live=True))[: console.height - 1]
                display.update(Text("\n".join(shown), no_wrap=True, overflow="ellipsis"), refresh=True)
                time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        pass


def _list(runs_dir: Path, columns: int, *, live: bool) -> Iterator[str]:
    """Yield the lines of the list. A live one begins with the runs under way, and then the most recent ones."""
    rows = list(runs_in(runs_dir))
    if not rows:
        yield f"there is no run in {str(runs_dir)!r}"
    if live:
        rows.reverse()
        rows.sort(key=lambda row: isinstance(row[1], InvalidUsage) or row[1].outcome != "running")
    cells = []
    for name, row in rows:
        texts = [name, str(row)] if isinstance(row, InvalidUsage) else [name, *_cells(row)]
        cells.append([printable(" ".join(text.split())) for text in texts])
    yield from _lines(cells, columns)


def _cells(result: Result) -> Iterator[str]:
    account, models = result.account, result.models
    yield "paused" if account.paused and result.outcome == "running" else outcome_text(result)
    yield "" if result.created_at is None else local_time(result.created_at)
    yield result.task
    yield without_options(models[0]) + (f" +{len({*models}) - 1}" if len({*models}) > 1 else "")
    yield counted(account.calls, "call")
    yield prices_of(models)(result.cost_usd)
    yield verdict_on(result).text


def _lines(rows: Sequence[Sequence[str]], columns: int) -> Iterator[str]:
    """One line a run, in columns. If that is too wide, the cells of each run are wrapped."""
    runs = [row for row in rows if len(row) > 2]  # noqa: PLR2004 - others have a name and an error
    widths = [max(map(len, column)) for column in zip(*runs, strict=True)] or [0]
    widths[0] = max((len(row[0]) for row in rows), default=0)
    if sum(widths) + len(GAP) * (len(widths) - 1) <= columns:
        for row in rows:
            yield GAP.join(
                f"{cell:<{width}}" for cell, width in zip(row, [*widths, *[0] * len(row)], strict=False)
            ).rstrip()
        return
    for row in rows:
        yield from wrapped_cells(filter(None, row), columns, gap=GAP, indent=INDENT)
