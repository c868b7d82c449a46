"""Estimates of tasks: what a run with its cap will do."""

from __future__ import annotations

import math
from random import Random

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from microagents.base.errors import InvalidUsage
from microagents.elections.estimates import estimate
from microagents.elections.laws import expected_votes, p_full


def test_an_estimate_takes_the_smallest_margin_or_the_one_given() -> None:
    smallest = estimate(0.99, 10**6, 0.95)
    assert (smallest.k_min, smallest.k) == (4, 4)
    assert smallest.p_success == pytest.approx(p_full(0.99, 4, 10**6), rel=1e-9)
    smaller = estimate(0.99, 10**6, 0.95, k=2)
    assert (smaller.k_min, smaller.k) == (4, 2)
    assert smaller.p_success == pytest.approx(p_full(0.99, 2, 10**6), rel=1e-9)
    assert smaller.expected_votes_per_step == pytest.approx(expected_votes(0.99, 2), rel=1e-9)


def test_the_cap_of_a_run_counts_and_the_cap_that_keeps_the_promise_is_named() -> None:
    """At p = 0.7 the smallest k for 1,000 steps is 12, and a run with 100 draws a step completes right with .538."""
    found = estimate(0.7, 1000, 0.95)
    assert (found.k, found.max_draws) == (12, 100)
    assert found.p_success == pytest.approx(0.538, abs=5e-4)
    assert found.p_undecided == pytest.approx(0.4405, abs=5e-5)
    assert found.max_draws_min is not None
    assert estimate(0.7, 1000, 0.95, max_draws=found.max_draws_min).p_success >= 0.95
    assert estimate(0.7, 1000, 0.95, max_draws=found.max_draws_min - 1).p_success < 0.95


def test_one_rival_is_the_worst_case_for_the_chance_and_not_for_the_votes() -> None:
    one, five = (estimate(0.55, 10, 0.9, k=2, rivals=rivals) for rivals in (1, 5))
    assert one.expected_votes_per_step == pytest.approx(3.96, abs=0.005)
    assert five.expected_votes_per_step == pytest.approx(5.24, abs=0.005)
    assert five.p_success > one.p_success


def test_a_run_ends_at_its_first_undecided_step_and_buys_no_more() -> None:
    found = estimate(0.7, 50, 0.9, k=3, max_draws=6)
    open_step = 1 - (1 - found.p_undecided) ** (1 / 50)
    held = sum((1 - open_step) ** step for step in range(50))
    assert found.expected_calls == pytest.approx(found.expected_votes_per_step * held)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_first_to_k_is_the_majority_of_2k_minus_1_and_takes_no_more_ballots(k: int) -> None:
    """Against one rival the two decide alike, so the binomial law of the majority is that of both."""
    n = 2 * k - 1
    won = sum(math.comb(n, right) * 0.8**right * 0.2 ** (n - right) for right in range(k, n + 1))
    first_to, best_of = estimate(0.8, 10, 0.9, k=k, rule="first-to"), estimate(0.8, 10, 0.9, k=n, rule="best-of")
    assert first_to.p_success == pytest.approx(won**10)
    assert best_of.p_success == pytest.approx(won**10)
    assert first_to.expected_votes_per_step < best_of.expected_votes_per_step == pytest.approx(n)


@pytest.mark.parametrize(("rule", "rivals"), [("first-to", 1), ("first-to", 3), ("best-of", 1), ("ahead-by", 3)])
def test_the_smallest_margin_of_a_rule_reaches_the_target_and_the_one_below_does_not(rule: str, rivals: int) -> None:
    found = estimate(0.9, 100, 0.95, rule=rule, rivals=rivals)
    assert found.k_min is not None
    below = found.k_min - (2 if rule == "best-of" else 1)
    assert found.p_success >= 0.95 > estimate(0.9, 100, 0.95, rule=rule, rivals=rivals, k=below).p_success


def test_a_race_of_too_many_courses_is_simulated_and_says_so() -> None:
    found = estimate(0.7, 10, 0.9, k=12, rivals=30)
    assert found.p_success_interval is not None
    assert found.expected_calls_interval is not None
    assert found.p_success_interval[0] <= found.p_success <= found.p_success_interval[1]
    assert found.expected_calls_interval[0] < found.expected_calls < found.expected_calls_interval[1]


