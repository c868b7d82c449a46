"""The file of an endpoint beside its journals: the cost of each day, and the replies that are owed. It outlives a kill of the server."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from microagents.base.errors import InvalidUsage, ModelUnavailable, read_failure
from microagents.base.files import make_private
from microagents.journal.creating import make_folder

LEDGER = "serve.ledger"
"""Name of the file."""
OWED_S = 600.0
"""Seconds for which the reply to a client that left is owed."""
EVERYONE = ""
"""Stands for all callers together."""
_TABLES = [
    "CREATE TABLE cost (day TEXT, caller TEXT, units INTEGER, PRIMARY KEY (day, caller))",
    "CREATE TABLE owed (debt INTEGER, question BLOB, seq INTEGER, reply BLOB, at REAL, PRIMARY KEY (debt, seq))",
    "CREATE INDEX owed_by_question ON owed (question)",
]
_SETTINGS = """
PRAGMA page_size = 1024; PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON; PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; BEGIN IMMEDIATE; COMMIT;
"""
"""Of small pages a commit writes less: the cost of a sample takes 7 us, a reply that is kept and forgotten 60 us."""
_MADE = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid"
_SPEND = "INSERT INTO cost VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET units = units + excluded.units"
_SPENT = "SELECT coalesce(sum(units), 0) FROM cost WHERE day = ?1 AND ?2 IN ('', caller)"
_FORGET_OLD = "DELETE FROM owed WHERE at < ?"
_LAST = "SELECT coalesce(max(debt), 0) FROM owed"
_TAKE = "UPDATE owed SET debt = ?1 WHERE debt = (SELECT min(debt) FROM owed WHERE question = ?2 AND debt <= ?3)"
_TAKEN = "SELECT seq, reply FROM owed WHERE debt = ?"
_KEEP = "INSERT OR REPLACE INTO owed VALUES (?, ?, ?, ?, ?)"
_END = "DELETE FROM owed WHERE debt = ?"


class Ledger:
    """Costs by day and caller, and the replies to each request until one is delivered. One server at a time has it open.

    A kill of the process leaves all of it, and a power cut may not.

    Args:
        folder: folder of the journals; None for a ledger in memory.

    Raises:
        InvalidUsage: it cannot be opened, or another server has it open.
    """

    def __init__(self, folder: Path | None) -> None:
        path = None if folder is None else folder.absolute() / LEDGER
        try:
            if path is not None:
                make_folder(path.parent)
                make_private(path)
            self._db = _opened(path or ":memory:")
            self._db.execute(_FORGET_OLD, (_now_s() - OWED_S,))
            self._before = int(self._db.execute(_LAST).fetchone()[0])
            """Number of the last debt of earlier servers."""
        except (OSError, sqlite3.Error) as error:
            hint = "; another server keeps them there: give this one a folder of its own, --runs-dir DIR"
            raise InvalidUsage(
                f"costs and owed replies cannot be kept in {str(path)!r}: {read_failure(error)}{hint if 'locked' in str(error) else ''}"
            ) from None
        self._debts = count(self._before + 1)

    def spend(self, day: str, caller: str, units: int) -> None:
        """Add to the cost of a day; less than nothing gives a rest back.

        Raises:
            ModelUnavailable: it cannot be kept, such as on a full disk.
        """
        try:
            self._db.execute(_SPEND, (day, caller, units))
        except sqlite3.Error as error:
            raise ModelUnavailable("refused", f"the cost cannot be kept: {error}") from None

    def spent(self, day: str, caller: str) -> int:
        """Return the cost of a day, of a caller or of everyone."""
        return int(self._db.execute(_SPENT, (day, caller)).fetchone()[0])

    def take(self, question: bytes) -> tuple[int, dict[int, bytes]]:
        """Return a number for the debt of a reply, and the replies that an earlier server has received for an equal request."""
        debt = next(self._debts)
        if not self._before:
            return debt, {}
        with suppress(sqlite3.Error):
            self._db.execute(_TAKE, (debt, question, self._before))
            return debt, dict(self._db.execute(_TAKEN, (debt,)))
        return debt, {}

    def keep(self, debt: int, question: bytes, seq: int, reply: bytes) -> None:
        """Keep a reply."""
        with suppress(sqlite3.Error):  # of a full disk: it is owed as long as this process lives
            self._db.execute(_KEEP, (debt, question, seq, reply, _now_s()))

    def end(self, debt: int) -> None:
        """Forget the replies: one was delivered, or is owed no longer."""
        with suppress(sqlite3.Error):
            self._db.execute(_END, (debt,))

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _opened(path: Path | str) -> sqlite3.Connection:
    """Open the file for this process alone, with its tables. Tables of others may have code, which would act when a row is inserted."""
    db = sqlite3.connect(path, timeout=0, isolation_level=None)
    db.executescript(_SETTINGS)
    made = [sql for (sql,) in db.execute(_MADE)]
    if not made:
        db.executescript(";".join(_TABLES))
    elif made != _TABLES:
        raise OSError("it has other tables; remove it")
    return db


def _now_s() -> float:
    return datetime.now(UTC).timestamp()
