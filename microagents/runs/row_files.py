"""Files of rows: CSV, TSV, and JSON lines, read row by row and written at once."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import msgspec

from microagents.base.errors import InvalidUsage, read_failure
from microagents.base.files import replacing
from microagents.runs.settings import TABLES

_FORMULA = re.compile(r"(?![-+]?[0-9]+([.,][0-9]+)*\Z)[-=+@\t\r]")
"""The start of a text that is no number, and that a spreadsheet takes for a formula."""
MAX_CELL = 16 << 20
"""Longest cell in characters: a quote that is never closed must not fill the memory."""


def read_cells(stream: IO[bytes], source: str, separator: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a file with a header, each with the number of its last line, from 1. Empty lines are no rows.

    Args:
        stream: the file, in UTF-8 with or without a byte order mark.
        source: its name in error messages.
        separator: what stands between two cells; a file without a comma in its first line may have semicolons, as some spreadsheets do.

    Raises:
        InvalidUsage: it is no such file, a column stands twice in its header, or a row has more or fewer cells.
    """
    csv.field_size_limit(MAX_CELL)
    text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
    try:
        if separator == "," and "," not in (first := text.readline()) and ";" in first:
            separator = ";"
        text.seek(0)
        lines = csv.reader(text, strict=True, delimiter=separator)
        names = next(lines, [])
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidUsage(
                f"the column {twice[0]!r} stands twice in the header of {source}; nothing was started; rename one"
            )
        for cells in filter(None, lines):
            if len(cells) != len(names):
                raise InvalidUsage(
                    f"line {lines.line_num} of {source} has {len(cells)} cells, and its header {len(names)} columns; nothing was started"
                )
            yield lines.line_num, dict(zip(names, cells, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidUsage(f"{source} cannot be read as a table in UTF-8: {error}; nothing was started") from None
    finally:
        text.detach()


def check_new(path: Path) -> None:
    """Refuse a file that is there, or whose folder takes none, before a run begins.

    Raises:
        InvalidUsage: it cannot become the output.
    """
    try:
        what = "exists; it was kept, and" if path.exists() else ""
        TemporaryFile(dir=path.parent).close()
    except OSError as error:
        what = f"cannot be written: {read_failure(error)};"
    if what:
        raise InvalidUsage(f"the output {str(path)!r} {what} nothing was started; name another output")


def write_table(
    path: Path, rows: Iterable[dict[str, Any]], columns: Sequence[str], *, given: Collection[str], marked: bool
) -> None:
    """Write rows into a file at once: a reader sees the old file or the new one.

    Args:
        path: the file; its ending says the form.
        rows: the rows; one may lack columns.
        columns: the columns, in their order.
        given: those of the input, which stay as they are.
        marked: whether a CSV file begins with a byte order mark, without which some spreadsheets misread other letters than ASCII.

    Raises:
        InvalidUsage: it cannot be written.
    """
    separator = TABLES[path.suffix.lower()]
    encoding = "utf-8-sig" if marked and separator == "," else "utf-8"
    try:
        with replacing(path) as new, new.open("w", encoding=encoding, newline="") as file:
            if separator:
                lines = csv.writer(file, delimiter=separator)
                lines.writerow(columns)
                lines.writerows([cell(row.get(name), may_act=name in given) for name in columns] for row in rows)
            else:
                file.writelines(f"{msgspec.json.encode({n: r.get(n) for n in columns}).decode()}\n" for r in rows)
    except (OSError, UnicodeEncodeError) as error:
        said = read_failure(error) if isinstance(error, OSError) else str(error)
        raise InvalidUsage(f"the rows cannot be written into {str(path)!r}: {said}; the journal has them") from None


def cell(value: object, *, may_act: bool = False) -> object:
    """Return a value as a cell: texts and numbers as they are, all else as JSON, and nothing for None.

    A text of a model that a spreadsheet would run as a formula gets an apostrophe in front, unless it ``may_act``.
    """
    if value is None:
        return ""
    if isinstance(value, str) and not may_act and _FORMULA.match(value):
        return f"'{value}"
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return value if is_plain else msgspec.json.encode(value).decode()
