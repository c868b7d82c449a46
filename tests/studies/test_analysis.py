"""The analysis of studies: rates, their intervals, distances and accuracies by position, on counts made for the purpose."""

from __future__ import annotations

from random import Random

import pytest

from microagents.elections.laws import wilson_interval
from microagents.studies.analysis import distances_between, errors_in, lookahead_in, parts_in
from microagents.studies.sampling.study import Studied, StudiedStep


def of(*samples: list[int], fields: int = 1) -> Studied:
    """A study with these samples at each step."""
    steps = tuple(StudiedStep(samples=tuple(each), field_majorities=(None,) * fields) for each in samples)
    return Studied(fields=tuple(f"field {number}" for number in range(fields)), steps=steps)


def with_errors(*rates: float, n: int = 400, seed: int = 0) -> Studied:
    """A study of a model with these error rates."""
    random = Random(seed)
    return of(*[[int(random.random() >= rate) for _ in range(n)] for rate in rates])


def of_rollouts(*steps: list[tuple[bool | None, ...]]) -> Studied:
    """A study with these rollouts from each step."""
    return Studied(fields=("field",), steps=tuple(StudiedStep(samples=(1, 0), rollouts=tuple(each)) for each in steps))


def test_the_rate_of_a_step_has_an_interval_over_its_samples_and_the_mean_one_over_the_steps() -> None:
    found = errors_in(of([1] * 90 + [0] * 10, [1] * 70 + [0] * 30))
    first, second = (each.rate for each in found.steps)
    assert first is not None
    assert second is not None
    assert found.mean is not None
    assert (first.share, (first.low, first.high)) == (0.1, wilson_interval(10, 100))
    assert found.mean.share == pytest.approx(0.2)
    assert (found.mean.low, found.mean.high) == pytest.approx(wilson_interval(0.4, 2))


def test_a_step_is_hard_above_one_half_and_surely_hard_if_its_interval_is() -> None:
    found = errors_in(of([0] * 9 + [1], [0] * 6 + [1] * 4, [0] * 5 + [1] * 5, [1] * 10))
    assert (found.hard, found.surely_hard) == (2, 1)
    assert [each.step for each in found.hardest(2)] == [0, 1]
    assert [each.step for each in found.hardest(10)] == [0, 1, 2], "a step without an error is not among the hardest"


def test_the_p_of_a_ladder_is_the_share_of_right_samples_at_the_steps_that_are_not_hard() -> None:
    found = errors_in(of([0] * 9 + [1], [0] * 1 + [1] * 9, [0] * 5 + [1] * 5, [1] * 10))
    assert found.p is not None
    assert found.ordinary == 3
    assert found.p.share == pytest.approx((0.9 + 0.5 + 1) / 3)
    assert (found.p.low, found.p.high) == pytest.approx(wilson_interval(2.4, 3))
    assert errors_in(of([0] * 10)).p is None, "every step is hard"


def test_a_step_without_a_valid_sample_has_no_rate_and_does_not_count() -> None:
    found = errors_in(of([], [1, 0]))
    assert found.steps[0].rate is None
    assert found.mean is not None
    assert found.mean.share == 0.5
    assert errors_in(of([])).mean is None


def test_two_models_with_errors_at_different_steps_are_as_far_apart_as_can_be() -> None:
    found = distances_between({"a": of([0, 0], [1, 1]), "b": of([1, 1], [0, 0])})
    assert found.matrix == ((0.0, 1.0), (1.0, 0.0))
    assert found.errors == (2, 2)


def test_a_distance_is_half_the_sum_of_differences_between_shares_of_errors() -> None:
    # Halves are every other sample: of `a` each has its errors at one of the steps, of `b` both have half of them at each.
    found = distances_between({"a": of([0, 1], [1, 0]), "b": of([0, 0], [0, 0])})
    assert found.matrix == ((1.0, 0.5), (0.5, 0.0))


def test_a_half_without_errors_has_no_distance() -> None:
    assert distances_between({"a": of([0, 1]), "b": of([0, 0])}).matrix == ((None, None), (None, 0.0))


def test_models_with_the_same_rates_are_no_farther_apart_than_the_halves_of_one() -> None:
    # Independent samples at the same rates: each entry then has one distribution. The seeds are fixed.
    rates = [0.02, 0.3, 0.05, 0.7, 0.01, 0.1] * 5
    alike = distances_between({"a": with_errors(*rates, seed=1), "b": with_errors(*rates, seed=2)}).matrix
    other = distances_between({"a": with_errors(*rates, seed=1), "b": with_errors(*reversed(rates), seed=2)}).matrix
    assert alike[0][1] == pytest.approx((alike[0][0] or 0) / 2 + (alike[1][1] or 0) / 2, abs=0.02)
    assert (other[0][1] or 0) > 0.5


def test_positions_are_told_of_the_step_that_they_reach() -> None:
    found = lookahead_in(of_rollouts([(True, False, None)], [(False, True)], [(True,)]), 3)
    alone, first, second, third = found.positions
    assert alone.by_step == (0.5, 0.5, 0.5)
    assert first.by_step == (1.0, 0.0, 1.0)
    assert second.by_step == (None, 0.0, 1.0)
    assert (third.by_step, third.accuracy, third.missing) == ((None, None, None), None, 1)
    assert (first.ranked, first.missing) == ((0.0, 1.0, 1.0), 0)
    assert found.pooled.by_step == (1.0, 0.0, 1.0)
    assert second.given_first is not None
    assert second.given_first.share == 0.0, "the rollout that is right at its second step was wrong at its first"


def test_the_hardest_tenth_is_chosen_by_one_half_of_the_samples_and_measured_by_the_other() -> None:
    # Every other sample, from the first on, chooses: the step 3 is as easy as others, and its first half had bad luck.
    samples = [[1, 1] * 10] * 3 + [[0, 1] * 10] + [[1, 1] * 10] * 6
    hardest = lookahead_in(of(*samples), 1).hardest
    assert hardest is not None
    assert (hardest.steps, hardest.alone.share) == ((3,), 1.0)
    assert lookahead_in(of([1], [1]), 1).hardest is None, "one sample has no halves"


def test_a_field_is_judged_where_those_before_it_are_right() -> None:
    found = parts_in(of([2, 2, 1, 0], [0, 0], fields=2))
    first, second = found.fields
    assert first.single is not None
    assert second.single is not None
    assert found.whole.single is not None
    assert first.single.share == pytest.approx((3 / 4 + 0) / 2)
    assert second.single.share == pytest.approx(2 / 3), "the second step has no right first field"
    assert found.whole.single.share == pytest.approx((2 / 4 + 0) / 2)
    assert (first.errors_per_walk, second.errors_per_walk, found.whole.errors_per_walk) == (1.25, 0.25, 1.5)
