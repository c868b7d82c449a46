"""The scaling laws: their check values, their shape, and an independent computation in exact or long arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from microagents.base.errors import InvalidUsage
from microagents.elections.laws import expected_votes, pass_k, race_won, wilson_interval
from microagents.elections.rules import BEYOND, FirstToAheadBy, Tally
from tests.papers.maker_equations import cost_full, expected_calls, k_min, p_full, sample_price, votes_per_sample

USUAL = st.floats(0.51, 0.999999)
MARGINS = st.integers(1, 60)
STEPS = st.one_of(st.integers(1, 10**4), st.integers(1, 10**18))
TARGETS = st.floats(1e-6, 1 - 1e-9)
ROUNDING = 1e-12
"""What the laws may differ from long arithmetic, relative: thousands of times the rounding of one operation."""


# -- long arithmetic, written from the formulas of the paper -----------------------------------------------------------


def ln_p_full_exactly(p: float, k: int, steps: int, steps_per_call: int = 1) -> Decimal:
    """Logarithm of equation 13 as printed, with 120 digits."""
    with localcontext() as context:
        context.prec = 120
        exact = Decimal(p)
        return -((1 + ((1 - exact) / exact) ** k).ln() * steps / steps_per_call)


def k_min_exactly(p: float, steps: int, target: float, steps_per_call: int = 1) -> int:
    """Equation 14 as printed, with 120 digits."""
    with localcontext() as context:
        context.prec = 120
        exact = Decimal(p)
        odds_of_losing = (-(Decimal(target).ln() * steps_per_call / steps)).exp() - 1
        return max(1, math.ceil(odds_of_losing.ln() / ((1 - exact) / exact).ln()))


# -- check values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "steps", "target", "margin"),
    [
        (0.99, 100, 0.95, 2),
        (0.99, 10**6, 0.95, 4),
        (0.9978, 2**20 - 1, 0.95, 3),
        (0.9, 10**6, 0.95, 8),
        (0.99, 1, 0.5, 1),
    ],
)
def test_the_smallest_margin_has_the_values_of_the_paper(p: float, steps: int, target: float, margin: int) -> None:
    assert k_min(p, steps, target) == margin


def test_a_close_race_takes_the_exact_votes_and_not_those_of_the_short_form() -> None:
    assert expected_votes(0.55, 3) == pytest.approx(8.77, abs=0.005)
    assert expected_votes(0.7, 3) == pytest.approx(6.405, abs=0.001)
    assert expected_votes(0.9978, 3) == pytest.approx(3.0133, abs=0.0001)
    assert expected_votes(0.5, 4) == 16
    assert expected_votes(1.0, 7) == 7


def test_the_cost_of_the_million_step_run_is_that_of_the_short_form() -> None:
    steps = 2**20 - 1
    assert cost_full(1e-3, 0.9978, 3, steps) == pytest.approx(1e-3 * steps * 3 / (2 * 0.9978 - 1), rel=1e-6)
    assert cost_full(1e-3, 0.9978, 3, steps, valid=0.9) == pytest.approx(
        1e-3 * steps * 3 / (0.9 * (2 * 0.9978 - 1)), rel=1e-6
    )


# -- against exact arithmetic ------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.floats(1e-15, 1e-3), st.floats(0.01, 30))
def test_close_races_with_huge_margins_agree_with_long_arithmetic(edge: float, scale: float) -> None:
    p, k = 0.5 + edge, math.ceil(scale / edge)
    with localcontext() as context:
        context.prec = 120
        exact = Decimal(p)
        r_k = ((1 - exact) / exact) ** k
        won, votes = 1 / (1 + r_k), k / (2 * exact - 1) * (1 - r_k) / (1 + r_k)
    assert race_won(p, k) == pytest.approx(float(won), rel=ROUNDING)
    assert expected_votes(p, k) == pytest.approx(float(votes), rel=ROUNDING)


@settings(max_examples=60)
@given(USUAL, MARGINS, STEPS)
@example(0.99, 10, 10**18)
@example(0.9978, 7, 10**18)
@example(0.51, 60, 1)
def test_success_of_the_whole_agrees_with_long_arithmetic(p: float, k: int, steps: int) -> None:
    exact = ln_p_full_exactly(p, k, steps)
    if exact > -700:
        assert p_full(p, k, steps) == pytest.approx(math.exp(exact), rel=1e-10)
    else:
        assert p_full(p, k, steps) < 1e-300


def test_the_smallest_margin_keeps_its_digits_where_the_plain_formula_has_none() -> None:
    assert 0.95 ** (-1 / 10**18) - 1 == 0
    assert [k_min(0.99, 10**n, 0.95) for n in (2, 6, 10, 14, 16, 18)] == [2, 4, 6, 8, 9, 10]


@given(st.integers(0, 8), st.integers(1, 6), st.fractions(0, 1))
def test_pass_k_is_without_bias(more: int, k: int, p: Fraction) -> None:
    trials = k + more
    mean = sum(
        float(math.comb(trials, c) * p**c * (1 - p) ** (trials - c)) * pass_k(c, trials, k) for c in range(trials + 1)
    )
    assert mean == pytest.approx(float(p) ** k, abs=1e-12)


# -- several steps per call, votes, calls and costs --------------------------------------------------------------------


def followed(p: float, other: float, k: int) -> tuple[float, float, float]:
    """How a race of two models that vote by turns ends: lost, contested, votes; with the votes for both candidates of each model."""
    alike = k + BEYOND
    open_races: dict[tuple[int, ...], float] = {(first, 0, 0, 0, 0): 0.5 for first in (0, 1)}
    lost = contested = votes = 0.0
    while sum(open_races.values()) > 1e-13:
        after: dict[tuple[int, ...], float] = {}
        for (turn, *counts), share in open_races.items():
            votes += share
            for is_right, chance in ((True, (p, other)[turn]), (False, 1 - (p, other)[turn])):
                one = counts.copy()
                one[2 * turn + (not is_right)] += 1
                lead = one[0] + one[2] - one[1] - one[3]
                if abs(lead) == k:
                    lost += share * chance * (lead < 0)
                elif one in ([alike, 0, 0, alike], [0, alike, alike, 0]):
                    lost, contested = lost + share * chance, contested + share * chance
                else:
                    if any(one[:2]) and any(one[2:]) and not (one[1] == one[2] == 0 or one[0] == one[3] == 0):
                        one = [alike + max(lead, 0), alike + max(-lead, 0), 0, 0]  # it ends by the lead
                    key = (1 - turn, *one)
                    after[key] = after.get(key, 0.0) + share * chance
        open_races = after
    return lost, contested, votes


@pytest.mark.slow
def test_the_tally_of_a_pool_behaves_as_the_law_of_two_models_says() -> None:
    """3,000 elections: under one false alarm in 10^4 seeds."""
    rng, trials, chances = Random(5), 3_000, (0.98, 0.1)
    ends, votes = {"decided for a": 0, "decided for b": 0, "contested for a": 0, "contested for b": 0}, 0
    for first in range(trials):
        tally = Tally(FirstToAheadBy(3), models=2)
        while tally.votes_needed:
            model = (first + tally.counted) % 2
            tally.count("a" if rng.random() < chances[model] else "b", model)
        ends[f"{tally.outcome} for {tally.plurality}"] += 1
        votes += tally.counted
    lost, contested, expected = followed(*chances, 3)
    assert ends["decided for a"] / trials == pytest.approx(1 - lost, abs=0.02)
    assert (ends["contested for a"] + ends["contested for b"]) / trials == pytest.approx(contested, abs=0.02)
    assert votes / trials == pytest.approx(expected, rel=0.05)


@given(USUAL, st.integers(1, 30), st.integers(1, 10), st.floats(0.01, 1.0))
def test_several_steps_per_call_leave_the_race_as_it_is_but_fewer_samples_count(
    p: float, m: int, k: int, valid: float
) -> None:
    right, rival, steps = p**m, (1 - p) * p ** (m - 1), 10**6
    assert right**k / (right**k + rival**k) == pytest.approx(race_won(p, k))
    assert votes_per_sample(p, steps_per_call=m, valid=valid) == pytest.approx(valid * (right + rival))
    full = 2e-4 * steps * expected_votes(p, k) / valid / (right + rival)
    assert cost_full(2e-4, p, k, steps, valid=valid, steps_per_call=m) == pytest.approx(full)


def test_a_sample_is_priced_by_its_tokens() -> None:
    assert sample_price(1000, 200, input_usd=4e-7, output_usd=1.6e-6) == pytest.approx(7.2e-4)
    assert sample_price(0, 0, input_usd=1.0, output_usd=1.0) == 0


# -- shares that were measured ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_intervals_are_those_of_newcombes_table(successes: int, trials: int, low: float, high: float) -> None:
    """Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    found = wilson_interval(successes, trials)
    assert found == pytest.approx((low, high), abs=5e-5)


