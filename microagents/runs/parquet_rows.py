"""Rows in Parquet: columns of the input keep their Arrow types, and ours get those of their values."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TypedDict

import msgspec

from microagents.base.errors import InvalidUsage
from microagents.base.packages import require_package
from microagents.base.plain_values import jsonable
from microagents.runs.row_forms import (
    Dialect,
    Peekable,
    RowColumns,
    RowFile,
    cell,
    kind_of,
)

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


def read_parquet(stream: Peekable, source: str) -> RowFile:
    """Read the rows of a file in Parquet, with its schema."""
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


def typed_rows(rows: Callable[[], Iterable[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield rows with the values that Parquet or JSON has."""
    for row in rows():
        yield {name: _typed(value) for name, value in row.items()}


def _typed(value: Any) -> Any:
    if type(value) in TYPED:
        return value
    return jsonable(value)


def write_parquet(new: Path, rows: Callable[[], Iterable[dict[str, Any]]], found: RowColumns, dialect: Dialect) -> None:
    """Write rows into a new file, with the types of the input's schema for its columns."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    of_input = pa.schema([])
    if dialect.schema:
        of_input = pa.ipc.read_schema(pa.BufferReader(b64decode(dialect.schema)))
    types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    columns, readers = [], dict[str, Callable[[Any], Any]]()
    for name, kinds in found.kinds.items():
        kind = kind_of(kinds)
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


def _text_of(value: object) -> str | None:
    if value is None:
        return None
    return str(cell(value, may_act=True))
