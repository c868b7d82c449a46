"""All SQL of a journal: the definitions of its tables, the queries, the settings of a connection, and transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from microagents.journal.tables import APPLICATION_ID, NUMBER_BITS, OUTCOMES, TABLES, VERSION, TableSchema

T = TypeVar("T")
ROWS_PER_STATEMENT = 512
"""Every statement releases the GIL, and a busy event loop takes up to 5 ms to give it back: one statement takes many rows."""
CHECKPOINT_PAGES = 4000
"""Pages of the write-ahead log after which they are written into the file: every changed page a second time."""
PAGE_BYTES = 4096
CACHE_KIB = 8192
"""Size of the cache. As far as it holds the journal, a copy can be made even of a file that another program has overwritten."""
FIRST_BYTE = 0xFF
"""The part of an extended error code that is the code itself."""
MOST_STEPS = 10_000_000
"""A statement on a file that others may have written takes this many steps of SQLite's machine at most."""

# -- the tables -----------------------------------------------------------------------------------------------------------------------


def _table(name: str, schema: TableSchema) -> str:
    columns = [f"{column} {each.sql}" for column, each in schema.columns.items()]
    key = [f"PRIMARY KEY ({schema.key})"] * bool(schema.key)
    lines = ", ".join([*columns, "checksum INTEGER NOT NULL", *key])
    return f"CREATE TABLE {name} ({lines}){' WITHOUT ROWID' if schema.key else ''}"


CREATED = {name: _table(name, schema) for name, schema in TABLES.items()}
"""The statements that make the tables, by name."""
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
    JOIN input LEFT JOIN progress USING (input) LEFT JOIN input_ending USING (input);
"""


def create_tables(db: sqlite3.Connection) -> None:
    """Make the tables of a new journal, in the caller's transaction."""
    marks = (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {VERSION}")
    for statement in (*marks, *CREATED.values(), *_VIEWS.split(";")):
        db.execute(statement)


# -- conditions of rows, for `Rows` ---------------------------------------------------------------------------------------------------

OF_KEY, OF_PATH, OF_ID, OF_INPUT = (f"WHERE {column} = ?" for column in ("key", "path", "id", "input"))
OF_KIND, OF_PART = "WHERE kind = ?", "WHERE part = ?"
BELOW = "WHERE path >= ? AND path < ?"
NEXT_OF_PLACE = "WHERE key > ? AND key < ? ORDER BY key LIMIT ?"
OF_KEY_BY_SEQ = "WHERE key = ? ORDER BY fork, seq"
BY_SEQ, BY_INPUT, BY_TIME = "ORDER BY key, fork, seq", "ORDER BY input", "ORDER BY rowid"
UNSOLVED = "WHERE outcome != 'completed' ORDER BY input LIMIT ?"
ONE = "LIMIT 1"
IF_MISSING, OR_INSTEAD = "INSERT OR IGNORE", "INSERT OR REPLACE"

# -- queries --------------------------------------------------------------------------------------------------------------------------

MAX_SAMPLES = 15
"""Highest number of samples that a byte has; more are written as this."""
MARKED = FLAGGED = 16
OUTVOTED = 32
UNDECIDED, CLIMBED, SETTLED = 1 << 6, 2 << 6, 3 << 6
_STATES = {
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
_BYTE = f"min(counted, {MAX_SAMPLES}) + CASE outcome {_STATE_CASES} ELSE 0 END + {_MARKS}"
_VERDICT = """CASE WHEN outcome = 'completed'
    THEN CASE coalesce(json_type(result, '$.correct'), json_type(result, '$.solved')) WHEN 'true' THEN 1 WHEN 'false' THEN 0 END END"""
_OF_RANGE = "FROM decision WHERE key > ? AND key < ?"

DROP_PART = f"DELETE FROM run {OF_PART}"
HAS_PLACE = "SELECT EXISTS (SELECT 1 FROM place WHERE path >= ? AND path < ?)"
ID_OF_PLACE, PATH_OF_PLACE = "SELECT id FROM place WHERE path = ?", "SELECT path FROM place WHERE id = ?"
LAST_PLACE = "SELECT coalesce(max(id), 0) FROM place"
PLACES_BELOW = f"SELECT path, id FROM place {BELOW}"
NUMBER_OF_INPUTS = "SELECT count(*) FROM input"
SAMPLED_KEYS = "SELECT DISTINCT key FROM sample"
MISCOUNTED = "SELECT count(*) FROM decision WHERE ballots IS NOT NULL AND counted != json_array_length(ballots)"
STEP_BYTES = f"SELECT count(*), max(key), group_concat(char({_BYTE}), '') {_OF_RANGE}"
STEP_KEYS = f"SELECT key {_OF_RANGE} ORDER BY key"
LAST_TIME = "SELECT max(after_ms) FROM decision"
SUMS_BY_TIME = "SELECT after_ms / ?, count(*), sum(counted), total(cost_usd) FROM decision GROUP BY 1 ORDER BY 1"
SUMS_BY_INPUT = f"""SELECT CAST(path AS INTEGER) AS input, sum(counted), total(cost_usd), max(after_ms) / 1000.0
    FROM decision JOIN place ON place.id = key >> {NUMBER_BITS} WHERE input < ? GROUP BY 1"""
BEGUN_INPUTS = "SELECT input FROM progress WHERE input < ?"
ENDED_INPUTS = f"SELECT input, outcome, {_VERDICT} FROM input_ending WHERE input < ?"
PROGRESS_SUMS = "SELECT coalesce(sum(done), 0), coalesce(sum(total), 0), count(total) FROM progress"
ENDED_COUNTS = f"SELECT outcome, {_VERDICT}, count(*) FROM input_ending GROUP BY 1, 2"
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


def sum_of_checksums(table: str, keys: Sequence[int] | None = None) -> str:
    """Sum of the checksums of a table, or of its rows with this number of keys."""
    return f"SELECT coalesce(sum(checksum), 0) FROM {table}{'' if keys is None else _among(table, keys)}"


def outcomes(keys: Sequence[int]) -> str:
    """Keys and outcomes of the decisions with this number of keys."""
    return f"SELECT key, outcome FROM decision{_among('decision', keys)}"


def insert(verb: str, table: str, rows: Sequence[Sequence[object]]) -> str:
    """Insert rows: as many, and as wide, as the given ones."""
    row = f"({','.join('?' * len(rows[0]))})"
    return f"{verb} INTO {table} VALUES {','.join([row] * len(rows))}"


def delete(table: str, keys: Sequence[int] | None = None) -> str:
    """Delete all rows of a table, or the ones with this number of keys."""
    return f"DELETE FROM {table}{'' if keys is None else _among(table, keys)}"


def _among(table: str, keys: Sequence[int]) -> str:
    return f" WHERE {next(iter(TABLES[table].columns))} IN ({','.join('?' * len(keys))})"


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


def is_long(log_bytes: int) -> bool:
    """Whether a write-ahead log of this size should be written into the file."""
    return log_bytes >= CHECKPOINT_PAGES * PAGE_BYTES


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
