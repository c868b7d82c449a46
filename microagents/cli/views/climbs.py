"""The steps that climbed a ladder as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from microagents.cli.views.lines import one_line, shorten
from microagents.cli.views.tables import Columns, report_text
from microagents.elections.election import total_usd
from microagents.runs.inspection.climbs import Climb, Votes
from microagents.runs.words.money import Price
from microagents.runs.words.verdict import counted

MAX_SHOWN = 20
MAX_REPLY_COLUMNS = 40
HEADERS = ("step", "vote", "rungs", "samples", "cost", "decided", "without the ladder")
WORDS = tuple(number for number, name in enumerate(HEADERS) if name not in ("samples", "cost"))
"""Columns that are aligned to the left; the others are numbers."""


def draw_climbs(climbs: Sequence[Climb], price: Price) -> str:
    """Draw the table as text, and below it the cost and the changes of all climbs."""
    rows = [HEADERS, *[_cells(each, price) for each in climbs[:MAX_SHOWN]]]
    return report_text([Columns(rows, to_the_left=WORDS), *_facts(climbs, price)])


def _cells(climb: Climb, price: Price) -> tuple[str, ...]:
    rungs = [f"{rung.name} {_counts(rung.votes)}".rstrip(" -") for rung in climb.rungs]
    decided, without = "undecided", "-"
    if climb.decided_by is not None:
        decided = f"{_text(climb.value)} by {climb.decided_by}"
    if climb.differs is False:
        without = "the same"
    elif climb.without is not None:
        without = _text(climb.without)
    paid = (f"{climb.samples:,}", price(climb.cost_usd))
    return (climb.path, _counts(climb.votes), ", ".join(rungs), *paid, decided, without)


def _counts(votes: Votes) -> str:
    return ":".join(f"{count:,}" for _, count in votes) or "-"


def _text(value: object) -> str:
    written = msgspec.json.encode(value).decode()
    return shorten(one_line(written), MAX_REPLY_COLUMNS)


def _facts(climbs: Sequence[Climb], price: Price) -> Iterator[str]:
    if (more := len(climbs) - MAX_SHOWN) > 0:
        yield f"and {more:,} more; --json lists all of them"
    changed = sum(each.differs is True for each in climbs)
    undecided = sum(each.decided_by is None for each in climbs)
    cost = total_usd([each.cost_usd for each in climbs])
    samples = sum(each.samples for each in climbs)
    yield f"{counted(len(climbs), 'step')} climbed, for {counted(samples, 'sample')} and {price(cost)}"
    yield f"decided for another reply than the one that led its vote: {changed:,}"
    if undecided:
        yield f"undecided: {undecided:,}"
