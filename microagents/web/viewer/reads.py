"""Answers to pages that are read from the journal of one run, by the end of their addresses."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any

from microagents.base.errors import InvalidUsage
from microagents.journal.reading import Reader
from microagents.runs.inspection.decision import InspectedDecision, inspect_decision
from microagents.runs.inspection.row_table import ShownRow, row_agreements, table_rows
from microagents.web.viewer import pages

Query = Mapping[str, str]
Read = Callable[[Reader, Query], object]
"""Reads the answer: bytes, which are packed, a picture as a text, or anything that JSON has."""
READ_S = 30.0
"""Seconds that one read may take, and the task's oracle to judge the steps of an input."""
MAX_ROWS = 200
"""Rows of a table that are read for a page."""
MAX_SEARCHED = 1000
"""Characters of a text that rows are searched for."""


def input_in(query: Query, name: str = "input") -> int:
    """Read a number of an input from a query; 0 without one.

    Raises:
        InvalidUsage: it is no number.
    """
    return _number(query.get(name, "0"))


def strip(reader: Reader, query: Query) -> bytes:
    """Read one byte for each step of an input, from a number on."""
    of_input = input_in(query)
    reader.experiment.check_there([of_input])
    return pages.packed(reader.holding(str(of_input)).overview(of_input, input_in(query, "start")))


def _inputs(reader: Reader, _: Query) -> bytes:
    """Read one byte for each input, then the cost of each."""
    return pages.packed(reader.inputs_overview() + reader.input_sums())


def _agreement(reader: Reader, _: Query) -> bytes:
    """Read two floats for each row of a table: its agreement, and whether a sample was flagged."""
    return pages.packed(row_agreements(reader))


def _search(reader: Reader, query: Query) -> bytes:
    """Read the numbers of the rows that have a text."""
    found = reader.rows_with(query.get("text", "")[:MAX_SEARCHED])
    return pages.packed(array("I", found).tobytes())


def _rows(reader: Reader, query: Query) -> list[ShownRow]:
    """Read some rows of a table, and the votes on their cells."""
    given = query.get("of", "").split(",")[:MAX_ROWS]
    return table_rows(reader, [_number(each) for each in given if each])


def _decision(reader: Reader, query: Query) -> InspectedDecision:
    return inspect_decision(reader, query.get("path", ""))


def _of_input(read: Callable[[Reader, int], object]) -> Read:
    return lambda reader, query: read(reader, input_in(query))


def _wrong(reader: Reader, query: Query) -> dict[str, Any]:
    return pages.judged(reader, input_in(query), READ_S)


def _graph(reader: Reader, _: Query) -> str:
    return pages.graph(reader)


def _series(reader: Reader, _: Query) -> object:
    return reader.series(pages.POINTS)


def _number(given: str) -> int:
    if not (given.isascii() and given.isdecimal() and len(given) < 12):  # noqa: PLR2004 - as numbers in paths
        raise InvalidUsage(f"{given!r:.100} is not a number")
    return int(given)


READS: Mapping[str, Read] = {
    "": _of_input(pages.run_facts),
    "/work": _of_input(pages.work_on),
    "/steps": _of_input(pages.first_steps),
    "/wrong": _wrong,
    "/decision": _decision,
    "/graph": _graph,
    "/series": _series,
    "/inputs": _inputs,
    "/rows": _rows,
    "/agreement": _agreement,
    "/search": _search,
}
