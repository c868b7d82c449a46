"""Write transactions of a journal: each checks the lease of this process first, and renews it when due."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from microagents.base.errors import InvalidUsage, Stopped, TakenOver
from microagents.base.processes import ProcessIdentity
from microagents.journal.creating import creation_error
from microagents.journal.encoding import UNREADABLE
from microagents.journal.lease import RENEW_EVERY_S, Lease, LeaseRecord, abandon, read_lease
from microagents.journal.opening import error_text, unreadable
from microagents.journal.rows import Rows
from microagents.journal.statements import pragma, writing


class Transactions:
    """Write transactions of one process on a journal whose lease it takes."""

    def __init__(self, path: Path, run_id: str, *, is_new: bool) -> None:
        self._path = path
        self._run_id = run_id
        self._is_new = is_new
        self._holder = ProcessIdentity.here()
        self._epoch = self._renewals = 0
        self._renewed_s = time.monotonic()
        self._rows: Rows

    def take_lease(self, rows: Rows, epoch: int | None) -> None:
        """Take the lease, unless another process holds it, or took it after the ``epoch`` that this one read."""
        self._rows = rows
        # Check and update in one transaction: of two processes that start at once, the second sees the epoch of the first.
        with writing(rows.db):
            lease = read_lease(rows, self._path)
            lease.refuse_if_held(self._run_id)
            if epoch not in (None, lease.epoch):
                raise InvalidUsage(
                    f"run {self._run_id} was written by another process at the same time; nothing was changed; try again"
                )
            self._epoch = lease.epoch + 1
            self._write_lease(self._holder)
        pragma(rows.db, "wal_checkpoint")  # those who ask whether the run is live need not read the log

    def release_lease(self) -> bool:
        """Release the lease; False if another process has it, or if the file cannot be written."""
        if not self._epoch:
            return False
        try:
            with self.write():
                self._write_lease(None)
        except (Stopped, InvalidUsage):
            abandon(self._path, self._epoch, self._holder)
            return False
        except TakenOver:
            return False
        return True

    def check_lease(self) -> None:
        """Check that no other process has taken the lease, as far as it can be read.

        Raises:
            TakenOver: one has.
        """
        with suppress(sqlite3.Error, *UNREADABLE, InvalidUsage):
            lease = read_lease(self._rows, self._path)
            if lease.epoch > self._epoch:  # an older copy in its place has a lower one
                raise self._taken_over(lease)

    @property
    def is_renewal_due(self) -> bool:
        """Whether no commit has renewed the lease recently."""
        return time.monotonic() >= self._renewed_s + RENEW_EVERY_S

    def _write_lease(self, holder: ProcessIdentity | None) -> None:
        self._renewals += 1
        self._rows.set_part(LeaseRecord(epoch=self._epoch, holder=holder, renewals=self._renewals))
        self._renewed_s = time.monotonic()

    @contextmanager
    def write(self) -> Iterator[None]:
        """Run the body in one transaction.

        Raises:
            TakenOver: another process has taken the lease. Nothing is written.
            Stopped: the journal cannot be written. Nothing is written.
        """
        with self.translating_errors(), writing(self._rows.db):
            # A process that was suspended for longer than SILENT_S may have lost the lease without noticing.
            lease = read_lease(self._rows, self._path)
            if lease.epoch != self._epoch:
                raise self._taken_over(lease)
            yield
            if self.is_renewal_due:
                self._write_lease(self._holder)

    def _taken_over(self, lease: Lease) -> TakenOver:
        return TakenOver(self._run_id, str(lease.holder or "another process"))

    @contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Translate errors of SQLite, of the disk and of damaged rows, to `Stopped` or `InvalidUsage`."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if self._is_new and not self._epoch:
                raise creation_error(self._path, error) from None
            raise Stopped(
                f"the journal {str(self._path)!r} cannot be written: {error_text(self._path, error)}; everything in it is kept; once it "
                f"can be written, resume run {self._run_id}"
            ) from None
        except UNREADABLE as error:
            raise unreadable(self._path, error) from None
