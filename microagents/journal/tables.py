"""The tables of a journal, an SQLite file that people may query (docs/journal.md): a class for the rows of each."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Struct, inspect

from microagents.elections.election import OPEN_OUTCOMES, ElectionOutcome
from microagents.journal.messages import InputOutcome

APPLICATION_ID = 0x6D61676A
VERSION = 7
"""Version of the tables. Journals of any other are refused."""
MAX_COUNTED = 1_000_000
"""A row that claims more counted samples is damaged: reading it would exhaust the memory."""
OUTCOMES: tuple[ElectionOutcome, ...] = (
    *("decided", "agreed", "argmax", "leader", "person", "sampled"),
    *("undecided", "once", "climbed", "inferred", "contested", "refused"),
)
"""Outcomes by their number in the file. The most common one is 0, which SQLite stores in no bytes."""
DECIDED_CODE, UNDECIDED_CODE = OUTCOMES.index("decided"), OUTCOMES.index("undecided")
OPEN_CODES = frozenset([OUTCOMES.index(each) for each in OPEN_OUTCOMES])
NUMBER_BITS = 40

_Natural = Annotated[int, Meta(ge=0)]
_Amount = Annotated[float, Meta(ge=0, le=1e300)]


class TableRow(Struct, array_like=True, kw_only=True):
    """A row of a table. Its fields are the columns, in their order."""

    table: ClassVar[str]
    constraints: ClassVar[tuple[str, ...]] = ()
    ending: ClassVar[str] = ""
    """Words behind the columns in the statement that makes the table."""


class RunRow(TableRow, kw_only=True):
    """A part of the run."""

    table = "run"
    constraints = ("PRIMARY KEY (part)",)
    part: str
    content: str
    """JSON."""
    digest: int = 0
    """Checksum of the row with 0 in this column."""


class PlaceRow(TableRow, kw_only=True):
    """A place in the work."""

    table = "place"
    constraints = ("PRIMARY KEY (id)", "UNIQUE (path)")
    id: Annotated[int, Meta(ge=1, lt=1 << 23)]
    path: str


class DecidedRow(TableRow, kw_only=True):
    """A decision, or an answer."""

    table = "decision"
    constraints = ("PRIMARY KEY (key)",)
    key: _Natural
    fork: bytes
    """Digest of the question."""
    outcome: _Natural
    counted: Annotated[int, Meta(ge=0, le=MAX_COUNTED)]
    value: str | None
    ballots: str | None
    cost_usd: _Amount | None
    after_ms: _Natural


class SampleRow(TableRow, kw_only=True):
    """A paid sample of an open election."""

    table = "sample"
    constraints = ("PRIMARY KEY (key, fork, seq)",)
    ending = " WITHOUT ROWID"
    key: _Natural
    fork: bytes
    seq: _Natural
    value: str
    cost_usd: _Amount | None


class ReplyRow(TableRow, kw_only=True):
    """The text of a reply."""

    table = "reply"
    constraints = ("PRIMARY KEY (key, fork, seq)",)
    ending = " WITHOUT ROWID"
    key: _Natural
    fork: bytes
    seq: _Natural
    size: _Natural
    text: bytes


class LogRow(TableRow, kw_only=True):
    """A request that the run has taken, or an accepted change."""

    table = "log"
    id: str = ""
    kind: str
    place: str
    who: str
    why: str = ""
    asked_at: str
    payload: str
    refused: str | None = None
    at: str


class InputRow(TableRow, kw_only=True):
    """An input: its options, its progress and its ending."""

    table = "input"
    constraints = ("PRIMARY KEY (input)",)
    input: _Natural
    options: str = "{}"
    done: _Natural = 0
    total: _Natural | None = None
    reached: _Natural | None = None
    """Steps done at the last decided step, in work that can resume after a step; `state` and `value` belong to that step."""
    state: str | None = None
    value: str | None = None
    outcome: InputOutcome | None = None
    reason: str | None = None
    same_as: _Natural | None = None
    """The earlier input that asks the same question, and whose result this one took."""
    traceback: str = ""
    result: str | None = None
    ended_at: str | None = None
    content: _Natural = 0
    """Sum of the checksums of all rows at places of the input."""
    digest: int = 0
    """Checksum of the row with 0 in this column."""


ROWS: tuple[type[TableRow], ...] = (RunRow, PlaceRow, DecidedRow, SampleRow, ReplyRow, LogRow, InputRow)
PLACED: tuple[type[DecidedRow | SampleRow | ReplyRow], ...] = (DecidedRow, SampleRow, ReplyRow)
"""Classes of rows whose key has their place."""
SEALED = (RunRow, InputRow)
"""Classes of rows with a digest of their own. The sums in these rows cover all others."""
_SQL: dict[type[inspect.Type], str] = {
    inspect.IntType: "INTEGER",
    inspect.FloatType: "REAL",
    inspect.BytesType: "BLOB",
    inspect.StrType: "TEXT",
    inspect.LiteralType: "TEXT",
}


def _column(field: inspect.Field) -> str:
    if isinstance(field.type, inspect.UnionType):
        return f"{field.name} {_SQL[type(field.type.types[0])]}"
    return f"{field.name} {_SQL[type(field.type)]} NOT NULL"


def _created(kind: type[TableRow]) -> str:
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    lines = ", ".join([*map(_column, found.fields), *kind.constraints])
    return f"CREATE TABLE {kind.table} ({lines}){kind.ending}"


CREATED = {kind.table: _created(kind) for kind in ROWS}
"""The statements that make the tables, by name."""
