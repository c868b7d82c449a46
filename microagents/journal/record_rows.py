"""Rows of records: decisions, samples, replies, progress and totals that one commit writes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from microagents.base.errors import Unwritable
from microagents.journal.books import AccountRecord, Books
from microagents.journal.encoding import Places, decision_row, packed_text, sample_row
from microagents.journal.messages import (
    InputEnding,
    Record,
    RecordAnswer,
    RecordDecision,
    RecordProgress,
    RecordReply,
    RecordSample,
    RowRecord,
)
from microagents.journal.queries import began_s, check_totals, moment, read_checkpoint
from microagents.journal.requests import now
from microagents.journal.rows import Rows
from microagents.journal.statements import IF_MISSING, chunks, outcomes
from microagents.journal.tables import OPEN_CODES, UNDECIDED_CODE


class RecordRows:
    """Writes records as rows, in the transactions of its caller, and adds them to the books.

    It keeps the keys of sampled, open elections. The run took ``wall_s`` seconds before this sitting.
    """

    def __init__(self, rows: Rows, places: Places, books: Books, sampled: set[int], wall_s: float) -> None:
        self._rows = rows
        self._places = places
        self._books = books
        self._sampled = sampled
        self._began_s = began_s(rows)
        self._earlier_s = wall_s
        self._working_since_s: float | None = None
        """Time at which the work began, after the start of a Ray."""
        self.committed_at: str | None = None
        """Time of the last commit, in UTC, as the rows of its decisions have it; None before the first."""

    def begin_work(self) -> None:
        """Count the time of the sitting from the first call of this on."""
        self._working_since_s = self._working_since_s or time.monotonic()

    def write(self, records: Sequence[Record]) -> None:
        """Write records."""
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
                    replies.append(
                        (self._places.key(id_.election.path), id_.election.question_digest, id_.seq, *packed_text(text))
                    )
                case _:
                    self._books.add(record)
                    if isinstance(record, RecordProgress):
                        touched[record.input] = None
                    elif isinstance(record, RowRecord):
                        others.setdefault(record.table, []).append(record)
        paths = [*[sample.id.election.path for sample in samples], *[record.id.path for record in decided]]
        keys = {path: self._places.key(path) for path in dict.fromkeys(paths)}
        # One look-up for the whole batch. The first decision at a path counts, be it in the file or in this batch.
        known = self.outcomes(keys)
        undecided = [key for key, outcome in known.items() if outcome in OPEN_CODES]
        decisions = self._first_decisions(decided, keys, known, after_ms)
        self.committed_at = moment(self._began_s, after_ms)
        touched.update((record.id.input, None) for record in decided)
        rows = self._rows
        rows.insert("place", self._places.new)
        self._places.written()
        rows.replace(
            "decision", list(decisions.values()), [row[0] for row in decisions.values() if row[0] in undecided]
        )
        rows.insert("reply", replies, IF_MISSING)
        for table, given in others.items():
            replaced: dict[Any, tuple[object, ...]] = {row[0]: row for row in [each.row(now()) for each in given]}
            rows.replace(table, list(replaced.values()), list(replaced))
        # Last, since an election decided in this batch keeps none of its samples.
        self._write_samples(samples, keys, known, decisions)
        self._write_progress(touched)
        self.write_totals()
        for each in (*touched, *[record.input for record in records if isinstance(record, InputEnding)]):
            self._books.forget(each)

    def outcomes(self, keys: Mapping[str, int]) -> dict[int, int]:
        """Return the outcomes that the file already has for these keys."""
        found: dict[int, int] = {}
        for some in chunks(list(keys.values())):
            found.update(self._rows.db.execute(outcomes(some), some))
        return found

    def _first_decisions(
        self,
        decided: Sequence[RecordDecision | RecordAnswer],
        keys: Mapping[str, int],
        known: dict[int, int],
        after_ms: int,
    ) -> dict[str, tuple[Any, ...]]:
        """Rows of the decisions and answers, by path. Only the first record at a path counts; one without a decision may be replaced."""
        decisions: dict[str, tuple[Any, ...]] = {}
        for record in decided:
            path = record.id.path
            if known.get(keys[path], UNDECIDED_CODE) in OPEN_CODES:
                row = decisions[path] = decision_row(keys[path], record, after_ms)
                known[row[0]] = row[2]
                self._books.add(record)
        return decisions

    def _write_samples(
        self,
        samples: Sequence[RecordSample],
        keys: Mapping[str, int],
        known: Mapping[int, int],
        decisions: Mapping[str, tuple[Any, ...]],
    ) -> None:
        """Write samples of open elections. A verdict deletes the samples of its election: its row contains the counted ballots."""
        rows = []
        for sample in samples:
            path = sample.id.election.path
            if path not in decisions and known.get(keys[path], UNDECIDED_CODE) in OPEN_CODES:
                rows.append(sample_row(keys[path], sample.id.election.question_digest, sample.ballot))
        over = [row[0] for row in decisions.values() if row[0] in self._sampled]
        self._rows.delete("sample", over)
        self._sampled.difference_update(over)
        self._rows.insert("sample", rows, IF_MISSING)
        self._sampled.update(row[0] for row in rows)

    def _write_progress(self, touched: Iterable[int]) -> None:
        books, rows = self._books, []
        for of_input in touched:
            done, reached = books.progress(of_input), books.reached.get(of_input)
            if reached is None:  # the books forget it once the input has completed
                reached = read_checkpoint(self._rows, of_input)
            last = (
                (None, None, None)
                if reached is None
                else (reached.done, reached.state.decode(), reached.value.decode())
            )
            rows.append((of_input, *done, *last, *books.recorded_digests(of_input)))
        self._rows.replace("progress", rows, [row[0] for row in rows])

    def write_totals(self) -> None:
        """Write the totals of the books, and the time that the run has taken.

        Raises:
            Unwritable: no reader would take the totals.
        """
        totals = self._books.totals
        try:
            check_totals(totals)
        except ValueError as error:
            raise Unwritable("the account", str(error)) from None
        wall_s = self._earlier_s + (0.0 if self._working_since_s is None else time.monotonic() - self._working_since_s)
        self._rows.set_part(AccountRecord(totals=totals, wall_s=wall_s, saved_at=now()))
