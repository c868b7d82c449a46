"""Queries on the rows of a journal: its experiment, decisions, open elections, books and endings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import groupby, zip_longest
from typing import Any

import msgspec
from msgspec import structs

from microagents.elections.election import OPEN_OUTCOMES, Ballot, ElectionId, Flagged, Rejected, Rejection, input_of
from microagents.journal.books import AccountRecord, Books, InputSums, Totals, code_of
from microagents.journal.digests import in_order
from microagents.journal.encoding import (
    REJECTED_SEQ,
    joined,
    key_range,
    path_range,
    place_of,
    read_ballot,
    read_flag,
    recalled,
)
from microagents.journal.experiment import Experiment, RunRecord, options_of
from microagents.journal.messages import (
    Account,
    Checkpoint,
    InputEnding,
    InputOutcome,
    OpenElection,
    Recalled,
)
from microagents.journal.rows import Rows
from microagents.journal.statements import (
    BELOW,
    BY_INPUT,
    BY_SEQ,
    ENDED_COUNTS,
    NEXT_OF_PLACE,
    NUMBER_OF_INPUTS,
    OF_INPUT,
    OF_KEY,
    PROGRESS_SUMS,
    UNSOLVED,
    one,
)
from microagents.journal.tables import ONCE_CODE, OUTCOMES

ROWS_PER_READ = 2000
MAX_NUMBER = 1 << 63
"""No sum of a run is as large."""
Row = tuple[str, Recalled]
"""The path of a decision or an answer, and its content."""


def read_experiment(rows: Rows) -> Experiment:
    """Return the experiment of a journal."""
    experiment = rows.only(RunRecord).experiment
    # Lists are made of that length: a damaged number must not exhaust the memory.
    inputs = one(rows.db, NUMBER_OF_INPUTS) if experiment.listed else 1
    if inputs != experiment.inputs:
        raise ValueError(f"it has {inputs} inputs, not {experiment.inputs}")
    return experiment


def first_record(rows: Rows) -> bytes:
    """Return the record of the run: its name, its start and its experiment, by which its user's list of journals knows it."""
    return msgspec.json.encode(rows.only(RunRecord))


def began_s(rows: Rows) -> float:
    """Start of the run, in seconds since 1970."""
    return datetime.fromisoformat(rows.only(RunRecord).created_at).timestamp()


def moment(run_began_s: float, after_ms: int) -> str:
    """Return the time of a decision, in UTC.

    Raises:
        ValueError: the row is damaged: no calendar has that time.
    """
    try:
        return (datetime.fromtimestamp(run_began_s, UTC) + timedelta(milliseconds=after_ms)).isoformat(
            timespec="milliseconds"
        )
    except OverflowError as error:
        raise ValueError(f"a decision was taken {after_ms} ms after the start: {error}") from None


def read_decisions(rows: Rows, below: str | None = None) -> Iterator[Row]:
    """Every decision and answer in the order of paths, of all places or of those below a path, such as an input."""
    if below is None:
        found = rows.select("place")
    else:
        found = rows.select("place", BELOW, path_range(below))
    places = sorted([(input_of(path), place, path) for place, path in found])
    for _, group in groupby(places, key=lambda each: each[0]):  # one input after the other: there may be very many
        together = [(place, path) for _, place, path in group]
        yield from merge(
            sorted(_singles(rows, together), key=_by_path),
            *(_numbered(rows, *place) for place in together),
            key=_by_path,
        )


def _singles(rows: Rows, places: Sequence[tuple[int, str]]) -> Iterator[Row]:
    """Rows whose paths do not end with a number."""
    for place, path in places:
        row = rows.first("decision", OF_KEY, key_range(place)[:1])
        if row is not None:
            yield path, recalled(row)


def _numbered(rows: Rows, place: int, path: str) -> Iterator[Row]:
    """Rows of one place whose paths end with a number, in the order of the numbers."""
    after, end = key_range(place)
    while found := list(rows.select("decision", NEXT_OF_PLACE, (after, end, ROWS_PER_READ))):
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
    for key, question_digest, number, value, flag, cost_usd in rows.select("sample", BY_SEQ):
        ballots, rejected = found.setdefault((key, question_digest), ([], {}))
        seq = number % REJECTED_SEQ
        if flag is None:
            ballots.append(read_ballot(seq, value.encode(), cost_usd))
        elif number == seq:
            ballots.append(read_flag(seq, flag, value, cost_usd))
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


def read_books(rows: Rows, inputs: int, *, in_order: bool) -> Books:
    """Return the books as of the last commit. The digests of a chain are stored; a tree of decisions is read row by row."""
    books = Books(inputs, in_order=in_order, totals=read_totals(rows))
    rows.check("progress")
    for of_input, done, total, reached, state, value, decisions, ballots in rows.select("progress"):
        _check_input(of_input, inputs)
        books.move(of_input, done, total)
        if reached is not None:
            books.reached[of_input] = Checkpoint(done=reached, state=state.encode(), value=value.encode())
        if in_order:
            books.set_chain(of_input, decisions, ballots)
    for ending in read_endings(rows, inputs):
        books.end_input(ending.input, ending.outcome, ending.verdict)
        books.forget(ending.input)
    if not in_order:
        rows.check("place", "decision")
        places = dict(rows.select("place"))
        for row in rows.select("decision"):
            take_in(books, joined(places[place_of(row[0])], row[0]), recalled(row))
    return books


