"""Rows of records: decisions, samples, replies, inputs and totals that one commit writes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import copy

from microagents.base.errors import Unwritable
from microagents.elections.election import OPEN_OUTCOMES, input_of
from microagents.elections.sample_batches import SampleBatch
from microagents.journal.books import AccountRecord, Books
from microagents.journal.encoding import Places, decision_row, reply_row, sample_row
from microagents.journal.messages import (
    ENDED_AS,
    InputEnding,
    RecordDecision,
    RecordFile,
    RecordProgress,
    RecordReply,
    RecordSample,
    Written,
)
from microagents.journal.queries import batch_row, began_s, check_totals, moment, read_batch
from microagents.journal.requests import now
from microagents.journal.rows import Rows, checksum, file_row
from microagents.journal.statements import ENDED_INPUTS, OF_INPUT, OR_INSTEAD, among, chunks, outcomes, replies_among
from microagents.journal.tables import OPEN_CODES, UNDECIDED_CODE, DecidedRow, InputRow, SampleRow, TableRow

MAX_TOTAL = (1 << 63) - 1
"""SQLite takes no larger number."""
Samples = dict[int, dict[tuple[bytes, int], int]]
"""Checksums of the samples of open elections, by the key of the place, then by the fork and the seq."""


class RecordRows:
    """Writes records as rows, in the transactions of its caller, and adds them to the books.

    The run took ``wall_s`` seconds before this sitting; its inputs have numbers below ``numbered``.
    """

    def __init__(self, rows: Rows, places: Places, books: Books, wall_s: float, numbered: int) -> None:
        self._rows = rows
        self._places = places
        self._books = books
        self._numbered = numbered
        # Rows that are to be deleted are not read for their checksums: after each row this thread may wait 5 ms for the interpreter.
        self._samples: Samples = {}
        for row in rows.select(SampleRow):
            self._samples.setdefault(row.key, {})[row.fork, row.seq] = checksum(row)
        self._inputs: dict[int, InputRow] = {}
        """Rows of changed inputs that have not ended, as the next commit writes them."""
        self._before: dict[int, InputRow] = {}
        """Rows of the inputs that changed since the last commit, as they are in the file."""
        self._began_s = began_s(rows)
        self._earlier_s = wall_s
        self._working_since_s: float | None = None
        """Time at which the work began, after the start of a Ray."""
        self.committed_at: str | None = None
        """Time of the last commit, in UTC, as the rows of its decisions have it; None before the first."""

    def begin_work(self) -> None:
        """Count the time of the sitting from the first call of this on."""
        self._working_since_s = self._working_since_s or time.monotonic()

    # -- inputs -----------------------------------------------------------------------------------------------------------------------

    def input(self, number: int) -> InputRow:
        """Return the row of an input; an empty one if it is new."""
        found = self._inputs.get(number)
        if found is None:
            found = self._rows.first(InputRow, OF_INPUT, (number,))
        if found is None:
            return InputRow(input=number)
        return found

    def outcomes_of_inputs(self) -> bytes:
        """Return the codes of the outcomes of all inputs."""
        found = bytearray(self._numbered)
        for number, outcome in self._rows.db.execute(ENDED_INPUTS):
            found[number] = ENDED_AS.index(outcome)
        for number, row in self._inputs.items():
            found[number] = ENDED_AS.index(row.outcome)
        return bytes(found)

    def reopen(self, number: int, options: str) -> None:
        """Give an input other options, with the next commit. It has not ended then."""
        row = self._changing(number)
        row.options = options
        row.outcome = row.reason = row.same_as = row.result = row.ended_at = None
        row.traceback = ""

    def _changing(self, number: int) -> InputRow:
        """Return the row of an input that the next commit writes."""
        row = self.input(number)
        if number not in self._before:
            self._before[number] = copy(row)
            self._inputs[number] = row
        return row

    def _end_input(self, record: InputEnding) -> None:
        row = self._changing(record.input)
        if record.same_as is not None and row.outcome != "completed":
            self._books.totals.account.shared += 1
        row.outcome, row.reason, row.traceback = record.outcome, record.reason, record.traceback
        row.same_as, row.result = record.same_as, record.result
        row.ended_at = now()

    def _take_step(self, record: RecordDecision) -> None:
        """Note that a decision ends a step of its input."""
        verdict = record.verdict
        if record.done is None or verdict.winner is None or verdict.outcome in OPEN_OUTCOMES:
            return
        row = self._changing(record.id.input)
        row.done = max(row.done, record.done)
        row.reached, row.state, row.value = record.done, record.state.decode(), verdict.winner.decode()

    # -- records ----------------------------------------------------------------------------------------------------------------------

    def write(self, records: Sequence[Written]) -> None:
        """Write records."""
        samples: list[RecordSample] = []
        decided: list[RecordDecision] = []
        replies: list[RecordReply] = []
        after_ms = max(0, round((time.time() - self._began_s) * 1000))
        for record in records:
            match record:
                case RecordSample():
                    samples.append(record)
                case RecordDecision():
                    decided.append(record)
                case RecordReply():
                    replies.append(record)
                case RecordFile():
                    self._rows.insert([file_row(record.file)], OR_INSTEAD)
                case RecordProgress():
                    row = self._changing(record.input)
                    row.done = max(row.done, record.done)
                    row.total = None if record.total is None else min(record.total, MAX_TOTAL)
                case InputEnding():
                    self._end_input(record)
                case SampleBatch():
                    self._write_batch(record)
                case _:
                    self._books.add(record)
        paths = [sample.id.election.path for sample in samples]
        paths += [record.id.path for record in decided]
        keys = {path: self._places.key(path) for path in dict.fromkeys(paths)}
        # One look-up for the whole batch. The first decision at a path counts, be it in the file or in this batch.
        known = self.outcomes(keys)
        undecided = {key for key, outcome in known.items() if outcome in OPEN_CODES}
        decisions = self._first_decisions(decided, keys, known, after_ms)
        self.committed_at = moment(self._began_s, after_ms)
        self._take_out([(input_of(path), row.key) for path, row in decisions.items() if row.key in undecided])
        self._insert([(input_of(path), row) for path, row in decisions.items()], OR_INSTEAD)
        self._write_replies(replies)
        # Last, since an election decided in this batch keeps none of its samples.
        self._write_samples(samples, keys, known, decisions)
        self._insert([(input_of(row.path), row) for row in self._places.new])
        self._places.written()
        self.write_books()

    def outcomes(self, keys: Mapping[str, int]) -> dict[int, int]:
        """Return the outcomes that the file already has for these keys."""
        found: dict[int, int] = {}
        for some in chunks(list(keys.values())):
            found.update(self._rows.db.execute(outcomes(some), some))
        return found

    def _insert(self, rows: Sequence[tuple[int, TableRow]], verb: str = "INSERT") -> None:
        """Insert rows at places of these inputs."""
        self._rows.insert([row for _, row in rows], verb)
        for of_input, row in rows:
            self._changing(of_input).content += checksum(row)

    def _take_out(self, there: Sequence[tuple[int, int]]) -> None:
        """Take the decisions of these inputs, with these keys, out of their sums: they are replaced."""
        inputs = {key: of_input for of_input, key in there}
        for some in chunks(list(inputs)):
            for row in self._rows.select(DecidedRow, among(some), some):
                self._changing(inputs[row.key]).content -= checksum(row)

    def _first_decisions(
        self,
        decided: Sequence[RecordDecision],
        keys: Mapping[str, int],
        known: dict[int, int],
        after_ms: int,
    ) -> dict[str, DecidedRow]:
        """Rows of the decisions and answers, by path. Only the first record at a path counts; one without a decision may be replaced."""
        decisions: dict[str, DecidedRow] = {}
        for record in decided:
            path = record.id.path
            if known.get(keys[path], UNDECIDED_CODE) in OPEN_CODES:
                row = decisions[path] = decision_row(keys[path], record, after_ms)
                known[row.key] = row.outcome
                self._books.add(record)
                self._take_step(record)
        return decisions

    def _write_batch(self, batch: SampleBatch) -> None:
        account = self._books.totals.account
        account.batches = account.batches.changed(read_batch(self._rows, batch.number), batch)
        self._rows.insert([batch_row(batch)], OR_INSTEAD)

    def _write_replies(self, replies: Sequence[RecordReply]) -> None:
        """Write the texts of replies that are not there yet: a message may arrive twice."""
        new: dict[tuple[int, bytes, int], tuple[int, TableRow]] = {}
        for record in replies:
            path = record.id.election.path
            row = reply_row(self._places.key(path), record)
            new.setdefault((row.key, row.fork, row.seq), (input_of(path), row))
        for some in chunks(list(new)):
            given = [value for each in some for value in each]
            for each in self._rows.db.execute(replies_among(some), given).fetchall():
                del new[each]
        self._insert(list(new.values()))

    def _write_samples(
        self,
        samples: Sequence[RecordSample],
        keys: Mapping[str, int],
        known: Mapping[int, int],
        decisions: Mapping[str, DecidedRow],
    ) -> None:
        """Write samples of open elections. A verdict deletes the samples of its election: its row contains the counted ballots."""
        over = [(input_of(path), row.key) for path, row in decisions.items() if row.key in self._samples]
        self._rows.delete(SampleRow, [key for _, key in over])
        for of_input, key in over:
            self._changing(of_input).content -= sum(self._samples.pop(key).values())
        new = []
        for sample in samples:
            path = sample.id.election.path
            if path in decisions or known.get(keys[path], UNDECIDED_CODE) not in OPEN_CODES:
                continue
            row, there = sample_row(keys[path], sample), self._samples.setdefault(keys[path], {})
            if (row.fork, row.seq) not in there:
                there[row.fork, row.seq] = checksum(row)
                new.append((sample.id.election.input, row))
        self._insert(new)

    def write_books(self) -> None:
        """Write the inputs that have changed, the totals of the books, and the time that the run has taken.

        Raises:
            Unwritable: no reader would take the totals.
        """
        totals = self._books.totals
        changed = [self._inputs[number] for number in self._before]
        self._rows.insert(changed, OR_INSTEAD)
        for before, row in zip(self._before.values(), changed, strict=True):
            totals.count(before, -1)
            totals.count(row, 1)
            if row.outcome is not None:
                del self._inputs[row.input]
        self._before.clear()
        try:
            check_totals(totals)
        except ValueError as error:
            raise Unwritable("the account", str(error)) from None
        wall_s = self._earlier_s + (0.0 if self._working_since_s is None else time.monotonic() - self._working_since_s)
        self._rows.set_part(AccountRecord(totals=totals, wall_s=wall_s, saved_at=now()))
