"""Very many texts: in memory while they are few, then in an unnamed temporary file of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import finalize

from microagents.base.errors import InvalidUsage
from microagents.runs.on_access import MadeOnAccess


def temporary_table(owner: object, made: str) -> sqlite3.Connection:
    """Make a table in a database without a name, which ends with its owner.

    SQLite keeps 2 MB of it in memory, and the rest in a file that it removes.

    Args:
        owner: the object that uses the table.
        made: its name and its columns.
    """
    db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    finalize(owner, db.close)
    db.execute("PRAGMA journal_mode = OFF")
    db.execute(f"CREATE TABLE {made}")
    return db


@contextmanager
def writing_temporary() -> Iterator[None]:
    """Write to such a table.

    Raises:
        InvalidUsage: the temporary folder has no room.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        raise InvalidUsage(
            f"the inputs or results of a run take more room than the temporary folder has: {error}; set TMPDIR to another one"
        ) from None


class Spool(MadeOnAccess[str]):
    """Texts in the order in which they were added. Several threads may read them once all are added."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._db = temporary_table(self, "spooled (number INTEGER PRIMARY KEY, text BLOB)")
        self._count = 0
        self.extend(texts)

    def extend(self, texts: Iterable[str]) -> None:
        """Add texts."""
        for text in texts:
            self.append(text)

    def append(self, text: str) -> None:
        """Add a text.

        Raises:
            InvalidUsage: the temporary folder has no room.
        """
        with writing_temporary():
            self._db.execute("INSERT INTO spooled VALUES (?, ?)", (self._count, text.encode()))
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def made(self, index: int) -> str:
        """Read a text."""
        number = range(len(self))[index]
        (text,) = self._db.execute("SELECT text FROM spooled WHERE number = ?", (number,)).fetchone()
        return str(text, "utf-8")

    def __iter__(self) -> Iterator[str]:
        for (text,) in self._db.execute("SELECT text FROM spooled ORDER BY number"):
            yield str(text, "utf-8")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled for another process, which has its own file."""
        return Spool, (list(self),)
