"""Requests and tokens a minute, as a provider's headers state them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

MOST_DIGITS = 12
"""A longer number in a header is not a limit."""


class Rate(Struct, frozen=True, kw_only=True):
    """A limit of a provider."""

    each_minute: int
    left: int
    """The part of it that is left now."""

    def shared(self, runs: int) -> Rate:
        """Return the part of one of so many runs."""
        return Rate(each_minute=max(1, self.each_minute // runs), left=self.left // runs)


REQUESTS, TOKENS, INPUT_TOKENS, OUTPUT_TOKENS = "requests", "tokens", "input tokens", "output tokens"
HEADERS = {
    "x-ratelimit-limit-requests": (REQUESTS, "x-ratelimit-remaining-requests"),
    "x-ratelimit-limit-tokens": (TOKENS, "x-ratelimit-remaining-tokens"),
    "anthropic-ratelimit-requests-limit": (REQUESTS, "anthropic-ratelimit-requests-remaining"),
    "anthropic-ratelimit-input-tokens-limit": (INPUT_TOKENS, "anthropic-ratelimit-input-tokens-remaining"),
    "anthropic-ratelimit-output-tokens-limit": (OUTPUT_TOKENS, "anthropic-ratelimit-output-tokens-remaining"),
}
"""By the header with a limit: what it limits, and the header with what is left."""


def rates_of(headers: Mapping[str, str]) -> dict[str, Rate]:
    """Read the limits in the headers of a reply; unreadable ones are left out."""
    found = {}
    for header, (name, left) in HEADERS.items():
        limit = _number(headers.get(header, ""))
        if limit:
            remaining = _number(headers.get(left, ""))
            found[name] = Rate(each_minute=limit, left=limit if remaining is None else min(limit, remaining))
    return found


def _number(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
        return int(text)
    return None
