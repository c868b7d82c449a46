"""Limits of cost and of tokens: a call is sent only if the most that it can use is left, so that no reply passes a limit."""

from __future__ import annotations

import asyncio
from math import inf
from pathlib import Path
from typing import Any

import pytest

from microagents import Call, InvalidUsage, Result, Sample, resume, run
from microagents.base.errors import ModelUnavailable
from microagents.journal.books import Books
from microagents.journal.messages import Account, CallsOver, Lost, Mark, RecordCalls
from microagents.models.model import Model, Most
from microagents.replies.chat import Usage
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift
from tests.benchmarks import budget

CALL_USD = 0.01
"""The most that a call of `Shop` can cost; most calls cost a tenth of it."""
CALL_TOKENS = 1000


class Shop(Model):
    """A model with a price, that counts what it has sold. Some calls time out, and are billed all the same. With ``tells`` None its usage
    is all zeros."""

    spec = "shop"

    def __init__(
        self,
        *,
        tells: bool | None = True,
        fails: bool = False,
        errs: bool = False,
        share: float = 0.1,
        is_known: bool = True,
    ) -> None:
        self.priced = True
        self.sold = self.sold_usd = self.running = self.most_running = 0.0
        self._tells, self._fails, self._errs, self._share, self._is_known = tells, fails, errs, share, is_known

    def at_most(self, call: Call) -> Most:  # noqa: ARG002 - all cost the same
        return Most(tokens=CALL_TOKENS, cost_usd=CALL_USD if self._is_known else None)

    async def complete(self, call: Call) -> Sample:
        self.sold += 1
        self.sold_usd += CALL_USD * self._share
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(1 + call.id.seq % 3)
        finally:
            self.running -= 1
        if self._fails and call.id.seq % 2:
            raise ModelUnavailable("timeout", "no reply")
        number = (int(call.prompt.user.removeprefix("Number: ")) * 17 + 5) % 1009
        usage = Usage(input_tokens=int(CALL_TOKENS * self._share) - 1, output_tokens=1, cost_usd=CALL_USD * self._share)
        wrong = self._errs and not call.id.seq
        if self._tells is None:
            usage = Usage(input_tokens=0, output_tokens=0, cost_usd=0.0)
        return Sample(text=f"number = {number + wrong}", usage=Usage() if self._tells is False else usage)


def sell(shop: Model, *, inputs: int = 30, k: int = 3, seed: int = 0, **settings: Any) -> Result:
    options = {"max_outage_s": 30.0, **settings}
    return run_virtual(
        run([Drift(length=5)] * inputs, models=shop, strategy=Maker(k=k), runs_dir=None, **options), seed=seed
    )


@pytest.mark.parametrize(
    ("share", "settings"),
    [
        (1.0, {}),
        (0.1, {"fails": True}),
        (0.3, {"tells": False}),
        (1.0, {"tells": None}),
    ],
)
def test_what_is_sold_never_passes_the_limit_of_cost(share: float, settings: dict[str, Any]) -> None:
    shop = Shop(share=share, **settings)
    result = sell(shop, max_cost_usd=0.2, seed=1, runtime="linked", deploy={"solver": {"num_replicas": 3}})
    assert (result.outcome, shop.sold_usd <= 0.2 + 1e-9) == ("stopped", True)
    assert shop.most_running <= 20, "more could have cost more than there is"
    account = result.account
    assert account.cost_at_most_usd is not None
    assert shop.sold_usd - 1e-9 <= account.cost_at_most_usd <= 0.2 + 1e-9
    assert result.reason is not None
    assert "--max-cost 0.2 is reached" in result.reason


def test_calls_that_are_cancelled_are_counted_at_the_most_that_they_can_cost() -> None:
    shop = Shop(share=1.0, errs=True)  # the guesses on wrong first replies are given up, with their calls
    result = sell(shop, inputs=3, max_cost_usd=0.5, k=2)
    assert (result.outcome, result.account.unanswered > 0) == ("stopped", True)
    assert shop.sold_usd <= 0.5 + 1e-9


