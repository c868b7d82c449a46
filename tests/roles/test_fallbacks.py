"""Fallbacks: models that are asked for the same samples while another one is out, or while its provider refuses the account."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from microagents import Result, run
from microagents.base.errors import InvalidUsage, ModelUnavailable
from microagents.journal.reading import Reader
from microagents.models.model import Call, Model
from microagents.replies.chat import Sample, Usage
from microagents.replies.reply_forms import write
from microagents.roles.solver.health import OUT_AFTER_S, PROBE_EVERY_S, refuses_account
from microagents.runs.inspection.decision import inspect_decision
from microagents.runs.words.summary import summary
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift, Onward

FALLBACK = "sim:perfect@latency=1,sigma=0,price_in=1"
BUSY = ModelUnavailable("busy", "slow down", 429, None, None)
REVOKED = ModelUnavailable("refused", "invalid_api_key: no such key", 401)
NO_CREDIT = ModelUnavailable("busy", "insufficient_quota: check your plan", 429)
DOWN = ModelUnavailable("network", "nobody listens")
TOO_LONG = ModelUnavailable("refused", "the prompt is too long", 400)

Fails = Callable[[float], ModelUnavailable | None]


class First(Model):
    """Says the next number after a second, unless it fails at this time."""

    priced = True
    spec = "first"

    def __init__(self, fails: Fails) -> None:
        self.asked_s: list[float] = []
        self._fails = fails

    async def complete(self, call: Call) -> Sample:
        now_s = asyncio.get_running_loop().time()
        self.asked_s.append(now_s)
        if (error := self._fails(now_s)) is not None:
            raise error
        await asyncio.sleep(1.0)
        text = write(Drift(length=1).expert(call.prompt, Onward))
        return Sample(text=text, usage=Usage(input_tokens=1, output_tokens=1, cost_usd=0.0))


class Throttled(First):
    """Is throttled, as a provider's model is."""

    throttled_as = "a provider"


def between(from_s: float, to_s: float, error: ModelUnavailable) -> Fails:
    return lambda now_s: error if from_s <= now_s < to_s else None


async def drifting(model: Any, *, steps: int = 30, fallback: Any = (FALLBACK,), **options: Any) -> Result:
    strategy = Maker(k=1, speculate=False)
    return await run(
        Drift(length=steps), models=model, strategy=strategy, fallback=fallback, **{"runs_dir": None, **options}
    )


@pytest.mark.parametrize("resend", [True, False])
def test_what_waits_for_a_model_that_is_out_goes_to_the_fallback_at_once(*, resend: bool) -> None:
    model = Throttled(between(0.0, 1e9, DOWN))

    async def drifts() -> tuple[Result, float]:
        fast = "sim:perfect@latency=0.1,sigma=0"
        result = await run(
            Drift(length=15), models=model, strategy=Maker(k=3), fallback=fast, runs_dir=None, resend_stragglers=resend
        )
        return result, asyncio.get_running_loop().time()

    result, took_s = run_virtual(drifts())
    assert result.outcome == "completed"
    assert took_s < OUT_AFTER_S + 2


def drifted(fails: Fails, **options: Any) -> tuple[Result, First]:
    model = First(fails)
    return run_virtual(drifting(model, **options)), model


def test_where_the_account_is_refused_the_same_samples_are_drawn_from_the_fallback_at_once() -> None:
    result, model = drifted(between(5.0, 1e9, REVOKED))
    assert (result.outcome, result.account.errors) == ("completed", 0)
    assert result.account.fallbacks == {FALLBACK: 25}
    assert result.account.valid == 30
    assert model.asked_s[:6] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.slow
def test_a_model_that_recovers_is_asked_again_and_until_then_tried_once_a_minute() -> None:
    result, model = drifted(between(5.0, 100.0, REVOKED), steps=200)
    assert [second for second in model.asked_s if 5.0 <= second < 130.0] == [5.0, 5.0 + PROBE_EVERY_S, *range(125, 130)]
    assert result.account.fallbacks == {FALLBACK: 120}
    assert (result.outcome, result.account.outage) == ("completed", None)


def test_a_short_trouble_is_waited_out_and_an_outage_is_not() -> None:
    short, _ = drifted(between(5.0, 5.0 + OUT_AFTER_S / 4, BUSY))
    assert (short.outcome, short.account.fallbacks) == ("completed", {})
    long, _ = drifted(between(5.0, 1e9, BUSY))
    assert (long.outcome, long.account.fallbacks) == ("completed", {FALLBACK: 25})


