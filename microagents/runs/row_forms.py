"""Parts that files of rows share whatever their form: the rows read, the columns to write, cells, and texts in another encoding."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias, cast

import msgspec

from microagents.base.errors import InvalidUsage

_FORMULA = re.compile(r"(?![-+]?[0-9]+([.,][0-9]+)*\Z)[-=+@\t\r]")
"""The start of a text that is no number, and that a spreadsheet takes for a formula."""
MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8."""
_WIDE = {b"\xff\xfe\0\0": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\0": "UTF-16BE"}
"""Encodings of several bytes a letter, by the bytes at the beginning of a text."""
SAMPLE_BYTES = 1 << 16
"""Bytes at the beginning of a file from which its form is found."""
INT64_BITS = 64
Peekable: TypeAlias = "io.BufferedReader[Any] | gzip.GzipFile"
"""A file whose beginning can be looked at."""


class Dialect(NamedTuple):
    """Form of a CSV file, which the output takes over from the input."""

    separator: str = ","
    has_mark: bool = False
    """Whether a byte order mark stands at the beginning."""
    names_separator: bool = False
    """Whether the first line is ``sep=`` and the separator."""
    schema: str = ""
    """Arrow schema of a Parquet file, in base64; empty for any other. Its columns keep their types in an output in Parquet."""


class RowFile(NamedTuple):
    """Rows of an open file."""

    rows: Iterator[tuple[int, dict[str, Any]]]
    """The rows, each with its number from 1, counted in units."""
    unit: str = "line"
    """Name of one unit of the file in error messages: a line, an item of an array, or a row."""
    dialect: Dialect = Dialect()


class RowColumns(NamedTuple):
    """Columns of the rows to be written."""

    kinds: dict[str, set[type]]
    """Types of the values by column, in the order of columns."""
    given: set[str]
    """Columns of the input, which stay as they are."""
    is_ascii: bool


def state_column(row: Iterable[str]) -> str:
    """Return the first column of ours in a row of an output, which holds the state; empty if there is none."""
    return next((name for name in ("row_row_state", "row_state", "state") if name in row), "")


def columns_of(rows: Iterable[dict[str, Any]]) -> RowColumns:
    """Look through rows for their columns."""
    kinds = dict[str, set[type]]()
    given = set[str]()
    is_ascii = True
    for row in rows:
        ours = state_column(row)
        given.update(takewhile(ours.__ne__, row))
        for name, value in row.items():
            kinds.setdefault(name, set()).add(object if _is_large(value) else type(value))
            text = str(cell(value))
            is_ascii = is_ascii and name.isascii() and text.isascii()
    return RowColumns(kinds, given, is_ascii)


def _is_large(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() >= INT64_BITS


def kind_of(kinds: Collection[type]) -> type:
    """Return the type of a column's values: numbers of both kinds are floats, and other mixtures are objects."""
    present = {*kinds} - {type(None)}
    if present == {int, float}:
        return float
    if len(present) == 1:
        return present.pop()
    return object


def cell(value: object, *, may_act: bool = False) -> object:
    """Return a value as a cell: texts and numbers as they are, all else as JSON, and nothing for None.

    A text of a model that a spreadsheet would run as a formula gets an apostrophe in front, unless it ``may_act``.
    """
    if value is None:
        return ""
    if isinstance(value, str) and not may_act and _FORMULA.match(value):
        return f"'{value}"
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    if is_plain:
        return value
    return msgspec.json.encode(value).decode()


def wide_encoding(beginning: bytes) -> str | None:
    """Guess the encoding of a text whose letters have several bytes each; None for any other."""
    for mark, encoding in _WIDE.items():
        if beginning.startswith(mark):
            return encoding
    if beginning[1:2] == b"\0":
        return "UTF-16LE"
    return None


def not_in_utf8(source: str, kind: str, encoding: str | None) -> InvalidUsage:
    """Return the refusal of a file in another encoding than UTF-8, with the remedy."""
    guessed = encoding or "WINDOWS-1252"
    form = "json" if kind == "JSON" else "csv"
    return InvalidUsage(
        f"{source} cannot be read as {kind} in UTF-8, it may be {guessed}; nothing was started; save it as UTF-8, or convert it: "
        f"iconv -f {guessed} -t UTF-8 {source} > utf8.{form}"
    )


def text_file(path: Path, new: Path, encoding: str = "utf-8") -> IO[str]:
    """Open a new file for text, packed if its name ends in ``.gz``."""
    packed = path.suffix.lower() == ".gz"
    open_text = gzip.open if packed else open
    return cast("IO[str]", open_text(new, "wt", encoding=encoding, newline=""))


def ending_of(path: Path) -> str:
    """Return the ending of a file in lower case, without that of a compression."""
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return plain.suffix.lower()
