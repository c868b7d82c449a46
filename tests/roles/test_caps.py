"""A cap on models of one's own: they tell what a call has cost, and not what it will."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from microagents import Call, Result, Sample, compare, run
from microagents.journal.books import Books
from microagents.journal.messages import CallsOver, Lost, Mark
from microagents.models.model import Model, Most
from microagents.replies.chat import Usage
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift
from tests.benchmarks import caps


class Till(Model):
    """A model of one's own that takes a second a call, and counts what it has sold.

    Args:
        price: the cost of the n-th call; None if it is not told.
        is_malformed: whether no reply can be read.
        tokens: the tokens of each call.
        most: the most that it says a call can use.
    """

    spec = "till"
    priced = True

    def __init__(
        self,
        price: Callable[[int], float | None],
        *,
        is_malformed: bool = False,
        tokens: int = 100,
        most: Most | None = None,
    ) -> None:
        self._price, self._is_malformed, self._tokens, self._most = price, is_malformed, tokens, most
        self.sold = self.running = self.most_running = 0
        self.sold_usd = 0.0

    def at_most(self, call: Call) -> Most | None:  # noqa: ARG002 - the same for all
        return self._most

    async def complete(self, call: Call) -> Sample:
        self.sold += 1
        cost_usd = self._price(self.sold)
        self.sold_usd += cost_usd or 0.0
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(1.0)
        finally:
            self.running -= 1
        number = (int(call.prompt.user.removeprefix("Number: ")) * 17 + 5) % 1009
        usage = Usage(input_tokens=self._tokens - 1, output_tokens=1, cost_usd=cost_usd)
        return Sample(text="no idea" if self._is_malformed else f"number = {number}", usage=usage)


def sell(till: Any, *, inputs: int = 60, **settings: Any) -> Result:
    work = [Drift(length=5)] * inputs
    return run_virtual(run(work, models=till, strategy=Maker(k=2), runs_dir=None, **settings), seed=1)


def test_no_run_goes_above_its_cap_by_more_than_its_dearest_call_or_else_the_calls_in_flight() -> None:
    found = caps.measure(3)
    assert (found.runs, found.failed) == (3, [])
    assert found.worst <= 1


def test_a_cap_with_room_for_its_first_call_is_kept_if_prices_are_within_a_factor_of_three() -> None:
    till = Till(lambda number: 0.01 + 0.02 * (number % 7) / 6)
    result = sell(till, max_cost_usd=0.5)
    assert (result.outcome, till.sold_usd <= 0.5) == ("stopped", True)
    assert till.sold_usd > 0.5 - 0.091, "it is used up to what the next call may cost"
    assert till.most_running > 2
    assert "above" not in str(result).partition("\n")[0]


def test_a_run_above_its_cap_says_in_its_first_line_how_much_it_has_spent() -> None:
    result = sell(Till(lambda _: 2.0), max_cost_usd=0.5)
    assert result.calls == 1
    assert str(result).partition("\n")[0].endswith("; $2.000000 spent, above --max-cost 0.5")
    assert result.as_json()["verdict"]["text"].startswith("$2.000000 spent, above --max-cost 0.5; stopped at its limit")
    assert str(result.reason).startswith("--max-cost 0.5 is reached, and passed by $1.500000: calls used up more")


@pytest.mark.slow
async def test_a_run_above_its_cap_advises_a_limit_that_it_can_go_on_with(tmp_path: Path) -> None:
    result = await run(
        Drift(length=5), models=f"{__file__}:ForTwoDollars", k=2, max_cost_usd=0.5, run_id="r", runs_dir=tmp_path
    )
    assert str(result.go_on).endswith(" --max-cost 4")


class ForTwoDollars(Till):
    """A model that a spec can name."""

    answers_at_once = True

    def __init__(self) -> None:
        super().__init__(lambda _: 2.0)


def test_a_price_that_rises_goes_above_the_cap_by_no_more_than_the_calls_in_flight() -> None:
    till = Till(lambda number: 0.001 if number <= 20 else 0.5)
    result = sell(till, max_cost_usd=0.4)
    assert result.outcome == "stopped"
    assert till.sold_usd <= 0.4 + 0.5 * till.most_running
    assert f"${till.sold_usd:,.6f} spent, above --max-cost 0.4" in str(result)


@pytest.mark.parametrize("free", [1, 30])
def test_first_calls_that_cost_nothing_do_not_let_all_others_go_at_once(free: int) -> None:
    till = Till(lambda number: 0.0 if number <= free else 1.0)
    sell(till, max_cost_usd=0.5)
    assert till.sold_usd <= 1 + free


@pytest.mark.slow
def test_malformed_replies_of_a_model_of_ones_own_stop_the_run_before_many_calls_are_bought() -> None:
    till = Till(lambda _: 0.01, is_malformed=True)
    result = sell(till, inputs=300)
    assert "were flagged (malformed" in str(result.reason)
    assert till.sold <= 40


def test_a_model_that_tells_no_cost_is_asked_once_under_a_cap() -> None:
    till = Till(lambda _: None)
    result = sell(till, max_cost_usd=0.5)
    assert (result.outcome, till.sold, result.cost_usd) == ("stopped", 1, None)
    assert str(result.reason).startswith(
        "--max-cost 0.5 cannot be kept: object:till replied without a cost, and no price is known;"
    )


def test_a_reply_without_a_cost_counts_as_three_times_the_dearest_so_far() -> None:
    till = Till(lambda number: 0.01 if number == 1 else None)
    account = sell(till, max_cost_usd=0.5).account
    assert till.sold == 1 + 16
    assert account.cost_usd == pytest.approx(0.01 + 16 * 0.03)


async def for_a_cent(call: Call) -> Sample:
    """A function as a model."""
    number = (int(call.prompt.user.removeprefix("Number: ")) * 17 + 5) % 1009
    return Sample(text=f"number = {number}", usage=Usage(cost_usd=0.01))


for_a_cent.priced = True  # type: ignore[attr-defined]


def test_a_model_that_states_no_tokens_is_bounded_by_what_it_has_used() -> None:
    till = Till(lambda _: None, tokens=40_000)
    result = sell(till, max_tokens=1_000_000)
    used = result.account.input_tokens + result.account.output_tokens
    assert (result.outcome, used <= 1_000_000, used > 850_000) == ("stopped", True, True)


def test_a_model_that_tells_no_tokens_at_all_is_not_held_to_one_call_at_a_time() -> None:
    result = sell(silent, max_tokens=50_000)
    assert (result.outcome, result.account.tokens_at_most <= 50_000, Silent.most_running > 4) == ("stopped", True, True)


class Silent:
    """What runs of a function that tells nothing."""

    running = most_running = 0


async def silent(call: Call) -> str:
    """Say only the text."""
    Silent.running += 1
    Silent.most_running = max(Silent.most_running, Silent.running)
    await asyncio.sleep(1)
    Silent.running -= 1
    return f"number = {(int(call.prompt.user.removeprefix('Number: ')) * 17 + 5) % 1009}"


def test_a_model_that_goes_above_what_it_states_is_believed_no_more() -> None:
    till = Till(lambda _: 0.1, most=Most(tokens=200, cost_usd=0.001))
    result = sell(till, max_cost_usd=5.0)
    assert result.outcome == "stopped"
    assert till.sold_usd <= 5.0, "after the first calls each reserves what they have cost"


@pytest.mark.slow
def test_a_comparison_goes_above_its_cap_by_one_call_at_most(tmp_path: Path) -> None:
    till = Till(lambda number: 0.01 + 0.01 * (number % 3))
    ks = compare(
        Drift(length=5),
        strategies=[Maker(k=1), Maker(k=2), Maker(k=3)],
        models=till,
        repeat=5,
        max_cost_usd=0.7,
        runs_dir=tmp_path,
    )
    found = run_virtual(ks)
    assert found.outcome == "stopped"
    assert till.sold_usd <= 0.7 + 0.03


def test_calls_that_are_lost_before_a_price_is_known_are_settled_by_the_first_one() -> None:
    books = Books(1)
    books.add(Mark(most=Lost(calls=1, tokens=100, unpriced=1)))
    books.totals.lose_all()
    assert (books.account().unpriced, books.account().unsettled_usd) == (1, 0)
    books.add(CallsOver())
    books.add(Mark(most=Lost(calls=2, tokens=200, cost_usd=1.0)))
    books.totals.lose_all()
    assert (books.account().unpriced, books.account().unsettled_usd) == (1, 1.0)
