"""The rows of a run in a file of JSON lines, CSV or Parquet."""

from __future__ import annotations

import csv
from codecs import getwriter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, get_args

import typer
from msgspec import Struct, structs

from microagents.base.errors import InvalidUsage, read_failure
from microagents.base.files import replacing
from microagents.base.packages import require_package
from microagents.base.printing import results
from microagents.cli.commands.export import Format
from microagents.cli.reporting import json_text
from microagents.journal.reading import Reader
from microagents.journal.sharded import reader_of
from microagents.runs.inspection.export import (
    ActionRow,
    DecisionRow,
    LookUpRow,
    action_rows,
    decision_rows,
    look_up_rows,
)
from microagents.runs.parquet_rows import write_arrow
from microagents.runs.row_files import check_new
from microagents.runs.row_forms import cell


def export_rows(
    run: str, runs_dir: Path, form: Format | None, output: Path | None, *, actions: bool, code: bool
) -> None:
    """Write the decisions of a run, or of an agent its calls, as rows.

    Args:
        run: its name.
        runs_dir: the folder of journals.
        form: the format; None for the one of the file's ending.
        output: a new file; None for stdout.
        actions: whether to write the calls of an agent, or the calls that models made before a reply.
        code: whether to import the code that the journal names.
    """
    form = form or _form_of(output)
    if form == "parquet":
        require_package("parquet", "pyarrow")
        if output is None:
            raise InvalidUsage("parquet is not written to stdout; name a file with --output")
    with reader_of(runs_dir, run, trust=code) as reader:
        kind, rows = _rows(reader, actions=actions)
        with nullcontext(results().buffer) if output is None else _new_file(output) as stream:
            if form == "parquet":
                _write_parquet(rows, kind, stream)
            else:
                _write(rows, kind, form, stream, lambda: _rows(reader, actions=actions)[1])
    if output is not None:
        typer.echo(f"written to {output}", err=True)


def _rows(reader: Reader, *, actions: bool) -> tuple[type[Struct], Iterator[Struct]]:
    if not actions:
        return DecisionRow, decision_rows(reader)
    if reader.experiment.unit == "action":
        return ActionRow, action_rows(reader)
    rows = look_up_rows(reader)
    first = next(rows, None)
    if first is None:
        raise InvalidUsage(
            f"run {reader.experiment.run_id} has no calls of tools; leave --actions out for its decisions"
        )
    return LookUpRow, chain([first], rows)


def _form_of(output: Path | None) -> Format:
    """Return the format that the ending of a file names; jsonl for stdout.

    Raises:
        InvalidUsage: the ending names no format.
    """
    forms: dict[str, Format] = {f".{form}": form for form in get_args(Format)}
    if output is None:
        return "jsonl"
    if output.suffix not in forms:
        raise InvalidUsage(
            f"the ending of {str(output)!r} names no format; end it in {', '.join(forms)}, or give --format"
        )
    return forms[output.suffix]


@contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that does not exist. There is none if writing it fails."""
    check_new(path)
    try:
        with replacing(path) as new, new.open("wb") as stream:
            yield stream
    except OSError as error:
        raise InvalidUsage(f"{str(path)!r} cannot be written: {read_failure(error)}; name another file") from None


def _write(
    rows: Iterable[Struct], kind: type[Struct], form: Format, stream: IO[bytes], again: Callable[[], Iterable[Struct]]
) -> None:
    """Write rows. Of a CSV file the columns must be known first, so the rows are read ``again``."""
    if form == "jsonl":
        for row in rows:
            stream.write(json_text(row).encode() + b"\n")
        return
    lines = csv.writer(getwriter("utf-8")(stream))
    found = dict.fromkeys(chain.from_iterable(map(_columns, rows))) or dict.fromkeys(kind.__struct_fields__)
    split = {name.partition(".")[0] for name in found if "." in name}
    columns = sorted([name for name in found if name not in split], key=partial(_place, kind))
    lines.writerow(columns)
    for cells in map(_columns, again()):
        found_cells = map(cells.get, columns)
        lines.writerow(map(cell, found_cells))


def _place(kind: type[Struct], column: str) -> int:
    return kind.__struct_fields__.index(column.partition(".")[0])


def _columns(row: Struct) -> dict[str, Any]:
    """Return the cells of a row by column; an object, such as a reply with its fields, has a column for each field."""
    found: dict[str, Any] = {}
    for name, value in structs.asdict(row).items():
        if isinstance(value, dict):
            found |= {f"{name}.{field}": each for field, each in value.items()}
        else:
            found[name] = value
    return found


def _flat(row: Struct) -> dict[str, Any]:
    values = structs.asdict(row)
    for name, each in values.items():
        if isinstance(each, dict | list) or (name == "value" and each is not None):
            values[name] = json_text(each)
    return values


def _write_parquet(rows: Iterator[Struct], kind: type[Struct], stream: IO[bytes]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - an extra

    types = {int: pa.int64(), int | None: pa.int64(), float: pa.float64(), float | None: pa.float64()}
    columns = [(field.name, types.get(field.type, pa.string())) for field in structs.fields(kind)]
    write_arrow(stream, pa.schema(columns), map(_flat, rows))
