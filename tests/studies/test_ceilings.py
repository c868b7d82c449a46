"""Ceilings of all that picks among the samples of models, counted on planted samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from msgspec import structs

from microagents import plan
from microagents.base.errors import InvalidUsage
from microagents.studies.ceilings import Ceiling, ceiling_of, least_share, most_share
from microagents.studies.measured import ModelMeasurement
from microagents.studies.measuring import MeasuredStep
from microagents.studies.pools import pooled
from tests.studies.measured import TASK, made

RIGHT = 0


def step(number: int, samples: Sequence[int], **known: object) -> MeasuredStep:
    """A step with these samples by name, of which 0 is right."""
    kinds = [*dict.fromkeys(samples)]
    votes = tuple(map(kinds.index, samples))
    right = tuple(kind == RIGHT for kind in kinds)
    return structs.replace(MeasuredStep(number, len(samples), 2, votes, right, {}, names=tuple(kinds)), **known)


def ceiling(*models: Sequence[Sequence[int]]) -> Ceiling:
    """The ceiling of models with these samples of each step."""
    steps = [[step(number, samples) for number, samples in enumerate(of_model)] for of_model in models]
    return ceiling_of([f"m{at}" for at in range(len(models))], steps)


@pytest.mark.parametrize(("found", "trials"), [(0, 60), (1, 60), (4, 1_000), (59, 60), (60, 60)])
def test_bounds_of_a_share_are_those_at_which_so_many_successes_are_just_improbable(found: int, trials: int) -> None:
    low, high = least_share(found, trials), most_share(found, trials)
    ways = [math.comb(trials, each) for each in range(trials + 1)]
    if found:
        reached = sum(ways[at] * low**at * (1 - low) ** (trials - at) for at in range(found, trials + 1))
        assert reached == pytest.approx(0.05, rel=1e-6)
    if found < trials:
        stayed = sum(ways[at] * high**at * (1 - high) ** (trials - at) for at in range(found + 1))
        assert stayed == pytest.approx(0.05, rel=1e-6)
    assert (low == 0, high == 1) == (found == 0, found == trials)


def test_a_pool_misses_only_the_steps_that_all_of_its_models_miss() -> None:
    one = [[0, 0]] * 6 + [[1] * 10] * 3 + [[1, 0] * 5]
    other = [[0, 0]] * 5 + [[2] * 10] * 2 + [[1] * 10] + [[0, 0]] * 2
    alone, both = ceiling(one), ceiling(one, other)
    assert (alone.missed, both.missed, both.draws) == (3, 2, 10)
    assert alone.most == pytest.approx(1 - least_share(3, 10))
    assert alone.unanimous.share == 0.3
    assert both.unanimous.share == 0.1  # at the other step the models contradict each other
    assert both.sentence().startswith(
        "no vote, router or pool of these, with up to 10 draws each, is right in more than"
    )


def test_models_that_miss_the_same_steps_have_no_more_votes_than_one_of_them() -> None:
    samples = [[0, 0]] * 80 + [[1, 1]] * 20
    turned = samples[20:] + samples[:20]
    assert ceiling(samples, samples).effective == pytest.approx(1)
    assert ceiling(samples, turned).effective == pytest.approx(2, abs=0.7)


def test_a_field_that_no_sample_has_right_is_missed_though_fields_are_composed() -> None:
    composed = step(0, [1, 2], wrong_fields={"a": (1, 1), "b": (1, 1)})
    lost = step(1, [1, 2], wrong_fields={"a": (2, 2), "b": (1, 1)})
    assert ceiling_of(["m"], [[composed, lost]]).missed == 1


def shared(missed: int, steps: int = 200) -> ModelMeasurement:
    """A measurement of inputs of which some have no right sample."""
    found = [step(number, [1] * 10 if number < missed else [0, 0]) for number in range(steps)]
    return structs.replace(made(total=steps), steps=tuple(found), of_inputs=True)


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_a_target_above_the_ceiling_is_refused_with_what_can_help() -> None:
    with pytest.raises(InvalidUsage) as refused:
        plan(None, [shared(10)], target=0.99)
    said = str(refused.value)
    assert said.startswith(
        "a target of 0.99 is above the ceiling: no vote or router of this model, with up to 10 draws, is right in more than 0.9726 of "
        "such steps (95 %); more draws were not measured (measure --repeat N); there can help another model, a check by code"
    )
    assert plan(None, [shared(10)], target=0.9).best is not None
    assert plan(None, [shared(0)], target=0.99).ceiling is not None


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_a_target_that_more_draws_may_reach_is_not_refused() -> None:
    """A right reply with a quarter of the votes among many others: ten draws miss it at some steps, a hundred find it."""
    samples = [[each if each % 4 else 0 for each in range(at, at + 10)] for at in range(190)]
    scattered = [*samples, *[[*range(1, 11)]] * 10]
    found = [step(number, each) for number, each in enumerate(scattered)]
    measured = structs.replace(made(total=200), steps=tuple(found), of_inputs=True)
    assert measured.ceiling.most < 0.975
    assert plan(None, [measured], target=0.975).ceiling == measured.ceiling


def test_samples_that_nothing_judges_have_no_ceiling() -> None:
    unjudged = structs.replace(step(0, [0, 1]), right=None)
    with pytest.raises(InvalidUsage, match="no question has a known answer"):
        ceiling_of(["m"], [[unjudged]])
    with pytest.raises(InvalidUsage, match="m and n were measured on different steps"):
        ceiling_of(["m", "n"], [[step(0, [0, 0])], [step(1, [0, 0])]])
    with pytest.raises(
        InvalidUsage, match="the target must be above 0 and below 1, not 1; no margin makes success certain"
    ):
        plan(TASK, [made()], target=1)


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_a_pool_of_models_that_miss_other_steps_may_be_the_cheapest_and_contested_steps_are_lost() -> None:
    cheap = [[1, 0] * 5 if number % 20 == 0 else [0, 0] * 5 for number in range(100)]
    found = [step(number, samples) for number, samples in enumerate(cheap)]
    one = structs.replace(made(model="a:m", total=100, cost_usd=0.001), steps=tuple(found))
    other = structs.replace(
        one, model="b:m", steps=tuple([structs.replace(each, number=99 - each.number) for each in found])
    )
    both = pooled([one, other])
    assert both is not None
    assert both.call_usd == pytest.approx(0.001)
    assert both.p.share > one.p.share - 0.01
    assert all(each.valid == 20 for each in both.steps)
    planned = plan(None, [one, other], steps=100, target=0.3, repeat=20)
    assert planned.best is not None
    assert planned.best.models == ("a:m", "b:m")
    assert planned.simulation is not None
    assert planned.simulation.success.high > planned.best.chance.share  # one of the models alone succeeds in a tenth
    assert {run.models for run in planned.runs} == {("a:m",), ("b:m",), ("a:m", "b:m")}
    assert {run.options.get("rule", "ahead-by") for run in planned.runs} == {"ahead-by", "certify"}
    contested = [step(0, [0] * 10)], [step(0, [1] * 10)]
    pair = [structs.replace(one, model=name, steps=tuple(of)) for name, of in zip("ab", contested, strict=True)]
    joined = pooled(pair)
    assert joined is not None
    assert joined.steps[0].wrong == 20


def test_certificates_are_planned_for_a_model_that_gives_probabilities() -> None:
    sure = [structs.replace(step(number, [0] * 10), certain=2) for number in range(100)]
    found = structs.replace(made(total=100, cost_usd=0.001), steps=tuple(sure))
    voted, certified = plan(None, [found], steps=100, k=3).runs
    assert (certified.options, certified.chance) == ({"certain": "on"}, voted.chance)
    assert certified.calls < voted.calls / 2
    assert certified.is_best