@pytest.mark.slow
def test_a_model_that_asks_to_wait_for_long_is_not_waited_for() -> None:
    wait = ModelUnavailable("busy", "slow down", 429, 600.0, None)
    result, model = drifted(between(5.0, 100.0, wait), steps=300)
    assert [second for second in model.asked_s if second >= 5.0] == [5.0]
    assert result.account.fallbacks == {FALLBACK: 295}


def test_a_request_that_is_refused_for_another_reason_goes_to_no_fallback() -> None:
    result, _ = drifted(between(5.0, 1e9, TOO_LONG))
    assert (result.outcome, result.account.fallbacks) == ("refused", {})
    assert str(result.reason).startswith("the prompt is too long (HTTP 400): the provider refused")


def test_where_all_refuse_the_run_ends_with_the_refusal() -> None:
    with pytest.raises(ModelUnavailable, match="invalid_api_key"):
        drifted(lambda _: REVOKED, fallback=())
    with pytest.raises(ModelUnavailable, match="invalid_api_key"):
        drifted(lambda _: REVOKED, fallback=("tests.roles.test_fallbacks:Revoked",))


class Revoked(Model):
    """Refuses each key."""

    async def complete(self, call: Call) -> Sample:  # noqa: ARG002
        raise REVOKED


def test_decisions_and_digests_are_those_of_a_run_without_an_outage() -> None:
    usual = run_virtual(drifting(First(lambda _: None), seed=1), seed=1).account
    out = run_virtual(drifting(First(between(5.0, 40.0, REVOKED)), seed=1), seed=1).account
    assert out.fallbacks
    assert (out.decisions_sha256, out.ballots_sha256) == (usual.decisions_sha256, usual.ballots_sha256)


def test_what_a_fallback_gave_is_in_the_journal_the_summary_and_the_decision() -> None:
    result, _ = drifted(between(4.5, 1e9, REVOKED), steps=10, runs_dir="runs", run_id="r")
    with Reader(Path("runs/r.sqlite")) as reader:
        assert reader.verify() == []
        replies = [inspect_decision(reader, f"0/step/{step}").replies[0].model for step in (4, 5)]
    assert replies == [None, FALLBACK]
    assert f"5 of 10 replies came from {FALLBACK}" in summary(result)
    assert result.as_json()["fallbacks"] == {FALLBACK: 5}


@pytest.mark.parametrize("fallback", ["perfect", ("sim:perfect", 7), 7])
def test_a_fallback_that_is_no_model_is_refused(fallback: object) -> None:
    with pytest.raises(InvalidUsage, match="fallback"):
        run_virtual(drifting("sim:perfect", fallback=fallback))


@pytest.mark.parametrize(("error", "is_refusal"), [
    (REVOKED, True),
    (NO_CREDIT, True),
    (ModelUnavailable("refused", "invalid_request_error: Your credit balance is too low", 400), True),
    (BUSY, False),
    (TOO_LONG, False),
    (ModelUnavailable("server", "no", 500), False),
])  # fmt: skip
def test_a_refusal_of_the_account_is_known_by_its_status_or_its_words(
    error: ModelUnavailable, *, is_refusal: bool
) -> None:
    assert refuses_account(error) is is_refusal


@pytest.mark.parametrize(
    "error",
    [
        NO_CREDIT,
        ModelUnavailable("refused", "Your credit balance is too low", 400),
        ModelUnavailable("refused", "pay first", 402),
    ],
)
def test_a_used_up_account_stops_the_run_at_once(error: ModelUnavailable, tmp_path: Path) -> None:
    model = First(between(5, 10**6, error))
    given: Any = {"models": model, "strategy": Maker(k=1, speculate=False), "runs_dir": tmp_path}
    result = run_virtual(run([Drift(length=30)] * 3, **given))
    assert (result.outcome, max(model.asked_s) < 7) == ("stopped", True)
    assert "resume once the account has credit" in str(result.reason)


def test_the_progress_tells_for_how_long_no_reply_has_come() -> None:
    seen: list[float] = []

    class Hangs(First):
        async def complete(self, call: Call) -> Sample:
            await asyncio.sleep(25)
            return await super().complete(call)

    given: Any = {"models": Hangs(between(0, 0, DOWN)), "strategy": Maker(k=1), "runs_dir": None}
    run_virtual(run(Drift(length=1), on_progress=lambda account: seen.append(account.silent_s), **given))
    assert max(seen) == pytest.approx(26, abs=1)