@pytest.mark.slow
def test_a_limit_is_used_up_to_the_most_of_one_call() -> None:
    shop = Shop()
    result = sell(shop, max_cost_usd=0.2)
    assert shop.sold_usd > 0.2 - CALL_USD
    assert result.cost_usd == pytest.approx(shop.sold_usd)
    assert str(result.reason).startswith("--max-cost 0.2 is reached: $0.00")


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"fails": True}])
def test_a_limit_of_tokens_is_kept_like_one_of_cost(settings: dict[str, Any]) -> None:
    shop = Shop(**settings)
    result = sell(shop, max_tokens=20_000)
    assert (result.outcome, shop.sold * 100 <= result.account.tokens_at_most <= 20_000) == ("stopped", True)
    assert str(result.reason).startswith("--max-tokens 20000 is reached")


def test_a_call_without_a_reply_is_charged_its_estimate_and_the_limit_counts_the_most() -> None:
    account = sell(Shop(fails=True), inputs=1, k=1, max_cost_usd=0.2).account
    assert account.unanswered == 0
    account = sell(Shop(fails=True), inputs=4, k=2, max_cost_usd=0.2).account
    assert account.unanswered > 0
    assert account.estimated_usd == pytest.approx(account.unanswered * CALL_USD * 0.1)
    assert account.unsettled_usd == pytest.approx(account.unanswered * CALL_USD * 0.9)


def test_of_a_model_that_cannot_tell_the_most_calls_in_flight_are_paid_beyond_the_limit() -> None:
    shop = Shop(is_known=False)
    result = sell(shop, max_cost_usd=0.05, concurrency=4)
    assert (result.outcome, result.calls <= 50 + 4) == ("stopped", True)


def test_a_limit_that_has_no_room_for_a_call_says_so() -> None:
    shop = Shop()
    result = sell(shop, max_cost_usd=0.004)
    assert shop.sold == 0
    assert str(result.reason).startswith(
        "--max-cost 0.004 is reached: $0.004000 left, and the next call may use up to $0.010000;"
    )


@pytest.mark.slow
@pytest.mark.parametrize("raised", [{"max_cost_usd": 0.4}, {"max_cost_usd": None}, {"max_cost_usd": inf}])
async def test_a_limit_counts_earlier_sittings_and_can_be_raised_and_lifted(
    raised: dict[str, Any], tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "models": "sim:perfect@price_in=0,price_out=10",
        "run_id": "r",
        "runs_dir": tmp_path,
        "max_output_tokens": 1000,
    }
    first = await run(Drift(length=20), **options, max_cost_usd=0.05)
    again = await run(Drift(length=20), **options)
    assert (first.outcome, again.outcome, again.calls, again.settings["max_cost_usd"]) == (
        "stopped",
        "stopped",
        first.calls,
        0.05,
    )
    assert (await resume("r", runs_dir=tmp_path, **raised)).outcome == "completed"


@pytest.mark.slow
async def test_a_run_whose_earlier_cost_is_unknown_takes_no_limit_of_cost(tmp_path: Path) -> None:
    shop = Shop(tells=False)
    options: dict[str, Any] = {"models": shop, "run_id": "r", "runs_dir": tmp_path, "k": 1}
    await run(Drift(length=3), **options, max_calls=1)
    with pytest.raises(
        InvalidUsage, match="the cost of earlier calls of this run is unknown, so --max-cost 1 cannot be kept"
    ):
        await run(Drift(length=3), **options, max_cost_usd=1.0)


def test_calls_that_are_lost_with_their_process_count_at_the_most_that_they_can_cost() -> None:
    books = Books(1)
    books.add(Mark(most=Lost(calls=4, tokens=400, cost_usd=2.0)))
    books.add(
        RecordCalls(
            source="s",
            in_flight={"x": 1},
            calls=1,
            input_tokens=7,
            output_tokens=3,
            cost_usd=0.25,
        )
    )
    books.add(Mark(most=Lost(calls=3, tokens=300, cost_usd=1.5)))
    books.totals.lose_all()
    account: Account = books.account()
    assert (account.lost_in_flight, account.cost_at_most_usd, account.tokens_at_most) == (3, 0.25 + 3 * 0.5, 10 + 300)
    books.add(Mark(most=Lost(calls=4, cost_usd=1.0)))
    books.add(CallsOver())
    books.totals.lose_all()
    assert books.account().unsettled_usd == account.unsettled_usd


@pytest.mark.slow
def test_the_sellers_bills_never_pass_a_ceiling_whatever_fails_or_is_killed() -> None:
    found = budget.measure(2)
    assert (found.runs, found.passed, found.unbounded) == (2, 0, 0)
    assert found.off_by_usd < 1e-9
