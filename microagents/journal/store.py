"""Write access to a journal: one process at a time commits records and looks up decisions.

All calls are synchronous; `writer.py` runs them in a thread. A commit is one transaction: it checks the lease, then writes records and
the account and progress that result from them. After a crash the journal has all of a commit or nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from microagents.base.errors import InvalidUsage, JournalGone, MicroagentsError, Stopped
from microagents.elections.election import OPEN_OUTCOMES
from microagents.elections.sample_batches import SampleBatch
from microagents.journal.books import Books
from microagents.journal.contents import Contents
from microagents.journal.creating import create_file, create_in_memory, on_network
from microagents.journal.encoding import Places, key_at
from microagents.journal.ending import RunEnding
from microagents.journal.inbox import Inbox
from microagents.journal.live_files import JournalFiles
from microagents.journal.messages import (
    Account,
    Recall,
    Recalled,
    Recollection,
    RecordDecision,
    RecordFile,
    Written,
)
from microagents.journal.opening import connect, holds_nothing
from microagents.journal.queries import checkpoint_of, ending_of, read_batches, read_decision, read_open_elections
from microagents.journal.record_rows import RecordRows
from microagents.journal.requests import (
    Decide,
    LiveRequest,
    now,
    pause_among,
    persons_in,
    take_effect,
    taken_requests,
)
from microagents.journal.rows import Rows
from microagents.journal.sitting import JournalConfig, Sitting
from microagents.journal.statements import LAST_PLACE, merge_log, one, pragma, set_durability
from microagents.journal.tables import LogRow
from microagents.journal.transactions import Transactions


class Store:
    """A journal opened for writing; in memory for a run without one.

    Raises:
        JournalMismatch: the journal belongs to another experiment.
        InvalidUsage: the journal cannot be read, or another process writes it.
        Stopped: the journal cannot be written.
    """

    def __init__(self, config: JournalConfig) -> None:
        path = self.path = config.location
        self.is_new = config.path is None or holds_nothing(path)
        self._failure: MicroagentsError | None = None
        """Why a transaction was undone."""
        self.contents = Contents(config.path)
        self._sitting = Sitting(config)
        self._transactions = Transactions(path, config.experiment.run_id, is_new=self.is_new)
        with self._transactions.translating_errors():
            found = None if self.is_new else self._sitting.read_before_writing()
        if config.path is None:
            self._db = create_in_memory()
        else:
            self._db = create_file(path) if self.is_new else connect(path)
        try:
            with self._transactions.translating_errors():
                set_durability(self._db, full=config.full, is_shared=on_network(path))
                if self.is_new:
                    self.is_new = self._sitting.create_tables(self._db)
                self._rows = Rows(self._db)
                self._transactions.take_lease(self._rows, None if found is None else found.epoch)
                # Once more: until the lease is taken a person may decide, which changes the totals.
                self._found = found = self._sitting.read(self._rows)
                self.books = Books(config.experiment.inputs, found.totals)
                self._places = Places(self._db)
                self.records = RecordRows(
                    self._rows, self._places, self.books, found.wall_s, config.experiment.numbered
                )
                self._persons = persons_in(self._rows)
                self.inbox = Inbox(config.path, {row.id for row in self._rows.select(LogRow)})
                self.books.totals.lose_all()
                for each in found.changed_inputs:
                    self.records.reopen(each, config.own[each])
                if not self.is_new:
                    pragma(self._db, "quick_check(1)")  # reads the journal into the cache
                self._files: JournalFiles | None = None
                if config.path is not None:
                    self._files = JournalFiles(path, self._rows, found.totals, config.experiment.run_id)
        except BaseException:
            self._transactions.release_lease()
            self._db.close()
            raise

    def close(self, *, forget: bool = False) -> None:
        """Release the lease and close the file; ``forget`` deletes a journal that this process created for a run that never started."""
        self.inbox.close()
        if self._files is None:
            self._db.close()
            return
        was_ours = not self._files.is_gone and self._transactions.release_lease()
        if not self._files.is_gone:
            merge_log(self._db)
        self._db.close()
        self._files.close()
        if forget and self.is_new and was_ours:
            self.path.unlink(missing_ok=True)

    # -- writing ----------------------------------------------------------------------------------------------------------------------

    def commit(self, records: Sequence[Written]) -> Account:
        """Write records durably; returns the account with them. If it raises `Stopped` or `TakenOver`, none of them is in the journal.

        Raises:
            JournalGone: the journal was taken away. `save` copies it with these records.
        """
        for each in records:
            if isinstance(each, RecordFile):
                self.contents.keep(each.file, each.data)
        with self._recording():
            self.records.write([each for each in records if not self._is_late(each)])
            return self.books.account()

    def _is_late(self, record: Written) -> bool:
        """Return whether a record is an answer to what a person has answered meanwhile."""
        if not self._persons or not isinstance(record, RecordDecision):
            return False
        return record.verdict.outcome == "once" and record.id.path in self._persons

    def end(self, ending: RunEnding) -> None:
        """Record the ending of this sitting of the run."""
        with self._recording():
            self._rows.set_part(msgspec.structs.replace(ending, ended_at=now()))
            self.records.write_books()

    def renew(self) -> None:
        """Renew the lease, unless a commit did so recently."""
        if self._transactions.is_renewal_due:
            with self._writing():
                pass  # the transaction itself renews the lease

    # -- the place --------------------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that the journal is in its place.

        Raises:
            JournalGone: it was taken away.
            TakenOver: another process has taken over the run, and writes the journal.
        """
        if self._files is None:
            return
        self._files.check_files()
        try:
            self._files.check_content()
        except JournalGone:
            self._transactions.check_lease()
            raise

    def save(self) -> JournalGone:
        """Copy a journal that was taken away into another folder; returns the error that names the copy."""
        assert self._files is not None, "a store in memory is never gone"
        if not self._files.is_saved:
            self._transactions.release_lease()  # the copy has no holder
        return self._files.save()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run the body in one transaction, and check the place after it."""
        with self._naming_loss(), self._transactions.write():
            if self._files is not None:
                self._files.check_content()
            yield
        if self._files is not None:
            self._files.take_commit()
            self.check()
            self._files.merge_log()

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Run the body in one transaction, behind the changes that begin the sitting. After a failure all others fail likewise.

        The totals in memory then have records that the file lacks, so the next commit would not match its rows.
        """
        if self._failure is not None:
            raise self._failure
        has_begun = False
        try:
            with self._writing():
                has_begun = True
                self._sitting.record(self._rows, self.books.totals, self._found.changes)
                yield
        except MicroagentsError as error:
            if has_begun:
                self._failure = error
            raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._naming_loss(), self._transactions.translating_errors():
            yield

    @contextmanager
    def _naming_loss(self) -> Iterator[None]:
        """Raise `JournalGone` in place of SQLite's words for a file that was taken away."""
        try:
            yield
        except (InvalidUsage, Stopped):
            self.check()
            raise

    # -- requests of other processes --------------------------------------------------------------------------------------------------

    def take_request(self, request: LiveRequest, *, is_left: bool) -> str | None:
        """Record a request, maybe left before this sitting, with its effect; returns why it has none, or None."""
        with self._recording():
            refused = take_effect(self._rows, self.books.totals, request, is_left=is_left)
            self.records.write_books()
            if isinstance(request.ask, Decide):
                self._persons = persons_in(self._rows)
            self._sitting.put_on_list(self._rows)  # the request may change settings
        self.inbox.known.add(request.id)
        return refused

    def pause(self) -> LogRow | None:
        """Return the request by which the run is paused; None if it is not."""
        with self._reading():
            return pause_among(taken_requests(self._rows))

    def decisions_on_open_elections(self) -> dict[str, bytes]:
        """Decisions of persons on elections without a verdict, by path."""
        with self._reading():
            decided = {path: each.value.encode() for path, each in self._persons.items()}
            keys = {path: key for path in decided if (key := key_at(self._db, path)) is not None}
            known = self.records.outcomes(keys)
            return {path: value for path, value in decided.items() if keys.get(path) not in known}

    # -- reading ----------------------------------------------------------------------------------------------------------------------

    def recall(self, request: Recall) -> Recollection:
        """Return the journal's record at a path, of an input, or of the run."""
        path = request.path
        if request.file:
            return Recollection(content=self.contents.read(request.file))
        with self._reading():
            if "/" in path and request.with_open_elections:
                return Recollection(open_elections=tuple(read_open_elections(self._rows, path)))
            if "/" in path:
                return Recollection(decision=self._decision(path))
            if not path:
                found = read_open_elections(self._rows) if request.with_open_elections else ()
                batches = tuple(self.batches()) if request.with_batches else ()
                there = bool(one(self._db, LAST_PLACE))
                ended = self.records.outcomes_of_inputs()
                return Recollection(has_records=there, ended=ended, open_elections=tuple(found), batches=batches)
            self.records.begin_work()  # a conductor asks for the checkpoint before it does anything else
            row = self.records.input(int(path))
            return Recollection(has_records=row.content > 0, checkpoint=checkpoint_of(row), ending=ending_of(row))

    def batches(self) -> Iterator[SampleBatch]:
        """Yield the batches whose lines may still be asked for."""
        for batch in read_batches(self._rows):
            if batch.state not in ("settled", "refused", "lost"):
                yield batch

    def _decision(self, path: str) -> Recalled | None:
        recorded = read_decision(self._rows, path)
        if recorded is None:
            return None
        found = msgspec.structs.replace(recorded, changed=self._found.is_changed)
        if found.outcome not in OPEN_OUTCOMES:
            return found
        person = self._persons.get(path)
        if person is None:
            return found
        return msgspec.structs.replace(found, outcome="person", value=person.value.encode())
