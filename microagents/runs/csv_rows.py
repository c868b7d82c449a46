"""Tables of cells, with commas or the like: their separator is found, and an output takes over the form of the input."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import dropwhile, islice, starmap
from pathlib import Path
from typing import IO, Any

from microagents.base.errors import InvalidUsage
from microagents.base.plain_values import refuse_twice
from microagents.runs.row_forms import (
    MARK,
    SAMPLE_BYTES,
    Dialect,
    Peekable,
    RowColumns,
    RowFile,
    cell,
    ending_of,
    not_in_utf8,
    text_file,
    wide_encoding,
)

SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""Endings of files of cells, each with the separator of one whose form does not tell it."""
_NAMED_SEPARATOR = re.compile(r'"?sep=(.)"?[ ,;\t|]*[\r\n]', re.IGNORECASE)
"""The first line by which a spreadsheet names the separator; one that was saved again may have empty cells."""
MAX_CELL = 16 << 20
"""Longest cell in characters: a quote that is never closed must not fill the memory."""
SAMPLE_ROWS = 20
"""Rows behind the header by which its separator is found."""


def read_cells(stream: Peekable, source: str, ending: str) -> RowFile:
    """Read the rows of a table; raises as `microagents.runs.row_files.read_rows`."""
    csv.field_size_limit(MAX_CELL)
    beginning = stream.peek(SAMPLE_BYTES)
    sample = beginning.removeprefix(MARK).decode(errors="replace")
    named = _NAMED_SEPARATOR.match(sample)
    if named:
        separator, sample = named[1], sample[named.end() :]
    else:
        separator = _separator_of(sample, ending)
    found = Dialect(separator, beginning.startswith(MARK), named is not None)
    between = re.escape(separator)
    is_spaced = re.match(rf"\s*[^\r\n{between}]+({between} [^\r\n{between}]+)+[\r\n]", sample) is not None
    rows = _cells(stream, source, found, beginning, is_spaced=is_spaced)
    return RowFile(rows, dialect=found if ending == ".csv" else Dialect())


@contextmanager
def _as_table(source: str, beginning: bytes) -> Iterator[None]:
    """Guess the kind of a file that is no table in UTF-8, and name the remedy."""
    encoding = wide_encoding(beginning)
    if encoding is not None:
        raise not_in_utf8(source, "a table", encoding)
    try:
        yield
    except UnicodeDecodeError:
        raise not_in_utf8(source, "a table", None) from None
    except csv.Error as error:
        raise InvalidUsage(f"{source} cannot be read as a table in UTF-8: {error}; nothing was started") from None


def _is_filled(cells: list[str]) -> bool:
    return any(map(str.strip, cells))


def _named(index: int, name: str) -> str:
    """Return the name of a column, as pandas gives one to a column without a name."""
    if name.strip():
        return name
    return f"Unnamed: {index}"


def _without_blanks(cells: list[str], fewest: int = 0) -> list[str]:
    """Leave out blank cells at the end, down to the fewest."""
    kept = len(cells)
    while kept > fewest and not cells[kept - 1].strip():
        kept -= 1
    return cells[:kept]


def _rows_that_fit(sample: str, separator: str) -> int:
    """Count the first rows of a table that have a cell for each name of the header, which has several."""
    records = csv.reader(io.StringIO(sample, newline=""), delimiter=separator)
    names, *rows = [*islice(filter(_is_filled, records), 1 + SAMPLE_ROWS)] or [[]]
    fewest = len(_without_blanks(names))
    if fewest <= 1:
        return 0
    lengths = [len(_without_blanks(cells, fewest)) for cells in rows]
    return 1 + sum(fewest <= length <= len(names) for length in lengths)


def _separator_of(sample: str, ending: str) -> str:
    """Return the separator that splits most rows as their header; of several the one that is rarest in texts."""
    fits = {each: _rows_that_fit(sample, each) for each in "|\t;,"}
    if not any(fits.values()):
        return SEPARATORS[ending]
    return max(fits, key=fits.__getitem__)


@contextmanager
def _as_text(stream: Peekable) -> Iterator[IO[str]]:
    """Read a stream as text, and leave it open for its owner, who may have closed it meanwhile."""
    text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
    try:
        yield text
    finally:
        with suppress(ValueError):
            text.detach()


def _cells(
    stream: Peekable, source: str, dialect: Dialect, beginning: bytes, *, is_spaced: bool
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a table with a header, each with the number of its last line. Empty and blank lines are no rows.

    A column without a name is ``Unnamed:`` and its number from 0, as in pandas. Of the nameless ones behind the last name, which a
    spreadsheet may write, a row has only those with a value. Spaces behind separators go if all names of the header have some.
    """
    with _as_table(source, beginning), _as_text(stream) as text:
        records = csv.reader(text, strict=True, delimiter=dialect.separator, skipinitialspace=is_spaced)
        if dialect.names_separator:
            next(records)
        lines = dropwhile(lambda cells: not _is_filled(cells), records)
        header = next(lines, [])
        names = list(starmap(_named, enumerate(header)))
        refuse_twice(names, f"the header of {source}")
        fewest = len(_without_blanks(header))
        for record in filter(None, lines):
            cells = _without_blanks(record, fewest)
            if fewest <= len(cells) <= len(names):
                yield records.line_num, dict(zip(names, cells, strict=False))
            elif _is_filled(cells):
                raise InvalidUsage(
                    f"line {records.line_num} of {source} has {len(record)} cells, and its header {len(names)} columns; nothing was started"
                )


def write_cells(path: Path, new: Path, rows: Iterable[dict[str, Any]], found: RowColumns, dialect: Dialect) -> None:
    """Write rows into a new file, in the form of the input; the mark of UTF-8 goes before other letters than ASCII."""
    is_csv = ending_of(path) == ".csv"
    has_mark = dialect.has_mark or (is_csv and not found.is_ascii)
    with text_file(path, new, "utf-8-sig" if has_mark else "utf-8") as file:
        if dialect.names_separator:
            file.write(f"sep={dialect.separator}\r\n")
        lines = csv.writer(file, delimiter=dialect.separator)
        lines.writerow(found.kinds)
        for row in rows:
            cells = [cell(row.get(name), may_act=name in found.given) for name in found.kinds]
            lines.writerow(cells)