def read_sums(rows: Rows) -> InputSums:
    """Add up the progress and the endings of all inputs, as of the last commit. SQLite does, 20 times as quickly as `read_books`."""
    rows.check("progress", "input_ending")
    steps, total_steps, with_total = rows.db.execute(PROGRESS_SUMS).fetchone()
    sums = msgspec.convert({"steps": steps, "total_steps": total_steps, "with_total": with_total}, InputSums)
    for outcome, verdict, count in rows.db.execute(ENDED_COUNTS):
        sums.ended[code_of(msgspec.convert(outcome, InputOutcome), None if verdict is None else bool(verdict))] += count
    return sums


def read_totals(rows: Rows) -> Totals:
    """Return the totals as of the last commit."""
    totals = rows.only(AccountRecord).totals
    check_totals(totals)
    return totals


def check_totals(totals: Totals) -> None:
    """Check the totals of an account.

    Raises:
        ValueError: they have values that no run counts.
    """
    _check_numbers(msgspec.to_builtins(totals.account))


def _check_numbers(value: object) -> None:
    """Refuse numbers that no run counts: negative ones, and ones too large to reckon with."""
    if isinstance(value, dict):
        for each in value.values():
            _check_numbers(each)
    elif (isinstance(value, int) and not 0 <= value < MAX_NUMBER) or (
        isinstance(value, float) and abs(value) > MAX_NUMBER
    ):
        raise ValueError(f"the account has the number {value!r:.40}")


def read_endings(rows: Rows, inputs: int, *, unsolved: int | None = None) -> Iterator[InputEnding]:
    """Yield the endings of inputs, in the order of their numbers: all, or the first ones of inputs that did not complete."""
    rows.check("input_ending")
    chosen = (BY_INPUT, ()) if unsolved is None else (UNSOLVED, (unsolved,))
    for row in rows.select("input_ending", *chosen):
        _check_input(row[0], inputs)
        yield _ending(row)


def read_ending(rows: Rows, of_input: int) -> InputEnding | None:
    """Return how one of many inputs ended; None if it has not."""
    row = rows.first("input_ending", OF_INPUT, (of_input,))
    if row is None:
        return None
    return _ending(row)


def _ending(row: Sequence[Any]) -> InputEnding:
    number, outcome, reason, traceback, result, _ = row
    encoded = None if result is None else result.encode()
    if encoded is not None:
        msgspec.json.decode(encoded)
    ended = msgspec.convert(outcome, InputOutcome)
    return InputEnding(input=number, outcome=ended, reason=reason, result=encoded, traceback=traceback)


def read_checkpoint(rows: Rows, of_input: int) -> Checkpoint | None:
    """Return the last decided step of an input; None before the first, and in work that cannot resume after a step."""
    row = rows.first("progress", OF_INPUT, (of_input,))
    if row is None or row[3] is None:
        return None
    return Checkpoint(done=row[3], state=row[4].encode(), value=row[5].encode())


def _check_input(number: int, inputs: int) -> None:
    if number not in range(inputs):
        raise ValueError(f"there is no input {number}")


def read_own_options(rows: Rows) -> Iterator[str]:
    """Per input, as JSON, the options that differ from the first one's."""
    rows.check("input")
    return (options for _, options in rows.select("input", BY_INPUT))


Other = tuple[int, dict[str, Any] | None, dict[str, Any] | None]
"""The number of an input, and its options before and after; None if the input is missing."""


def other_inputs(rows: Rows, recorded: Experiment, given: Experiment, own: Sequence[str]) -> Iterator[Other]:
    """Inputs whose options differ from the recorded ones."""
    before, after = options_of(recorded.recipe.options, read_own_options(rows)), options_of(given.recipe.options, own)
    for number, (was, now) in enumerate(zip_longest(before, after)):
        if was != now:
            yield number, was, now


def with_digests(rows: Rows, books: Books) -> Account:
    """Return the account with its digests."""
    if not books.totals.out_of_order:
        return books.account_with_digests()
    # An undecided election was decided after later steps of its input: only a pass over all decisions, in path order, gives the chain.
    rows.check("place", "decision")
    again = Books(books.inputs, in_order=True)
    for path, row in read_decisions(rows):
        take_in(again, path, row)
    found = again.account_with_digests()
    return structs.replace(
        books.account(), decisions_sha256=found.decisions_sha256, ballots_sha256=found.ballots_sha256
    )


def take_in(books: Books, path: str, row: Recalled) -> None:
    """Add a row to the digests of the books."""
    if row.outcome == OUTCOMES[ONCE_CODE] and row.value is not None:
        books.take_in_answer(path, row.value)
    elif row.outcome not in OPEN_OUTCOMES:
        books.take_in(path, row.outcome, row.value, row.ballots)
