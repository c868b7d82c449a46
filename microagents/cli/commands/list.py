"""`microagents list`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.options import RUNS, AsJson, RunsDir
from microagents.cli.reporting import json_text
from microagents.cli.views.lines import wrapped_cells
from microagents.cli.views.tables import local_time
from microagents.runs.inspection.runs import runs_in
from microagents.runs.result import Result
from microagents.runs.words.money import prices_of
from microagents.runs.words.summary import (
    columns_of_stdout,
    counted,
    outcome_text,
    printable,
    progress_text,
    wrong_text,
)

GAP, INDENT = "  ", "    "


def command(runs_dir: RunsDir = RUNS, as_json: AsJson = False) -> None:
    """List the runs of a folder, the most recent one at the end.

    Shows the start, the outcome, the progress, the model, the calls, the cost, and the wrong decisions as far as the task has an oracle.
    """
    rows = list(runs_in(runs_dir))
    if as_json:
        found = [
            {"run_id": name, "error": str(row)} if isinstance(row, InvalidUsage) else row.as_json()
            for name, row in rows
        ]
        typer.echo(json_text(found))
        return
    if not rows:
        typer.echo(f"there is no run in {str(runs_dir)!r}")
    for line in lines_of(rows, columns_of_stdout(sys.maxsize)):
        typer.echo(line)


def lines_of(rows: Iterable[tuple[str, Result | InvalidUsage]], columns: int) -> Iterator[str]:
    """Yield the lines of a list of runs.

    Args:
        rows: names of the runs, each with its result, or why it cannot be read.
        columns: width of the terminal.
    """
    cells = [[name, str(row)] if isinstance(row, InvalidUsage) else [name, *_cells(row)] for name, row in rows]
    return _lines([[printable(" ".join(cell.split())) for cell in row] for row in cells], columns)


def _cells(result: Result) -> Iterator[str]:
    account, models = result.account, result.models
    yield "paused" if account.paused is not None else outcome_text(result)
    yield "" if result.created_at is None else local_time(result.created_at)
    yield f"{result.task}: {progress_text(result)}"
    yield models[0].partition("@")[0] + (f" +{len({*models}) - 1}" if len({*models}) > 1 else "")
    yield counted(account.calls, "call")
    yield prices_of(models)(result.cost_usd)
    yield wrong_text(result)


def _lines(rows: Sequence[Sequence[str]], columns: int) -> Iterator[str]:
    """One line a run, in columns. Where that is too wide, the cells of each run are wrapped."""
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
