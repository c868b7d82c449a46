"""Pictures of studies and comparisons as SVG, by matplotlib, which is an extra. The same findings give the same bytes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from microagents.base.errors import InvalidUsage, read_failure
from microagents.runs.words.summary import options_text
from microagents.studies.analysis import HARD, Errors, Proportion, RolloutAccuracy
from microagents.studies.comparison import Comparison, Row
from microagents.studies.study import Kind, StudyReport

DARK, BLUE, ORANGE, GREY = "#222222", "#0072b2", "#d55e00", "#999999"
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
BIN = 0.05
"""Width of a bar of the histogram of error rates."""
TITLE_CHARS = 110
"""Longer titles are broken into lines."""
NAME_CHARS = 34
"""The same for names of models beside a heat map."""
READABLE_ON_BLUE = 0.55
"""Distance above which a cell is so dark that its number is white."""


def draw(report: Comparison | StudyReport, file: Path) -> None:
    """Write the picture of a completed comparison or study."""
    with mpl.rc_context(STYLE):
        figure = _comparison(report) if isinstance(report, Comparison) else _FIGURES[report.kind](report)
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


def _errors(report: StudyReport) -> Figure:
    figure, panels = _panels(report, "Error rates of single steps", height=2.3, columns=1)
    highest = 1
    for (panel,), model in zip(panels, report.models, strict=True):
        assert isinstance(model.errors, Errors)
        rates = [each.rate.share for each in model.errors.steps if each.rate is not None]
        edges = [number * BIN for number in range(round(1 / BIN) + 1)]
        counts, _, _ = panel.hist(
            [rate + 1e-9 for rate in rates], bins=[*edges[:-1], 1.0 + BIN / 10], color=BLUE, edgecolor="white"
        )
        highest = max(highest, *counts)
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.axvline(HARD, color=ORANGE, linestyle="--", linewidth=1)
        panel.text(
            HARD + 0.01,
            0.97,
            f"{model.errors.hard} above one half",
            color=ORANGE,
            va="top",
            transform=panel.get_xaxis_transform(),
        )
        panel.set_xlim(0, 1)
        panel.set_ylabel("steps (log scale)")
    for (panel,) in panels:
        panel.set_ylim(0.7, 2 * highest)
    panels[-1][0].set_xlabel(f"error rate of a step (share of wrong replies among {report.samples:,} samples)")
    return figure


def _lookahead(report: StudyReport) -> Figure:
    figure, panels = _panels(report, "Steps asked alone, and as a part of rollouts", height=3.1, columns=2)
    for (left, right), model in zip(panels, report.models, strict=True):
        assert isinstance(model.lookahead, RolloutAccuracy)
        alone, *ahead = model.lookahead.positions
        colours = mpl.colormaps["viridis"]
        for each in ahead:
            shade = colours(0.9 * (each.position - 1) / max(1, len(ahead) - 1))
            left.plot(
                range(1, len(each.ranked) + 1), each.ranked, color=shade, linewidth=0.7, label=f"+{each.position}"
            )
        pooled = model.lookahead.pooled.ranked
        left.plot(range(1, len(pooled) + 1), pooled, color=BLUE, linewidth=2.5, label="all positions")
        left.plot(range(1, len(alone.ranked) + 1), alone.ranked, color=DARK, linewidth=2, linestyle="--", label="alone")
        left.set_xlabel("steps by accuracy, each line in its own order")
        left.set_ylabel("accuracy of a step")
        left.legend(title="position", ncols=2 if len(ahead) < 12 else 3, loc="lower right")  # noqa: PLR2004 - lines that fit
        if alone.accuracy is not None:
            right.axhspan(alone.accuracy.low, alone.accuracy.high, color=GREY, alpha=0.25, linewidth=0)
            right.axhline(alone.accuracy.share, color=DARK, linestyle="--", label="asked alone")
        _with_intervals(right, [(each.position - 0.1, each.accuracy) for each in ahead], BLUE, "all rollouts")
        _with_intervals(right, [(each.position + 0.1, each.given_first) for each in ahead], ORANGE, "first step right")
        right.set_xlabel("position in the rollout (steps)")
        right.set_ylabel("mean accuracy, 95 % over steps")
        right.set_xticks(range(1, len(ahead) + 1, 1 + len(ahead) // 16))
        right.legend(loc="lower left")
        for panel in (left, right):
            panel.set_ylim(-0.02, 1.05)
    return figure


def _distance(report: StudyReport) -> Figure:
    assert report.distances is not None
    found = report.distances
    size = len(found.models)
    figure = Figure(figsize=(5.2 + 0.7 * size, 1.5 + 0.7 * size), layout="constrained")
    panel = figure.subplots()
    shown = [[float("nan") if each is None else each for each in row] for row in found.matrix]
    image = panel.imshow(shown, cmap="Blues", vmin=0, vmax=1)
    for row, cells in enumerate(found.matrix):
        for column, each in enumerate(cells):
            colour = "white" if each is not None and each > READABLE_ON_BLUE else DARK
            panel.text(column, row, "-" if each is None else f"{each:.2f}", ha="center", va="center", color=colour)
    numbers = [str(number) for number in range(1, size + 1)]
    names = [_in_lines(f"{number}: {each}") for number, each in zip(numbers, found.models, strict=True)]
    panel.set_xticks(range(size), numbers)
    panel.set_yticks(range(size), names)
    panel.grid(visible=False)
    for spine in panel.spines.values():
        spine.set_visible(False)
    panel.set_xlabel("model")
    figure.colorbar(image, label="total variation distance")
    subject = "Distances between the errors of models\n(on the diagonal: between two halves of the samples of one)"
    figure.suptitle(_title(report, subject, chars=TITLE_CHARS * 2 // 3), fontsize=10, x=0.01, ha="left")
    return figure


def _parts(report: StudyReport) -> Figure:
    figure, panels = _panels(report, "Accuracy by field of the reply", height=2.7, columns=2)
    for (left, right), model in zip(panels, report.models, strict=True):
        assert model.parts is not None
        parts = [*model.parts.fields, model.parts.whole]
        names = [
            model.parts.fields[0].name,
            *[f"{each.name},\ngiven those before" for each in model.parts.fields[1:]],
            "whole reply",
        ]
        singles, majorities = [each.single for each in parts], [each.majority for each in parts]
        for shift, colour, label, found in ((-0.2, BLUE, "single", singles), (0.2, ORANGE, "majority", majorities)):
            shares = [(at + shift, each) for at, each in enumerate(found)]
            left.bar(
                [at for at, _ in shares],
                [0 if each is None else each.share for _, each in shares],
                width=0.38,
                color=colour,
                label=label,
            )
            _with_intervals(left, shares, DARK, None, marker="")
        left.set_xticks(range(len(parts)), names)
        left.set_ylim(0, 1.25)
        left.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
        left.set_ylabel("share right, 95 % over steps")
        left.legend(loc="upper left", ncols=2)
        fields = model.parts.fields
        right.bar([each.name for each in fields], [each.errors_per_walk for each in fields], width=0.5, color=BLUE)
        right.set_ylabel(f"mean errors in {model.steps:,} steps")
        right.set_xlabel("first wrong field")
    return figure


_FIGURES: dict[Kind, Callable[[StudyReport], Figure]] = {
    "errors": _errors,
    "lookahead": _lookahead,
    "distance": _distance,
    "parts": _parts,
}


def _panels(report: StudyReport, subject: str, *, height: float, columns: int) -> tuple[Figure, Any]:
    rows = len(report.models)
    figure = Figure(figsize=(8, 0.7 + height * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for row, model in zip(panels, report.models, strict=True):
        row[0].set_title(textwrap.fill(model.model, TITLE_CHARS // columns), loc="left")
    figure.suptitle(_title(report, subject), fontsize=10, x=0.01, ha="left")
    return figure, panels


def _title(report: StudyReport, subject: str, *, chars: int = TITLE_CHARS) -> str:
    drawn = f"{report.models[0].steps:,} steps, {report.samples:,} samples of each, seed {report.seed}"
    return f"{subject}\n{textwrap.fill(f'{report.task}{options_text(report.options)}: {drawn}', chars)}"


def _with_intervals(
    panel: Any, shares: Sequence[tuple[float, Proportion | None]], colour: str, label: str | None, *, marker: str = "o"
) -> None:
    """Points with their intervals; without a marker only the intervals."""
    known = [(at, each) for at, each in shares if each is not None]
    panel.errorbar(
        [at for at, _ in known],
        [each.share for _, each in known],
        yerr=[[each.share - each.low for _, each in known], [each.high - each.share for _, each in known]],
        fmt=marker or "none",
        color=colour,
        ecolor=colour,
        markersize=4,
        capsize=2,
        linewidth=1,
        label=label,
    )


def _in_lines(name: str) -> str:
    return textwrap.fill(name.replace("@", " @").replace(",", ", "), NAME_CHARS, break_on_hyphens=False)
