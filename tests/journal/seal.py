"""Edits of a journal by somebody who knows its digests: what is refused then is refused for the edit itself."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from microagents.journal.tables import NUMBER_BITS, PLACED, ROWS

Values = Sequence[Any]


def sealed(journal: Path) -> None:
    """Give every row of an input and of the run the sums and the digest that it should have."""
    with closing(sqlite3.connect(journal)) as db, db:
        db.text_factory = lambda content: content.decode("utf-8", "replace")
        there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        rows = {
            kind.table: db.execute(f"SELECT * FROM {kind.table}").fetchall() if kind.table in there else []
            for kind in ROWS
        }
        contents = _contents(rows)
        total = sum(_checksum("log", row) for row in rows["log"])
        for number, *values, _, _ in rows["input"]:
            content = contents[str(number)]
            digest = _checksum("input", (number, *values, content, 0))
            total += digest
            db.execute("UPDATE input SET content = ?, digest = ? WHERE input = ?", (content, digest, number))
        for part, content, _ in rows["run"]:
            now = _with_total(content, total) if part == "account" else content
            digest = _checksum("run", (part, now, 0))
            db.execute("UPDATE run SET content = ?, digest = ? WHERE part = ?", (now, digest, part))


def _checksum(table: str, values: Values) -> int:
    return crc32(msgspec.msgpack.encode(values), crc32(table.encode()))


def _contents(rows: dict[str, list[Values]]) -> Counter[str]:
    """The sums of the rows at places of inputs."""
    inputs = {place: str(path).partition("/")[0] for place, path in rows["place"]}
    found = Counter[str]()
    for row in rows["place"]:
        found[inputs[row[0]]] += _checksum("place", row)
    for kind in PLACED:
        for row in rows[kind.table]:
            place = row[0] >> NUMBER_BITS if isinstance(row[0], int) else None
            found[inputs.get(place, "")] += _checksum(kind.table, row)
    return found


def _with_total(content: Any, total: int) -> Any:
    try:
        found = json.loads(content)
        found["totals"]["rows"] = total
    except (ValueError, TypeError, KeyError):
        return content
    return json.dumps(found)
