"""Opening of journals: a file that is none, is damaged, or has another schema is refused, and left as it is to the byte."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from subprocess import SubprocessError, run
from tempfile import TemporaryDirectory
from urllib.parse import quote

from microagents.base.errors import InvalidUsage, read_failure
from microagents.base.files import NOT_PLAIN
from microagents.base.logs import log
from microagents.base.processes import ProcessIdentity, lock_text
from microagents.journal.encoding import SIBLINGS, UNREADABLE
from microagents.journal.lease import SILENT_S, Lease, read_lease
from microagents.journal.rows import Rows
from microagents.journal.statements import ALL_MADE, FIRST_BYTE, MOST_STEPS, number_of_tables, pragma
from microagents.journal.tables import APPLICATION_ID, CREATED, VERSION

WATCH_EVERY_S = 0.5
"""Interval of looks at a lease that is watched."""
HEADER_BYTES = 100
"""Length of the header of an SQLite file."""
BUSY_S = 10.0
"""Seconds that a statement waits for the transaction of another process."""
STEPS_PER_BYTE = 64
"""A statement that only reads takes `MOST_STEPS` at most, and as many more for each byte of the file. Pages that lead back to each other
would keep it busy for ever; reading a whole table takes less than one step a byte."""
MAX_BOUND = 2**31 - 1
"""SQLite takes no larger bound. Journals of that many bytes have none."""


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing journal for writing. It raises and refuses as `connect_to_read` does."""
    return _checked(path, _open(path, path, "mode=rw"))


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open an existing journal for reading. Nothing is changed on disk, unless another process is writing the journal.

    SQLite shares an index of the write-ahead log with other processes, which it writes into a file beside the journal even for processes
    that only read. So if a log was left and no process holds the lease, a copy is read.

    Raises:
        InvalidUsage: the file is not a journal, is damaged, or has another version. It is left unchanged.
    """
    db = _checked(path, _open(path, path, "mode=ro")) if _has_writer(path) else _connect_aside(path)
    try:
        size = path.stat().st_size + log_bytes(path)
    except OSError as error:  # it was removed meanwhile
        db.close()
        raise _unopened(path, error) from None
    if size < MAX_BOUND:
        db.set_progress_handler(lambda: 1, min(MOST_STEPS + STEPS_PER_BYTE * size, MAX_BOUND))
    return db


def _connect_aside(path: Path) -> sqlite3.Connection:
    """Open a journal that seems to have no writer on this machine; if it has one after all, as other processes do."""
    db = _checked(path, _open_aside(path))
    try:
        state = read_lease(Rows(db), path).state()
    except UNREADABLE:
        return db
    if state == "free":
        return db
    try:
        shared = _checked(path, _open(path, path, "mode=ro"))
    except InvalidUsage:
        if state == "held":
            db.close()
            raise
        return db  # such as a copy, on a disk that is read-only, of the journal of a process that nobody knows here
    db.close()
    return shared


def holds_nothing(path: Path) -> bool:
    """Whether no run is recorded: the file is missing, empty, or has no tables because a crash or a full disk came before them."""
    if not os.path.exists(path):
        return True
    if not os.path.isfile(path):
        return False
    if not path.stat().st_size:
        return not log_bytes(path)
    try:
        with closing(_open_aside(path)) as db:
            return not number_of_tables(db)
    except (*UNREADABLE, InvalidUsage):  # not only sqlite3.Error: the message of a damaged schema may not be valid text
        return False


def _has_writer(path: Path) -> bool:
    """Whether a process of this machine holds the lease, by the file without its log; False if that does not show it.

    Who asks a run for its status many times a second need then make no copy of the journal.
    """
    holder = _holder_without_log(path)
    return holder is not None and holder.state() in ("running", "stopped")


def _holder_without_log(path: Path) -> ProcessIdentity | None:
    try:
        with closing(_open(path, path, "mode=ro&immutable=1")) as db:
            db.set_progress_handler(lambda: 1, MOST_STEPS)
            return read_lease(Rows(db), path).holder
    except (*UNREADABLE, InvalidUsage):  # the log has all of it, or a checkpoint is under way
        return None


def error_text(path: Path, error: Exception | str) -> str:
    """Return the message of an error; if the journal is locked, with the process that keeps it locked, and the remedy."""
    if getattr(error, "sqlite_errorcode", 0) & FIRST_BYTE != sqlite3.SQLITE_BUSY:
        return " ".join(str(error).split())
    return lock_text([path, Path(f"{path}-shm")], _holder_without_log(path))


def watch_unclear(journals: Sequence[Path]) -> None:
    """Wait until it is clear of each journal whether its holder lives, at most `SILENT_S`, and say so if that takes time."""
    is_told = False
    while unclear := [lease for lease in map(_lease_of, journals) if lease is not None and lease.state() == "unclear"]:
        if not is_told:
            is_told = True
            log().warning(
                f"run {unclear[0].journal.stem} is held by {unclear[0].holder}, which cannot be looked up from here; watching for up "
                f"to {SILENT_S:g} s whether it goes on"
            )
        time.sleep(WATCH_EVERY_S)


def _lease_of(journal: Path) -> Lease | None:
    with (
        suppress(InvalidUsage, *UNREADABLE),
        closing(connect_to_read(journal)) as db,
    ):  # others say what is wrong with it
        return read_lease(Rows(db), journal)
    return None


def unreadable(path: Path, error: Exception | str) -> InvalidUsage:
    """Return the error for a journal that cannot be read or is damaged."""
    why = error_text(path, error)
    if why == "interrupted":
        why = "a table has more rows than the file has room for"
    elif isinstance(error, sqlite3.OperationalError) and not why.startswith("no such"):
        return InvalidUsage(
            f"the journal {str(path)!r} cannot be read: {why}; it was left as it is; try again once it is readable"
        )
    return InvalidUsage(
        f"{str(path)!r} is not a journal, or it is damaged ({why}); it was left as it is; begin another run"
    )


def log_bytes(path: Path) -> int:
    """Size of the write-ahead log beside a journal; 0 after a clean close."""
    return _bytes(Path(f"{path}-wal"))


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _open(path: Path, opened: Path, options: str) -> sqlite3.Connection:
    """Open a file, which is the journal or a copy of it, and read its first page."""
    try:
        refuse_special_files(path)
        if path.stat().st_size < HEADER_BYTES:
            raise unreadable(path, "it has no header")
        uri = f"file:{quote(bytes(opened))}?{options}"
        db = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise _unopened(path, error) from None
    try:
        pragma(db, "trusted_schema = OFF")
        number_of_tables(db)
    except UNREADABLE as error:
        db.close()
        raise unreadable(path, error) from None
    return db


def _unopened(path: Path, error: Exception) -> InvalidUsage:
    return InvalidUsage(f"the journal {str(path)!r} cannot be opened: {read_failure(error)}; nothing was changed")


def refuse_special_files(path: Path) -> None:
    """Refuse a pipe or the like in the place of a journal or of a file beside it: to open a pipe would wait for ever."""
    for each in (path, *[Path(f"{path}{ending}") for ending in SIBLINGS]):
        if os.path.exists(each) and not os.path.isfile(each):
            raise OSError(f"{NOT_PLAIN}: {each.name!r}")


def _open_aside(path: Path) -> sqlite3.Connection:
    """Open only the file if there is no log beside it, else a copy of both. The copy has no name any more once it is open."""
    rollback = Path(f"{path}-journal")
    if not log_bytes(path) and not _bytes(rollback):
        return _open(path, path, "mode=ro&immutable=1")
    if not log_bytes(path):
        try:  # another process is writing, or it was killed amid a transaction, which only a writer can roll back
            return _open(path, path, "mode=ro")
        except InvalidUsage:
            pass
    log = Path(f"{path}-wal")
    there = [str(each.absolute()) for each in (path, log, rollback) if _bytes(each)]
    try:
        with TemporaryDirectory(prefix="microagents-") as folder:
            before = _state(log)
            # In another process: to close a file releases all locks that this process has on it, also as a writer, and then
            # another process that closes the journal removes the write-ahead log (seen: a committed row was lost).
            run(["cp", *there, folder], check=True, capture_output=True)  # noqa: S603, S607
            if _state(log) == before:
                return _open(path, Path(folder, path.name), "mode=rw")
    except (OSError, SubprocessError):  # no room for a copy
        pass
    return _open(path, path, "mode=ro")  # also if another process wrote the log meanwhile


def _state(log: Path) -> tuple[int, int] | None:
    try:
        found = log.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _checked(path: Path, db: sqlite3.Connection) -> sqlite3.Connection:
    """Check the marks of a journal, its schema and its size."""
    try:
        _check_schema(db, path)
        _check_size(db, path)
    except (*UNREADABLE, OSError, InvalidUsage) as error:
        db.close()
        if isinstance(error, UNREADABLE):
            raise unreadable(path, error) from None
        if isinstance(error, OSError):
            raise _unopened(path, error) from None
        raise
    return db


def _check_schema(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a file with other tables than ours, before one of them is read: a view in the place of a table may never end."""
    if pragma(db, "application_id") != APPLICATION_ID:
        raise InvalidUsage(
            f"{str(path)!r} is a database, but no journal of a run; it was left as it is; choose another run id or --runs-dir"
        )
    version = pragma(db, "user_version")
    found = {name: (kind, sql) for kind, name, sql in db.execute(ALL_MADE)}
    if version != VERSION:
        raise InvalidUsage(
            f"the journal {str(path)!r} was written by another version of microagents (the version of its tables is {version}, this one "
            f"reads {VERSION}); it was left as it is; use the microagents that wrote it, or begin the run anew under another name"
        )
    for name, sql in CREATED.items():
        if found.get(name) != ("table", sql):
            raise ValueError(
                f"the table {name} is missing" if name not in found else f"{name} is not the table that a run makes"
            )
    for name, (kind, sql) in found.items():  # others may add tables, indexes and views, which no run reads
        if kind == "trigger" or str(sql).upper().startswith("CREATE VIRTUAL"):
            raise ValueError(f"it has a {kind} called {name!r:.100}")


def _check_size(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a truncated file: its header records the full size. A write-ahead log beside it may contain the missing pages."""
    expected = pragma(db, "page_count") * pragma(db, "page_size")
    if path.stat().st_size < expected and not log_bytes(path):
        raise ValueError(f"{path.stat().st_size} bytes are left of {expected}")
