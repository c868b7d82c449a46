"""Checks of a whole journal: every page and row, and that its totals and digests match its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import structs

from microagents.elections.election import Flagged
from microagents.journal.books import Books, is_vote
from microagents.journal.experiment import Experiment
from microagents.journal.messages import NO_DECISION, Account
from microagents.journal.queries import read_decisions, take_in
from microagents.journal.rows import Rows
from microagents.journal.statements import MISCOUNTED, one, pragma


def damage(rows: Rows) -> Iterator[str]:
    """Read every page and every row; gives a sentence for each damage."""
    problem = pragma(rows.db, "integrity_check(1)")
    if problem != "ok":
        yield f"the file is damaged: {' '.join(str(problem).split())}"
        return
    yield from rows.problems()


def differences_from_rows(rows: Rows, experiment: Experiment, recorded: Account) -> Iterator[str]:
    """Give a sentence for each number and digest of an account that its rows do not make."""
    if miscounted := one(rows.db, MISCOUNTED):
        yield f"counted differs from the number of ballots in {miscounted:,} decisions"
    books = Books(experiment.inputs, in_order=experiment.in_order)
    totals = Account()
    flags: Counter[str] = Counter()
    for path, row in read_decisions(rows):
        take_in(books, path, row)
        valid = sum(not isinstance(ballot, Flagged) for ballot in row.ballots)
        if row.outcome != "inferred":
            flags.update(ballot.flag for ballot in row.ballots if isinstance(ballot, Flagged))
            totals.valid += valid
        totals.decided += row.outcome not in NO_DECISION
        totals.votes += valid * is_vote(row.outcome, row.ballots)
    made = structs.replace(
        books.account_with_digests(),
        decided=totals.decided,
        valid=totals.valid,
        votes=totals.votes,
        flagged=dict(flags),
    )
    for name in ("decided", "valid", "votes", "flagged", "decisions_sha256", "ballots_sha256"):
        if getattr(recorded, name) != getattr(made, name):
            yield f"{name} is recorded as {getattr(recorded, name)!r}, its rows make {getattr(made, name)!r}"
