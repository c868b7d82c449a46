"""MAKER: chains decided step by step, and how often and how fast they are, against the scaling laws."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import ClassVar

import pytest

from microagents import (
    ChainTask,
    Conductor,
    Prompt,
    Reply,
    Result,
    Strategy,
    Work,
    resume,
    run,
    run_sync,
)
from microagents.base.errors import InvalidDefinition, InvalidUsage, TaskFailed
from microagents.elections import laws
from microagents.journal.messages import Account
from microagents.runs.strategies import Models, strategy_of
from microagents.systems import Maker
from microagents.tasks.drift import RING, Drift, Onward, Place

FALSE_ALARMS = 1e-4
"""How often a check against a law would fail with a fresh seed although the law holds; seeds here are fixed."""
ELECTIONS = 800


class Walk(ChainTask[Place, Onward]):
    """A chain without an oracle."""

    def start(self) -> Place:
        return Place()

    def done(self, state: Place) -> bool:
        return state.steps_done == 5

    def prompt(self, state: Place) -> Prompt:
        return Prompt(user=f"{state.number}")

    def advance(self, state: Place, reply: Onward) -> Place:
        return Place(number=reply.number, steps_done=state.steps_done + 1)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Onward:  # noqa: ARG002 - it has one kind of reply
        return Onward(number=int(prompt.user) + 1)


class Noted(Drift):
    """A chain that notes what it was asked to ask."""

    asked: ClassVar[list[int]] = []

    def prompt(self, state: Place) -> Prompt:
        self.asked.append(state.number)
        return super().prompt(state)


class Stumble(Drift):
    """A user's chain that raises on the way."""

    def advance(self, state: Place, reply: Onward) -> Place:
        if state.steps_done == 3:
            raise ValueError("no such place")
        return super().advance(state, reply)


# -- what a step costs -------------------------------------------------------------------------------------------------


# -- chains ------------------------------------------------------------------------------------------------------------


async def test_a_chain_ends_undecided_at_a_step_that_is_undecided() -> None:
    result = await run(
        Drift(length=50),
        models="sim:perfect@error=0.4,alternatives=1",
        strategy=Maker(k=3, max_draws=12),
        run_id="mine",
    )
    at = result.account.steps
    assert at < 50
    assert (result.outcome, result.recorded) == ("undecided", None)
    assert result.account.undecided_at == (f"0/step/{at}",)
    assert (result.reason or "").startswith(f"the election at 0/step/{at} is undecided after 12 draws (")
    assert f"decide it yourself (`microagents decide mine 0/step/{at} FIELD=VALUE`) and resume" in (result.reason or "")
    assert result.account.decided == at


@pytest.mark.parametrize("known_inputs", [False, True])
async def test_what_a_users_chain_raises_is_named(*, known_inputs: bool) -> None:
    with pytest.raises(TaskFailed, match=r"raised ValueError\('no such place'\) at step \d+ \(test_maker\.py:\d+\)"):
        await run(Stumble(), models="sim:perfect", known_inputs=known_inputs)


@pytest.mark.slow
async def test_first_to_k_takes_the_first_reply_with_k_votes() -> None:
    first_to, ahead_by = [
        await run(Drift(length=200), models="sim:perfect@error=0.4,alternatives=1", strategy=Maker(k=3, rule=rule))
        for rule in ("first-to", "ahead-by")
    ]
    assert (
        3 < (first_to.account.votes_per_step or 0) <= 5
    )  # of two replies one has three votes after five at the latest
    assert (ahead_by.account.votes_per_step or 0) > 5


async def test_certify_leaves_a_step_open_that_has_two_equal_replies_and_decides_others() -> None:
    chain, model = Drift(length=20), "sim:perfect@error=0.5,alternatives=1"
    result = await run(chain, models=model, strategy=Maker(rule="certify", max_draws=30), known_inputs=True, seed=3)
    assert (len(result.account.undecided_at) > 10, result.k) == (True, None)
    sure = await run(chain, models="sim:perfect", strategy=Maker(rule="certify"), known_inputs=True)
    assert (sure.account.errors, sure.account.votes_per_step) == (0, 7)


