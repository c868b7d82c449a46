"""The database beside a journal in which other processes leave requests to a live run, which deletes the ones it has taken.

One process writes a journal, so others insert rows here. A request has an id: it takes effect once, and the journal records it then. The
database has SQLite's rollback journal, which is right on every disk, and the run never waits for its lock: an asker that is stopped amid
its commit delays requests only. Whoever may write the file may be wrong, so every row is checked, and a bad one is dropped.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from microagents.base.errors import InvalidUsage
from microagents.base.files import make_private
from microagents.base.logs import log
from microagents.base.processes import lock_text
from microagents.journal.opening import refuse_special_files
from microagents.journal.requests import MAX_REQUEST_BYTES, EndRun, LiveRequest
from microagents.journal.statements import ALL_MADE, FIRST_BYTE, MOST_STEPS, one, pragma, writing

ENDING = ".requests"
"""Added to the name of a journal."""
MAX_BYTES = 1 << 20
"""Size of the requests at which no more are taken, until the run has taken those. To end the run there is room for as much again."""
LOCK_S = 2.0
"""Longest wait for other processes that leave requests."""
TABLE = "CREATE TABLE asked (number INTEGER PRIMARY KEY, request BLOB NOT NULL)"
WAITING_BYTES = "SELECT coalesce(sum(length(request)), 0) FROM asked"
LEAVE = "INSERT INTO asked (request) VALUES (?)"
WAITING = "SELECT number, request FROM asked WHERE length(request) <= ? ORDER BY number LIMIT ?"
DROP_TAKEN = "DELETE FROM asked WHERE number <= ? OR length(request) > ?"
MAX_WAITING = 1 << 16


def requests_of(journal: Path) -> Path:
    """Return the database of requests to the run of a journal."""
    return journal.with_name(journal.name + ENDING)


def leave_request(journal: Path, request: LiveRequest) -> None:
    """Add a request, durably.

    Raises:
        InvalidUsage: it cannot be written, or too many are there.
    """
    path, written = requests_of(journal), msgspec.json.encode(request)
    most = MAX_BYTES * (2 if isinstance(request.ask, EndRun) else 1)
    try:
        make_private(path)
        with closing(_connect(path, LOCK_S)) as db, writing(db):
            _insert(db, written, most)
    except (OSError, ValueError, sqlite3.Error) as error:
        why = lock_text([path]) if _is_locked(error) else str(error)
        raise InvalidUsage(f"the request cannot be written to {str(path)!r}: {why}; nothing was changed") from None


def _insert(db: sqlite3.Connection, written: bytes, most: int) -> None:
    if len(written) > MAX_REQUEST_BYTES:
        raise ValueError(f"a request may take {MAX_REQUEST_BYTES:,} bytes, and this one has {len(written):,}")
    if not _has_table(db):
        db.execute(TABLE)
    if one(db, WAITING_BYTES) + len(written) > most:
        raise ValueError("the run has not taken the many requests that are in it")
    db.execute(LEAVE, (written,))


def _connect(path: Path, wait_s: float) -> sqlite3.Connection:
    """Open the database if it is a plain file that only this user may write."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise OSError("it is not a plain file that only this user may write")
    refuse_special_files(path)
    db = sqlite3.connect(path.absolute(), timeout=wait_s, isolation_level=None, check_same_thread=False)
    db.set_progress_handler(lambda: 1, MOST_STEPS)
    db.text_factory = bytes
    try:
        pragma(db, "trusted_schema = OFF")
        pragma(db, "synchronous = EXTRA")  # waits for the folder, too: a deleted rollback journal must not come back
    except sqlite3.Error:
        db.close()
        raise
    return db


def _has_table(db: sqlite3.Connection) -> bool:
    """Whether the only table is there.

    Raises:
        ValueError: the file has another one, or a trigger, which would act when a row is inserted.
    """
    made = [sql for _, _, sql in db.execute(ALL_MADE)]
    if made not in ([], [TABLE.encode()]):
        raise ValueError("it is not the database of requests that a run knows; remove it")
    return bool(made)


def _is_locked(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & FIRST_BYTE == sqlite3.SQLITE_BUSY


class Inbox:
    """Requests to a run that the journal has not recorded yet. It knows the ids of the recorded ones."""

    def __init__(self, journal: Path | None, known: set[str]) -> None:
        self.known = known
        self._path = None if journal is None else requests_of(journal)
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, ...] | None = None
        """Device, inode and mode of the open file."""
        self._seen: int | None = None
        """SQLite's number for the last commit of another process whose rows were read."""
        self._last = 0
        """Number of the last row that was read."""
        self._is_bad = False
        """Whether a bad row or file was logged."""

    def new(self) -> list[LiveRequest]:
        """Read the requests that are not known, in the order in which they were made."""
        try:
            db = self._opened()
            if db is None:
                return []
            version = int(pragma(db, "data_version"))
            if version == self._seen:
                return []
            found = self._unknown(db)
        except (OSError, ValueError, sqlite3.Error) as error:
            if not _is_locked(error):
                self._warn(str(error))
            return []
        self._seen = version
        if not found:
            self.clear()
        return found

    def clear(self) -> None:
        """Delete the rows that were read, so that there always is room for new ones."""
        if self._db is None:
            return
        # While another process writes it fails: the rows are deleted after the next read, and the ids of the recorded ones are known.
        with suppress(sqlite3.Error):
            self._db.execute(DROP_TAKEN, (self._last, MAX_REQUEST_BYTES))

    def close(self) -> None:
        """Close the database."""
        if self._db is not None:
            self._db.close()
        self._db = self._file = self._seen = None

    def _opened(self) -> sqlite3.Connection | None:
        """Return the open database; None if there is none."""
        if self._path is None:
            return None
        try:
            found = os.lstat(self._path)
        except OSError:
            self.close()
            return None
        file = (found.st_dev, found.st_ino, found.st_mode)
        if file != self._file:
            self.close()
            self._db, self._file = _connect(self._path, 0.0), file
        return self._db

    def _unknown(self, db: sqlite3.Connection) -> list[LiveRequest]:
        if not _has_table(db):
            return []
        found: dict[str, LiveRequest] = {}
        for number, written in db.execute(WAITING, (MAX_REQUEST_BYTES, MAX_WAITING)).fetchall():
            self._last = number
            try:
                request = msgspec.json.decode(written, type=LiveRequest)
                msgspec.json.encode(request).decode()  # text that is not UTF-8 could not be recorded
            except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
                self._warn(str(error))
                continue
            if request.id not in self.known:
                found.setdefault(request.id, request)
        return list(found.values())

    def _warn(self, why: str) -> None:
        if not self._is_bad:
            self._is_bad = True
            log().warning("a request to this run is ignored", file=str(self._path), why=why[:200])