def test_an_estimate_counts_the_calls_that_red_flags_and_strangers_to_the_race_cost() -> None:
    plain = estimate(0.9, 1000, 0.95, k=3)
    assert plain.expected_calls == pytest.approx(1000 * plain.expected_votes_per_step)
    flagged = estimate(0.9, 1000, 0.95, k=3, valid=0.5)
    assert flagged.expected_calls == pytest.approx(2 * plain.expected_calls)


@pytest.mark.parametrize(("p", "m"), [(0.96, 8), (0.99, 20)])
def test_with_several_steps_a_call_the_chance_is_the_worst_case_of_equal_errors(p: float, m: int) -> None:
    """Votes are counted one by one, in 600 tasks; five standard errors, under 1 false alarm in 10^5 seeds."""
    found, rng, solved, trials = estimate(p, 30 * m, k=3, steps_per_call=m), Random(7), 0, 600
    for _ in range(trials):
        leads: list[int] = []
        while len(leads) < 30 and all(lead == 3 for lead in leads):
            lead = 0
            while abs(lead) < 3:
                lead += 1 if all(rng.random() < p for _ in range(m)) else -1
            leads.append(lead)
        solved += leads == [3] * 30
    assert solved / trials == pytest.approx(found.p_success, abs=5 * 0.5 / trials**0.5)
    assert found.p_success_of_paper is not None
    assert found.p_success + 0.2 < found.p_success_of_paper == p_full(p, 3, 30 * m, steps_per_call=m)
    single = estimate(p, 30 * m, k=3)
    assert single.p_success_of_paper is None
    assert (
        found.expected_calls < single.expected_calls < m * found.expected_calls
    )  # in calls it is cheaper, in steps dearer


def test_a_margin_beyond_the_cap_is_never_reached() -> None:
    found = estimate(0.51, 1000, 0.95)
    assert found.k is not None
    assert found.k > found.max_draws == 100
    assert (found.p_success, found.p_undecided, found.expected_calls) == (0, 1, 100)


def test_an_estimate_as_json_has_the_keys_of_the_command() -> None:
    written = msgspec.json.decode(msgspec.json.encode(estimate(0.99, 10**6, 0.95)))
    assert {"k_min", "max_draws_min", "p_success", "p_undecided", "expected_votes_per_step", "expected_calls"} <= set(
        written
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"p": 0.4}, "voting makes a model that is wrong more often than right wrong almost always"),
        ({"p": 0.2, "rivals": 3}, "p must be above the chance of each rival, 0.267, not 0.2"),
        ({"rivals": 0}, "rivals must be a whole number"),
        ({"max_draws": 0}, "max_draws must be a whole number"),
        ({"k": 0}, "k must be a whole number"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"steps_per_call": 11}, "at most steps=10, not 11"),
        ({"steps_per_call": 10}, "a reply of 10 steps has all of them right with a chance of 0.349"),
        ({"valid": 0.0}, "valid must be above 0"),
        ({"target": 1.0}, "the target must be above 0 and below 1"),
        ({"rule": "unanimity"}, "no law is known for the rule 'unanimity'.*ahead-by, first-to, best-of"),
        ({"p": 0.51, "steps": 1000, "rule": "first-to"}, "the smallest k of the rule 'first-to' is too large to be computed"),
    ],
)  # fmt: skip
def test_an_estimate_of_what_cannot_be_is_refused(arguments: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        estimate(**{"p": 0.9, "steps": 10, "target": 0.9, **arguments})  # type: ignore[arg-type]


@settings(max_examples=10, deadline=None)
@given(
    st.floats(0.5, 1.0, exclude_min=True), st.integers(1, 10**30), st.floats(0, 1, exclude_min=True, exclude_max=True)
)
@example(0.5 + 2**-53, 10**30, 1 - 2**-53)
def test_no_task_is_too_long_for_a_finite_estimate(p: float, steps: int, target: float) -> None:
    found = estimate(p, steps, target)
    assert all(map(math.isfinite, (found.p_success, found.expected_votes_per_step, found.expected_calls)))
