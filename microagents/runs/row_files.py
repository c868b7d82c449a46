"""Files of rows: CSV, TSV, JSON, JSON lines and Parquet, plain or gzipped; read row by row, and written at once."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from microagents.base.errors import InvalidUsage, read_failure, refusing
from microagents.base.files import is_there, replacing
from microagents.base.packages import require_package
from microagents.runs.csv_rows import SEPARATORS, read_cells, write_cells
from microagents.runs.json_rows import read_lines, read_values, write_json
from microagents.runs.parquet_rows import read_parquet, typed_rows, write_parquet
from microagents.runs.row_forms import (
    MARK,
    SAMPLE_BYTES,
    Dialect,
    Peekable,
    RowFile,
    columns_of,
    ending_of,
    not_in_utf8,
    wide_encoding,
)

PARQUET = ".parquet"
OF_JSON = (".json", ".jsonl")
ENDINGS = (*SEPARATORS, *OF_JSON, PARQUET)
"""Endings of files of rows; each may be followed by ``.gz``."""
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
_GZIP = b"\x1f\x8b"
_OF_SPREADSHEETS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")


def names_rows(word: str) -> bool:
    """Return whether a word of the command line is the name of a file of rows, or of a spreadsheet."""
    return "=" not in word and ending_of(Path(word)) in (*ENDINGS, *SPREADSHEETS)


def _as_spreadsheet(name: str) -> str:
    return f"{name!r:.100} is a spreadsheet, which is neither read nor written; name a .csv file, which every spreadsheet opens and saves"


def checked_output(value: str | Path) -> str:
    """Return the absolute path of an output of rows.

    Raises:
        ValueError: no rows are written into files with its ending.
    """
    if ending_of(Path(value)) in SPREADSHEETS:
        raise ValueError(_as_spreadsheet(str(value)))
    if ending_of(Path(value)) not in ENDINGS:
        raise ValueError(f"the output of rows ends in {', '.join(ENDINGS)}, unlike {str(value)!r:.100}")
    return os.path.abspath(value)  # noqa: PTH100 - a path without its links resolved


@contextmanager
def opened(file: str) -> Iterator[Peekable]:
    """Open a file of rows, unpacked if its content is gzip.

    Raises:
        InvalidUsage: it cannot be read, or is a spreadsheet.
    """
    with readable(repr(file)), io.BufferedReader(io.FileIO(file), SAMPLE_BYTES) as stream:
        if ending_of(Path(file)) in SPREADSHEETS:
            raise InvalidUsage(f"{_as_spreadsheet(file)}; nothing was started")
        yield unpacked(stream, file)


@contextmanager
def readable(source: str) -> Iterator[None]:
    """Name a source that cannot be read to its end in one sentence.

    Raises:
        InvalidUsage: it cannot.
    """
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidUsage(f"{source} cannot be read: {read_failure(error)}") from None


def unpacked(stream: io.BufferedReader[Any], file: str) -> Peekable:
    """Return the content of a stream, unpacked if it is gzip.

    Raises:
        InvalidUsage: it is a spreadsheet.
    """
    beginning = stream.peek(SAMPLE_BYTES)
    if beginning.startswith(_OF_SPREADSHEETS):
        raise InvalidUsage(f"{_as_spreadsheet(file)}; nothing was started")
    if beginning.startswith(_GZIP):
        return gzip.GzipFile(fileobj=stream)
    return stream


def read_rows(stream: Peekable, source: str, ending: str) -> RowFile:
    """Read the rows of a file.

    Args:
        stream: the file.
        source: its name in error messages.
        ending: its ending. JSON is an object a line, or an array of objects; a file of another ending, and stdin, is a table with commas
            or the like unless it begins as JSON.

    Raises:
        InvalidUsage: it is no such file. The iterator raises it, too.
    """
    if ending in SEPARATORS:
        return read_cells(stream, source, ending)
    if ending == PARQUET:
        return read_parquet(stream, source)
    beginning = stream.peek(SAMPLE_BYTES)
    if (encoding := wide_encoding(beginning)) is not None:
        raise not_in_utf8(source, "JSON", encoding)
    text = beginning.removeprefix(MARK).lstrip()
    if text.startswith(b"[") or (text and ending == ".json"):
        return RowFile(read_values(stream.read(), source), "item")
    if text and ending not in OF_JSON and not text.startswith(b"{"):
        return read_cells(stream, source, ".csv")
    return RowFile(read_lines(stream, source))


def check_new(path: Path) -> None:
    """Refuse a file that is there, or whose folder takes none, before a run begins.

    Raises:
        InvalidUsage: it cannot become the output.
    """
    if ending_of(path) == PARQUET:
        require_package("an output in Parquet", "pyarrow")
    try:
        what = "exists; it was kept, and" if is_there(path) else ""
        TemporaryFile(dir=path.parent).close()
    except (OSError, ValueError) as error:
        what = f"cannot be written: {read_failure(error)};"
    if what:
        raise InvalidUsage(f"the output {str(path)!r} {what} nothing was started; name another output")


def write_rows(path: Path, rows: Callable[[], Iterable[dict[str, Any]]], dialect: Dialect) -> None:
    """Write rows into a file at once: a reader sees the old file or the new one.

    Args:
        path: the file; its ending says the form.
        rows: gives the rows of `Result.rows` anew, in their types for Parquet, else JSON-like; one may lack columns.
        dialect: the form of a CSV file. One with other letters than ASCII gets a byte order mark in any case, without which some
            spreadsheets misread them.

    Raises:
        InvalidUsage: it cannot be written.
    """
    ending = ending_of(path)
    if ending == PARQUET:
        rows = partial(typed_rows, rows)
    found = columns_of(rows())
    said = f"the rows cannot be written into {str(path)!r}"
    with refusing(said, "; the journal has them"), replacing(path) as new:
        if ending == PARQUET:
            write_parquet(new, rows, found, dialect)
        elif ending in SEPARATORS:
            write_cells(path, new, rows(), found, dialect if ending == ".csv" else Dialect("\t"))
        else:
            write_json(path, new, rows(), found)
