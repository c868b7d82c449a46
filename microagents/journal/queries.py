"""Queries on the rows of a journal: its experiment, decisions, open elections, totals and endings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import groupby, zip_longest
from typing import Any

import msgspec

from microagents.elections.election import AnyBallot, ElectionId, Rejected, Rejection, input_of
from microagents.elections.sample_batches import SampleBatch
from microagents.journal.books import AccountRecord, Totals
from microagents.journal.digests import in_order
from microagents.journal.encoding import (
    REJECTED_SEQ,
    joined,
    key_at,
    key_range,
    path_range,
    place_of,
    read_entry,
    recalled,
)
from microagents.journal.experiment import Experiment, RunRecord, options_of
from microagents.journal.messages import Checkpoint, InputEnding, OpenElection, Recalled
from microagents.journal.rows import Rows, checksum
from microagents.journal.statements import (
    BATCHES,
    BELOW,
    BY_INPUT,
    BY_SEQ,
    ENDED,
    NEXT_OF_PLACE,
    NUMBER_OF_INPUTS,
    OF_ID,
    OF_KEY,
    OF_KEY_BY_SEQ,
    OF_PART,
    SUM_OF_INPUTS,
    UNSOLVED,
    one,
)
from microagents.journal.tables import DecidedRow, InputRow, LogRow, PlaceRow, RunRow, SampleRow

ROWS_PER_READ = 2000
MAX_NUMBER = 1 << 63
"""No sum of a run is as large."""
Row = tuple[str, Recalled]
"""The path of a decision or an answer, and its content."""


def read_experiment(rows: Rows) -> Experiment:
    """Return the experiment of a journal."""
    experiment = rows.only(RunRecord).experiment
    # Lists are made of that length: a damaged number must not exhaust the memory.
    inputs = one(rows.db, NUMBER_OF_INPUTS)
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
        found = rows.select(PlaceRow)
    else:
        found = rows.select(PlaceRow, BELOW, path_range(below))
    places = sorted([(input_of(each.path), each.id, each.path) for each in found])
    for _, group in groupby(places, key=lambda each: each[0]):  # one input after the other: there may be very many
        together = [(place, path) for _, place, path in group]
        yield from merge(*[_rows_of(rows, *place) for place in together], key=_by_path)


def read_decision(rows: Rows, path: str) -> Recalled | None:
    """Return the decision or the answer at a path; None if there is none."""
    key = key_at(rows.db, path)
    row = None if key is None else rows.first(DecidedRow, OF_KEY, (key,))
    if row is None:
        return None
    return recalled(row)


def _rows_of(rows: Rows, place: int, path: str) -> Iterator[Row]:
    """Rows of one place: the one without a number first, then those whose paths end with one, in the order of the numbers."""
    start, end = key_range(place)
    after = start - 1
    while found := list(rows.select(DecidedRow, NEXT_OF_PLACE, (after, end, ROWS_PER_READ))):
        for row in found:
            if not after < row.key:
                raise ValueError(f"the rows behind {joined(path, after)} have no order")
            after = row.key
            yield joined(path, after), recalled(row)


def _by_path(row: Row) -> list[tuple[int, int, str]]:
    return in_order(row[0])


def batch_row(batch: SampleBatch) -> RunRow:
    """Return the row of a batch: a part of the run."""
    return RunRow(part=_part_of(batch.number), content=msgspec.json.encode(batch).decode())


def read_batch(rows: Rows, number: int) -> SampleBatch | None:
    """Return a recorded batch; None if it is new."""
    found = rows.first(RunRow, OF_PART, (_part_of(number),))
    if found is None:
        return None
    return msgspec.json.decode(found.content, type=SampleBatch)


def read_batches(rows: Rows, last: int | None = None) -> Iterator[SampleBatch]:
    """Yield the recorded batches, first made first; or the last ones, last made first."""
    condition = BATCHES if last is None else f"{BATCHES} DESC LIMIT {last}"
    for row in rows.select(RunRow, condition):
        yield msgspec.json.decode(row.content, type=SampleBatch)


def _part_of(batch: int) -> str:
    return f"batch/{batch:09}"


def read_open_elections(rows: Rows, path: str | None = None) -> list[OpenElection]:
    """Elections without a verdict, with their paid samples: all, or those at a path."""
    if path is None:
        samples, named = rows.select(SampleRow, BY_SEQ), rows.select(PlaceRow)
    else:
        key = key_at(rows.db, path)
        if key is None:
            return []
        samples = rows.select(SampleRow, OF_KEY_BY_SEQ, (key,))
        named = rows.select(PlaceRow, OF_ID, (place_of(key),))
    found: dict[tuple[int, bytes], tuple[list[AnyBallot], dict[int, Rejected]]] = {}
    for row in samples:
        ballots, rejected = found.setdefault((row.key, row.fork), ([], {}))
        seq = row.seq % REJECTED_SEQ
        if row.seq == seq:
            ballots.append(read_entry(seq, row.value.encode(), cost_usd=row.cost_usd))
        else:
            before = rejected[seq].replies if seq in rejected else ()
            reply = msgspec.json.decode(row.value, type=Rejection)
            rejected[seq] = Rejected(seq=seq, replies=(*before, reply), cost_usd=row.cost_usd)
    if not found:
        return []
    places = {each.id: each.path for each in named}
    return [
        OpenElection(
            id=ElectionId(path=joined(places[place_of(key)], key), question_digest=question_digest),
            ballots=tuple(ballots),
            rejected=tuple(rejected.values()),
        )
        for (key, question_digest), (ballots, rejected) in found.items()
    ]


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
    check_inputs(rows)
    chosen = (ENDED, ()) if unsolved is None else (UNSOLVED, (unsolved,))
    for row in rows.select(InputRow, *chosen):
        _check_input(row.input, inputs)
        found = ending_of(row)
        if found is not None:
            yield found


def check_inputs(rows: Rows) -> None:
    """Compare the rows of inputs and of the log with their sum in the account.

    Raises:
        ValueError: rows are missing, or old ones came back.
    """
    log = sum(map(checksum, rows.select(LogRow)))
    if log + one(rows.db, SUM_OF_INPUTS) != read_totals(rows).rows:
        raise ValueError("rows of the table input or log are missing, or differ from the last commit")


def ending_of(row: InputRow) -> InputEnding | None:
    """Return how one of many inputs ended; None if it has not."""
    if row.outcome is None:
        return None
    if row.result is not None:
        msgspec.json.decode(row.result)
    return InputEnding(
        input=row.input,
        outcome=row.outcome,
        reason=row.reason,
        same_as=row.same_as,
        result=row.result,
        traceback=row.traceback,
    )


def checkpoint_of(row: InputRow) -> Checkpoint | None:
    """Return the last decided step of an input; None before the first, and in work that cannot resume after a step."""
    if row.reached is None or row.state is None or row.value is None:
        return None
    return Checkpoint(done=row.reached, state=row.state.encode(), value=row.value.encode())


def _check_input(number: int, inputs: int) -> None:
    if number not in range(inputs):
        raise ValueError(f"there is no input {number}")


def read_own_options(rows: Rows) -> Iterator[str]:
    """Per input, as JSON, the options that differ from the first one's."""
    return (row.options for row in rows.select(InputRow, BY_INPUT))


Other = tuple[int, dict[str, Any] | None, dict[str, Any] | None]
"""The number of an input, and its options before and after; None if the input is missing."""


def other_inputs(rows: Rows, recorded: Experiment, given: Experiment, own: Sequence[str]) -> Iterator[Other]:
    """Inputs whose options differ from the recorded ones."""
    before, after = options_of(recorded.recipe.options, read_own_options(rows)), options_of(given.recipe.options, own)
    for number, (was, now) in enumerate(zip_longest(before, after)):
        if was != now:
            yield number, was, now
