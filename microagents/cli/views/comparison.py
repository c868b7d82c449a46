"""The table of a comparison on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from microagents.cli.views.tables import Columns, closing_notes
from microagents.runs.words.money import are_simulated, specs_in
from microagents.runs.words.summary import accuracy_text
from microagents.studies.comparison import Comparison, Row

HEADERS = (
    *("strategy", "k", "solved", "rate", "95 % interval", "undecided", "failed", "argmax"),
    *("calls", "tokens", "cost", "time"),
)


def report(comparison: Comparison) -> Iterator[str | Columns]:
    """Yield the sentences and the table of a comparison."""
    yield comparison.title
    if comparison.rows:
        yield ""
        yield Columns([HEADERS, *(_cells(row) for row in comparison.rows)])
        yield ""
    if are_simulated(specs_in(comparison.models)):
        yield "simulated: no real model was asked; costs are what the real one would have cost at list prices"
    if any(row.solved is None for row in comparison.rows):
        yield (
            "?: code cannot tell; give the task an `oracle`, or its result a field `correct` or `solved`, to count the right results, "
            "then repeat with another --run-id; rows are judged by --gold COLUMN, too"
        )
        yield from _unjudged(comparison.rows)
    yield from (
        f"{_named(row)} k={_cell(row.k, '')}: {said}" for row in comparison.rows for said in accuracy_text(row.accuracy)
    )
    for row in comparison.rows:
        if row.pass_k:
            shown = ", ".join(
                f"pass^{each.k} {each.chance:.1%} ({each.low:.1%} to {each.high:.1%})" for each in row.pass_k
            )
            yield f"{_named(row)}{'' if row.k is None else f' k={row.k}'}: {shown}"
    f1s = [f"{_named(row)} {row.f1:.3f}" for row in comparison.rows if row.f1 is not None]
    if f1s:
        yield f"mean F1 of the answers: {', '.join(f1s)}"
    for row in comparison.rows:
        if row.failed:
            yield f"{row.run_id}: {row.reason}, or repeat with another --run-id to do all inputs anew"
    yield from closing_notes(comparison.recorded_at, comparison.reason, "decisions")


def _unjudged(rows: Sequence[Row]) -> Iterator[str | Columns]:
    """Yield the agreement and the form of replies that nothing judges."""
    cells = [(_named(each), _cell(each.k, ""), _cell(each.valid, ".1%"), _cell(each.agreement, ".1%")) for each in rows]
    yield Columns([("strategy", "k", "samples valid", "votes for the decision"), *cells])
    yield "nothing is judged: replies that agree may be wrong alike"


def _named(row: Row) -> str:
    if row.given:
        return f"{row.strategy}@{row.given}"
    return row.strategy


def _cells(row: Row) -> tuple[str, ...]:
    if row.solved is not None:
        solved = f"{row.solved:,} of {row.judged:,}"
    else:
        solved = f"? ({row.completed:,} completed)"
    rate = "-" if row.rate is None else f"{row.rate:.1%}"
    interval = "-" if row.low is None or row.high is None else f"{row.low:.1%} to {row.high:.1%}"
    if row.cost_usd is None:
        cost = "unknown"
    elif row.cost_per_input is None:
        cost = "-"
    else:
        cost = f"${row.cost_per_input:,.4f}"
    return (
        _named(row),
        _cell(row.k, ""),
        solved,
        rate,
        interval,
        f"{row.undecided:,}",
        f"{row.failed:,}",
        _cell(row.argmax, ","),
        _cell(row.calls_per_input, ",.1f"),
        _cell(row.tokens_per_input, ",.0f"),
        cost,
        f"{row.wall_s:,.1f} s",
    )


def _cell(number: float | None, form: str) -> str:
    if number is None:
        return "-"
    return f"{number:{form}}"
