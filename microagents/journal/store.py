"""Write access to a journal: one process at a time commits records and looks up decisions.

All calls are synchronous; `writer.py` runs them in a thread. A commit is one transaction: it checks the lease, then writes records and
the account and progress that result from them. After a crash the journal has all of a commit or nothing of it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from microagents.errors import InvalidUsage, Stopped, TakenOver
from microagents.journal.books import COMPLETED, Books, Totals
from microagents.journal.creating import create_file, creation_error, on_network
from microagents.journal.encoding import UNREADABLE, Places, decision_row, key_at, packed_text, recalled, sample_row
from microagents.journal.experiment import INPUTS, Change, Experiment
from microagents.journal.lease import RENEW_EVERY_S, Holder, Lease, read_lease
from microagents.journal.messages import (
    Account,
    Checkpoint,
    InputEnding,
    OpenElection,
    Recalled,
    Record,
    RecordAnswer,
    RecordDecision,
    RecordProgress,
    RecordReply,
    RecordSample,
    RowRecord,
)
from microagents.journal.opening import connect, connect_to_read, holds_nothing, unreadable
from microagents.journal.queries import (
    began_s,
    damage,
    moment,
    other_inputs,
    read_books,
    read_checkpoint,
    read_endings,
    read_experiment,
    read_open_elections,
    with_digests,
)
from microagents.journal.requests import Inbox, LiveRequest, take_effect
from microagents.journal.rows import Rows, chunks
from microagents.journal.tables import OUTCOMES, UNDECIDED_CODE, VERSION, create_tables
from microagents.packages import installed_version

INPUTS_PER_INSERT = 5000


class _Found(Struct, frozen=True, kw_only=True):
    """What a journal holds when it is opened."""

    epoch: int
    books: Books
    changes: list[Change]
    changed_inputs: list[int]
    """Numbers of the inputs that are new, or whose options changed by ``--accept-change inputs``."""
    is_changed: bool
    """Whether ``--accept-change`` altered the run, now or before."""
    sampled: set[int]
    """Keys of open elections."""
    wall_s: float


class Store:
    """A journal opened for writing.

    Args:
        path: path of the file. A missing file is created.
        experiment: the experiment of this run.
        own: per input, as JSON, the options that differ from those of the first input.
        accepted: names of fields of the experiment that may differ from the recorded ones.
        full: whether a commit waits for the disk. Otherwise a power cut may lose the last commits.

    Raises:
        JournalMismatch: the journal belongs to another experiment.
        InvalidUsage: the journal cannot be read, or another process writes it.
        Stopped: the journal cannot be written.
    """

    def __init__(
        self, path: Path, experiment: Experiment, *, own: Sequence[str] = (), accepted: Sequence[str] = (), full: bool = True
    ) -> None:
        self.path = path
        self._own = own
        self._run_id = experiment.run_id
        self._holder = Holder.here()
        self._epoch = 0
        self._renewed_s = time.monotonic()
        self._working_since_s: float | None = None
        """Time at which the work began, after the start of a Ray."""
        self.is_new = holds_nothing(path)
        self.committed_at: str | None = None
        """Time of the last commit, in UTC, as the rows of its decisions have it; None in journals of versions before 4."""
        # All of a journal is read and checked through a connection that changes no byte, before this one writes the lease.
        found = None if self.is_new else self._read_before_writing(experiment, accepted)
        self._db = create_file(path) if self.is_new else connect(path)
        try:
            with self._translating_errors():
                self._prepare(full=full)
                if self.is_new:
                    self._create_tables(experiment)
                self._rows = Rows(self._db)
                self._take_lease(None if found is None else found.epoch)
                if found is None:
                    found = self._read(self._rows, experiment, accepted)
                self.books, self._changed_inputs, self._wall_s = found.books, found.changed_inputs, found.wall_s
                self._sampled, self._changed = found.sampled, found.is_changed
                self._pending_start: tuple[Experiment, list[Change]] | None = experiment, found.changes
                self._began_s = began_s(self._rows)
                self._rows.sums = self.books.totals.checksums
                self._places = Places(self._db)
                self._inbox: Inbox | None = None  # a journal of an earlier version has no table for requests
                if self._rows.version == VERSION:
                    self._inbox = Inbox(path, {row[0] for row in self._rows.select("request")})
                self.books.lose_all()
                for each in self._changed_inputs:
                    self.books.end_input(each, None)
        except BaseException:
            if self._epoch:  # this process took the lease
                self._release_lease()
            self._db.close()
            raise

    # -- opening ----------------------------------------------------------------------------------------------------------------------

    def _read_before_writing(self, experiment: Experiment, accepted: Sequence[str]) -> _Found:
        """Raise every refusal before a byte is written."""
        with closing(connect_to_read(self.path)) as db, self._translating_errors():
            rows = Rows(db)
            self._refuse_if_leased(read_lease(rows))
            found = self._read(rows, experiment, accepted)
            if (problem := next(damage(rows), None)) is not None:
                raise unreadable(self.path, problem)
            read_open_elections(rows)  # what is wrong with them must be found now
            return found

    def _read(self, rows: Rows, experiment: Experiment, accepted: Sequence[str]) -> _Found:
        recorded = read_experiment(rows)
        changes = recorded.changes(experiment, accepted)
        others = other_inputs(rows, recorded, experiment, self._own) if INPUTS in [field for field, _, _ in changes] else ()
        return _Found(
            epoch=read_lease(rows).epoch,
            books=read_books(rows, experiment.inputs, in_order=experiment.in_order),
            changes=changes,
            changed_inputs=[number for number, _, _ in others],
            is_changed=bool(changes) or rows.first("change") is not None,
            sampled={key for (key,) in rows.db.execute("SELECT DISTINCT key FROM sample")},
            wall_s=float(rows.only("account")[1]),
        )

    def _prepare(self, *, full: bool) -> None:
        # Readers and writers of a write-ahead log share memory, which processes on two machines cannot.
        self._db.execute(f"PRAGMA journal_mode = {'TRUNCATE' if on_network(self.path) else 'WAL'}")
        self._db.execute("PRAGMA wal_autocheckpoint = 4000")  # in pages; a checkpoint writes every changed page a second time
        self._db.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")

    def _create_tables(self, experiment: Experiment) -> None:
        now = _now()
        self._db.execute("BEGIN IMMEDIATE")
        if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:  # another process created the tables first
            self._db.execute("ROLLBACK")
            self.is_new = False
            return
        create_tables(self._db)
        totals = Totals()
        rows = Rows(self._db, totals.checksums)
        rows.insert("run", [(experiment.run_id, installed_version(), now, _json(experiment))])
        self._insert_inputs(rows)
        rows.insert("lease", [(0, None, 0.0)])
        rows.insert("account", [(_json(totals), 0.0, now)])
        self._db.execute("COMMIT")

    def _insert_inputs(self, rows: Rows) -> None:
        numbered = enumerate(self._own)
        while some := list(islice(numbered, INPUTS_PER_INSERT)):  # there may be a million
            rows.insert("input", some)

    def _refuse_if_leased(self, lease: Lease, epoch: int | None = None) -> None:
        if not lease.may_be_taken:
            raise InvalidUsage(
                f"run {self._run_id} is being run by {_describe(lease.holder)}, last active {lease.age_s:.0f} s ago; nothing was changed; "
                f"watch it with `microagents show {self._run_id}`, or wait until it has ended"
            )
        if epoch not in (None, lease.epoch):
            raise InvalidUsage(f"run {self._run_id} was written by another process at the same time; nothing was changed; try again")

    def _take_lease(self, epoch: int | None) -> None:
        """Take the lease, unless another process holds it, or took it after the ``epoch`` that this one read."""
        # Check and update in one transaction: of two processes that start at once, the second sees the epoch of the first.
        self._db.execute("BEGIN IMMEDIATE")
        lease = read_lease(self._rows)
        try:
            self._refuse_if_leased(lease, epoch)
        except InvalidUsage:
            self._db.execute("ROLLBACK")
            raise
        self._epoch = lease.epoch + 1
        self._write_lease(self._holder)
        self._db.execute("COMMIT")

    def _write_lease(self, holder: Holder | None) -> None:
        self._rows.set_only("lease", (self._epoch, None if holder is None else _json(holder), time.time()))
        self._renewed_s = time.monotonic()

    def _record_start(self) -> None:
        """Write the accepted changes with the first commit of a sitting: a run refused before that commit changes nothing."""
        if self._pending_start is None:
            return
        experiment, changes = self._pending_start
        rows = self._rows
        rows.insert("change", [(_now(), *change) for change in changes])
        rows.set_only("run", (*rows.only("run")[:3], _json(experiment)))
        if self._changed_inputs:
            rows.delete_all("input")
            self._insert_inputs(rows)
            rows.delete("input_ending", self._changed_inputs)
        self._db.execute("DELETE FROM ending")
        self._pending_start = None

    # -- writing ----------------------------------------------------------------------------------------------------------------------

    def commit(self, records: Sequence[Record]) -> Account:
        """Write records durably.

        Returns:
            The account, with these records.

        Raises:
            Stopped: the journal cannot be written. None of these records is in it.
            TakenOver: another process has taken the lease.
        """
        with self._translating_errors(), self._transaction():
            self._record_start()
            self._write(records)
            return self.books.account()

    # -- requests of other processes --------------------------------------------------------------------------------------------------

    @property
    def has_requests(self) -> bool:
        """Whether other processes may have made requests since they were last read."""
        return self._inbox is not None and self._inbox.has_changed

    def new_requests(self) -> list[LiveRequest]:
        """The requests of other processes that are not recorded yet."""
        return [] if self._inbox is None else self._inbox.new()

    def take_request(self, request: LiveRequest) -> str | None:
        """Record a request with its effect; returns why it has none, or None."""
        assert self._inbox is not None
        with self._translating_errors(), self._transaction():
            self._record_start()
            refused = take_effect(self._rows, request)
        self._inbox.known.add(request.id)
        return refused

    def decisions_on_open_elections(self) -> dict[str, bytes]:
        """Decisions of persons on elections without a verdict, by path."""
        with self._translating_errors():
            decided = {path: value.encode() for path, value, _, _ in self._rows.select("person")}
            keys = {path: key for path in decided if (key := key_at(self._db, path)) is not None}
            known = self._recorded_outcomes(keys)
            return {path: value for path, value in decided.items() if keys.get(path) not in known}

    # -- the account and the end ------------------------------------------------------------------------------------------------------

    def account_with_digests(self) -> Account:
        """The account of all committed records, with the digests."""
        with self._translating_errors():
            return with_digests(self._rows, self.books)

    def renew(self) -> None:
        """Renew the lease, unless a commit did so recently."""
        if time.monotonic() >= self._renewed_s + RENEW_EVERY_S:
            with self._translating_errors(), self._transaction():
                pass  # the transaction itself renews the lease

    def end(self, outcome: str, reason: str | None, result: bytes | None) -> None:
        """Record the ending of this sitting of the run.

        Args:
            outcome: a `RunOutcome`.
            reason: why it did not complete, in one sentence.
            result: the result, as JSON.
        """
        account = self.account_with_digests()
        text = None if result is None else result.decode()
        row = (outcome, reason, text, account.decisions_sha256, account.ballots_sha256, _now())
        with self._translating_errors(), self._transaction():
            self._record_start()
            self._db.execute("DELETE FROM ending")
            self._rows.insert("ending", [row])
            self._write_progress(())

    def close(self, *, forget: bool = False) -> None:
        """Release the lease and close the file.

        Args:
            forget: whether to delete a journal that this process created, because the run never started.
        """
        was_ours = self._release_lease()
        # Leaving WAL mode merges the log into the file, so that one file can be copied. It fails, at once, while a reader is connected.
        with suppress(sqlite3.Error):
            self._db.execute("PRAGMA busy_timeout = 0")
            self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()
        if forget and self.is_new and was_ours:
            self.path.unlink(missing_ok=True)

    def _release_lease(self) -> bool:
        """Release the lease; False if another process has taken it, or if the file cannot be written."""
        try:
            with self._transaction():
                self._write_lease(None)
        except (sqlite3.Error, TakenOver):
            return False
        return True

    def _write(self, records: Sequence[Record]) -> None:
        samples: list[RecordSample] = []
        decided: list[RecordDecision | RecordAnswer] = []
        replies: list[tuple[object, ...]] = []
        touched: dict[int, None] = {}
        others: dict[str, list[RowRecord]] = {}
        after_ms = max(0, round((time.time() - self._began_s) * 1000))
        for record in records:
            match record:
                case RecordSample():
                    samples.append(record)
                case RecordDecision() | RecordAnswer():
                    decided.append(record)
                case RecordReply(id=id_, text=text):
                    replies.append((self._places.key(id_.election.path), id_.election.question_digest, id_.seq, *packed_text(text)))
                case _:
                    self.books.add(record)
                    if isinstance(record, RecordProgress):
                        touched[record.input] = None
                    elif isinstance(record, RowRecord):
                        others.setdefault(record.table, []).append(record)
        paths = [*[sample.id.election.path for sample in samples], *[record.id.path for record in decided]]
        keys = {path: self._places.key(path) for path in dict.fromkeys(paths)}
        # One look-up for the whole batch. The first decision at a path counts, be it in the file or in this batch.
        known = self._recorded_outcomes(keys)
        undecided = [key for key, outcome in known.items() if outcome == UNDECIDED_CODE]
        decisions = self._first_decisions(decided, keys, known, after_ms)
        self.committed_at = moment(self._began_s, after_ms if self._rows.version == VERSION else None)
        touched.update((record.id.input, None) for record in decided)
        rows = self._rows
        rows.insert("place", self._places.new)
        self._places.written()
        rows.replace("decision", list(decisions.values()), [row[0] for row in decisions.values() if row[0] in undecided])
        rows.insert("reply", replies, "INSERT OR IGNORE")
        for table, given in others.items():
            replaced: dict[Any, tuple[object, ...]] = {row[0]: row for row in [each.row(_now()) for each in given]}
            rows.replace(table, list(replaced.values()), list(replaced))
        # Last, since an election decided in this batch keeps none of its samples.
        self._write_samples(samples, keys, known, decisions)
        self._write_progress(touched)
        for each in (*touched, *[record.input for record in records if isinstance(record, InputEnding)]):
            self.books.forget(each)

    def _first_decisions(
        self, decided: Sequence[RecordDecision | RecordAnswer], keys: Mapping[str, int], known: dict[int, int], after_ms: int
    ) -> dict[str, tuple[Any, ...]]:
        """Rows of the decisions and answers, by path. Only the first record at a path counts; an undecided row may be replaced."""
        decisions: dict[str, tuple[Any, ...]] = {}
        for record in decided:
            path = record.id.path
            if known.get(keys[path], UNDECIDED_CODE) == UNDECIDED_CODE:
                row = decisions[path] = decision_row(keys[path], record, after_ms)
                known[row[0]] = row[2]
                self.books.add(record)
        return decisions

    def _recorded_outcomes(self, keys: Mapping[str, int]) -> dict[int, int]:
        """The outcomes that the file already has for these keys."""
        found: dict[int, int] = {}
        for some in chunks(list(keys.values())):
            found.update(self._db.execute(f"SELECT key, outcome FROM decision WHERE key IN ({','.join('?' * len(some))})", some))
        return found

    def _write_samples(
        self, samples: Sequence[RecordSample], keys: Mapping[str, int], known: Mapping[int, int], decisions: Mapping[str, tuple[Any, ...]]
    ) -> None:
        """Write samples of open elections. A verdict deletes the samples of its election: its row contains the counted ballots."""
        rows = []
        for sample in samples:
            path = sample.id.election.path
            if path not in decisions and known.get(keys[path], UNDECIDED_CODE) == UNDECIDED_CODE:
                rows.append(sample_row(keys[path], sample.id.election.question_digest, sample.ballot))
        over = [row[0] for row in decisions.values() if row[0] in self._sampled]
        self._rows.delete("sample", over)
        self._sampled.difference_update(over)
        self._rows.insert("sample", rows, "INSERT OR IGNORE")
        self._sampled.update(row[0] for row in rows)

    def _write_progress(self, touched: Iterable[int]) -> None:
        books, rows = self.books, []
        for of_input in touched:
            done, reached = books.progress(of_input), books.reached.get(of_input)
            if reached is None and (done[0] or books.ended[of_input] == COMPLETED):  # it is forgotten once the input has completed
                reached = read_checkpoint(self._rows, of_input)
            last = (None, None, None) if reached is None else (reached.done, reached.state.decode(), reached.value.decode())
            rows.append((of_input, *done, *last, *books.recorded_digests(of_input)))
        self._rows.replace("progress", rows, [row[0] for row in rows])
        wall_s = self._wall_s + (0.0 if self._working_since_s is None else time.monotonic() - self._working_since_s)
        self._rows.set_only("account", (_json(books.totals), wall_s, _now()))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run the body in one transaction, and renew the lease where it is due.

        Raises:
            TakenOver: another process has taken the lease. Nothing is written.
        """
        self._db.execute("BEGIN IMMEDIATE")
        try:
            # A process that was suspended for longer than STALE_AFTER_S may have lost the lease without noticing.
            lease = read_lease(self._rows)
            if lease.epoch != self._epoch:
                raise TakenOver(self._run_id, _describe(lease.holder))  # noqa: TRY301 - the handler below rolls back
            yield
            if time.monotonic() >= self._renewed_s + RENEW_EVERY_S:
                self._write_lease(self._holder)
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        """Translate errors of SQLite, of the disk and of damaged rows.

        Raises:
            Stopped: the journal cannot be written.
            InvalidUsage: the journal is damaged.
        """
        try:
            yield
        except sqlite3.OperationalError as error:
            if self.is_new and not self._epoch:
                raise creation_error(self.path, error) from None
            raise Stopped(
                f"the journal {str(self.path)!r} cannot be written: {error}; everything in it is kept; make it writable again, then "
                f"resume run {self._run_id}"
            ) from None
        except UNREADABLE as error:
            raise unreadable(self.path, error) from None

    # -- reading ----------------------------------------------------------------------------------------------------------------------

    def recall(self, path: str) -> Recalled | None:
        """The decision or the answer at a path; where a vote ended undecided, the decision of a person, if there is one."""
        with self._translating_errors():
            row = self._rows.first("decision", "WHERE key = ?", (self._places.key(path),))
            if row is None:
                return None
            found = msgspec.structs.replace(recalled(row), changed=self._changed)
            if found.outcome != OUTCOMES[UNDECIDED_CODE]:
                return found
            person = self._rows.first("person", "WHERE path = ?", (path,))
        return found if person is None else msgspec.structs.replace(found, outcome="person", value=person[1].encode())

    def has_records(self, of_input: int | None) -> bool:
        """Whether the journal has records of an input, or with None of any."""
        with self._translating_errors():
            return self._places.any_of(of_input)

    def failed_inputs(self) -> list[InputEnding]:
        """The endings of inputs that failed or ended undecided."""
        with self._translating_errors():
            return [ended for ended in read_endings(self._rows, self.books.inputs) if ended.outcome != "completed"]

    def checkpoint(self, of_input: int) -> Checkpoint | None:
        """The last decided step of an input; None before the first, and in work that cannot resume after a step."""
        self._working_since_s = self._working_since_s or time.monotonic()  # the work begins with this question
        with self._translating_errors():
            return self.books.reached.get(of_input) or read_checkpoint(self._rows, of_input)

    def open_elections(self) -> list[OpenElection]:
        """Elections without a verdict, with their paid samples."""
        with self._translating_errors():
            return read_open_elections(self._rows)


def _describe(holder: Holder | None) -> str:
    return "another process" if holder is None else f"process {holder.pid} on {holder.host}"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
