"""Files of rows: CSV, TSV, JSON, JSON lines and Parquet, plain or gzipped; read row by row, and written at once."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain, dropwhile, islice, takewhile
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple, TypeAlias, TypedDict, cast

import msgspec

from microagents.base.errors import InvalidUsage, read_failure
from microagents.base.files import is_there, replacing
from microagents.base.packages import require_package
from microagents.base.plain_values import jsonable, number_in, refuse_twice

SEPARATORS = {".csv": ",", ".tsv": "\t"}
"""Endings of files of cells, each with the separator of one whose form does not tell it."""
PARQUET = ".parquet"
OF_JSON = (".json", ".jsonl")
ENDINGS = (*SEPARATORS, *OF_JSON, PARQUET)
"""Endings of files of rows; each may be followed by ``.gz``."""
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
_FORMULA = re.compile(r"(?![-+]?[0-9]+([.,][0-9]+)*\Z)[-=+@\t\r]")
"""The start of a text that is no number, and that a spreadsheet takes for a formula."""
_NAMED_SEPARATOR = re.compile(r'"?sep=(.)"?[ ,;\t|]*[\r\n]', re.IGNORECASE)
"""The first line by which a spreadsheet names the separator; one that was saved again may have empty cells."""
_MARK, _GZIP = b"\xef\xbb\xbf", b"\x1f\x8b"
_OF_SPREADSHEETS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_WIDE = {b"\xff\xfe\0\0": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\0": "UTF-16BE"}
"""Encodings of several bytes a letter, by the bytes at the beginning of a text."""
MAX_CELL = 16 << 20
"""Longest cell in characters: a quote that is never closed must not fill the memory."""
MAX_LINE_BYTES = 16 << 20
"""Longest line of JSON: a file without line breaks must not fill the memory."""
SAMPLE_BYTES = 1 << 16
"""Bytes at the beginning of a file from which its form is found."""
SAMPLE_ROWS = 20
"""Rows behind the header by which its separator is found."""
INT64_BITS = 64
TYPED = (date, datetime, time, timedelta, Decimal, bytes)
"""Types of values that Parquet has and JSON lacks."""
_OF_ARROW = {
    "date": date,
    "timestamp": datetime,
    "time": time,
    "duration": timedelta,
    "decimal": Decimal,
    **dict.fromkeys(("binary", "large_binary", "fixed_size_binary", "binary_view"), bytes),
}
"""The same by the beginnings of the names of Arrow's types."""
ROWS_PER_GROUP = 10_000
"""Rows of a Parquet file that are read or written at a time."""


_VALUES = json.JSONDecoder(parse_float=number_in, parse_constant=dict[str, None]().get)
"""Reader of JSON values that follow each other; NaN and the like are None."""
_BETWEEN = re.compile(r"[\s,\x1e]*")
"""Separators of JSON values."""
_DECODER = msgspec.json.Decoder(float_hook=number_in)

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


def ending_of(path: Path) -> str:
    """Return the ending of a file in lower case, without that of a compression."""
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return plain.suffix.lower()


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
        return _read_cells(stream, source, ending)
    if ending == PARQUET:
        return _read_parquet(stream, source)
    beginning = stream.peek(SAMPLE_BYTES)
    if (encoding := _wide_encoding(beginning)) is not None:
        raise _not_in_utf8(source, "JSON", encoding)
    text = beginning.removeprefix(_MARK).lstrip()
    if text.startswith(b"[") or (text and ending == ".json"):
        return RowFile(_read_values(stream.read(), source), "item")
    if text and ending not in OF_JSON and not text.startswith(b"{"):
        return _read_cells(stream, source, ".csv")
    return RowFile(_read_lines(stream, source))


def _read_cells(stream: Peekable, source: str, ending: str) -> RowFile:
    csv.field_size_limit(MAX_CELL)
    beginning = stream.peek(SAMPLE_BYTES)
    sample = beginning.removeprefix(_MARK).decode(errors="replace")
    named = _NAMED_SEPARATOR.match(sample)
    if named:
        separator, sample = named[1], sample[named.end() :]
    else:
        separator = _separator_of(sample, ending)
    found = Dialect(separator, beginning.startswith(_MARK), named is not None)
    between = re.escape(separator)
    is_spaced = re.match(rf"\s*[^\r\n{between}]+({between} [^\r\n{between}]+)+[\r\n]", sample) is not None
    rows = _cells(stream, source, found, beginning, is_spaced=is_spaced)
    return RowFile(rows, dialect=found if ending == ".csv" else Dialect())


def _wide_encoding(beginning: bytes) -> str | None:
    """Guess the encoding of a text whose letters have several bytes each; None for any other."""
    for mark, encoding in _WIDE.items():
        if beginning.startswith(mark):
            return encoding
    if beginning[1:2] == b"\0":
        return "UTF-16LE"
    return None


def _not_in_utf8(source: str, kind: str, encoding: str | None) -> InvalidUsage:
    """Return the refusal of a file in another encoding than UTF-8, with the remedy."""
    guessed = encoding or "WINDOWS-1252"
    form = "json" if kind == "JSON" else "csv"
    return InvalidUsage(
        f"{source} cannot be read as {kind} in UTF-8, it may be {guessed}; nothing was started; save it as UTF-8, or convert it: "
        f"iconv -f {guessed} -t UTF-8 {source} > utf8.{form}"
    )


