"""Read access to a journal, also during the run. Reads use short transactions and never change the file."""

from __future__ import annotations

import shlex
import zlib
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from heapq import merge
from itertools import groupby, zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import Struct, structs

from microagents.elections.election import Ballot, ElectionId, Flagged, Rejected, Rejection, input_of
from microagents.errors import InputMismatch, InvalidUsage, JournalMismatch
from microagents.journal.books import Books, Totals, UndecidedElection, is_vote
from microagents.journal.digests import in_order
from microagents.journal.experiment import INPUTS, Change, Experiment, options_of
from microagents.journal.lease import Lease, read_lease
from microagents.journal.messages import (
    NO_DECISION,
    Account,
    Checkpoint,
    InputEnding,
    InputOutcome,
    OpenElection,
    Recalled,
    RunOutcome,
    reason_and_traceback,
)
from microagents.journal.opening import connect_to_read, unreadable
from microagents.journal.rows import Rows
from microagents.journal.schema import (
    MAX_TEXT_BYTES,
    ONCE_CODE,
    OUTCOMES,
    REJECTED_SEQ,
    UNDECIDED_CODE,
    UNREADABLE,
    joined,
    key_at,
    key_range,
    path_range,
    place_of,
    read_ballot,
    recalled,
)

SUFFIX = ".sqlite"
ROWS_PER_READ = 2000
SHOWN_CHARS = 200
"""Error messages cut longer options of an input."""

Row = tuple[str, Recalled]
"""The path of a decision or an answer, and its content."""


class Ending(Struct, frozen=True, kw_only=True):
    """How the last sitting of a run ended."""

    outcome: RunOutcome
    reason: str | None
    result: str | None
    """The result, as JSON."""
    decisions_sha256: str
    ballots_sha256: str
    ended_at: str
    traceback: str = ""
    """Where a user's code raised; empty where it did not."""


class KeptText(Struct, frozen=True, kw_only=True):
    """The text of a reply that lost or was flagged."""

    question_digest: bytes
    seq: int
    text: str
    is_cut: bool
    """Whether the journal keeps only the beginning."""


class PersonDecision(Struct, frozen=True, kw_only=True):
    """Who decided an undecided election, and when."""

    who: str
    at: str


