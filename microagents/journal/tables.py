"""The tables of a journal, an SQLite file that people may query (docs/journal.md): every column once, in SQL and in Python."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from microagents.elections.election import OPEN_OUTCOMES

APPLICATION_ID = 0x6D61676A
VERSION = 3
"""Version of the tables. Journals of any other are refused."""
MAX_COUNTED = 1_000_000
"""A row that claims more counted samples is damaged: reading it would exhaust the memory."""
OUTCOMES = (
    *("decided", "agreed", "argmax", "leader", "person", "sampled"),
    *("undecided", "once", "climbed", "inferred", "contested", "refused"),
)
"""Outcomes by their number in the file. The most common one is 0, which SQLite stores in no bytes."""
DECIDED_CODE, UNDECIDED_CODE, ONCE_CODE = OUTCOMES.index("decided"), OUTCOMES.index("undecided"), OUTCOMES.index("once")
OPEN_CODES = frozenset([OUTCOMES.index(each) for each in OPEN_OUTCOMES])
NUMBER_BITS = 40

_Natural = Annotated[int, Meta(ge=0)]
_Amount = Annotated[float, Meta(ge=0, le=1e300)]


class Column(NamedTuple):
    """One column: its SQL, and the type of its values."""

    sql: str
    kind: Any


class TableSchema(Struct, frozen=True, kw_only=True):
    """One table of a journal."""

    columns: dict[str, Column]
    is_summed: bool = False
    """Whether the account adds up its checksums. The others have one row each, or are written without the account."""
    key: str = ""
    """The primary key, if it is more than one column."""


_TEXT, _TEXT_OR_NONE = Column("TEXT NOT NULL", str), Column("TEXT", str | None)
_NUMBER, _NUMBER_OR_NONE = Column("INTEGER NOT NULL", _Natural), Column("INTEGER", _Natural | None)
_BYTES, _COST = Column("BLOB NOT NULL", bytes), Column("REAL", _Amount | None)
_KEY = Column("INTEGER PRIMARY KEY", _Natural)

TABLES: dict[str, TableSchema] = {
    "run": TableSchema(columns={"part": Column("TEXT PRIMARY KEY", str), "content": _TEXT}),
    "place": TableSchema(
        columns={
            "id": Column("INTEGER PRIMARY KEY", Annotated[int, Meta(ge=1, lt=1 << 23)]),
            "path": Column("TEXT NOT NULL UNIQUE", str),
        },
        is_summed=True,
    ),
    "decision": TableSchema(
        columns={
            "key": _KEY,
            "fork": _BYTES,
            "outcome": _NUMBER,
            "counted": Column("INTEGER NOT NULL", Annotated[int, Meta(ge=0, le=MAX_COUNTED)]),
            "value": _TEXT_OR_NONE,
            "ballots": _TEXT_OR_NONE,
            "cost_usd": _COST,
            "after_ms": _NUMBER,
        },
        is_summed=True,
    ),
    "sample": TableSchema(
        columns={
            "key": _NUMBER,
            "fork": _BYTES,
            "seq": _NUMBER,
            "value": _TEXT_OR_NONE,
            "flag": _TEXT_OR_NONE,
            "cost_usd": _COST,
        },
        is_summed=True,
        key="key, fork, seq",
    ),
    "reply": TableSchema(
        columns={"key": _NUMBER, "fork": _BYTES, "seq": _NUMBER, "bytes": _NUMBER, "text": _BYTES},
        is_summed=True,
        key="key, fork, seq",
    ),
    "log": TableSchema(
        columns={
            "id": _TEXT,
            "kind": _TEXT,
            "place": _TEXT,
            "who": _TEXT,
            "why": _TEXT,
            "asked_at": _TEXT,
            "payload": _TEXT,
            "refused": _TEXT_OR_NONE,
            "at": _TEXT,
        },
        is_summed=True,
    ),
    "input": TableSchema(columns={"input": _KEY, "options": _TEXT}, is_summed=True),
    "input_ending": TableSchema(
        columns={
            "input": _KEY,
            "outcome": _TEXT,
            "reason": _TEXT_OR_NONE,
            "traceback": _TEXT,
            "result": _TEXT_OR_NONE,
            "ended_at": _TEXT,
        },
        is_summed=True,
    ),
    "progress": TableSchema(
        columns={
            "input": _KEY,
            "done": _NUMBER,
            "total": _NUMBER_OR_NONE,
            "reached": _NUMBER_OR_NONE,
            "state": _TEXT_OR_NONE,
            "value": _TEXT_OR_NONE,
            "decisions": Column("BLOB", bytes | None),
            "ballots": Column("BLOB", bytes | None),
        },
        is_summed=True,
    ),
}

ROWS: dict[str, type[Struct]] = {
    name: msgspec.defstruct("Row", [(column, each.kind) for column, each in table.columns.items()], array_like=True)
    for name, table in TABLES.items()
}
"""For each table a struct with the columns of a row: of all types that msgspec knows, it checks structs the fastest."""
