"""Edits of a journal by somebody who knows its checksums: what is refused then is refused for the edit itself."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from microagents.journal.rows import SUMMED, checksum
from microagents.journal.tables import TABLES


def sealed(journal: Path) -> None:
    """Give every row the checksum that it should have, and the account their sums."""
    with closing(sqlite3.connect(journal)) as db, db:
        db.text_factory = lambda content: content.decode("utf-8", "replace")
        there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        sums = {}
        for table in sorted(there & set(TABLES)):
            sums[table] = _seal_rows(db, table)
        account = "SELECT content FROM run WHERE part = 'account'"
        for (content,) in db.execute(account).fetchall() if "run" in there else ():
            try:
                found = json.loads(content)
                found["totals"]["checksums"] = {table: sums[table] for table in SUMMED if table in sums}
            except (ValueError, TypeError, KeyError):
                continue
            db.execute("UPDATE run SET content = ? WHERE part = 'account'", (json.dumps(found),))
            _seal_rows(db, "run")


def _seal_rows(db: sqlite3.Connection, table: str) -> int:
    sums = []
    columns = list(TABLES[table].columns)
    for row in db.execute(f"SELECT * FROM {table}").fetchall():
        values, before = row[:-1], row[-1]
        now = checksum(table, values)
        sums.append(now or 0)
        if now != before:
            where = " AND ".join(
                f"{name} IS ?" for name in columns if not isinstance(values[columns.index(name)], float)
            )
            given: list[Any] = [value for value in values if not isinstance(value, float)]
            db.execute(f"UPDATE {table} SET checksum = ? WHERE {where}", (now, *given))
    return sum(sums)
