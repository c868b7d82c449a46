"""The files of a journal while a run writes it: whether they are still there, and the copy of a journal whose files are not."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from typing import NoReturn

from msgspec import Struct, structs

from microagents.base.errors import InvalidUsage, JournalGone
from microagents.base.files import make_private
from microagents.base.trust import JOURNALS
from microagents.journal.books import Totals
from microagents.journal.creating import make_folder
from microagents.journal.encoding import UNREADABLE
from microagents.journal.opening import connect_to_read
from microagents.journal.queries import first_record, read_totals
from microagents.journal.rows import Rows
from microagents.journal.statements import LONG_LOG_BYTES, merge_log, pragma
from microagents.journal.verifying import damage


class _FileStates(Struct, frozen=True):
    """State of the files of a journal, which changes with their content."""

    version: int
    """SQLite's number for the last commit of another connection."""
    file: tuple[int, int] | None = None
    """Size of the file and time of its last write; None without a log, since each commit then changes them."""
    log: tuple[int, int] | None = None
    """Size of the log and time of its last write."""


class JournalFiles:
    """The files of an open journal. Every change is found that this process did not make.

    Only `merge_log` writes the log into the file, so the size and time of the file change at no other moment.

    Args:
        path: the journal.
        rows: its open connection.
        totals: the totals, which each commit changes.
        run_id: name of its run.
    """

    def __init__(self, path: Path, rows: Rows, totals: Totals, run_id: str) -> None:
        self._path = path.absolute()  # users' code may change the working folder
        self._rows = rows
        self._totals = totals
        self._run_id = run_id
        target = os.path.realpath(path)
        has_log = pragma(rows.db, "journal_mode") == "wal"
        self._logs = [f"{target}-wal", f"{target}-shm"] if has_log else []
        self._files = {name: _identity(name) for name in (str(self._path), target, *self._logs)}
        self._log = os.open(self._logs[0], os.O_RDWR | os.O_CLOEXEC) if has_log else None
        """Descriptor of the log, which may lose its name."""
        self._content = _FileStates(0)
        self._content = self._current_content()
        self._sum = totals.rows
        """Sum of the rows as of the last commit."""
        self._gone: JournalGone | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the journal was found to be gone."""
        return self._gone is not None

    @property
    def is_saved(self) -> bool:
        """Whether its copy was written, or could not be."""
        return self._gone is not None and self._gone.is_final

    def check_files(self) -> None:
        """Check that all files are in their places.

        Raises:
            JournalGone: one is not.
        """
        self._raise_if_gone()
        for name, known in self._files.items():
            shown = repr(Path(name).name)
            try:
                found = _identity(name)
            except PermissionError:  # the folder is closed for a while
                return
            except OSError:
                self._lose(f"{shown} was removed or moved away")
            if found != known:
                self._lose(f"{shown} is another file now")

    def check_content(self) -> None:
        """Check that no other process has changed the content, or that the file has its size and all rows are there nonetheless.

        Raises:
            JournalGone: they are not.
        """
        self._raise_if_gone()
        if self._is_log_cut():
            self._lose("another program has cut its log")
        found = self._current_content()
        if found == self._content:
            return
        is_resized = (
            found.file is not None and self._content.file is not None and found.file[0] != self._content.file[0]
        )
        if is_resized or not self._is_whole():
            self._lose("another program has overwritten or changed it")
        self._content = found

    def take_commit(self) -> None:
        """Take the rows and the log as a commit of this process has left them."""
        self._sum = self._totals.rows
        self._content = structs.replace(self._content, log=self._log_state())

    def merge_log(self) -> None:
        """Write a long log into the file."""
        if self._content.log is not None and self._content.log[0] >= LONG_LOG_BYTES:
            with suppress(sqlite3.OperationalError):  # the log keeps everything
                pragma(self._rows.db, "wal_checkpoint")
            self._content = self._current_content()

    def save(self) -> JournalGone:
        """Copy a journal that is gone into another folder, once; returns the error that names the copy."""
        assert self._gone is not None
        if not self.is_saved:
            self._gone = self._saved(self._gone)
        return self._gone

    def close(self) -> None:
        """Close the descriptor of the log."""
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _lose(self, event: str) -> NoReturn:
        self._gone = JournalGone(str(self._path), event)
        raise self._gone

    def _raise_if_gone(self) -> None:
        if self._gone is not None:
            raise self._gone

    def _current_content(self) -> _FileStates:
        version, file = int(pragma(self._rows.db, "data_version")), self._content.file
        if self._log is not None:
            with suppress(OSError):  # `check_files` says so
                file = _state(self._path.stat())
        return _FileStates(version, file, self._log_state())

    def _log_state(self) -> tuple[int, int] | None:
        if self._log is None:
            return None
        return _state(os.fstat(self._log))

    def _is_log_cut(self) -> bool:
        """Whether the log has lost its beginning. Its size does not tell, if this process has then written on at the place of the end."""
        return self._log is not None and os.pread(self._log, 1, 0) == b"\0"

    def _is_whole(self) -> bool:
        """Whether a new connection reads every row of this process: a person may only have touched the file, or added a view."""
        try:
            with closing(connect_to_read(self._path)) as db:
                rows = Rows(db)
                return read_totals(rows).rows == self._sum and next(damage(rows), None) is None
        except (*UNREADABLE, InvalidUsage):
            return False

    def _saved(self, gone: JournalGone) -> JournalGone:
        """Save a copy in the first folder that takes one."""
        refused = []
        for folder in _folders(self._path):
            copy = folder / f"{self._path.stem}.saved-{token_hex(4)}" / self._path.name
            try:
                problem = self._write_copy(copy)
            except (OSError, sqlite3.Error) as error:
                shutil.rmtree(copy.parent, ignore_errors=True)
                refused.append(f"{str(folder)!r} ({error})")
                continue
            if problem is not None:
                return gone.saved(f"the rest of it is in {str(copy)!r}, and is damaged ({problem}); begin another run")
            self._remove_log()
            go_on = f"resume run {self._run_id} with --runs-dir {shlex.quote(str(copy.parent))}"
            return gone.saved(f"all that it held is saved in {str(copy)!r}; {go_on}", copy)
        return gone.saved(f"it could not be saved in {' or '.join(refused)}; begin another run")

    def _write_copy(self, copy: Path) -> str | None:
        """Write all that the open journal holds into a new file; returns a sentence if that is damaged."""
        make_folder(copy.parent)
        make_private(copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as db:
            self._rows.db.backup(db)
            merge_log(db)
            rows = Rows(db)
            problem = next(damage(rows), None)
            if problem is None:
                JOURNALS.add(copy, first_record(rows))
        return problem

    def _remove_log(self) -> None:
        """Remove the log after it was copied, so that it is not merged into the file that has taken the journal's place."""
        if self._log is not None and _has(str(self._path), self._files):
            os.ftruncate(self._log, 0)  # SQLite merges it at the end if it finds the same file
        for name in self._logs:
            if _has(name, self._files):
                Path(name).unlink(missing_ok=True)


def _state(found: os.stat_result) -> tuple[int, int]:
    return found.st_size, found.st_mtime_ns


def _identity(name: str) -> tuple[int, int]:
    found = os.lstat(name)
    return found.st_dev, found.st_ino


def _has(name: str, files: dict[str, tuple[int, int]]) -> bool:
    """Whether a file is still the one that it was."""
    try:
        return _identity(name) == files[name]
    except OSError:
        return False


def _folders(path: Path) -> Iterator[Path]:
    """Yield folders for a copy: the journal's own or the nearest above it that is left, then two on other disks perhaps."""
    yield next(each for each in path.parents if os.path.isdir(each))
    yield Path.home()
    yield Path(gettempdir())
