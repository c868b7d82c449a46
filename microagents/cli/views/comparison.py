"""The table of a comparison on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from microagents.cli.views.tables import Columns, Facts, Part, closing_notes, figure
from microagents.runs.words.money import money, prices_of, specs_in
from microagents.runs.words.summary import accuracy_text
from microagents.studies.comparison import Comparison, Row

HEADERS = (
    *("strategy", "k", "solved", "rate", "95 % interval", "undecided", "failed", "argmax"),
    *("calls", "tokens", "cost", "time"),
)
LEAST = ("argmax", "failed", "tokens", "undecided", "time", "calls")
"""Columns that a narrow terminal loses, in this order."""


def report(comparison: Comparison) -> Iterator[Part]:
    """Yield the sentences and the table of a comparison."""
    yield comparison.title
    if comparison.rows:
        yield ""
        yield Columns([HEADERS, *map(_cells, comparison.rows)], least=LEAST)
        yield ""
    note = prices_of(specs_in(comparison.models)).note
    if note:
        yield note
    if any(row.solved is None for row in comparison.rows):
        yield (
            "?: code cannot tell; give the task an `oracle`, or its result a field `correct` or `solved`, to count the right results, "
            "then repeat with another --run-id; rows are judged by --gold COLUMN, too"
        )
        yield from _unjudged(comparison.rows)
    facts = [(_name(row), said) for row in comparison.rows for said in _facts(row)]
    if facts:
        yield Facts(facts)
    yield from closing_notes(comparison.recorded_at, comparison.reason, "decisions")


def _unjudged(rows: Sequence[Row]) -> Iterator[Part]:
    """Yield the agreement and the form of replies that nothing judges."""
    cells = [
        (_named(each), figure(each.k, ""), figure(each.valid, ".1%"), figure(each.agreement, ".1%")) for each in rows
    ]
    yield Columns([("strategy", "k", "samples valid", "votes for the decision"), *cells])
    yield "nothing is judged: replies that agree may be wrong alike"


def _facts(row: Row) -> Iterator[str]:
    """Yield the sentences on one row."""
    if accuracy := accuracy_text(row.accuracy):
        yield accuracy
    if row.pass_k:
        yield ", ".join(
            f"pass^{k} {each.share:.1%} ({each.low:.1%} to {each.high:.1%})" for k, each in row.pass_k.items()
        )
    if row.f1 is not None:
        yield f"mean F1 of the answers {row.f1:.3f}"
    if row.failed:
        yield f"{row.run_id}: {row.reason}, or repeat with another --run-id to do all inputs anew"


def _named(row: Row) -> str:
    if row.given:
        return f"{row.strategy}@{row.given}"
    return row.strategy


def _name(row: Row) -> str:
    """Name a row by its strategy and its k."""
    if row.k is None:
        return _named(row)
    return f"{_named(row)} k={row.k}"


def _cells(row: Row) -> tuple[str, ...]:
    if row.solved is not None:
        solved = f"{row.solved:,} of {row.judged:,}"
    else:
        solved = f"? ({row.completed:,} completed)"
    interval = "-"
    if row.low is not None and row.high is not None:
        interval = f"{row.low:.1%} to {row.high:.1%}"
    cost = "-"
    if row.cost_usd is None or row.cost_per_input is not None:
        cost = money(row.cost_per_input)
    return (
        _named(row),
        figure(row.k, ""),
        solved,
        figure(row.rate, ".1%"),
        interval,
        f"{row.undecided:,}",
        f"{row.failed:,}",
        figure(row.argmax, ","),
        figure(row.calls_per_input, ",.1f"),
        figure(row.tokens_per_input, ",.0f"),
        cost,
        f"{row.wall_s:,.1f} s",
    )