class Reader:
    """A journal opened for reading.

    Raises:
        InvalidUsage: the file is not a journal, is damaged, or has another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = connect_to_read(path)
        self._rows = Rows(self._db)
        try:
            with self._reading():
                _, _, self.created_at, _ = self._rows.only("run")
                """Start time of the run, in UTC."""
                datetime.fromisoformat(self.created_at)  # a damaged time fails here, not in the caller
                self.experiment = read_experiment(self._rows)
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._db.close()

    def lease(self) -> Lease:
        """The lease of the writing process."""
        with self._reading():
            return read_lease(self._rows)

    def ending(self) -> Ending | None:
        """How the run ended; None while it is running, and after a crash."""
        with self._reading():
            row = self._rows.first("ending")
            if row is None:
                return None
            ending = msgspec.convert(dict(zip(Ending.__struct_fields__, row, strict=False)), Ending)
            reason, traceback = reason_and_traceback(ending.reason)
            ending = structs.replace(ending, reason=reason, traceback=traceback)
            if ending.result is not None:
                msgspec.json.decode(ending.result)  # a damaged result fails here, not in the caller
            return ending

    def changes_to(self, given: Experiment, own: Sequence[str], accepted: Sequence[str]) -> list[Change]:
        """The accepted differences from the recorded experiment.

        Args:
            given: the experiment of this call.
            own: per input, as JSON, the options that differ from those of the first input.
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

    def options(self) -> Generator[dict[str, Any]]:
        """The options of each input. The journal is read on while they are taken, so close it."""
        with self._reading():
            recipe = self.experiment.recipe
            if not self.experiment.listed:
                yield recipe.options
            else:
                yield from options_of(recipe.options, read_own_options(self._rows))

    def input_endings(self) -> Iterator[InputEnding]:
        """The endings of inputs, in the order of their numbers."""
        with self._reading():
            yield from read_endings(self._rows, self.experiment.inputs)

    def account(self, *, is_cut_off: bool = False) -> Account:
        """The account as of the last commit, with the digests of decisions and ballots.

        Args:
            is_cut_off: whether the process of the run was killed. Its calls in flight are then lost.
        """
        with self._reading():
            ending = self.ending()
            if ending is None:
                books = self._books(of_decisions=True)
                if is_cut_off:
                    books.lose_all()
                return with_digests(self._rows, books)
            account = self._books(of_decisions=False).account()
        return structs.replace(account, decisions_sha256=ending.decisions_sha256, ballots_sha256=ending.ballots_sha256)

    def wall_s(self) -> float:
        """Seconds that the run has taken so far, over all its sittings."""
        with self._reading():
            return float(self._rows.only("account")[1])

    def changes(self) -> list[tuple[str, str, str, str]]:
        """Changes accepted by ``--accept-change``: time, field, value before, value after."""
        with self._reading():
            return list(self._rows.select("change"))

    def decisions(self) -> Iterator[Row]:
        """Every decision and answer, in the order of paths. Each read takes `ROWS_PER_READ` rows, so a writer never waits long."""
        with self._reading():
            self._rows.check("place", "decision")
        try:
            yield from read_decisions(self._rows)
        except UNREADABLE as error:
            raise unreadable(self.path, error) from None

    def decisions_of(self, number: int) -> Iterator[Row]:
        """Every decision and answer of one input, in the order of paths."""
        with self._reading():
            self._rows.check("place", "decision")
        try:
            yield from read_decisions(self._rows, str(number))
        except UNREADABLE as error:
            raise unreadable(self.path, error) from None

    def decisions_below(self, path: str) -> list[Row]:
        """The decisions and answers below a path, in the order of paths, except the numbered ones directly below it.

        Below ``0/step`` these are the few at ``0/step/17/judge`` and the like, without the million steps.
        """
        with self._reading():
            return list(read_decisions(self._rows, path))

    def decision_at(self, path: str) -> Recalled | None:
        """The decision or the answer at a path; None if there is none."""
        with self._reading():
            key = key_at(self._db, path)
            row = None if key is None else self._rows.first("decision", "WHERE key = ?", (key,))
            return None if row is None else recalled(row)

    def open_elections_at(self, path: str) -> list[OpenElection]:
        """The elections without a verdict at a path. After a guess there may be several, each with another question."""
        with self._reading():
            return [each for each in read_open_elections(self._rows) if each.id.path == path]

    def texts_at(self, path: str) -> list[KeptText]:
        """The texts of replies at a path, as far as they are kept, in launch order."""
        with self._reading():
            key = key_at(self._db, path)
            return [
                KeptText(question_digest=fork, seq=seq, text=_unpacked_text(text), is_cut=length >= MAX_TEXT_BYTES)
                for _, fork, seq, length, text in self._rows.select("reply", "WHERE key = ? ORDER BY fork, seq", (key,))
            ]

    def persons(self) -> dict[str, PersonDecision]:
        """The decisions of persons, by path."""
        with self._reading():
            return {path: PersonDecision(who=who, at=at) for path, _, who, at in self._rows.select("person")}

    def ended_at(self, number: int) -> str | None:
        """The time at which an input ended, in UTC; None if it has not."""
        with self._reading():
            row = self._rows.first("input_ending", "WHERE input = ?", (number,)) if self.experiment.listed else self._rows.first("ending")
            return None if row is None else str(row[-1])

    def of_input(self, number: int) -> tuple[dict[str, Recalled], list[OpenElection]]:
        """The decisions of one input by path, and its open elections, from one state of the journal."""
        with self._reading():
            self._rows.check("place", "decision")
            open_elections = [each for each in read_open_elections(self._rows) if each.id.input == number]
            return dict(read_decisions(self._rows, str(number))), open_elections

    def undecided(self) -> dict[str, UndecidedElection]:
        """Elections that are undecided and not settled, by path."""
        with self._reading():
            books = self._books(of_decisions=False)
        paths = books.account().undecided_at
        return {path: each for path, each in books.totals.undecided.items() if path in paths}

    def verify(self) -> list[str]:
        """Compare every row with the recorded totals and digests.

        Returns:
            One sentence per difference; an empty list if everything agrees.
        """
        with self._reading():
            if found := list(damage(self._rows)):
                return found
            counts = "SELECT count(*) FROM decision WHERE ballots IS NOT NULL AND counted != json_array_length(ballots)"
            miscounted = self._db.execute(counts).fetchone()[0]
            recorded = self.account()
            books = Books(self.experiment.inputs, in_order=self.experiment.in_order)
            totals = Account(errors=recorded.errors)
            flags: Counter[str] = Counter()
            for path, row in self.decisions():
                take_in(books, path, row)
                valid = sum(not isinstance(ballot, Flagged) for ballot in row.ballots)
                if row.outcome != "inferred":
                    flags.update(ballot.flag for ballot in row.ballots if isinstance(ballot, Flagged))
                    totals.valid += valid
                totals.decided += row.outcome not in NO_DECISION
                totals.votes += valid * is_vote(row.outcome, row.ballots)
        made = structs.replace(
            books.account_with_digests(), decided=totals.decided, valid=totals.valid, votes=totals.votes, flagged=dict(flags)
        )
        problems = [f"counted differs from the number of ballots in {miscounted:,} decisions"] * (miscounted > 0)
        return problems + [
            f"{name} is recorded as {getattr(recorded, name)!r}, its rows make {getattr(made, name)!r}"
            for name in ("decided", "valid", "votes", "flagged", "decisions_sha256", "ballots_sha256")
            if getattr(recorded, name) != getattr(made, name)
        ]

    def _books(self, *, of_decisions: bool) -> Books:
        return read_books(self._rows, self.experiment.inputs, in_order=self.experiment.in_order, of_decisions=of_decisions)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Show one state of the journal to all reads inside, and translate errors of SQLite.

        Raises:
            InvalidUsage: the journal cannot be read, or is damaged.
        """
        outermost = not self._db.in_transaction  # an outer call has already fixed the state
        try:
            if outermost:
                self._db.execute("BEGIN")
            yield
        except UNREADABLE as error:
            raise unreadable(self.path, error) from None
        finally:
            if outermost and self._db.in_transaction:
                self._db.execute("ROLLBACK")


def _unpacked_text(packed: bytes) -> str:
    """The text of a reply. A damaged row may hold more than was ever packed, so the length is bounded."""
    try:
        return zlib.decompressobj().decompress(packed, MAX_TEXT_BYTES).decode("utf-8", "replace")
    except zlib.error as error:
        raise ValueError(f"the text of a reply cannot be unpacked: {error}") from None


def read_experiment(rows: Rows) -> Experiment:
    """The experiment of a journal."""
    experiment = msgspec.json.decode(rows.only("run")[3], type=Experiment)
    # Lists are made of that length: a damaged number must not exhaust the memory.
    inputs = rows.db.execute("SELECT count(*) FROM input").fetchone()[0] if experiment.listed else 1
    if inputs != experiment.inputs:
        raise ValueError(f"it has {inputs} inputs, not {experiment.inputs}")
    return experiment


def damage(rows: Rows) -> Iterator[str]:
    """Read every page and every row; gives a sentence for each damage."""
    problem = rows.db.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if problem != "ok":
        yield f"the file is damaged: {' '.join(str(problem).split())}"
        return
    yield from rows.problems()


def read_decisions(rows: Rows, below: str | None = None) -> Iterator[Row]:
    """Every decision and answer in the order of paths, of all places or of those below a path, such as an input."""
    found = rows.select("place") if below is None else rows.select("place", "WHERE path >= ? AND path < ?", path_range(below))
    places = sorted([(input_of(path), place, path) for place, path in found])
    for _, group in groupby(places, key=lambda each: each[0]):  # one input after the other: there may be very many
        together = [(place, path) for _, place, path in group]
        yield from merge(sorted(_singles(rows, together), key=_by_path), *(_numbered(rows, *place) for place in together), key=_by_path)


def _singles(rows: Rows, places: Sequence[tuple[int, str]]) -> Iterator[Row]:
    """Rows whose paths do not end with a number."""
    for place, path in places:
        row = rows.first("decision", "WHERE key = ?", key_range(place)[:1])
        if row is not None:
            yield path, recalled(row)


def _numbered(rows: Rows, place: int, path: str) -> Iterator[Row]:
    """Rows of one place whose paths end with a number, in the order of the numbers."""
    after, end = key_range(place)
    while found := list(rows.select("decision", "WHERE key > ? AND key < ? ORDER BY key LIMIT ?", (after, end, ROWS_PER_READ))):
        for row in found:
            if not after < row[0]:
                raise ValueError(f"the rows behind {joined(path, after)} have no order")
            after = row[0]
            yield joined(path, after), recalled(row)


def _by_path(row: Row) -> list[tuple[int, int, str]]:
    return in_order(row[0])


def read_open_elections(rows: Rows) -> list[OpenElection]:
    """Elections without a verdict, with their paid samples."""
    rows.check("place", "sample")
    found: dict[tuple[int, bytes], tuple[list[Ballot | Flagged], dict[int, Rejected]]] = {}
    for key, question_digest, number, value, flag, cost_usd in rows.select("sample", "ORDER BY key, fork, seq"):
        ballots, rejected = found.setdefault((key, question_digest), ([], {}))
        seq = number % REJECTED_SEQ
        if flag is None:
            ballots.append(read_ballot(seq, value.encode(), cost_usd))
        elif value is None:
            ballots.append(Flagged(seq=seq, flag=flag, cost_usd=cost_usd))
        else:
            before = rejected[seq].replies if seq in rejected else ()
            reply = msgspec.json.decode(value, type=Rejection)
            rejected[seq] = Rejected(seq=seq, replies=(*before, reply), cost_usd=cost_usd)
    places = dict(rows.select("place")) if found else {}
    return [
        OpenElection(
            id=ElectionId(path=joined(places[place_of(key)], key), question_digest=question_digest),
            ballots=tuple(ballots),
            rejected=tuple(rejected.values()),
        )
        for (key, question_digest), (ballots, rejected) in found.items()
    ]


def read_books(rows: Rows, inputs: int, *, in_order: bool, of_decisions: bool = True) -> Books:
    """The books as of the last commit.

    Args:
        rows: the journal.
        inputs: number of inputs of the run.
        in_order: whether decisions form a chain. Its digests are stored; a tree of decisions is read row by row.
        of_decisions: False leaves the digests of a tree empty.
    """
    books = Books(inputs, in_order=in_order, totals=msgspec.json.decode(rows.only("account")[0], type=Totals))
    rows.check("progress")
    for of_input, done, total, reached, state, value, decisions, ballots in rows.select("progress"):
        _check_input(of_input, inputs)
        books.move(of_input, done, total)
        if reached is not None:
            books.reached[of_input] = Checkpoint(done=reached, state=state.encode(), value=value.encode())
        if in_order:
            books.set_chain(of_input, decisions, ballots)
    for ending in read_endings(rows, inputs):
        books.end_input(ending.input, ending.outcome)
        books.forget(ending.input)
    if not in_order and of_decisions:
        rows.check("place", "decision")
        places = dict(rows.select("place"))
        for row in rows.select("decision"):
            take_in(books, joined(places[place_of(row[0])], row[0]), recalled(row))
    return books


def read_endings(rows: Rows, inputs: int) -> Iterator[InputEnding]:
    """The endings of inputs, in the order of their numbers."""
    rows.check("input_ending")
    for number, outcome, reason, result, _ in rows.select("input_ending", "ORDER BY input"):
        _check_input(number, inputs)
        encoded = None if result is None else result.encode()
        if encoded is not None:
            msgspec.json.decode(encoded)
        sentence, traceback = reason_and_traceback(reason)
        ended = msgspec.convert(outcome, InputOutcome)
        yield InputEnding(input=number, outcome=ended, reason=sentence, result=encoded, traceback=traceback)


def read_checkpoint(rows: Rows, of_input: int) -> Checkpoint | None:
    """The last decided step of an input; None before the first, and in work that cannot resume after a step."""
    row = rows.first("progress", "WHERE input = ?", (of_input,))
    if row is None or row[3] is None:
        return None
    return Checkpoint(done=row[3], state=row[4].encode(), value=row[5].encode())


def _check_input(number: int, inputs: int) -> None:
    if number not in range(inputs):
        raise ValueError(f"there is no input {number}")


def read_own_options(rows: Rows) -> Iterator[str]:
    """Per input, as JSON, the options that differ from those of the first."""
    rows.check("input")
    return (options for _, options in rows.select("input", "ORDER BY input"))


Other = tuple[int, dict[str, Any] | None, dict[str, Any] | None]
"""The number of an input, and its options before and after; None where the input is missing."""


def other_inputs(rows: Rows, recorded: Experiment, given: Experiment, own: Sequence[str]) -> Iterator[Other]:
    """Inputs whose options differ from the recorded ones."""
    before, after = options_of(recorded.recipe.options, read_own_options(rows)), options_of(given.recipe.options, own)
    for number, (was, now) in enumerate(zip_longest(before, after)):
        if was != now:
            yield number, was, now


def _differing_options(before: dict[str, Any] | None, after: dict[str, Any] | None) -> tuple[str, str]:
    """The options that differ between two versions of an input, as short JSON."""
    names = [name for name in {**(before or {}), **(after or {})} if before is None or after is None or before.get(name) != after.get(name)]
    shown = [
        "nothing" if options is None else msgspec.json.encode({name: options[name] for name in names if name in options}).decode()
        for options in (before, after)
    ]
    return f"{shown[0]:.{SHOWN_CHARS}}", f"{shown[1]:.{SHOWN_CHARS}}"


def with_digests(rows: Rows, books: Books) -> Account:
    """The account with its digests."""
    if not books.totals.out_of_order:
        return books.account_with_digests()
    # An undecided election was decided after later steps of its input: only a pass over all decisions, in path order, gives the chain.
    rows.check("place", "decision")
    again = Books(books.inputs, in_order=True)
    for path, row in read_decisions(rows):
        take_in(again, path, row)
    found = again.account_with_digests()
    return structs.replace(books.account(), decisions_sha256=found.decisions_sha256, ballots_sha256=found.ballots_sha256)


def take_in(books: Books, path: str, row: Recalled) -> None:
    """Add a row to the digests of the books."""
    if row.outcome == OUTCOMES[ONCE_CODE] and row.value is not None:
        books.take_in_answer(path, row.value)
    elif row.outcome != OUTCOMES[UNDECIDED_CODE]:
        books.take_in(path, row.outcome, row.value, row.ballots)


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


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a link to itself, or a longer name than any file can have
        return False


def _refuse_file(runs_dir: Path, given: str) -> None:
    """Refuse the file of a journal where the name of its run belongs, and name the run."""
    for file in (Path(given), runs_dir / given):
        if file.suffix == SUFFIX and _exists(file) and not _exists(runs_dir / f"{given}{SUFFIX}"):
            folder = "" if file.parent.resolve() == runs_dir.resolve() else f" --runs-dir {shlex.quote(str(file.parent))}"
            raise InvalidUsage(f"{given!r} is the file of a journal; name its run: {file.stem}{folder}")


def reader_of(runs_dir: Path, run_id: str) -> Reader:
    """Open the journal of a run for reading.

    Raises:
        InvalidUsage: the journal is missing, cannot be read, or belongs to another run.
    """
    _refuse_file(runs_dir, run_id)
    path = journal_of(runs_dir, run_id)
    if not _exists(path):
        raise InvalidUsage(f"there is no run {run_id!r} in {str(runs_dir.resolve())!r}; `microagents list` shows the runs of a folder")
    reader = Reader(path)
    if reader.experiment.run_id != run_id:
        raise InvalidUsage(
            f"{str(path)!r} is the journal of run {reader.experiment.run_id}; rename the file to {reader.experiment.run_id}{SUFFIX}"
        )
    return reader