async def test_votes_that_agree_on_a_wrong_reply_are_counted() -> None:
    result = await run(Drift(length=6), models="sim:perfect@error=1,alternatives=1", known_inputs=True)
    assert (result.account.errors, result.account.unanimous_errors) == (6, 6)
    assert "6 of 6 wrong decisions unanimous" in str(result)


# -- known inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["linked"])
async def test_the_result_of_known_inputs_counts_its_steps(runtime: str) -> None:
    result = await run(Drift(length=300), models="sim:perfect@error=0.2,flag=0.2", known_inputs=True, runtime=runtime)
    shown, account = result.recorded, result.account
    assert result.outcome == "completed"
    assert (shown["steps"], shown["wrong"], shown["undecided"]) == (300, account.errors, 0)


async def test_known_inputs_ask_every_step_from_the_right_state_however_wrong_the_decisions() -> None:
    Noted.asked.clear()
    result = await run(Noted(length=100), models="sim:perfect@error=0.4", k=1, known_inputs=True)
    right = [1, 1]  # the first question is put together once more, for the journal
    for _ in range(99):
        right.append((right[-1] * 17 + 5) % RING)
    assert Noted.asked == right
    assert result.recorded["wrong"] == result.account.errors
    assert 0 < result.recorded["wrong"] < 100


async def test_known_inputs_need_an_oracle_before_a_journal_is_made() -> None:
    with pytest.raises(
        InvalidUsage, match=r"Walk has no oracle, so its inputs are not known; define oracle\(state\), or run"
    ):
        await run(Walk(), models="sim:perfect", known_inputs=True, run_id="a")
    with pytest.raises(InvalidUsage, match="there is no run 'a'"):
        await resume("a")


# -- against the laws --------------------------------------------------------------------------------------------------


@cache
def held(p: float, k: int = 3) -> Result:
    """Elections between the right reply and one rival, as the laws have it."""
    error = round(1 - p, 6)
    return run_sync(
        Drift(length=ELECTIONS), models=f"sim:perfect@error={error},alternatives=1", k=k, seed=1, known_inputs=True
    )


def right_decisions(result: Result) -> int:
    assert (result.outcome, result.account.decided) == ("completed", ELECTIONS)
    assert result.account.errors is not None
    return ELECTIONS - result.account.errors


def share_agrees(successes: int, trials: int, share: float) -> bool:
    """Whether so many successes are no rarer than `FALSE_ALARMS` at this share: an exact binomial test, two-sided."""

    def chance(least: int, most: int) -> float:
        ways = (
            math.lgamma(trials + 1) - math.lgamma(n + 1) - math.lgamma(trials - n + 1) for n in range(least, most + 1)
        )
        return math.fsum(
            math.exp(way + n * math.log(share) + (trials - n) * math.log1p(-share)) for n, way in enumerate(ways, least)
        )

    return 2 * min(chance(0, successes), chance(successes, trials)) >= FALSE_ALARMS


def votes_of_a_race(p: float, k: int) -> tuple[float, float]:
    """Mean and standard deviation of the votes until one of two leads by k, summed over the walk itself and not by any law."""
    at, mean, square, n = {0: 1.0}, 0.0, 0.0, 0
    while at and sum(at.values()) > 1e-15:
        n += 1
        after: dict[int, float] = {}
        for lead, chance in at.items():
            for step, share in ((1, p), (-1, 1 - p)):
                after[lead + step] = after.get(lead + step, 0.0) + chance * share
        ended = after.pop(k, 0.0) + after.pop(-k, 0.0)
        mean, square, at = mean + n * ended, square + n * n * ended, after
    return mean, math.sqrt(square - mean * mean)


