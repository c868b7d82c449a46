"""Error rates that differ from step to step: what is estimated of planted ones, against samples and votes drawn on their own."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from random import Random
from statistics import fmean

import pytest

from microagents.elections.error_rates import (
    ErrorRates,
    Seen,
    chance_of,
    error_rates,
    exact_interval,
    steps_for,
    upper_share,
)
from microagents.elections.laws import race_won

RateOf = Callable[[Random], float]
SEEDS = 100
MIN_HELD = 93
"""Of so many seeds at least so many hold an interval of 95 %: all of 97.5 % or more do so but for one time in 10^3."""


def drawn(rng: Random, rate: float, samples: int) -> Seen:
    return sum(rng.random() < rate for _ in range(samples)), samples


def two_stages(rng: Random, rate: float) -> Seen:
    """Two samples, and eight more where one of them is wrong."""
    first, _ = drawn(rng, rate, 2)
    return (first + drawn(rng, rate, 8)[0], 10) if first else (0, 2)


def beta_rates(rng: Random) -> float:
    return rng.betavariate(0.2, 5)


def hard_rates(rng: Random) -> float:
    return 0.7 if rng.random() < 0.02 else 0.002


@pytest.mark.parametrize(
    ("rate_of", "mean"), [(lambda _: 0.01, 0.01), (hard_rates, 0.02 * 0.7 + 0.98 * 0.002), (beta_rates, 0.2 / 5.2)]
)
def test_the_interval_over_steps_holds_the_mean_error_rate(rate_of: RateOf, mean: float) -> None:
    held = 0
    for seed in range(SEEDS):
        rng = Random(seed)
        wrong = sum(drawn(rng, rate_of(rng), 2)[0] / 2 for _ in range(500))
        low, high = exact_interval(wrong, 500)
        held += low <= mean <= high
    assert held >= MIN_HELD


def test_hard_steps_are_found_with_few_false_alarms() -> None:
    found, planted, false = 0, 0, 0
    for seed in range(10):
        rng = Random(seed)
        rates = [hard_rates(rng) for _ in range(1_000)]
        steps = {number: two_stages(rng, rate) for number, rate in enumerate(rates)}
        called = error_rates(steps.values()).hard_among(steps)
        hard = {number for number, rate in enumerate(rates) if rate > 0.5}
        planted += len(hard)
        found += len(hard & set(called))
        false += len(set(called) - hard)
    assert found >= 0.75 * planted  # one in ten shows no wrong reply in the first two samples
    assert false <= 0.05 * (found + false)


@pytest.mark.parametrize("rate_of", [hard_rates, beta_rates])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_predicted_loss_of_votes_is_that_of_votes_held_on_other_steps(rate_of: RateOf, k: int) -> None:
    rng = Random(7)
    estimate = error_rates([two_stages(rng, rate_of(rng)) for _ in range(4_000)])
    losses = [each.loss(lambda rate: race_won(rate, k)) for each in [estimate, *estimate.resampled()]]

    def is_lost(rate: float) -> bool:
        lead = 0
        while abs(lead) < k:
            lead += 1 if rng.random() < rate else -1
        return lead > 0

    lost = sum(is_lost(rate_of(rng)) for _ in range(20_000))
    low, high = exact_interval(lost, 20_000)
    assert low <= max(losses)
    assert min(losses) <= high


def test_two_samples_tell_equal_steps_from_unequal_ones() -> None:
    rng = Random(3)
    alike = error_rates([drawn(rng, 0.2, 10) for _ in range(2_000)])
    unlike = error_rates([drawn(rng, 1.0 if rng.random() < 0.2 else 0.0, 10) for _ in range(2_000)])
    assert alike.correlation < 0.02
    assert unlike.correlation > 0.98
    assert (alike.hard < 0.01, round(unlike.hard, 1)) == (True, 0.2)
    assert alike.loss(lambda rate: race_won(rate, 3)) < 0.04 < unlike.loss(lambda rate: race_won(rate, 3))


@pytest.mark.parametrize(("found", "factor"), [(0, 3.00), (1, 4.74), (2, 6.30)])
def test_the_bound_of_a_share_is_the_rule_of_three_and_its_successors(found: int, factor: float) -> None:
    assert upper_share(found, 10_000) * 10_000 == pytest.approx(factor, abs=0.01)


@pytest.mark.parametrize(("found", "steps"), [(1_000, 10_000), (5_000, 10_000), (9_999, 10_000), (700_000, 1_000_000)])
def test_the_bound_of_a_large_share_lies_close_above_it(found: int, steps: int) -> None:
    share = found / steps
    bound = upper_share(found, steps)
    assert share < bound <= share + 2 * (share * (1 - share) / steps) ** 0.5 + 5 / steps


def test_a_bound_of_all_steps_is_one() -> None:
    assert (upper_share(5, 5), exact_interval(5, 5)[1], exact_interval(0, 5)[0]) == (1.0, 1.0, 0.0)


def test_chances_and_numbers_of_steps_are_inverse() -> None:
    assert chance_of(1e-6, 1e6) == pytest.approx(exp(-1), rel=1e-5)
    assert chance_of(1e-6, steps_for(1e-6, 0.95)) == pytest.approx(0.95)
    assert (steps_for(0.0, 0.95), steps_for(1.0, 0.95), chance_of(1.0, 3)) == (float("inf"), 0.0, 0.0)


def test_the_mean_is_that_of_its_parts() -> None:
    rates = ErrorRates(shares=((0.0, 0.9), (0.2, 0.08), (0.8, 0.02)))
    assert rates.mean == pytest.approx(fmean([0.2] * 8 + [0.8] * 2 + [0.0] * 90))
    assert (rates.hard, rates.mean_at(hard=True)) == (0.02, 0.8)
    assert rates.mean == pytest.approx(
        rates.hard * rates.mean_at(hard=True) + (1 - rates.hard) * rates.mean_at(hard=False)
    )
