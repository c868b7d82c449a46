"""The schema of a journal, an SQLite file that people may query (docs/journal.md), and the encoding of its rows."""

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

HEADER_BYTES = 100
"""Length of the header of an SQLite file."""
APPLICATION_ID = 0x6D61676A
VERSION = 2
BUSY_S = 10.0
"""Seconds that a statement waits for the transaction of another process."""
MAX_TEXT_BYTES = 64 * 1024
"""Longer texts of replies are cut."""
MAX_COUNTED = 1_000_000
"""A row that claims more counted samples is damaged: reading it would exhaust the memory."""
SIBLINGS = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps beside a journal."""
UNREADABLE = (sqlite3.Error, msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
"""Errors that reading raises if a journal contains values that this program never writes."""

OUTCOMES = ("decided", "agreed", "argmax", "leader", "person", "sampled", "undecided", "once")
"""Outcomes by their number in the file. The most common one is 0, which SQLite stores in no bytes."""
DECIDED_CODE, UNDECIDED_CODE, ONCE_CODE = OUTCOMES.index("decided"), OUTCOMES.index("undecided"), OUTCOMES.index("once")

DECISION = "fork, outcome, counted, value, ballots, cost_usd"
"""The columns that `recalled` decodes."""

_NUMBER_BITS = 40
MAX_CACHED_PLACES = 16_384

PLACE_OF_KEY = f"key >> {_NUMBER_BITS}"
_OUTCOME_CASES = " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(OUTCOMES))
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
           CASE outcome {_OUTCOME_CASES} END AS outcome, counted, value, ballots, cost_usd, hex(fork) AS fork
    FROM decision JOIN place ON place.id = {PLACE_OF_KEY};
CREATE VIEW inputs AS
    SELECT input, json_patch(json_extract(experiment, '$.recipe.options'), options) AS options, done, total, outcome, reason, result
    FROM run JOIN input LEFT JOIN progress USING (input) LEFT JOIN input_ending USING (input);
"""


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open an existing journal.

    Raises:
        InvalidUsage: the file is not a journal, is damaged, or has another version. It is left unchanged.
    """
    try:
        if path.is_file() and path.stat().st_size < HEADER_BYTES:
            raise unreadable(path, "it has no header")
        db = sqlite3.connect(_uri(path, write=write), uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise InvalidUsage(f"the journal {str(path)!r} cannot be opened: {error}; nothing was changed") from None
    try:
        _check_version(db, path)
        _check_size(db, path)
    except UNREADABLE as error:
        db.close()
        raise unreadable(path, error) from None
    except InvalidUsage:
        db.close()
        raise
    return db


def unreadable(path: Path, error: object) -> InvalidUsage:
    """The error for a journal that cannot be read or is damaged."""
    why = " ".join(str(error).split())
    if isinstance(error, sqlite3.OperationalError) and not why.startswith("no such"):
        return InvalidUsage(f"the journal {str(path)!r} cannot be read: {why}; it was left as it is; try again once it is readable")
    return InvalidUsage(f"{str(path)!r} is not a journal, or it is damaged ({why}); it was left as it is; begin another run")


def holds_nothing(path: Path) -> bool:
    """Whether no run is recorded: the file is missing, empty, or has no tables because a crash came before them."""
    if not path.exists() or not path.stat().st_size:
        return True
    try:
        db = sqlite3.connect(_uri(path, write=False), uri=True, timeout=BUSY_S)
        try:
            return not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        finally:
            db.close()
    except UNREADABLE:  # not only sqlite3.Error: the message of a damaged schema may not be valid text
        return False


def _uri(path: Path, *, write: bool) -> str:
    """The URI by which SQLite opens an existing file."""
    # A crash under the rollback journal leaves a `-journal` file. SQLite has to roll it back first, which needs write access.
    mode = "rw" if write or Path(f"{path}-journal").exists() else "ro"
    return f"file:{quote(str(path))}?mode={mode}"


def _check_size(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a truncated file: its header records the full size. A write-ahead log beside it may contain the missing pages."""
    # The header is not read from the file itself: to close a file releases all locks that this process has on it, those of the writer's
    # connection included, and then another process that closes the journal removes the write-ahead log (seen: a committed row was lost).
    (pages,), (page_bytes,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    expected = pages * page_bytes
    if path.stat().st_size < expected and not log_bytes(path):
        raise unreadable(path, f"{path.stat().st_size} bytes are left of {expected}")


def log_bytes(path: Path) -> int:
    """Size of the write-ahead log beside a journal; 0 after a clean close."""
    try:
        return Path(f"{path}-wal").stat().st_size
    except OSError:
        return 0


def _check_version(db: sqlite3.Connection, path: Path) -> None:
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise InvalidUsage(
            f"{str(path)!r} is a database, but no journal of a run; it was left as it is; choose another run id or --runs-dir"
        )
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise InvalidUsage(
            f"the journal {str(path)!r} has version {version}, but this microagents reads version {VERSION}; it was left as it is; "
            "use the microagents that wrote it"
        )


class Places:
    """Integer keys for paths: ``0/step/17`` is number 17 at the place ``0/step``.

    Keys of one place ascend with the numbers, so SQLite appends the steps of a chain and fills its pages.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._ids: dict[str, int] = {}
        self.new: list[tuple[int, str]] = []
        """Places to insert with the next commit: id and path."""
        self._last: int = db.execute("SELECT coalesce(max(id), 0) FROM place").fetchone()[0]

    def key(self, path: str) -> int:
        """The key of a path. A new place gets an id and joins `new`."""
        place, number = _split(path)
        return (self._id(place) << _NUMBER_BITS) + number

    def written(self) -> None:
        """Note that the new places are in the file."""
        self.new.clear()
        # Safe only now: a place in neither the cache nor the file would get a second id.
        if len(self._ids) > MAX_CACHED_PLACES:
            self._ids.clear()

    def any_of(self, of_input: int | None) -> bool:
        """Whether the file has a place of an input, or with None of any."""
        if of_input is None:
            return bool(self._db.execute("SELECT EXISTS (SELECT 1 FROM place)").fetchone()[0])
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
    """The place of a path, and its last component plus one; 0 if that is no number."""
    place, _, last = path.rpartition("/")
    # A component such as "007" stays in the place: the path could not be restored from the number 7.
    if last.isdecimal() and last.isascii() and (last == "0" or last[0] != "0") and len(last) < 12:  # noqa: PLR2004 - fits 40 bits
        return place, int(last) + 1
    return path, 0


def key_at(db: sqlite3.Connection, path: str) -> int | None:
    """The key of a path; None if nothing was ever recorded at its place."""
    place, number = _split(path)
    row = db.execute("SELECT id FROM place WHERE path = ?", (place,)).fetchone()
    return None if row is None else (row[0] << _NUMBER_BITS) + number


def joined(place: str, key: int) -> str:
    """The path of a key, given its place."""
    number = key & ((1 << _NUMBER_BITS) - 1)
    return f"{place}/{number - 1}" if number else place


def place_of(key: int) -> int:
    """The id of the place of a key."""
    return key >> _NUMBER_BITS


def path_range(of_input: int) -> tuple[str, str]:
    """Bounds of all paths of an input: inclusive start, exclusive end."""
    return f"{of_input}/", f"{of_input}{chr(ord('/') + 1)}"


def key_range(place_id: int) -> tuple[int, int]:
    """Bounds of all keys of a place: inclusive start, exclusive end."""
    return place_id << _NUMBER_BITS, (place_id + 1) << _NUMBER_BITS


def written_ballots(ballots: Sequence[Ballot | Flagged], value: bytes | None) -> str | None:
    """Ballots as a JSON array in launch order; None if all of them equal the decided value.

    An entry is ``true`` for the decided value, a string for a red flag, and any other JSON for a different reply.
    """
    if value is not None and all(isinstance(each, Ballot) and each.value == value for each in ballots):
        return None
    return "[" + ",".join(_encode_entry(each, value) for each in ballots) + "]"


def _encode_entry(ballot: Ballot | Flagged, value: bytes | None) -> str:
    if isinstance(ballot, Flagged):
        return msgspec.json.encode(ballot.flag).decode()
    # Unambiguous: a reply is a struct, so its JSON is neither `true` nor a string.
    return "true" if ballot.value == value else ballot.value.decode()


_entries = msgspec.json.Decoder(list[msgspec.Raw])


def recalled(  # noqa: PLR0917 - the columns of a row
    question_digest: bytes, outcome: int, counted: int, value: str | None, ballots: str | None, cost_usd: float | None
) -> Recalled:
    """Decode a row of ``decision``: the columns of `DECISION`.

    Raises:
        ValueError, IndexError, msgspec.MsgspecError: the row contains values that this program never writes.
    """
    if not 0 <= counted <= MAX_COUNTED:
        raise ValueError(f"a decision counts {counted} samples")
    winner = None if value is None else value.encode()
    entries = [b"true"] * counted if ballots is None else [bytes(each) for each in _entries.decode(ballots)]
    return Recalled(
        question_digest=question_digest,
        outcome=OUTCOMES[outcome],
        value=winner,
        ballots=tuple(_decode_entry(seq, entry, winner) for seq, entry in enumerate(entries)),
        cost_usd=cost_read(cost_usd),
    )


def cost_read(cost_usd: float | None) -> float | None:
    """Check a column with the cost of samples.

    Raises:
        ValueError: the cost is negative or not finite.
    """
    if cost_usd is not None and not 0 <= cost_usd < inf:
        raise ValueError(f"samples cost {cost_usd}")
    return cost_usd


def _decode_entry(seq: int, entry: bytes, winner: bytes | None) -> Ballot | Flagged:
    if entry.startswith(b'"'):
        return Flagged(seq=seq, flag=msgspec.json.decode(entry, type=str))
    return Ballot(seq=seq, value=winner if entry == b"true" and winner is not None else entry)


def packed_text(text: str) -> tuple[int, bytes]:
    """A text cut to `MAX_TEXT_BYTES`: its length in bytes, and the bytes compressed by zlib."""
    plain = text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]
    return len(plain), zlib.compress(plain)