def votes_agree(votes: int, elections: int, mean: float, deviation: float) -> bool:
    """Whether so many votes are no rarer than `FALSE_ALARMS` at this mean; the mean of thousands of elections is normal enough."""
    bound = NormalDist().inv_cdf(1 - FALSE_ALARMS / 2) * deviation / math.sqrt(elections)
    return abs(votes / elections - mean) <= bound


P = 0.7


@pytest.mark.slow
def test_decisions_are_right_as_often_as_the_law_says() -> None:
    right = right_decisions(held(P))
    assert share_agrees(right, ELECTIONS, laws.race_won(P, 3))
    assert not share_agrees(right, ELECTIONS, laws.race_won(P, 2))
    assert not share_agrees(right, ELECTIONS, P)


@pytest.mark.slow
def test_elections_take_as_many_votes_as_the_law_says() -> None:
    account = held(P).account
    mean, deviation = votes_of_a_race(P, 3)
    assert laws.expected_votes(P, 3) == pytest.approx(mean, rel=1e-9)
    assert votes_agree(account.votes, ELECTIONS, laws.expected_votes(P, 3), deviation)
    assert not votes_agree(account.votes, ELECTIONS, laws.expected_votes(P, 2), deviation)
    assert account.votes_per_step == account.votes / ELECTIONS
    assert account.calls == account.votes


@pytest.mark.slow
def test_the_short_form_of_the_law_of_votes_is_told_from_the_long_one() -> None:
    """k/(2p - 1) leaves out the races that the rival wins: at p = 0.7 and k = 3 it says 7.5 votes for 6.4."""
    _, deviation = votes_of_a_race(0.7, 3)
    assert not votes_agree(held(0.7).account.votes, ELECTIONS, 3 / (2 * 0.7 - 1), deviation)


@pytest.mark.slow
def test_a_model_that_is_wrong_more_often_than_right_is_wrong_almost_always() -> None:
    right = right_decisions(held(0.3))
    assert share_agrees(right, ELECTIONS, laws.race_won(0.3, 3))
    assert 0.91 < 1 - right / ELECTIONS < 0.945


def test_the_checks_themselves_raise_false_alarms_as_rarely_as_they_say() -> None:
    """A check that accepts all, or a bound that is too tight, would show here: the exact bounds at 4,000 trials of 0.5 are 2,000 +- 123."""
    for off in (-124, -122, 0, 122, 124):
        assert share_agrees(2000 + off, 4000, 0.5) is (abs(off) < 124)
        assert votes_agree(4000 + off, 1000, 4.0, 1.0) is (abs(off) < 124)


def test_more_votes_than_samples_are_refused() -> None:
    with pytest.raises(InvalidUsage, match="k = 101 votes cannot come from max_draws = 100 samples"):
        strategy_of("maker", Drift(), {"k": 101})


async def test_two_reply_classes_of_one_name_are_refused() -> None:
    def pick() -> type[Reply]:
        class Pick(Reply, frozen=True):
            number: int

        return Pick

    first, _ = pick(), pick()

    class Picking(Drift):
        pass

    class PickConductor(Conductor[Picking, "PickOne"]):
        async def conduct(self, work: Work[Picking, PickOne]) -> object:
            return (await work.elect("a", Prompt(user="?"), first)).outcome

    class PickOne(Strategy):
        solves, conductor = (Picking,), PickConductor

    with pytest.raises(InvalidDefinition, match="rename one of the two reply classes"):
        await run(Picking(), models="sim:perfect", strategy=PickOne())


async def test_what_on_progress_raises_ends_the_run() -> None:
    def fail(account: Account) -> None:
        raise ZeroDivisionError(account.calls)

    with pytest.raises(ZeroDivisionError):
        await run(Drift(length=10_000), models="sim:perfect", on_progress=fail)


@pytest.mark.parametrize("models", [[], {"solver": []}, {}])
async def test_a_pool_without_a_model_is_refused(models: Models) -> None:
    with pytest.raises(InvalidUsage, match="names no model"):
        await run(Drift(), models=models)
