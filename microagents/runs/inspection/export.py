"""The decisions of a run as flat rows, for other programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from microagents.elections.election import Flagged, input_of
from microagents.journal.opening import unreadable
from microagents.journal.reading import Reader


class DecisionRow(Struct, frozen=True, kw_only=True):
    """One decision of a run, or one election that ended undecided."""

    run_id: str
    path: str
    input: int
    """Number of the input."""
    outcome: str
    """`once` for the recorded answer to a message, else the outcome of the election."""
    value: Any
    """The decided value, as JSON-like values; of a contested election the reply that leads; None while undecided."""
    votes: int
    """Number of valid replies counted."""
    other_votes: int | None
    """Number of those that are not the value; None without a value. Replies that differ only in fields without a vote are told apart."""
    flags: dict[str, int]
    """Red flags by name."""
    cost_usd: float | None
    """Cost of all counted samples; None where a price is unknown."""
    settled_by: str | None
    """How an undecided election was settled: `leader`, the name of a person, or the spec of another model; None where the vote decided."""
    settled_at: str | None
    """Time of a person's decision, in UTC."""
    decided_at: str | None
    """Time of its commit, in UTC; None in journals of versions before 4."""
    input_ended_at: str | None
    """Time at which the input ended, in UTC; None if it has not."""


def decision_rows(reader: Reader) -> Iterator[DecisionRow]:
    """A row for each decision, in the order of paths."""
    run_id, settled, persons = reader.experiment.run_id, reader.account().settled_at, reader.persons()
    of_input, ended_at = -1, None
    for path, row in reader.decisions():
        if input_of(path) != of_input:
            of_input = input_of(path)
            ended_at = reader.ended_at(of_input)
        flags = Counter(ballot.flag for ballot in row.ballots if isinstance(ballot, Flagged))
        votes = [ballot.value for ballot in row.ballots if not isinstance(ballot, Flagged)]
        person = persons.get(path) if settled.get(path) == "person" else None
        yield DecisionRow(
            run_id=run_id,
            path=path,
            input=of_input,
            outcome=row.outcome,
            value=None if row.value is None else _decoded(reader, row.value),
            votes=len(votes),
            other_votes=None if row.value is None else sum(value != row.value for value in votes),
            flags=dict(flags),
            cost_usd=row.cost_usd,
            settled_by=settled.get(path) if person is None else person.who,
            settled_at=None if person is None else person.at,
            decided_at=reader.decided_at(row),
            input_ended_at=ended_at,
        )


def _decoded(reader: Reader, value: bytes) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.MsgspecError as error:
        raise unreadable(reader.path, error) from None