@contextmanager
def _as_table(source: str, beginning: bytes) -> Iterator[None]:
    """Guess the kind of a file that is no table in UTF-8, and name the remedy."""
    encoding = _wide_encoding(beginning)
    if encoding is not None:
        raise _not_in_utf8(source, "a table", encoding)
    try:
        yield
    except UnicodeDecodeError:
        raise _not_in_utf8(source, "a table", None) from None
    except csv.Error as error:
        raise InvalidUsage(f"{source} cannot be read as a table in UTF-8: {error}; nothing was started") from None


def _is_filled(cells: list[str]) -> bool:
    return any(map(str.strip, cells))


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
        names = [name if name.strip() else f"Unnamed: {index}" for index, name in enumerate(header)]
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


def _read_values(text: bytes, source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSON text: of an array, also of one that is all of an object, or one behind the other."""
    values = list[Any]()
    try:
        written, end = text.decode("utf-8-sig"), 0
        while (end := _BETWEEN.match(written, end).end()) < len(written):  # type: ignore[union-attr]  # it matches no letter, too
            value, end = _VALUES.raw_decode(written, end)
            values.append(value)
    except UnicodeDecodeError:
        raise _not_in_utf8(source, "JSON", None) from None
    except (ValueError, RecursionError) as error:
        raise InvalidUsage(f"{source} is not JSON: {error}; write an array of objects, or an object a line") from None
    only = values[0] if len(values) == 1 else None
    if isinstance(only, dict):
        values = _rows_in(only, source)
    elif isinstance(only, list):
        values = only
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise _no_object(f"item {number} of {source}", msgspec.json.encode(value))
        yield number, value


def _rows_in(found: dict[str, Any], source: str) -> list[Any]:
    """Return the rows that the only object of a file holds: those of its only list, or itself.

    Raises:
        InvalidUsage: it is a table in another form.
    """
    lists = [each for each in found.values() if isinstance(each, list) and any(isinstance(item, dict) for item in each)]
    if len(found) == len(lists) == 1:
        return lists[0]
    if lists or (found and all(isinstance(each, list | dict) for each in found.values())):
        raise InvalidUsage(
            f"{source} is one object ({', '.join(found):.80}), not rows; nothing was started; write an array of objects (pandas: "
            "orient='records'), or the object on a line of a .jsonl file"
        )
    return [found]


def _read_lines(stream: Peekable, source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > MAX_LINE_BYTES:
            raise InvalidUsage(
                f"line {number} of {source} is longer than {MAX_LINE_BYTES >> 20} MiB; nothing was started; write one JSON object a "
                "line, and name a large file in it instead of its text"
            )
        text = line.removeprefix(_MARK) if number == 1 else line
        if not text.strip():
            continue
        place = f"line {number} of {source}"
        try:
            found = _DECODER.decode(text)
        except UnicodeDecodeError:
            raise _not_in_utf8(source, "JSON", None) from None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidUsage(
                f"{place} is not JSON: {error}; write an object with the options of the input on one line, or an array of objects"
            ) from None
        if not isinstance(found, dict):
            raise _no_object(place, text)
        yield number, found


def _no_object(place: str, text: bytes) -> InvalidUsage:
    return InvalidUsage(
        f"{place} is not a JSON object: {text.decode().strip()!r:.100}; write one, with the options of the input"
    )


def _read_parquet(stream: Peekable, source: str) -> RowFile:
    require_package("a Parquet file", "pyarrow")
    from pyarrow import parquet  # noqa: PLC0415 - an optional package

    with _as_parquet(source):
        file = parquet.ParquetFile(stream)
        schema = b64encode(file.schema_arrow.serialize()).decode()

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        with _as_parquet(source):
            batches = file.iter_batches(ROWS_PER_GROUP)
            found = chain.from_iterable(batch.to_pylist() for batch in batches)
            yield from enumerate(map(jsonable, found), 1)

    return RowFile(rows(), "row", Dialect(schema=schema))


@contextmanager
def _as_parquet(source: str) -> Iterator[None]:
    """Name a file that is no Parquet in one sentence."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    try:
        yield
    except (pa.ArrowException, TypeError, UnicodeEncodeError) as error:
        raise InvalidUsage(f"{source} cannot be read as Parquet: {error}; nothing was started") from None


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
        rows = partial(_typed_rows, rows)
    found = _scan(rows())
    try:
        with replacing(path) as new:
            if ending == PARQUET:
                _write_parquet(new, rows, found, dialect)
            elif ending in SEPARATORS:
                _write_cells(path, new, rows(), found, dialect if ending == ".csv" else Dialect("\t"))
            else:
                _write_json(path, new, rows(), found)
    except (OSError, ValueError) as error:
        raise InvalidUsage(
            f"the rows cannot be written into {str(path)!r}: {read_failure(error)}; the journal has them"
        ) from None


class _Columns(NamedTuple):
    kinds: dict[str, set[type]]
    """Types of the values by column, in the order of columns."""
    given: set[str]
    """Columns of the input, which stay as they are."""
    is_ascii: bool


def state_column(row: Iterable[str]) -> str:
    """Return the first column of ours in a row of an output, which holds the state; empty if there is none."""
    return next((name for name in ("row_row_state", "row_state", "state") if name in row), "")


def _scan(rows: Iterable[dict[str, Any]]) -> _Columns:
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
    return _Columns(kinds, given, is_ascii)


def _is_large(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() >= INT64_BITS


def _text_file(path: Path, new: Path, encoding: str = "utf-8") -> IO[str]:
    packed = path.suffix.lower() == ".gz"
    open_text = gzip.open if packed else open
    return cast("IO[str]", open_text(new, "wt", encoding=encoding, newline=""))


def _write_cells(path: Path, new: Path, rows: Iterable[dict[str, Any]], found: _Columns, dialect: Dialect) -> None:
    is_csv = ending_of(path) == ".csv"
    has_mark = dialect.has_mark or (is_csv and not found.is_ascii)
    with _text_file(path, new, "utf-8-sig" if has_mark else "utf-8") as file:
        if dialect.names_separator:
            file.write(f"sep={dialect.separator}\r\n")
        lines = csv.writer(file, delimiter=dialect.separator)
        lines.writerow(found.kinds)
        for row in rows:
            cells = [cell(row.get(name), may_act=name in found.given) for name in found.kinds]
            lines.writerow(cells)


def _write_json(path: Path, new: Path, rows: Iterable[dict[str, Any]], found: _Columns) -> None:
    is_array = ending_of(path) == ".json"
    between = ",\n" if is_array else "\n"
    with _text_file(path, new) as file:
        if is_array:
            file.write("[\n")
        for number, row in enumerate(rows):
            if number:
                file.write(between)
            cells = {name: row.get(name) for name in found.kinds}
            file.write(msgspec.json.encode(cells).decode())
        file.write("\n]\n" if is_array else "\n")


def _typed_rows(rows: Callable[[], Iterable[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield rows with the values that Parquet or JSON has."""
    for row in rows():
        yield {name: value if type(value) in TYPED else jsonable(value) for name, value in row.items()}


def _write_parquet(new: Path, rows: Callable[[], Iterable[dict[str, Any]]], found: _Columns, dialect: Dialect) -> None:
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    of_input = pa.schema([])
    if dialect.schema:
        of_input = pa.ipc.read_schema(pa.BufferReader(b64decode(dialect.schema)))
    types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    columns, readers = [], dict[str, Callable[[Any], Any]]()
    for name, kinds in found.kinds.items():
        kind = _kind_of(kinds)
        if name in found.given and name in of_input.names:
            arrow = of_input.field(name).type
            readers[name] = partial(msgspec.convert, type=_type_in_python(arrow))
        elif kind in TYPED:
            arrow = pa.infer_type([row.get(name) for row in rows()])
        elif kind in types:
            arrow = types[kind]
        else:
            arrow, readers[name] = pa.string(), _text_of
        columns.append((name, arrow))
    write_arrow(new, pa.schema(columns), (_read_by(readers, row) for row in rows()))


def _read_by(readers: dict[str, Callable[[Any], Any]], row: dict[str, Any]) -> dict[str, Any]:
    read = {name: reader(row.get(name)) for name, reader in readers.items()}
    return {**row, **read}


def _type_in_python(kind: Any) -> Any:
    """Return the type of Python in which values of an Arrow type are read from JSON."""
    from pyarrow import types  # noqa: PLC0415 - an optional package

    name, *_ = re.split("[^a-z_]", str(kind))
    found: Any = _OF_ARROW.get(name, Any)
    if types.is_struct(kind):
        fields = {field.name: _type_in_python(field.type) for field in kind}
        found = TypedDict("found", fields)  # type: ignore[misc,no-redef]
    elif types.is_map(kind):
        found = list[tuple[_type_in_python(kind.key_type), _type_in_python(kind.item_type)]]  # type: ignore[misc]
    elif types.is_nested(kind) and hasattr(kind, "value_type"):
        found = list[_type_in_python(kind.value_type)]  # type: ignore[misc]
    return found | None


def write_arrow(new: Path | IO[bytes], schema: Any, rows: Iterator[dict[str, Any]]) -> None:
    """Write rows into a Parquet file, in groups, with the types of an Arrow schema."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package
    from pyarrow import parquet  # noqa: PLC0415

    with parquet.ParquetWriter(new, schema) as file:
        while group := list(islice(rows, ROWS_PER_GROUP)):
            file.write_table(pa.Table.from_pylist(group, schema=schema))


def _kind_of(kinds: Collection[type]) -> type:
    """Return the type of a column's values: numbers of both kinds are floats, and other mixtures are objects."""
    present = {*kinds} - {type(None)}
    if present == {int, float}:
        return float
    if len(present) == 1:
        return present.pop()
    return object


def _text_of(value: object) -> str | None:
    if value is None:
        return None
    return str(cell(value, may_act=True))


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
