"""What voting did for a run: votes that were outvoted, and what one sample in their place would have decided."""

from __future__ import annotations

from microagents import run_sync
from microagents.tasks.drift import Drift


def test_votes_that_lost_are_counted_by_the_vote_and_not_by_the_letter() -> None:
    result = run_sync(Drift(length=80), models="sim:perfect@error=0.45,alternatives=1", k=1, runs_dir=None)
    assert (result.account.outvoted, result.account.errors, result.account.misled) == (
        0,
        result.account.errors,
        result.account.errors,
    )
    result = run_sync(Drift(length=80), models="sim:perfect@error=0.3,alternatives=1", k=2, runs_dir=None)
    account = result.account
    assert account.errors
    # Ahead by 2, each election has two votes more for its winner, right or wrong, than for the other.
    assert account.votes == 80 * 2 + 2 * ((account.outvoted or 0) + account.misled - 2 * account.errors)
