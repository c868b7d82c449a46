"""Rows in JSON: an object a line, an array, or objects in the other forms that programs write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from microagents.base.errors import InvalidUsage
from microagents.base.plain_values import number_in
from microagents.runs.row_forms import (
    MARK,
    Peekable,
    RowColumns,
    ending_of,
    not_in_utf8,
    text_file,
)

MAX_LINE_BYTES = 16 << 20
"""Longest line of JSON: a file without line breaks must not fill the memory."""
_VALUES = json.JSONDecoder(parse_float=number_in, parse_constant=dict[str, None]().get)
"""Reader of JSON values that follow each other; NaN and the like are None."""
_BETWEEN = re.compile(r"[\s,\x1e]*")
"""Separators of JSON values."""
_DECODER = msgspec.json.Decoder(float_hook=number_in)


def read_values(text: bytes, source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSON text: of an array, also of one that is all of an object, or one behind the other."""
    values = list[Any]()
    try:
        written, end = text.decode("utf-8-sig"), 0
        while (end := _BETWEEN.match(written, end).end()) < len(written):  # type: ignore[union-attr]  # it matches no letter, too
            value, end = _VALUES.raw_decode(written, end)
            values.append(value)
    except UnicodeDecodeError:
        raise not_in_utf8(source, "JSON", None) from None
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


def read_lines(stream: Peekable, source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file with one on each line, as they are read."""
    for number, line in enumerate(iter(partial(stream.readline, MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > MAX_LINE_BYTES:
            raise InvalidUsage(
                f"line {number} of {source} is longer than {MAX_LINE_BYTES >> 20} MiB; nothing was started; write one JSON object a "
                "line, and name a large file in it instead of its text"
            )
        text = line.removeprefix(MARK) if number == 1 else line
        if not text.strip():
            continue
        place = f"line {number} of {source}"
        try:
            found = _DECODER.decode(text)
        except UnicodeDecodeError:
            raise not_in_utf8(source, "JSON", None) from None
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


def write_json(path: Path, new: Path, rows: Iterable[dict[str, Any]], found: RowColumns) -> None:
    """Write rows into a new file: an array of objects, or an object a line."""
    is_array = ending_of(path) == ".json"
    between = ",\n" if is_array else "\n"
    with text_file(path, new) as file:
        if is_array:
            file.write("[\n")
        for number, row in enumerate(rows):
            if number:
                file.write(between)
            cells = {name: row.get(name) for name in found.kinds}
            file.write(msgspec.json.encode(cells).decode())
        file.write("\n]\n" if is_array else "\n")
