"""What voting did for a run: votes that were outvoted, and the chance of the run without a vote."""

from __future__ import annotations

from math import exp

import pytest
from msgspec import structs

from microagents import run_sync
from microagents.journal.messages import Account
from microagents.runs.words.voting import MIN_WRONG, unvoted_success
from microagents.tasks.drift import Drift
from microagents.tasks.multiplication import Multiplication

CHAIN = Account(steps=1000, total_steps=1000, decided=1000, votes=3100, valid=3100, outvoted=50)


def test_the_chance_without_a_vote_is_the_share_of_right_votes_to_the_power_of_the_steps() -> None:
    found = unvoted_success(CHAIN)
    assert found is not None
    assert exp(found.ln_rate) == pytest.approx((1 - 50 / 3100) ** 1000)
    assert found.ln_low < found.ln_rate < found.ln_high < 0


def test_votes_for_decisions_that_the_oracle_calls_wrong_are_wrong_too() -> None:
    assert unvoted_success(structs.replace(CHAIN, outvoted=20, misled=30)) == unvoted_success(CHAIN)


def test_a_million_steps_do_not_underflow() -> None:
    found = unvoted_success(structs.replace(CHAIN, steps=10**6, decided=10**6, votes=4 * 10**6, outvoted=10**6))
    assert found is not None
    assert found.ln_rate == pytest.approx(-287_682, rel=1e-3)
    assert found.as_json() == {"rate": 0.0, "low": 0.0, "high": 0.0}


@pytest.mark.parametrize(
    "changed",
    [
        {"outvoted": MIN_WRONG - 1},
        {"inputs": 2},
        {"decided": 999},
        {"samples": 1},
        {"decided": 0, "steps": 0, "votes": 0, "outvoted": 0},
    ],
    ids=str,
)
def test_where_the_votes_cannot_tell_no_chance_is_given(changed: dict[str, int | None]) -> None:
    assert unvoted_success(structs.replace(CHAIN, **changed)) is None


def test_the_interval_holds_the_true_chance() -> None:
    """Each sample is wrong with a chance of 0.05. At 95 %, 40 seeds give fewer than 33 intervals that hold it once in 20,000 times."""
    held = 0
    for seed in range(40):
        account = run_sync(Drift(length=60), models="sim:perfect@error=0.05", k=3, seed=seed, runs_dir=None).account
        found = unvoted_success(account)
        held += found is None or found.ln_low <= 60 * -0.0513 <= found.ln_high
    assert held >= 33


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


def test_votes_of_a_tree_are_counted_by_the_problem_and_by_the_election() -> None:
    shown = run_sync(Multiplication(digits=5), models="sim:perfect@error=0.1", k=2, runs_dir=None).as_json()
    assert (shown["unit"], shown["k"]) == ("problem", 2)
    assert shown["decided"] < shown["steps"]
    assert shown["votes_per_step"] == shown["votes"] / shown["steps"]
    assert shown["votes_per_decision"] == shown["votes"] / shown["decided"] >= 2
    assert shown["valid"] == shown["votes"] + shown["samples"]
    assert shown["unvoted_success"] is None
