"""The form of a journal, an SQLite file that people may query (docs/journal.md): its tables, and how rows are read and written."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from math import inf
from pathlib import Path
from urllib.parse import quote

import msgspec

from microagents.elections.election import Ballot, Flagged
from microagents.errors import InvalidUsage
from microagents.journal.messages import Recalled

APPLICATION_ID = 0x6D61676A
VERSION = 2
BUSY_S = 10.0
"""How long a statement waits for another process's transaction."""
MAX_TEXT_BYTES = 64 * 1024
MOST_COUNTED = 1_000_000
"""An election does not count more samples."""
UNREADABLE = (sqlite3.Error, msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
"""What reading raises where a journal holds what this program never writes."""

OUTCOMES = ("decided", "agreed", "argmax", "leader", "person", "sampled", "undecided", "once")
"""By their number in the file: the commonest takes no byte."""
DECIDED_CODE, UNDECIDED_CODE, ONCE_CODE = OUTCOMES.index("decided"), OUTCOMES.index("undecided"), OUTCOMES.index("once")

DECISION = "fork, outcome, counted, value, ballots, cost_usd"
"""The columns that `recalled` reads."""

_NUMBER_BITS = 40
PLACES_REMEMBERED = 16_384

PLACE_OF_KEY = f"key >> {_NUMBER_BITS}"
_NAMES = " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(OUTCOMES))
TABLES = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
CREATE TABLE run (id TEXT NOT NULL, version TEXT NOT NULL, created_at TEXT NOT NULL, experiment TEXT NOT NULL);
CREATE TABLE change (at TEXT NOT NULL, field TEXT NOT NULL, recorded TEXT NOT NULL, given TEXT NOT NULL);
CREATE TABLE lease (epoch INTEGER NOT NULL, holder TEXT, renewed_at REAL NOT NULL);
CREATE TABLE place (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE);
CREATE TABLE decision (
    key INTEGER PRIMARY KEY, fork BLOB NOT NULL, outcome INTEGER NOT NULL, counted INTEGER NOT NULL, value TEXT, ballots TEXT,
    cost_usd REAL
);
CREATE TABLE sample (
    key INTEGER NOT NULL, fork BLOB NOT NULL, seq INTEGER NOT NULL, value TEXT, flag TEXT, cost_usd REAL, PRIMARY KEY (key, fork, seq)
) WITHOUT ROWID;
CREATE TABLE reply (
    key INTEGER NOT NULL, fork BLOB NOT NULL, seq INTEGER NOT NULL, bytes INTEGER NOT NULL, text BLOB NOT NULL, PRIMARY KEY (key, fork, seq)
) WITHOUT ROWID;
CREATE TABLE person (path TEXT PRIMARY KEY, value TEXT NOT NULL, who TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE input (input INTEGER PRIMARY KEY, options TEXT NOT NULL);
CREATE TABLE input_ending (input INTEGER PRIMARY KEY, outcome TEXT NOT NULL, reason TEXT, result TEXT, ended_at TEXT NOT NULL);
CREATE TABLE progress (
    input INTEGER PRIMARY KEY, done INTEGER NOT NULL, total INTEGER, reached INTEGER, state TEXT, value TEXT, decisions BLOB, ballots BLOB
);
CREATE TABLE account (totals TEXT NOT NULL, wall_s REAL NOT NULL, saved_at TEXT NOT NULL);
CREATE TABLE ending (
    outcome TEXT NOT NULL, reason TEXT, result TEXT, decisions_sha256 TEXT NOT NULL, ballots_sha256 TEXT NOT NULL, ended_at TEXT NOT NULL
);
CREATE VIEW decisions AS
    SELECT CASE key & {(1 << _NUMBER_BITS) - 1} WHEN 0 THEN place.path
               ELSE place.path || '/' || ((key & {(1 << _NUMBER_BITS) - 1}) - 1) END AS path,
           CASE outcome {_NAMES} END AS outcome, counted, value, ballots, cost_usd, hex(fork) AS fork
    FROM decision JOIN place ON place.id = {PLACE_OF_KEY};
CREATE VIEW inputs AS
    SELECT input, json_patch(json_extract(experiment, '$.recipe.options'), options) AS options, done, total, outcome, reason, result
    FROM run JOIN input LEFT JOIN progress USING (input) LEFT JOIN input_ending USING (input);
"""


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open a journal that is there.

    Raises:
        InvalidUsage: it is none, is damaged, or is of a newer version; it is left as it was.
    """
    try:
        _check_whole(path)
        db = sqlite3.connect(_address(path, write=write), uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise InvalidUsage(f"the journal {str(path)!r} cannot be opened: {error}; nothing was changed") from None
    try:
        _check_kind(db, path)
    except UNREADABLE as error:
        db.close()
        raise unreadable(path, error) from None
    except InvalidUsage:
        db.close()
        raise
    return db


def unreadable(path: Path, error: object) -> InvalidUsage:
    """What is said of a journal that is damaged."""
    why = " ".join(str(error).split())
    if isinstance(error, sqlite3.OperationalError) and not why.startswith("no such"):
        return InvalidUsage(f"the journal {str(path)!r} cannot be read: {why}; it was left as it is; try again once it can")
    return InvalidUsage(f"{str(path)!r} is not a journal, or it is damaged ({why}); it was left as it is; begin another run")


def holds_nothing(path: Path) -> bool:
    """Whether nothing was recorded yet: there is no file, or one that was cut off before its tables were made."""
    if not path.exists() or not path.stat().st_size:
        return True
    try:
        db = sqlite3.connect(_address(path, write=False), uri=True, timeout=BUSY_S)
        try:
            return not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        finally:
            db.close()
    except UNREADABLE:  # what SQLite says of a damaged schema may be no text either
        return False


def _address(path: Path, *, write: bool) -> str:
    """How SQLite is told to open a file that is there."""
    # Without a write-ahead log a transaction that was cut off has to be rolled back first, and only a writer may.
    mode = "rw" if write or Path(f"{path}-journal").exists() else "ro"
    return f"file:{quote(str(path))}?mode={mode}"


def _check_whole(path: Path) -> None:
    """A file that was cut short says so by its header, unless a log beside it has newer pages."""
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):  # noqa: PLR2004 - the length of SQLite's header
        raise unreadable(path, "it has no header")
    page_bytes = int.from_bytes(header[16:18])
    expected = int.from_bytes(header[28:32]) * (65536 if page_bytes == 1 else page_bytes)
    if path.stat().st_size < expected and not log_bytes(path):
        raise unreadable(path, f"{path.stat().st_size} bytes are left of {expected}")


def log_bytes(path: Path) -> int:
    """The size of the write-ahead log beside a journal: 0 after it was closed in order."""
    try:
        return Path(f"{path}-wal").stat().st_size
    except OSError:
        return 0


def _check_kind(db: sqlite3.Connection, path: Path) -> None:
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise InvalidUsage(f"{str(path)!r} is a database, but no journal of a run; it was left as it is")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise InvalidUsage(
            f"the journal {str(path)!r} has version {version}, this microagents knows version {VERSION}; it was left as it is; use the "
            "microagents that wrote it"
        )


class Places:
    """Paths as numbers: ``0/step/17`` is number 17 at the place ``0/step``. Rows of one place stand in the order of their numbers."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._ids: dict[str, int] = {}
        self.new: list[tuple[int, str]] = []
        """Places that are not in the file yet."""
        self._last: int = db.execute("SELECT coalesce(max(id), 0) FROM place").fetchone()[0]

    def key(self, path: str) -> int:
        """The key of a path; its place is made where there is none yet."""
        place, number = _split(path)
        return (self._id(place) << _NUMBER_BITS) + number

    def written(self) -> None:
        """The new places are in the file now, so any of them may be forgotten."""
        self.new.clear()
        if len(self._ids) > PLACES_REMEMBERED:
            self._ids.clear()

    def any_of(self, of_input: int) -> bool:
        """Whether there is any place of an input."""
        query = "SELECT EXISTS (SELECT 1 FROM place WHERE path >= ? AND path < ?)"
        return bool(self._db.execute(query, path_range(of_input)).fetchone()[0])

    def _id(self, place: str) -> int:
        found = self._ids.get(place)
        if found is None:
            row = self._db.execute("SELECT id FROM place WHERE path = ?", (place,)).fetchone()
            if row is None:
                self._last += 1
                self.new.append((self._last, place))
            found = self._ids[place] = self._last if row is None else row[0]
        return found


def _split(path: str) -> tuple[str, int]:
    """The place, and one more than the number: 0 where a path ends with none."""
    place, _, last = path.rpartition("/")
    if last.isdecimal() and last.isascii() and (last == "0" or last[0] != "0") and len(last) < 12:  # noqa: PLR2004 - fits 40 bits
        return place, int(last) + 1
    return path, 0


def joined(place: str, key: int) -> str:
    """The path of a key at a place."""
    number = key & ((1 << _NUMBER_BITS) - 1)
    return f"{place}/{number - 1}" if number else place


def place_of(key: int) -> int:
    """The place of a key."""
    return key >> _NUMBER_BITS


def path_range(of_input: int) -> tuple[str, str]:
    """What all paths of an input stand behind, and what they stand before."""
    return f"{of_input}/", f"{of_input}{chr(ord('/') + 1)}"


def key_range(place_id: int) -> tuple[int, int]:
    """The first key of a place, and the first one behind it."""
    return place_id << _NUMBER_BITS, (place_id + 1) << _NUMBER_BITS


def written_ballots(ballots: Sequence[Ballot | Flagged], value: bytes | None) -> str | None:
    """Ballots as a JSON array in the order of launch; None where all are the value that was decided.

    ``true`` stands for that value, a string for a flagged reply, anything else for another reply.
    """
    if value is not None and all(isinstance(each, Ballot) and each.value == value for each in ballots):
        return None
    return "[" + ",".join(_written(each, value) for each in ballots) + "]"


def _written(ballot: Ballot | Flagged, value: bytes | None) -> str:
    if isinstance(ballot, Flagged):
        return msgspec.json.encode(ballot.flag).decode()
    return "true" if ballot.value == value else ballot.value.decode()


_entries = msgspec.json.Decoder(list[msgspec.Raw])


def recalled(  # noqa: PLR0917 - the columns of a row
    question_digest: bytes, outcome: int, counted: int, value: str | None, ballots: str | None, cost_usd: float | None
) -> Recalled:
    """A row of the decisions: its columns as `DECISION` names them."""
    if not 0 <= counted <= MOST_COUNTED:
        raise ValueError(f"a decision counts {counted} samples")
    winner = None if value is None else value.encode()
    entries = [b"true"] * counted if ballots is None else [bytes(each) for each in _entries.decode(ballots)]
    return Recalled(
        question_digest=question_digest,
        outcome=OUTCOMES[outcome],
        value=winner,
        ballots=tuple(_read(seq, entry, winner) for seq, entry in enumerate(entries)),
        cost_usd=cost_read(cost_usd),
    )


def cost_read(cost_usd: float | None) -> float | None:
    """A column that holds what samples cost."""
    if cost_usd is not None and not 0 <= cost_usd < inf:
        raise ValueError(f"samples cost {cost_usd}")
    return cost_usd


def _read(seq: int, entry: bytes, winner: bytes | None) -> Ballot | Flagged:
    if entry.startswith(b'"'):
        return Flagged(seq=seq, flag=msgspec.json.decode(entry, type=str))
    return Ballot(seq=seq, value=winner if entry == b"true" and winner is not None else entry)


def packed_text(text: str) -> tuple[int, bytes]:
    """The length of a text in bytes, and the text deflated, cut where it is too long."""
    plain = text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]
    return len(plain), zlib.compress(plain)
