"""Tables and sentences of reports."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from microagents.base.printing import printable
from microagents.runs.words.summary import columns_of_stdout
from microagents.runs.words.verdict import local_time


class Columns(NamedTuple):
    """A table in a report. Columns are aligned to the right, except the ones of these numbers."""

    rows: Sequence[Sequence[str]]
    to_the_left: Container[int] = (0,)


def report_text(parts: Iterable[str | Columns]) -> str:
    """Lay out sentences, on a terminal wrapped at words to its width, and tables. An empty sentence is an empty line."""
    lines = (table(*each) if isinstance(each, Columns) else _wrapped(each) for each in parts)
    return "\n".join(chain.from_iterable(lines))


def table(rows: Sequence[Sequence[str]], to_the_left: Container[int] = ()) -> Iterator[str]:
    """Draw the lines of a table. Columns are aligned to the right, except the ones of these numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            f"{cell:<{width}}" if number in to_the_left else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield printable("  ".join(cells)).rstrip()


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


def _wrapped(text: str) -> list[str]:
    said, columns = printable(" ".join(text.split())), columns_of_stdout(sys.maxsize)
    return textwrap.wrap(said, columns, subsequent_indent="  ", break_long_words=False) or [""]
