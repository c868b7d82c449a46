"""Data of the pictures of a whole run: a byte for each step, sums over time, an outcome for each input, and the differences of two runs."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter

import msgspec

from microagents.journal.encoding import joined, key_range, path_range, recalled
from microagents.journal.messages import Recalled
from microagents.journal.rows import Rows
from microagents.journal.statements import (
    AGREEING_ROWS,
    BEGUN_INPUTS,
    EQUAL_INPUTS,
    LAST_TIME,
    OF_PATH,
    PLACES_BELOW,
    ROW_ELECTIONS,
    ROWS_WITH,
    STEP_BYTES,
    STEP_KEYS,
    SUMS_BY_INPUT,
    SUMS_BY_TIME,
    VALUES_OF_PLACE,
    one,
)
from microagents.journal.tables import DecidedRow, PlaceRow

ROWS_PER_READ = 2000
MAX_STEPS = 1 << 24
"""A row that claims a higher number is damaged: the bytes of all steps before it would exhaust the memory."""


def read_overview(rows: Rows, of_input: int, start: int = 0) -> bytes:
    """For each step from a number on a byte: its samples, whether one was flagged or outvoted, and whether the vote decided.

    A step without a row has 0.

    Raises:
        ValueError: rows are missing, or have values that no run writes.
    """
    place = rows.first(PlaceRow, OF_PATH, (f"{of_input}/step",))
    if place is None:
        return b""
    first, end = key_range(place.id)
    of_range = (first + start, end)
    # SQLite joins the numbers itself, in the order of the keys by which it reads. Python takes longer to read row by row, and minutes
    # while another thread is busy: it may wait 5 ms for the interpreter at each row, and at each call of a function of its own. Characters
    # in place of numbers would take twice as long: SQLite allocates each.
    last, text = rows.db.execute(STEP_BYTES, of_range).fetchone()
    if last is None:
        return b""
    if last - first > MAX_STEPS:
        raise ValueError(f"step {last - first - 1} does not exist")
    found = bytes(_numbers.decode(text))
    if last - of_range[0] == len(found):
        return found
    spread = bytearray(last - of_range[0])
    for (key,), byte in zip(rows.db.execute(STEP_KEYS, of_range), found, strict=True):
        spread[key - of_range[0] - 1] = byte
    return bytes(spread)


def read_series(rows: Rows, points: int) -> list[tuple[float, int, int, float]]:
    """For each part of the time of a run its end in seconds, its decisions, their samples and their cost."""
    part_ms = (one(rows.db, LAST_TIME) or 0) // points + 1
    found = {part: sums for part, *sums in rows.db.execute(SUMS_BY_TIME, (part_ms,))}
    parts = range(max(found) + 1 if found else 0)
    return [((part + 1) * part_ms / 1000, *found.get(part, (0, 0, 0.0))) for part in parts]


def read_inputs(rows: Rows, inputs: int) -> bytes:
    """For each input a byte: 0 while it has no decision, 1 while it is under way, then 2 completed, 3 undecided, 4 failed.

    5 is for one that is completed, and whose result says that it is wrong, by its ``correct`` or ``solved``; 6 for a refused one.
    """
    found = bytearray(inputs)
    codes = {None: 1, "completed": 2, "undecided": 3, "failed": 4, "refused": 6}
    for number, outcome, verdict in rows.db.execute(BEGUN_INPUTS, (inputs,)):
        found[number] = 5 if verdict == 0 else codes[outcome]
    return bytes(found)


def read_input_sums(rows: Rows, inputs: int) -> bytes:
    """For all inputs their samples, then their costs in US dollars, then the seconds until the last decision: floats of 4 bytes."""
    found = array("f", bytes(12 * inputs))
    for number, *sums in rows.db.execute(SUMS_BY_INPUT, (inputs,)):
        found[number::inputs] = array("f", sums)
    return found.tobytes()


def read_row_elections(rows: Rows) -> Iterator[tuple[int, Recalled | None]]:
    """Yield the elections of the rows of a table, and the number of the row; after a first election its repetition by another model.

    The decision is None if all samples agree.
    """
    last: int | None = 0
    while last is not None:
        last, found = rows.db.execute(ROW_ELECTIONS, (last, ROWS_PER_READ)).fetchone()
        for number, counted, value, ballots in _elections.decode(found):
            row = DecidedRow(
                key=0, fork=b"", outcome=0, counted=counted, value=value, ballots=ballots, cost_usd=None, after_ms=0
            )
            yield number, recalled(row)
    for number in _numbers.decode(one(rows.db, AGREEING_ROWS)):
        yield number, None


def read_equal_inputs(rows: Rows) -> list[tuple[int, int]]:
    """Return the inputs that took the result of an earlier one, each with the number of that."""
    return _pairs.decode(one(rows.db, EQUAL_INPUTS))


def read_rows_with(rows: Rows, text: str, first_row: str) -> list[int]:
    """Return the inputs that have a text in a column of their row, in a field of their reply or in their reason; ASCII in any case.

    Args:
        rows: the journal.
        text: the text.
        first_row: the row of the first input, as JSON. An input without a row of its own has the same.
    """
    pattern = text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return _numbers.decode(one(rows.db, ROWS_WITH, (f"%{pattern}%", first_row)))


_numbers = msgspec.json.Decoder(list[int])
_pairs = msgspec.json.Decoder(list[tuple[int, int]])
_elections = msgspec.json.Decoder(list[tuple[int, int, str | None, str]])


def read_differences(rows: Rows, others: Rows, of_input: int) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield the path of each decision of an input that two journals have differently, and its value in both; None if it has none."""
    below = path_range(str(of_input))
    places = [dict(each.db.execute(PLACES_BELOW, below)) for each in (rows, others)]
    for place in sorted({*places[0], *places[1]}, key=lambda path: (path.count("/"), path)):
        both = [
            _values(each, there.get(place), side)
            for side, (each, there) in enumerate(zip((rows, others), places, strict=True))
        ]
        for number, group in groupby(merge(*both), key=itemgetter(0)):
            values = {side: value for _, side, value in group}
            if len(values) == 1 or values[0] != values[1]:
                yield joined(place, number), values.get(0), values.get(1)


def _values(rows: Rows, place: int | None, side: int) -> Iterator[tuple[int, int, str | None]]:
    start, end = key_range(0 if place is None else place)  # no place has the id 0
    return iter(rows.db.execute(VALUES_OF_PLACE, (start, side, start, end)))
