"""Pictures of comparisons as SVG, by matplotlib, which is an extra. The same findings give the same bytes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from microagents.base.errors import InvalidUsage, read_failure
from microagents.studies.comparison import Comparison, Row

STYLE = {
    "svg.hashsalt": "microagents",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e5e5e5",
    "legend.frameon": False,
    "legend.fontsize": 8,
}
TITLE_CHARS = 110
"""Longer titles are broken into lines."""


def draw(report: Comparison, file: Path) -> None:
    """Write the picture of a completed comparison."""
    with mpl.rc_context(STYLE):
        figure = _comparison(report)
        try:
            figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
        except OSError as error:
            raise InvalidUsage(f"{str(file)!r} cannot be written: {read_failure(error)}") from None


def _comparison(comparison: Comparison) -> Figure:
    """Return the rate of each row over the tokens of an input. Rows that differ only in numbers are points of a line."""
    lines: dict[tuple[object, ...], list[Row]] = {}
    for row in comparison.rows:
        if row.rate is not None:
            words = [
                (name, value) for name, value in row.options.items() if isinstance(value, str) and not value.isdecimal()
            ]
            lines.setdefault((row.strategy, *words), []).append(row)
    figure = Figure(figsize=(8.2, 4.6), layout="constrained")
    panel = figure.subplots()
    colours = mpl.colormaps["tab10"]
    for number, rows in enumerate(lines.values()):
        _line_of_rows(panel, sorted(rows, key=lambda row: row.tokens_per_input or 0), colours(number % 10))
    panel.set_xscale("log")
    panel.set_ylim(-0.02, 1.05)
    panel.set_xlabel("tokens of an input, prompts and replies (log scale)")
    panel.set_ylabel("share solved, 95 % interval")
    panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.suptitle(textwrap.fill(comparison.title, TITLE_CHARS), fontsize=10, x=0.01, ha="left")
    return figure


def _line_of_rows(panel: Any, rows: Sequence[Row], colour: Any) -> None:
    """Draw the rows of one strategy. If there are several, each point has its numbers beside it."""
    rates = [row.rate or 0.0 for row in rows]
    low = [rate - (row.low or 0.0) for rate, row in zip(rates, rows, strict=True)]
    high = [(row.high or 0.0) - rate for rate, row in zip(rates, rows, strict=True)]
    tokens = [row.tokens_per_input or 0.0 for row in rows]
    words = [word for word in rows[0].given.split(",") if word and not word.rpartition("=")[2].isdecimal()]
    name = ", ".join([rows[0].strategy, *words])
    panel.errorbar(
        tokens, rates, yerr=[low, high], color=colour, marker="o", markersize=4, linewidth=1, capsize=2, label=name
    )
    for row, x, y in zip(rows, tokens, rates, strict=True):
        numbers = [word.rpartition("=")[2] for word in row.given.split(",") if word.rpartition("=")[2].isdecimal()]
        text = " ".join([*numbers, *([f"k={row.k}"] if row.k not in (None, 1) else [])])
        panel.annotate(text, (x, y), textcoords="offset points", xytext=(4, 4), fontsize=7, color=colour)
