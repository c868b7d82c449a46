"""Limits a minute, as headers tell them; what a server may send there besides tells nothing."""

from __future__ import annotations

import pytest

from microagents.models.rates import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOKENS, Rate, rates_of


def test_the_headers_of_both_providers_are_read() -> None:
    assert rates_of(
        {
            "x-ratelimit-limit-requests": "500",
            "x-ratelimit-remaining-requests": "499",
            "x-ratelimit-limit-tokens": "200000",
            "x-ratelimit-remaining-tokens": "150000",
        }
    ) == {REQUESTS: Rate(each_minute=500, left=499), TOKENS: Rate(each_minute=200_000, left=150_000)}
    assert rates_of(
        {
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-input-tokens-limit": "40000",
            "anthropic-ratelimit-input-tokens-remaining": "0",
            "anthropic-ratelimit-output-tokens-limit": "8000",
            "anthropic-ratelimit-output-tokens-remaining": "9000",
        }
    ) == {
        REQUESTS: Rate(each_minute=50, left=50),
        INPUT_TOKENS: Rate(each_minute=40_000, left=0),
        OUTPUT_TOKENS: Rate(each_minute=8000, left=8000),
    }


@pytest.mark.parametrize("text", ["", "-1", "1e308", "5,000", "many"])
def test_what_is_no_number_above_zero_is_no_limit(text: str) -> None:
    assert rates_of({"x-ratelimit-limit-requests": text}) == {}
    assert rates_of({"x-ratelimit-limit-requests": "7", "x-ratelimit-remaining-requests": text})[REQUESTS].left in (
        0,
        7,
    )
