"""The reader's side of a journal: looks on, also while the run goes on, in short transactions, and changes nothing."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from heapq import merge
from itertools import groupby, zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import Struct, structs

from microagents.elections.election import Ballot, ElectionId, Flagged, input_of
from microagents.errors import InputMismatch, InvalidUsage, JournalMismatch
from microagents.journal.books import Books, Totals, UndecidedElection
from microagents.journal.digests import ChainDigest, in_order
from microagents.journal.experiment import INPUTS, Change, Experiment, options_of
from microagents.journal.lease import Holder, Lease
from microagents.journal.messages import Account, Checkpoint, InputEnding, InputOutcome, OpenElection, Recalled, RunOutcome
from microagents.journal.schema import (
    DECISION,
    ONCE_CODE,
    OUTCOMES,
    PLACE_OF_KEY,
    UNDECIDED_CODE,
    UNREADABLE,
    connect,
    cost_read,
    joined,
    key_range,
    path_range,
    place_of,
    recalled,
    unreadable,
)

ROWS_A_READ = 2000
SHOWN_CHARS = 200
"""An input whose options are longer is shown by their beginning."""

Row = tuple[str, Recalled]


class Ending(Struct, frozen=True, kw_only=True):
    """How a run, or its last sitting, ended."""

    outcome: RunOutcome
    reason: str | None
    result: str | None
    """As JSON."""
    decisions_sha256: str
    ballots_sha256: str
    ended_at: str


class Reader:
    """A journal that is looked at.

    Raises:
        InvalidUsage: it is none, is damaged, or is of a newer version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = connect(path, write=False)
        with self._reading():
            (written,) = self._db.execute("SELECT experiment FROM run").fetchone()
            self.experiment = msgspec.json.decode(written, type=Experiment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._db.close()

    @property
    def created_at(self) -> str:
        """When the run began, in UTC."""
        with self._reading():
            return str(self._db.execute("SELECT created_at FROM run").fetchone()[0])

    def lease(self) -> Lease:
        """Who writes it."""
        with self._reading():
            return read_lease(self._db)

    def ending(self) -> Ending | None:
        """How it ended; None while it goes on, or where it was cut off."""
        with self._reading():
            row = self._db.execute("SELECT outcome, reason, result, decisions_sha256, ballots_sha256, ended_at FROM ending").fetchone()
            if row is None:
                return None
            ending = msgspec.convert(dict(zip(Ending.__struct_fields__, row, strict=True)), Ending)
            if ending.result is not None:
                msgspec.json.decode(ending.result)
            return ending

    def changes_to(self, given: Experiment, own: Sequence[str], accepted: Sequence[str]) -> list[Change]:
        """What differs from the recorded experiment, all of it accepted; ``own`` says of many inputs what differs from the first's options.

        Raises:
            JournalMismatch: something differs that is not.
        """
        try:
            return self.experiment.changes(given, accepted)
        except JournalMismatch as error:
            if error.args[0] != INPUTS:
                raise
            with self._reading():
                other = next(other_inputs(self._db, self.experiment, given, own), None)
            raise error if other is None else InputMismatch(other[0], *_shown(*other[1:])) from None

    def options(self) -> list[dict[str, Any]]:
        """The options of each input."""
        with self._reading():
            recipe = self.experiment.recipe
            if not self.experiment.listed:
                return [recipe.options]
            options = list(options_of(recipe.options, read_own_options(self._db)))
            if not options or len(options) != self.experiment.inputs:
                raise ValueError(f"it has the options of {len(options)} inputs, not of {self.experiment.inputs}")
            return options

    def input_endings(self) -> Iterator[InputEnding]:
        """How inputs among many ended, in their order."""
        with self._reading():
            yield from read_endings(self._db, self.experiment.inputs)

    def account(self) -> Account:
        """The account as of the last commit, with the digests of what was decided."""
        with self._reading():
            ending = self.ending()
            if ending is None:
                return with_digests(self._db, self._books(of_decisions=True))
            account = self._books(of_decisions=False).account()
        return structs.replace(account, decisions_sha256=ending.decisions_sha256, ballots_sha256=ending.ballots_sha256)

    def wall_s(self) -> float:
        """How long the run took so far, over all its sittings."""
        with self._reading():
            return float(self._db.execute("SELECT wall_s FROM account").fetchone()[0])

    def changes(self) -> list[tuple[str, str, str, str]]:
        """What was changed on purpose: when, field, before, after."""
        with self._reading():
            return self._db.execute("SELECT at, field, recorded, given FROM change").fetchall()

    def decisions(self) -> Iterator[Row]:
        """All that was decided or answered, in the order of paths; a read for some thousand rows, so that a writer never waits long."""
        try:
            yield from read_decisions(self._db)
        except UNREADABLE as error:
            raise unreadable(self.path, error) from None

    def of_input(self, number: int) -> tuple[dict[str, Recalled], list[OpenElection]]:
        """What one input decided, by path, and the elections that it has open; both at one moment."""
        with self._reading():
            open_elections = [each for each in read_open_elections(self._db) if each.id.input == number]
            return dict(read_decisions(self._db, number)), open_elections

    def undecided(self) -> dict[str, UndecidedElection]:
        """What is undecided, by path."""
        with self._reading():
            books = self._books(of_decisions=False)
        there = books.account().undecided_at
        return {path: each for path, each in books.totals.undecided.items() if path in there}

    def verify(self) -> list[str]:
        """Read everything, and compare it with what was added up: gives what does not fit, nothing where all does."""
        with self._reading():
            problem = self._db.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if problem != "ok":
                return [f"the file is damaged: {problem}"]
            counts = "SELECT count(*) FROM decision WHERE ballots IS NOT NULL AND counted != json_array_length(ballots)"
            miscounted = self._db.execute(counts).fetchone()[0]
            recorded = self.account()
            books = Books(self.experiment.inputs, in_order=self.experiment.in_order)
            totals = Account(errors=recorded.errors)
            flags: Counter[str] = Counter()
            for path, row in self.decisions():
                take_in(books, path, row)
                flags.update(ballot.flag for ballot in row.ballots if isinstance(ballot, Flagged))
                valid = sum(not isinstance(ballot, Flagged) for ballot in row.ballots)
                totals.valid += valid
                if row.outcome not in (OUTCOMES[ONCE_CODE], OUTCOMES[UNDECIDED_CODE], "sampled"):
                    totals.decided += 1
                    totals.votes += valid
        found = structs.replace(
            books.account_with_digests(), decided=totals.decided, valid=totals.valid, votes=totals.votes, flagged=dict(flags)
        )
        problems = [f"counted is another number than there are ballots, in {miscounted:,} decisions"] * (miscounted > 0)
        return problems + [
            f"{name} is recorded as {getattr(recorded, name)!r}, its rows make {getattr(found, name)!r}"
            for name in ("decided", "valid", "votes", "flagged", "decisions_sha256", "ballots_sha256")
            if getattr(recorded, name) != getattr(found, name)
        ]

    def _books(self, *, of_decisions: bool) -> Books:
        return read_books(self._db, self.experiment.inputs, in_order=self.experiment.in_order, of_decisions=of_decisions)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One state of the journal, however many reads it takes, and one sentence if it cannot be read."""
        outermost = not self._db.in_transaction
        try:
            if outermost:
                self._db.execute("BEGIN")
            yield
        except UNREADABLE as error:
            raise unreadable(self.path, error) from None
        finally:
            if outermost and self._db.in_transaction:
                self._db.execute("ROLLBACK")


def read_decisions(db: sqlite3.Connection, of_input: int | None = None) -> Iterator[Row]:
    """All that was decided or answered, or what was for one input, in the order of paths."""
    found = (
        db.execute("SELECT id, path FROM place")
        if of_input is None
        else db.execute("SELECT id, path FROM place WHERE path >= ? AND path < ?", path_range(of_input))
    )
    places = sorted([(input_of(path), place, path) for place, path in found.fetchall()])
    for _, group in groupby(places, key=lambda each: each[0]):  # there may be very many inputs: one after the other
        there = [(place, path) for _, place, path in group]
        yield from merge(sorted(_singles(db, there), key=_by_path), *(_numbered(db, *place) for place in there), key=_by_path)


def _singles(db: sqlite3.Connection, places: Sequence[tuple[int, str]]) -> Iterator[Row]:
    """What stands at places themselves."""
    for place, path in places:
        row = db.execute(f"SELECT {DECISION} FROM decision WHERE key = ?", key_range(place)[:1]).fetchone()
        if row is not None:
            yield path, recalled(*row)


def _numbered(db: sqlite3.Connection, place: int, path: str) -> Iterator[Row]:
    """What stands at a place's numbers."""
    after, end = key_range(place)
    while True:
        rows = db.execute(
            f"SELECT key, {DECISION} FROM decision WHERE key > ? AND key < ? ORDER BY key LIMIT ?",
            (after, end, ROWS_A_READ),
        ).fetchall()
        if not rows:
            return
        for key, *columns in rows:
            yield joined(path, key), recalled(*columns)
        after = rows[-1][0]


def _by_path(row: Row) -> list[tuple[int, int, str]]:
    return in_order(row[0])


def read_open_elections(db: sqlite3.Connection) -> list[OpenElection]:
    """Elections that are not decided, with what was paid for them."""
    found: dict[tuple[str, bytes], list[Ballot | Flagged]] = {}
    for place, key, fork, seq, value, flag, cost_usd in db.execute(
        "SELECT place.path, key, fork, seq, value, flag, cost_usd "
        f"FROM sample JOIN place ON place.id = {PLACE_OF_KEY} ORDER BY key, fork, seq"
    ):
        cost = cost_read(cost_usd)
        ballot = Ballot(seq=seq, value=value.encode(), cost_usd=cost) if flag is None else Flagged(seq=seq, flag=flag, cost_usd=cost)
        found.setdefault((joined(place, key), fork), []).append(ballot)
    return [OpenElection(id=ElectionId(path=path, question_digest=fork), ballots=tuple(ballots)) for (path, fork), ballots in found.items()]


def read_lease(db: sqlite3.Connection) -> Lease:
    """Who writes the journal."""
    epoch, holder, renewed_at = db.execute("SELECT epoch, holder, renewed_at FROM lease").fetchone()
    return Lease(epoch=epoch, holder=None if holder is None else msgspec.json.decode(holder, type=Holder), renewed_at=renewed_at)


def read_books(db: sqlite3.Connection, inputs: int, *, in_order: bool, of_decisions: bool = True) -> Books:
    """The books as they were closed by the last commit; without ``of_decisions``, without the digests that only all decisions give."""
    (totals,) = db.execute("SELECT totals FROM account").fetchone()
    books = Books(inputs, in_order=in_order, totals=msgspec.json.decode(totals, type=Totals))
    for of_input, done, total, reached, state, value, decisions, ballots in db.execute(
        "SELECT input, done, total, reached, state, value, decisions, ballots FROM progress"
    ):
        _check_input(of_input, inputs)
        books.move(of_input, done, total)
        if reached is not None:
            books.progress[of_input].reached = Checkpoint(done=reached, state=state.encode(), value=value.encode())
        if in_order:
            books.decisions[of_input], books.ballots[of_input] = ChainDigest(decisions), ChainDigest(ballots)
    for of_input, outcome in db.execute("SELECT input, outcome FROM input_ending"):
        _check_input(of_input, inputs)
        books.end_input(of_input, msgspec.convert(outcome, InputOutcome))
    if not in_order and of_decisions:
        places = dict(db.execute("SELECT id, path FROM place"))
        for key, *columns in db.execute(f"SELECT key, {DECISION} FROM decision"):
            take_in(books, joined(places[place_of(key)], key), recalled(*columns))
    return books


def read_endings(db: sqlite3.Connection, inputs: int) -> Iterator[InputEnding]:
    """How inputs among many ended, in their order."""
    for number, outcome, reason, result in db.execute("SELECT input, outcome, reason, result FROM input_ending ORDER BY input"):
        _check_input(number, inputs)
        encoded = None if result is None else result.encode()
        if encoded is not None:
            msgspec.json.decode(encoded)
        yield InputEnding(input=number, outcome=msgspec.convert(outcome, InputOutcome), reason=reason, result=encoded)


def _check_input(number: int, inputs: int) -> None:
    if number not in range(inputs):
        raise ValueError(f"there is no input {number}")


def read_own_options(db: sqlite3.Connection) -> Iterator[str]:
    """Which options of each input differ from those of the first, as JSON."""
    return (options for (options,) in db.execute("SELECT options FROM input ORDER BY input"))


Other = tuple[int, dict[str, Any] | None, dict[str, Any] | None]
"""An input, its options before and after; None where it was not there."""


def other_inputs(db: sqlite3.Connection, recorded: Experiment, given: Experiment, own: Sequence[str]) -> Iterator[Other]:
    """Inputs whose options are other than they were."""
    before, after = options_of(recorded.recipe.options, read_own_options(db)), options_of(given.recipe.options, own)
    for number, (was, now) in enumerate(zip_longest(before, after)):
        if was != now:
            yield number, was, now


def _shown(before: dict[str, Any] | None, after: dict[str, Any] | None) -> tuple[str, str]:
    """What differs of two inputs' options."""
    names = [name for name in {**(before or {}), **(after or {})} if before is None or after is None or before.get(name) != after.get(name)]
    shown = [
        "nothing" if options is None else msgspec.json.encode({name: options[name] for name in names if name in options}).decode()
        for options in (before, after)
    ]
    return f"{shown[0]:.{SHOWN_CHARS}}", f"{shown[1]:.{SHOWN_CHARS}}"


def with_digests(db: sqlite3.Connection, books: Books) -> Account:
    """The account with the digests, which the books alone cannot give where decisions were not taken in their order."""
    if not books.totals.out_of_order:
        return books.account_with_digests()
    again = Books(len(books.progress), in_order=True)
    for path, row in read_decisions(db):
        take_in(again, path, row)
    found = again.account_with_digests()
    return structs.replace(books.account(), decisions_sha256=found.decisions_sha256, ballots_sha256=found.ballots_sha256)


def take_in(books: Books, path: str, row: Recalled) -> None:
    """Take a row into the digests of the books."""
    if row.outcome == OUTCOMES[ONCE_CODE] and row.value is not None:
        books.take_in_answer(path, row.value)
    elif row.outcome != OUTCOMES[UNDECIDED_CODE]:
        books.take_in(path, row.outcome, row.value, row.ballots)


def journal_of(runs_dir: Path, run_id: str) -> Path:
    """The file of a run.

    Raises:
        InvalidUsage: the name has path characters.
    """
    if not run_id or run_id.startswith(".") or "/" in run_id or "\\" in run_id:
        raise InvalidUsage(f"{run_id!r} is no name of a run: it has path characters; name the folder with --runs-dir")
    return runs_dir / f"{run_id}.sqlite"


def reader_of(runs_dir: Path, run_id: str) -> Reader:
    """A run's journal, to look at.

    Raises:
        InvalidUsage: there is none, or it cannot be read.
    """
    path = journal_of(runs_dir, run_id)
    if not path.exists():
        raise InvalidUsage(f"there is no run {run_id!r} in {str(runs_dir.resolve())!r}; `microagents list` shows what there is in a folder")
    reader = Reader(path)
    if reader.experiment.run_id != run_id:
        raise InvalidUsage(
            f"{str(path)!r} is the journal of run {reader.experiment.run_id}; give the file its name back: a run has one journal"
        )
    return reader
