"""Usage that can be right: whatever else a server, or a model of a user, states of its reply is left out, and named."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from microagents.base.largest import MAX_USD
from microagents.replies.chat import Usage

MAX_TOKENS: Final = 1_000_000_000
"""No reply has as many tokens."""


def possible(usage: Usage) -> Usage:
    """Return a usage without the numbers that cannot be right. Its flaw names the first of them.

    A part that cannot be right, such as more cached tokens than there are, makes its whole unknown.
    """
    read, written, reasoned = usage.input_tokens, usage.output_tokens, usage.reasoning_tokens
    cached, cache_written, cost_usd = usage.cached_tokens, usage.cache_write_tokens, usage.cost_usd
    # Without calls of functions, since it runs for every sample.
    for count in (read, written, reasoned):
        if count is not None and not (type(count) is int and 0 <= count < MAX_TOKENS):
            return _without_flaws(usage)
    for count in (cached, cache_written):
        if not (type(count) is int and 0 <= count < MAX_TOKENS):
            return _without_flaws(usage)
    has_its_parts = cached + cache_written <= (read or 0) and (reasoned or 0) <= (written or 0)
    has_cost = cost_usd is None or (type(cost_usd) is float and 0 <= cost_usd < MAX_USD)
    if has_its_parts and has_cost and (read is None) == (written is None):
        return usage
    return _without_flaws(usage)


def _without_flaws(usage: Usage) -> Usage:
    of_input = _flaw_of(usage, "input_tokens", "cached_tokens", "cache_write_tokens")
    of_output = _flaw_of(usage, "output_tokens", "reasoning_tokens")
    cost_usd: object = usage.cost_usd
    is_cost = isinstance(cost_usd, int | float) and not isinstance(cost_usd, bool) and 0 <= cost_usd < MAX_USD
    of_cost = "" if cost_usd is None or is_cost else f"cost_usd {cost_usd!r:.40}"
    kept = structs.replace(
        usage,
        cost_usd=float(usage.cost_usd) if is_cost and usage.cost_usd is not None else None,
        cached_tokens=usage.cached_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
    )
    if of_input or usage.input_tokens is None:
        kept = structs.replace(kept, input_tokens=None, cached_tokens=0, cache_write_tokens=0)
    if of_output or usage.output_tokens is None:
        kept = structs.replace(kept, output_tokens=None, reasoning_tokens=0)
    flaw = usage.flaw or of_input or of_output or of_cost or _flaw_of_one(kept)
    return structs.replace(kept, flaw=flaw)


def _flaw_of(usage: Usage, whole: str, *parts: str) -> str:
    """Name the impossible count among a whole and its parts; empty if all can be right."""
    for name in (whole, *parts):
        count: object = getattr(usage, name)
        if count is not None and not (type(count) is int and 0 <= count < MAX_TOKENS):
            return f"{name} {count!r:.40}"
    total: int | None = getattr(usage, whole)
    counts = [getattr(usage, name) for name in parts]
    of_it = sum(count or 0 for count in counts)
    if total is not None and of_it > total:
        return f"{' and '.join(parts)} {of_it} of {whole} {total}"
    return ""


def _flaw_of_one(usage: Usage) -> str:
    """Name the one of the two counts that is stated; empty if both are, or none."""
    read, written = usage.input_tokens, usage.output_tokens
    if read is None and written is not None:
        return f"output_tokens {written} without input_tokens"
    if written is None and read is not None:
        return f"input_tokens {read} without output_tokens"
    return ""
