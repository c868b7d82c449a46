"""Tables and sentences of reports."""

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
from microagents.cli.views.lines import drawn
from microagents.runs.words.summary import columns_of_stdout
from microagents.runs.words.verdict import local_time

WIDEST = 10_000
"""Columns of a table that goes into a file or a pipe, at most."""


LEAST_TEXT, GAP = 12, 2
"""Least width of a column of texts, and the columns behind each."""


class Columns(NamedTuple):
    """A table in a report. Columns are aligned to the right, except the ones of these numbers."""

    rows: Sequence[Sequence[str]]
    to_the_left: Container[int] = (0,)


def report_text(parts: Iterable[str | Columns]) -> str:
    """Lay out sentences, on a terminal wrapped at words to its width, and tables. An empty sentence is an empty line."""
    laid = [table(each) if isinstance(each, Columns) else _wrapped(each) for each in parts]
    return "\n".join(laid)


def table(columns: Columns) -> str:
    """Draw a table. On a terminal that is too narrow texts are wrapped, and figures stay whole."""
    laid = laid_out(columns)
    return drawn(laid, max(columns_of_stdout(WIDEST), sum(GAP + (each.min_width or 0) for each in laid.columns)))


def laid_out(columns: Columns) -> Table:
    """Lay out a table without lines."""
    laid = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    for number, cells in enumerate(zip_longest(*columns.rows, fillvalue="")):
        widest = max(map(cell_len, cells))
        if number in columns.to_the_left:
            laid.add_column(overflow="fold", min_width=min(widest, LEAST_TEXT))
        else:
            laid.add_column(justify="right", no_wrap=True, min_width=widest)
    for row in columns.rows:
        laid.add_row(*map(Text, map(printable, row)))
    return laid


def closing_notes(recorded_at: str | None, reason: str | None, kept: str) -> Iterator[str]:
    """Note answers without a call, since the task's code may have changed meanwhile; and how to continue runs that ended early."""
    if recorded_at is not None:
        yield f"answered from runs of {local_time(recorded_at)}; --run-id NAME begins another"
    if reason is not None:
        higher = " with a higher limit" if " is reached" in reason else ""
        kept = "" if "decisions so far are kept" in reason else f"all {kept} so far are kept; "
        yield f"{reason}; {kept}the same command{higher} continues"


def clock(seconds: float) -> str:
    """Write a duration as on a clock, such as 2:05 or 1:00:00."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    if hour:
        return f"{hour}:{minute:02}:{second:02}"
    return f"{minute}:{second:02}"


def _wrapped(text: str) -> str:
    said, columns = printable(" ".join(text.split())), columns_of_stdout(sys.maxsize)
    return textwrap.fill(said, columns, subsequent_indent="  ", break_long_words=False)
