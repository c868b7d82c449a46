"""All SQL of a journal: the definitions of its tables, the queries, the settings of a connection, and transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from microagents.journal.tables import APPLICATION_ID, CREATED, NUMBER_BITS, OUTCOMES, VERSION, TableRow

T = TypeVar("T")
ROWS_PER_STATEMENT = 512
"""Every statement releases the GIL, and a busy event loop takes up to 5 ms to give it back: one statement takes many rows."""
LONG_LOG_BYTES = 4000 * 4096
"""Size of the write-ahead log at which its pages are written into the file: every changed page a second time."""
CACHE_KIB = 8192
"""Size of the cache. As far as it holds the journal, a copy can be made even of a file that another program has overwritten."""
FIRST_BYTE = 0xFF
"""The part of an extended error code that is the code itself."""
MOST_STEPS = 10_000_000
"""A statement on a file that others may have written takes this many steps of SQLite's machine at most."""

# -- the tables -----------------------------------------------------------------------------------------------------------------------


_OUTCOME_CASES = " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(OUTCOMES))
_NUMBER_OF_KEY = f"key & {(1 << NUMBER_BITS) - 1}"
_VIEWS = f"""
CREATE VIEW decisions AS
    SELECT CASE {_NUMBER_OF_KEY} WHEN 0 THEN place.path ELSE place.path || '/' || (({_NUMBER_OF_KEY}) - 1) END AS path,
           CASE outcome {_OUTCOME_CASES} END AS outcome, counted, value, ballots, cost_usd, hex(fork) AS fork,
           strftime('%Y-%m-%dT%H:%M:%f', began + after_ms / 86400000.0) || '+00:00' AS at
    FROM (SELECT julianday(json_extract(content, '$.created_at')) AS began FROM run WHERE part = 'record' LIMIT 1)
    JOIN decision JOIN place ON place.id = key >> {NUMBER_BITS};
CREATE VIEW inputs AS
    SELECT input, json_patch(first, options) AS options, done, total, outcome, reason, result
    FROM (SELECT json_extract(content, '$.experiment.recipe.options') AS first FROM run WHERE part = 'record' LIMIT 1)
    JOIN input;
"""


