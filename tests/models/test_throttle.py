"""The throttle: it finds what a provider takes, follows it, and is seldom refused."""

from __future__ import annotations

import pytest

from microagents.models.throttle import CUT_EVERY_S, FAILURES, START, Throttle


def refused(throttle: Throttle, now_s: float, wait_s: float | None = None) -> int:
    """The limit after two refusals in a row."""
    throttle.refuse(now_s, wait_s)
    throttle.refuse(now_s, wait_s)
    return throttle.limit


def grown(throttle: Throttle, rounds: int, now_s: float = 0.0) -> int:
    """The limit after so many rounds of clean replies, all calls in use."""
    for _ in range(rounds):
        for _ in range(throttle.limit):
            throttle.reply(1, throttle.limit, now_s)
    return throttle.limit


def test_it_doubles_in_each_clean_round_until_it_is_refused_and_grows_slowly_then() -> None:
    throttle = Throttle()
    assert grown(throttle, 3) == START * 8
    assert refused(throttle, 0.0) == START * 8 * 0.8
    before = throttle.limit
    assert before * 1.04 <= grown(throttle, 1) <= before * 1.06


def test_it_is_cut_once_in_fifteen_seconds_or_in_the_time_that_the_provider_names() -> None:
    throttle = Throttle()
    cut = refused(throttle, 0.0)
    grown(throttle, 4, 1.0)
    at = throttle.limit
    assert refused(throttle, 1.0) == at - 2, "it has grown back to what the provider takes"
    assert grown(throttle, 5, 2.0) == at - 2, "it stays there until it may be cut again"
    assert refused(throttle, CUT_EVERY_S) <= (at - 2) * 0.8
    assert cut == START * 0.8
    throttle = Throttle()
    refused(throttle, 0.0, 1.0)
    grown(throttle, 1, 1.0)
    at = throttle.limit
    assert refused(throttle, 1.0, 1.0) in (int(at * 0.8), int((at + 1) * 0.8))


def test_it_falls_fast_where_calls_sent_after_a_cut_are_refused_as_well() -> None:
    throttle = Throttle()
    grown(throttle, 5)
    assert [refused(throttle, 0.0) for _ in range(5)] == [512, 409, 204, 102, 51]


def test_it_doubles_again_once_it_is_far_above_what_was_refused() -> None:
    throttle = Throttle()
    grown(throttle, 1)
    refused(throttle, 0.0)
    at = grown(throttle, 11, CUT_EVERY_S)
    assert at > START * 2 * 1.25
    assert grown(throttle, 2, CUT_EVERY_S) > at * 3.5


@pytest.mark.parametrize("start", [START, START // 4])  # alone, and as one of four runs
def test_during_an_outage_one_call_goes_at_a_time_and_afterwards_not_all_at_once(start: int) -> None:
    throttle = Throttle(start)
    grown(throttle, 5)
    for _ in range(FAILURES):
        assert throttle.allowed(0.0) == start * 32
        throttle.fail(0.0)
    sent_s, now_s = [], 0.0
    while now_s < 1800:
        assert throttle.probe_s is not None
        now_s = throttle.probe_s
        assert (throttle.allowed(now_s - 0.01), throttle.allowed(now_s)) == (0, 1)
        sent_s.append(now_s)
        throttle.fail(now_s)
    assert len(sent_s) < 70, "calls in half an hour"
    throttle.reply(1, 1, now_s)
    assert throttle.allowed(now_s) == start