# -- what is refused ---------------------------------------------------------------------------------------------------


MINORITIES = [0.5, 0.3, 0.0, -0.1, 1.0000001, math.nan, math.inf]
NO_CHANCES, NO_COUNTS, NO_COSTS = [-0.1, 1.1, math.nan], [0, -1, 10**31], [-1.0, math.nan, math.inf]


@pytest.mark.parametrize(
    ("law", "values", "said"),
    [
        (lambda p: k_min(p, 10, 0.9), MINORITIES, "^p must be "),
        (lambda p: expected_calls(p, 3, 10), MINORITIES, "^p must be "),
        (lambda p: cost_full(1.0, p, 3, 10), MINORITIES, "^p must be "),
        (votes_per_sample, NO_CHANCES, "^p must be from 0 to 1"),
        (
            lambda target: k_min(0.9, 10, target),
            [0.0, 1.0, -1.0, 2.0, math.nan, math.inf],
            "^the target must be above 0",
        ),
        (lambda m: votes_per_sample(0.9, steps_per_call=m), NO_COUNTS, "^steps_per_call must be a whole number"),
        (lambda m: votes_per_sample(0.6, steps_per_call=m), [10**6], "put fewer steps into a call"),
        (
            lambda valid: votes_per_sample(0.9, valid=valid),
            [0.0, -0.5, 1.1, math.nan],
            "^valid must be above 0 and at most 1",
        ),
        (lambda usd: cost_full(usd, 0.9, 3, 10), NO_COSTS, "^cost_usd must be"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(law: Callable[[Any], object], values: list[float], said: str) -> None:
    for value in values:
        with pytest.raises(InvalidUsage, match=said):
            law(value)
