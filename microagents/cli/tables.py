"""Tables and sentences of reports."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Container, Iterator, Sequence

from microagents.runs.summary import printable


def table(rows: Sequence[Sequence[str]], *, to_the_left: Container[int] = ()) -> Iterator[str]:
    """The lines of a table. Columns are aligned to the right, except those with these numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            f"{cell:<{width}}" if number in to_the_left else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield printable("  ".join(cells))


def wrapped(text: str) -> list[str]:
    """The lines of a sentence; on a terminal wrapped at words to its width."""
    columns = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else sys.maxsize
    return textwrap.wrap(printable(" ".join(text.split())), columns, subsequent_indent="  ", break_long_words=False)
