"""Read access to a journal, also during the run. Reads use short transactions and never change the file."""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from microagents.base.errors import InputMismatch, InvalidUsage, JournalMismatch
from microagents.base.trust import JOURNALS
from microagents.elections.sample_batches import SampleBatch
from microagents.journal.books import AccountRecord, UndecidedElection
from microagents.journal.digests import in_order
from microagents.journal.encoding import MAX_DIGITS, MAX_TEXT_BYTES, UNREADABLE, key_at
from microagents.journal.ending import RunEnding
from microagents.journal.experiment import INPUTS, Change, Experiment, InputsDigest, RunRecord, options_of
from microagents.journal.lease import Lease, read_lease
from microagents.journal.messages import (
    Account,
    InputEnding,
    OpenElection,
    Recalled,
)
from microagents.journal.opening import connect_to_read, holds_nothing, unreadable
from microagents.journal.overview import (
    read_differences,
    read_equal_inputs,
    read_input_sums,
    read_inputs,
    read_overview,
    read_row_elections,
    read_rows_with,
    read_series,
)
from microagents.journal.queries import (
    Row,
    began_s,
    check_inputs,
    ending_of,
    first_record,
    moment,
    other_inputs,
    read_batches,
    read_decision,
    read_decisions,
    read_endings,
    read_experiment,
    read_open_elections,
    read_own_options,
    read_totals,
)
from microagents.journal.requests import PersonDecision, logged_changes, persons_in, taken_requests
from microagents.journal.rows import Rows
from microagents.journal.statements import BY_INPUT, OF_ID, OF_INPUT, OF_KEY_BY_SEQ, reading
from microagents.journal.tables import InputRow, LogRow, ReplyRow
from microagents.journal.verifying import damage, damaged_inputs, differences_from_rows

SUFFIX = ".sqlite"
MAX_CHECKED = 1 << 14
"""An overview of more steps is not compared with the digest of its input."""
SHOWN_CHARS = 200
"""Error messages cut longer options of an input."""


KeptText = tuple[str, bool]
"""The text of a reply that lost or was flagged, and whether the journal keeps only its beginning."""
OneInput = tuple[int, dict[str, Any], InputEnding | None]
"""The number of an input, its options, and how it ended; None if it has not."""