def create_tables(db: sqlite3.Connection) -> None:
    """Make the tables of a new journal, in the caller's transaction."""
    marks = (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {VERSION}")
    for statement in (*marks, *CREATED.values(), *_VIEWS.split(";")):
        db.execute(statement)


# -- conditions of rows, for `Rows` ---------------------------------------------------------------------------------------------------

OF_KEY, OF_PATH, OF_ID, OF_INPUT = (f"WHERE {column} = ?" for column in ("key", "path", "id", "input"))
OF_PLACE = "WHERE key >= ? AND key < ?"
OF_KIND, OF_PART = "WHERE kind = ?", "WHERE part = ?"
BATCHES = "WHERE part >= 'batch/' AND part < 'batch0' ORDER BY part"
BELOW = "WHERE path >= ? AND path < ?"
NEXT_OF_PLACE = "WHERE key > ? AND key < ? ORDER BY key LIMIT ?"
OF_KEY_BY_SEQ = "WHERE key = ? ORDER BY fork, seq"
BY_SEQ, BY_INPUT, BY_TIME = "ORDER BY key, fork, seq", "ORDER BY input", "ORDER BY rowid"
ENDED = f"WHERE outcome IS NOT NULL {BY_INPUT}"
UNSOLVED = "WHERE outcome != 'completed' ORDER BY input LIMIT ?"
ONE = "LIMIT 1"
INSERT, OR_INSTEAD = "INSERT", "INSERT OR REPLACE"

# -- queries --------------------------------------------------------------------------------------------------------------------------

MAX_SAMPLES = 15
"""Highest number of samples that a byte has; more are written as this."""
MARKED = FLAGGED = 16
OUTVOTED = 32
UNDECIDED, CLIMBED, SETTLED = 1 << 6, 2 << 6, 3 << 6
_STATES = {
    "decided": 0,  # first, since most are
    "undecided": UNDECIDED,
    "contested": UNDECIDED,
    "refused": UNDECIDED,
    "climbed": CLIMBED,
    "leader": SETTLED,
    "person": SETTLED,
}
_STATE_CASES = " ".join(f"WHEN {OUTCOMES.index(name)} THEN {state}" for name, state in _STATES.items())
_MARKS = f"""CASE WHEN ballots IS NULL THEN 0 WHEN instr(ballots, '{{') = 0 THEN {FLAGGED} * (instr(ballots, '"') > 0)
    ELSE (SELECT {FLAGGED} * max('text' IN (type, first)) + {OUTVOTED} * max(type = 'object' OR first = 'object' AND shares IS '{{}}')
        FROM (SELECT type, CASE type WHEN 'array' THEN json_type(ballots, fullkey || '[0]') ELSE '' END AS first,
            CASE type WHEN 'array' THEN json_extract(ballots, fullkey || '[1]') END AS shares FROM json_each(ballots))) END"""
_BYTE = f"iif(counted < {MAX_SAMPLES}, counted, {MAX_SAMPLES}) + CASE outcome {_STATE_CASES} ELSE 0 END + {_MARKS}"
_VERDICT = """CASE WHEN outcome = 'completed'
    THEN CASE coalesce(json_type(result, '$.correct'), json_type(result, '$.solved')) WHEN 'true' THEN 1 WHEN 'false' THEN 0 END END"""
_OF_RANGE = "FROM decision WHERE key > ? AND key < ?"

DROP_PART = f"DELETE FROM run {OF_PART}"
ID_OF_PLACE = "SELECT id FROM place WHERE path = ?"
LAST_PLACE = "SELECT coalesce(max(id), 0) FROM place"
PLACES_BELOW = f"SELECT path, id FROM place {BELOW}"
NUMBER_OF_INPUTS = "SELECT count(*) FROM input"
MISCOUNTED = "SELECT count(*) FROM decision WHERE ballots IS NOT NULL AND counted != json_array_length(ballots)"
STEP_BYTES = f"SELECT max(key), json_group_array({_BYTE}) {_OF_RANGE}"
STEP_KEYS = f"SELECT key {_OF_RANGE} ORDER BY key"
LAST_TIME = "SELECT max(after_ms) FROM decision"
SUMS_BY_TIME = "SELECT after_ms / ?, count(*), sum(counted), total(cost_usd) FROM decision GROUP BY 1 ORDER BY 1"
SUMS_BY_INPUT = f"""SELECT CAST(path AS INTEGER) AS input, sum(counted), total(cost_usd), max(after_ms) / 1000.0
    FROM decision JOIN place ON place.id = key >> {NUMBER_BITS} WHERE input < ? GROUP BY 1"""
_OF_ROWS = (
    f"FROM decision JOIN place ON place.id = key >> {NUMBER_BITS} WHERE (path LIKE '%/step' OR path LIKE '%/undecided')"
)
# One value for many rows: a thread that takes row by row waits for a busy one, up to 5 ms at each.
ROW_ELECTIONS = f"""SELECT max(key), json_group_array(json_array(CAST(path AS INTEGER), counted, value, ballots))
    FROM (SELECT * {_OF_ROWS} AND ballots IS NOT NULL AND key > ? ORDER BY key LIMIT ?)"""
AGREEING_ROWS = f"SELECT json_group_array(CAST(path AS INTEGER)) {_OF_ROWS} AND ballots IS NULL"
EQUAL_INPUTS = "SELECT json_group_array(json_array(input, same_as)) FROM input WHERE same_as IS NOT NULL"
_HAS = "EXISTS (SELECT 1 FROM json_each({}) WHERE value LIKE ?1 ESCAPE '!')"
_ROW = "coalesce(json_extract(options, '$.row'), ?2)"
ROWS_WITH = f"""SELECT json_group_array(input) FROM (SELECT input FROM input
    WHERE {_HAS.format(_ROW)} OR {_HAS.format("result")} OR reason LIKE ?1 ESCAPE '!' ORDER BY input)"""
BEGUN_INPUTS = f"SELECT input, outcome, {_VERDICT} FROM input WHERE input < ? AND (content OR outcome IS NOT NULL)"
ENDED_INPUTS = "SELECT input, outcome FROM input WHERE outcome IS NOT NULL"
SUM_OF_INPUTS = "SELECT coalesce(sum(digest), 0) FROM input"
VALUES_OF_PLACE = "SELECT key - ?, ?, value FROM decision WHERE key >= ? AND key < ? ORDER BY key"


def one(db: sqlite3.Connection, query: str, given: Sequence[object] = ()) -> Any:
    """Return the first column of the first row of a query that always has one, or None."""
    row = db.execute(query, given).fetchone()
    if row is None:
        return None
    return row[0]


def select(table: str, condition: str) -> str:
    """Whole rows of a table."""
    return f"SELECT * FROM {table} {condition}"


def outcomes(keys: Sequence[int]) -> str:
    """Keys and outcomes of the decisions with this number of keys."""
    return f"SELECT key, outcome FROM decision {among(keys)}"


def replies_among(rows: Sequence[Sequence[object]]) -> str:
    """Keys of the replies with this number of keys that are there."""
    given = ",".join(["(?,?,?)"] * len(rows))
    return f"SELECT key, fork, seq FROM reply WHERE (key, fork, seq) IN (VALUES {given})"


def insert(verb: str, rows: Sequence[TableRow]) -> str:
    """Insert this number of rows into their table."""
    row = f"({','.join('?' * len(rows[0].__struct_fields__))})"
    return f"{verb} INTO {rows[0].table} VALUES {','.join([row] * len(rows))}"


def delete(table: str, keys: Sequence[int]) -> str:
    """Delete the rows of a table with this number of keys."""
    return f"DELETE FROM {table} {among(keys)}"


def among(keys: Sequence[int]) -> str:
    """Condition of the rows with this number of keys."""
    return f"WHERE key IN ({','.join('?' * len(keys))})"


def chunks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Parts of rows, each for one statement."""
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        yield rows[start : start + ROWS_PER_STATEMENT]


# -- the file and its connections -----------------------------------------------------------------------------------------------------

ALL_MADE = "SELECT type, name, sql FROM sqlite_master"


def number_of_tables(db: sqlite3.Connection) -> int:
    """Number of tables, indexes and the like; it reads the first page."""
    return int(one(db, "SELECT count(*) FROM sqlite_master"))


def pragma(db: sqlite3.Connection, name: str) -> Any:
    """Read a setting of the file, or set one (``name = value``)."""
    return one(db, f"PRAGMA {name}")


def set_durability(db: sqlite3.Connection, *, full: bool, is_shared: bool) -> None:
    """Choose how commits reach the disk."""
    # Readers and writers of a write-ahead log share memory, which processes on two machines cannot. After a power cut a rollback
    # journal that did not wait for the disk may leave a file that is neither as before the commit nor as after it.
    pragma(db, f"journal_mode = {'TRUNCATE' if is_shared else 'WAL'}")
    pragma(db, "wal_autocheckpoint = 0")  # `JournalFiles` merges the log
    pragma(db, "journal_size_limit = 0")  # a log that is merged is cut, so its size says how much waits
    pragma(db, f"cache_size = -{CACHE_KIB}")
    pragma(db, f"synchronous = {'FULL' if full or is_shared else 'NORMAL'}")


def merge_log(db: sqlite3.Connection) -> None:
    """Merge the log into the file, so that one file can be copied. It fails, at once, while a reader is connected."""
    with suppress(sqlite3.Error):
        pragma(db, "busy_timeout = 0")
        pragma(db, "journal_mode = DELETE")


@contextmanager
def writing(db: sqlite3.Connection) -> Iterator[None]:
    """Run the body in a transaction that locks the journal for writing. An error in the body undoes all of it."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


@contextmanager
def reading(db: sqlite3.Connection) -> Iterator[None]:
    """Show one state of the journal to all reads in the body."""
    outermost = not db.in_transaction  # an outer call has already fixed the state
    try:
        if outermost:
            db.execute("BEGIN")
        yield
    finally:
        if outermost and db.in_transaction:
            db.execute("ROLLBACK")
