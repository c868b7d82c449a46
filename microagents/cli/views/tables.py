"""Tables, facts and sentences of reports."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from microagents.base.printing import printable
from microagents.cli.reporting import echo, json_text
from microagents.cli.views.lines import drawn
from microagents.runs.words.summary import Fact, columns_of_stdout, facts_text
from microagents.runs.words.verdict import local_time

WIDEST = 10_000
"""Columns of a table that goes into a file or a pipe, at most."""


LEAST_TEXT, GAP = 16, 2
"""Least width of a column of texts, and the space after each column."""


class Columns(NamedTuple):
    """A table in a report, with its headers. Columns are aligned to the right, except those of these numbers."""

    rows: Sequence[Sequence[str]]
    to_the_left: Container[int] = (0,)
    least: Sequence[str] = ()
    """Headers of the columns that a narrow terminal loses first; without any they go from the last one on."""


class Facts(NamedTuple):
    """Facts of a report: names, and their words."""

    rows: Iterable[Fact]


Part = str | Columns | Facts
"""A part of a report; an empty sentence is an empty line."""


def print_found(found: object, report: Iterable[Part], *, as_json: bool) -> None:
    """Print what a command found, as one object or as a report."""
    echo(json_text(found) if as_json else report_text(report))


def report_text(parts: Iterable[Part]) -> str:
    """Lay out parts below each other, on a terminal within its width."""
    return "\n".join(map(_laid, parts))


def _laid(part: Part) -> str:
    if isinstance(part, Columns):
        return table(part)
    if isinstance(part, Facts):
        return facts_text([(name, printable(text)) for name, text in part.rows])
    return _wrapped(part)


def table(columns: Columns) -> str:
    """Draw a table. On a narrow terminal texts are wrapped, figures stay whole, and a line names the columns that are left out."""
    laid, width, left_out = laid_out(columns), columns_of_stdout(WIDEST), list[str]()
    for name in columns.least or reversed(columns.rows[0][1:]):
        if sum(GAP + (each.min_width or 0) for each in laid.columns) <= width:
            break
        left_out.append(name)
        laid = laid_out(columns, left_out)
    said = drawn(laid, width)
    if left_out:
        said += "\n" + _wrapped(f"(too narrow for: {', '.join(left_out)})")
    return said


def laid_out(columns: Columns, left_out: Container[str] = ()) -> Table:
    """Lay out a table without lines, and without some columns."""
    laid = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    kept = []
    for number, cells in enumerate(zip_longest(*columns.rows, fillvalue="")):
        if cells[0] in left_out:
            continue
        texts = [Text(printable(cell)) for cell in cells]
        kept.append(texts)
        widest = max(map(cell_len, cells))
        if number in columns.to_the_left:
            laid.add_column(overflow="fold", min_width=min(widest, LEAST_TEXT))
        else:
            laid.add_column(justify="right", no_wrap=True, min_width=widest)
    for row in zip(*kept, strict=True):
        laid.add_row(*row)
    return laid


def figure(number: float | None, form: str = ",") -> str:
    """Write a number in a form of Python; ``-`` for none."""
    if number is None:
        return "-"
    return f"{number:{form}}"


def closing_notes(recorded_at: str | None, reason: str | None, kept: str) -> Iterator[str]:
    """Note answers without a call, since the task's code may have changed meanwhile; and how to continue runs that ended early."""
    if recorded_at is not None:
        yield f"answered from runs of {local_time(recorded_at)}; --run-id NAME begins another"
    if reason is not None:
        said = f"{reason}; "
        if "decisions so far are kept" not in reason:
            said += f"all {kept} so far are kept; "
        said += "the same command"
        if " is reached" in reason:
            said += " with a higher limit"
        yield f"{said} continues"


def _wrapped(text: str) -> str:
    said, columns = printable(" ".join(text.split())), columns_of_stdout(sys.maxsize)
    return textwrap.fill(said, columns, subsequent_indent="  ", break_long_words=False)