class Reader:
    """A journal opened for reading. As a context manager it answers for all that is read in its block.

    Raises:
        InvalidUsage: the file is not a journal, is damaged, or has another version; or values in it have another form than the code in the
            block expects of a run's, whichever code decodes them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = connect_to_read(path)
        except InvalidUsage:
            if os.path.isfile(path) and holds_nothing(path):
                raise InvalidUsage(
                    f"nothing is recorded in {str(path)!r}: its run was killed, or the disk was full, before the first record; "
                    f"begin it again with the command that began it, and --run-id {path.stem}"
                ) from None
            raise
        self._rows = Rows(self._db)
        self._sound: set[int | None] = set()
        """Inputs whose rows match their digests; None for all."""
        try:
            with self._reading():
                self.created_at = self._rows.only(RunRecord).created_at
                """Start time of the run, in UTC."""
                self.began_s = began_s(self._rows)  # a damaged time fails here, not in the caller
                self.experiment = read_experiment(self._rows)
                self._first_record = first_record(self._rows)
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()
        # Digests stop no forger, and most values are decoded by those who know their types.
        if isinstance(error, UNREADABLE):
            raise unreadable(self.path, f"{type(error).__name__}: {error}") from error

    @property
    def is_known(self) -> bool:
        """Whether this user has begun or continued the run here, or trusts its journal."""
        return JOURNALS.has(self.path, self._first_record)

    def trust(self) -> None:
        """Let the journal count as one of this user's from now on."""
        JOURNALS.add(self.path, self._first_record)

    def holding(self, path: str) -> Reader:  # noqa: ARG002 - one in shards needs it
        """Return the journal that has a place: itself, unless the run is in shards."""
        return self

    def journals(self) -> list[Path]:
        """Return the journals with the work: its own, or of its shards."""
        return [self.path]

    def shards(self) -> dict[str, str]:
        """Return the states of its shards by their names: as of an outcome, or ``not begun``; none of a run that is not in shards."""
        return {}

    def lease(self) -> Lease:
        """Return the lease of the writing process."""
        with self._reading():
            return read_lease(self._rows, self.path)

    def ending(self) -> RunEnding | None:
        """How the run ended; None while it is running, and after a crash."""
        with self._reading():
            ending = self._rows.part(RunEnding)
            if ending is not None and ending.result is not None:
                msgspec.json.decode(ending.result)  # a damaged result fails here, not in the caller
            return ending

    def changes_to(self, given: Experiment, own: Sequence[str], accepted: Sequence[str]) -> list[Change]:
        """Return the accepted differences from the recorded experiment.

        Args:
            given: the experiment of this call.
            own: per input, as JSON, the options that differ from the first input's.
            accepted: names of fields that may differ.

        Raises:
            JournalMismatch: a field differs that is not accepted.
        """
        try:
            return self.experiment.changes(given, accepted)
        except JournalMismatch as error:
            if error.args[0] != INPUTS:
                raise
            with self._reading():
                other = next(other_inputs(self._rows, self.experiment, given, own), None)
            raise error if other is None else InputMismatch(other[0], *_differing_options(*other[1:])) from None

    def own_options(self, of_input: int) -> str:
        """Return, as JSON, the options of one of many inputs that differ from the first one's."""
        return self._input(of_input).options

    def _input(self, number: int) -> InputRow:
        with self._reading():
            row = self._rows.first(InputRow, OF_INPUT, (number,))
        if row is None:
            raise IndexError(number)
        return row

    def options(self) -> Generator[dict[str, Any]]:
        """Yield the options of each input. The journal is read on while they are taken, so close it."""
        with self._reading():
            recipe = self.experiment.recipe
            if not self.experiment.listed:
                yield recipe.options
            else:
                digest = InputsDigest(recipe.options)
                yield from options_of(recipe.options, digest.adding(read_own_options(self._rows)))
                if str(digest) != self.experiment.identity.get(INPUTS):
                    raise ValueError("the options of its inputs differ from its experiment's")

    def overview(self, of_input: int, start: int = 0) -> bytes:
        """Return a byte for each step of an input from a number on, as `microagents.journal.overview` has them."""
        with self._reading():
            found = read_overview(self._rows, of_input, start)
            if not start and len(found) <= MAX_CHECKED:  # more would keep a viewer waiting for a second
                self._check(of_input)
            return found

    def series(self, points: int) -> list[tuple[float, int, int, float]]:
        """Return sums over equal parts of the time of the run, as `microagents.journal.overview` has them."""
        with self._reading():
            return read_series(self._rows, points)

    def inputs_overview(self) -> bytes:
        """Return a byte for each input, as `microagents.journal.overview` has them."""
        with self._reading():
            return read_inputs(self._rows, self.experiment.numbered)

    def input_sums(self) -> bytes:
        """Return the cost of each input, as `microagents.journal.overview` has it."""
        with self._reading():
            return read_input_sums(self._rows, self.experiment.numbered)

    def row_elections(self) -> Iterator[tuple[int, Recalled | None]]:
        """Yield the elections of the rows of a table, as `microagents.journal.overview` has them."""
        with self._reading():
            yield from read_row_elections(self._rows)

    def equal_inputs(self) -> list[tuple[int, int]]:
        """Return the inputs that took the result of an earlier one, each with the number of that."""
        with self._reading():
            return read_equal_inputs(self._rows)

    def rows_with(self, text: str) -> list[int]:
        """Return the inputs with a text in their row, their reply or their reason."""
        with self._reading():
            first = msgspec.json.encode(self.experiment.recipe.options.get("row"))
            return read_rows_with(self._rows, text, first.decode())

    def inputs(self, numbers: Sequence[int] | None = None) -> Generator[OneInput]:
        """Yield many inputs, all or those with some numbers. The journal is read on while they are taken, so close it."""
        with self._reading():
            check_inputs(self._rows)
            chosen = self._rows.select(InputRow, BY_INPUT) if numbers is None else map(self._input, numbers)
            for row in chosen:
                yield row.input, next(options_of(self.experiment.recipe.options, [row.options])), ending_of(row)

    def differences(self, other: Reader, of_input: int) -> Iterator[tuple[str, str | None, str | None]]:
        """Yield the paths at which another run decided otherwise, and both values as JSON; None for no decision."""
        theirs: Reader = other.holding(str(of_input))
        with self._reading(), theirs._reading():
            yield from read_differences(self._rows, theirs._rows, of_input)

    def interrupt(self) -> None:
        """End the query of another thread, if it has not ended."""
        with suppress(sqlite3.ProgrammingError):  # it is closed
            self._db.interrupt()

    def input_endings(self, *, unsolved: int | None = None) -> Iterator[InputEnding]:
        """Yield the endings of inputs, in the order of their numbers: all, or the first ones of inputs that did not complete."""
        with self._reading():
            yield from read_endings(self._rows, self.experiment.numbered, unsolved=unsolved)

    def input_ending(self, number: int) -> InputEnding | None:
        """Return how one of many inputs ended; None if it has not."""
        with self._reading():
            check_inputs(self._rows)
            return ending_of(self._input(number))

    def account(self, *, is_cut_off: bool = False) -> Account:
        """Return the account as of the last commit.

        Args:
            is_cut_off: whether the process of the run was killed. Its calls in flight are then lost.
        """
        with self._reading():
            totals = read_totals(self._rows)
            if is_cut_off and self.ending() is None:
                totals.lose_all()
            return totals.account_with(self.experiment.inputs)

    def wall_s(self) -> float:
        """Seconds that the run has taken so far, over all its sittings."""
        with self._reading():
            return self._rows.only(AccountRecord).wall_s

    def changes(self) -> list[tuple[str, str, str, str]]:
        """Changes accepted by ``--accept-change``: time, field, value before, value after."""
        with self._reading():
            return logged_changes(self._rows)

    def decisions(self, of_input: int | None = None) -> Iterator[Row]:
        """Every decision and answer, or those of one input, in the order of paths.

        They are compared with their digests first. Then each read takes `ROWS_PER_READ` rows, so a writer never waits long.
        """
        self._check(of_input)
        try:
            yield from read_decisions(self._rows, None if of_input is None else str(of_input))
        except UNREADABLE as error:
            raise unreadable(self.path, error) from None

    def _check(self, of_input: int | None) -> None:
        """Compare the rows of an input, or of all, with their digests, once.

        Raises:
            InvalidUsage: some are damaged.
        """
        with self._reading():
            if self._sound.isdisjoint([of_input, None]):
                for problem in damaged_inputs(self._rows, of_input):
                    raise ValueError(problem)
                self._sound.add(of_input)

    def _check_at(self, path: str | None) -> None:
        """Compare the rows of the input at a path with their digest, unless they are too many; of all inputs without a path."""
        if path is None:
            self._check(None)
            return
        number = path.partition("/")[0]
        if number.isdecimal() and len(number) < MAX_DIGITS:
            with self._reading():
                row = self._rows.first(InputRow, OF_INPUT, (int(number),))
            if row is None or row.done <= MAX_CHECKED:
                self._check(int(number))

    def decisions_below(self, path: str) -> list[Row]:
        """Return the decisions and answers below a path, in the order of paths, except the numbered ones directly below it.

        Below ``0/step`` these are the few at ``0/step/17/judge`` and the like, without the million steps.
        """
        self._check_at(path)
        with self._reading():
            return list(read_decisions(self._rows, path))

    def decision_at(self, path: str) -> Recalled | None:
        """Return the decision or the answer at a path; None if there is none."""
        self._check_at(path)
        with self._reading():
            return read_decision(self._rows, path)

    def open_elections(self, path: str | None = None) -> list[OpenElection]:
        """Return the elections without a verdict, or those at a path. After a guess there may be several, each with another question."""
        self._check_at(path)
        with self._reading():
            return read_open_elections(self._rows, path)

    def texts_at(self, path: str, question_digest: bytes) -> dict[int, KeptText]:
        """Return the texts of replies to a question at a path, as far as they are kept, by seq in launch order."""
        self._check_at(path)
        with self._reading():
            rows = self._rows.select(ReplyRow, OF_KEY_BY_SEQ, (key_at(self._db, path),))
            return {
                row.seq: (_unpacked_text(row.text), row.size >= MAX_TEXT_BYTES)
                for row in rows
                if row.fork == question_digest
            }

    def request_effect(self, request: str) -> tuple[bool, str | None]:
        """Whether the run has taken a request, and why it has no effect, if so."""
        with self._reading():
            row = self._rows.first(LogRow, OF_ID, (request,))
            return row is not None, None if row is None else row.refused

    def requests(self) -> list[LogRow]:
        """Return the requests that the run has taken, in their order."""
        with self._reading():
            return taken_requests(self._rows)

    def last_batches(self, number: int) -> list[SampleBatch]:
        """Return at most this number of batches of samples, the last ones, in their order."""
        with self._reading():
            return list(read_batches(self._rows, number))[::-1]

    def persons(self) -> dict[str, PersonDecision]:
        """Return the decisions of persons, by path."""
        with self._reading():
            return persons_in(self._rows)

    def moment(self, after_ms: int) -> str:
        """Return the time ``after_ms`` after the start of the run, in UTC."""
        with self._reading():
            return moment(self.began_s, after_ms)

    def ended_at(self, number: int) -> str | None:
        """Return the time at which an input ended, in UTC; None if it has not."""
        if self.experiment.listed:
            return self._input(number).ended_at
        ending = self.ending()
        if ending is None:
            return None
        return ending.ended_at

    def of_input(self, number: int) -> tuple[dict[str, Recalled], list[OpenElection]]:
        """Return the decisions of one input by path, and its open elections, from one state of the journal."""
        with self._reading():
            self._check(number)
            open_elections = [each for each in read_open_elections(self._rows) if each.id.input == number]
            return dict(read_decisions(self._rows, str(number))), open_elections

    def undecided(self) -> dict[str, UndecidedElection]:
        """Elections that are undecided and not settled, by path."""
        with self._reading():
            return read_totals(self._rows).waiting()

    def waiting(self) -> dict[str, UndecidedElection]:
        """Elections that wait for a person, and for which none has said anything for the next sitting, by path, in its order."""
        decided, undecided = self.persons(), self.undecided()
        return {path: undecided[path] for path in sorted(undecided, key=in_order) if path not in decided}

    def settled_at(self) -> dict[str, str]:
        """Return by path who or which model settled a decision that the vote left open."""
        with self._reading():
            return read_totals(self._rows).account.settled_at

    def verify(self) -> list[str]:
        """Compare every row with the recorded totals and digests; returns a sentence for each difference."""
        with self._reading():
            return self.damage() or list(differences_from_rows(self._rows, self.experiment, self.account()))

    def damage(self) -> list[str]:
        """Read every page and row of the file; returns a sentence for each damage."""
        with self._reading():
            return list(damage(self._rows))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Show one state of the journal to all reads inside, and translate errors of SQLite."""
        try:
            with reading(self._db):
                yield
        except UNREADABLE as error:
            raise unreadable(self.path, error) from None


def _unpacked_text(packed: bytes) -> str:
    """Return the text of a reply. A damaged row may hold more than was ever packed, so the length is bounded."""
    try:
        return zlib.decompressobj().decompress(packed, MAX_TEXT_BYTES).decode("utf-8", "replace")
    except zlib.error as error:
        raise ValueError(f"the text of a reply cannot be unpacked: {error}") from None


def _differing_options(before: dict[str, Any] | None, after: dict[str, Any] | None) -> tuple[str, str]:
    """Return the options that differ between two versions of an input, as short JSON."""
    names = [
        name
        for name in {**(before or {}), **(after or {})}
        if before is None or after is None or before.get(name) != after.get(name)
    ]
    shown = []
    for options in (before, after):
        if options is None:
            shown.append("nothing")
        else:
            differing = {name: options[name] for name in names if name in options}
            shown.append(msgspec.json.encode(differing).decode())
    return f"{shown[0]:.{SHOWN_CHARS}}", f"{shown[1]:.{SHOWN_CHARS}}"


def journal_of(runs_dir: Path, run_id: str) -> Path:
    """Path of the journal of a run.

    Raises:
        InvalidUsage: the run id is empty, begins with a dot, or contains a slash or a backslash.
    """
    if not run_id or run_id.startswith(".") or "/" in run_id or "\\" in run_id:
        raise InvalidUsage(
            f"{run_id!r} is not a valid run id: it may not begin with a dot or contain a slash; name the folder with --runs-dir"
        )
    return runs_dir / f"{run_id}{SUFFIX}"
