"""The usage of replies: a server's counts, split between the samples of a request, at the price of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import json, structs

from microagents.models.http.replies import name_in, object_in
from microagents.models.model import split
from microagents.models.possible_usage import possible
from microagents.models.prices import Tariff
from microagents.replies.chat import Usage

CAPS = ("max_output_tokens", "max_completion_tokens", "max_tokens")
"""Fields of requests that bound their output."""
CHARS_PER_TOKEN = 4
"""Characters of a token of ordinary text."""
_TOO_MANY_CHARS = 8
"""More characters a token than the texts of several samples have: fewer tokens are of one sample only."""


def _first(stated: Mapping[str, Any], name: str, other: str) -> Any:
    """Return a field by its name on one wire or on another; None if it has neither."""
    return stated.get(name, stated.get(other))


def _with_whole_counts(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return a usage with its counts as whole numbers, also those that are written as texts or with a point."""
    counts: dict[str, Any] = {}
    for name, count in stated.items():
        counts[name] = count
        if isinstance(count, dict):
            counts[name] = _with_whole_counts(count)
        elif isinstance(count, str | float):
            with suppress(ValueError):
                counts[name] = int(str(count).removesuffix(".0"))
    return counts


def _tokens_in(length: int) -> int:
    """About as many tokens as a text of this length has."""
    return -(-length // CHARS_PER_TOKEN)


class Meter:
    """Makes the usage of samples from their server's counts.

    Args:
        tariff: the price of the model; None if it is unknown.
        excludes_cached: whether its server's input tokens exclude the cached ones and those written into the cache.
    """

    def __init__(self, tariff: Tariff | None, *, excludes_cached: bool = False) -> None:
        self._tariff = tariff
        self._excludes_cached = excludes_cached

    def most_usd(self, read: int, written: int) -> float | None:
        """Return the most that a call can cost, by its tokens; None if the price is unknown."""
        if self._tariff is None:
            return None
        return self._tariff.most_usd(read, written)

    def most_of(self, body: Mapping[str, Any]) -> float | None:
        """Bound the cost of a request by its body: no token of a text is shorter than a byte."""
        written = [body[name] for name in CAPS if name in body]
        return self.most_usd(len(json.encode(body)), max(written, default=0) * body.get("n", 1))

    def prices_of(self, reply: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """Return the cost of a reply, and how much more the same one costs at once; None if a price is unknown."""
        usage = self.usage(reply)
        at_once = None if self._tariff is None else self._tariff.cost_usd(usage, "default")
        if usage.cost_usd is None or at_once is None:
            return usage.cost_usd, None
        return usage.cost_usd, at_once - usage.cost_usd

    def usage(self, reply: Mapping[str, Any], *, has_reasoning: bool = False) -> Usage:
        """Usage of a reply. Counts that are missing or cannot be right are None, and so is the cost.

        Args:
            reply: the reply, with the counts by their names on any wire.
            has_reasoning: whether the reply says that it has reasoning.
        """
        stated = _with_whole_counts(object_in(reply.get("usage")))
        of_read, of_written = (
            _first(stated, "input_tokens_details", "prompt_tokens_details"),
            _first(stated, "output_tokens_details", "completion_tokens_details"),
        )
        cached, cache_written = object_in(of_read).get("cached_tokens"), object_in(of_read).get("cache_write_tokens")
        read = _first(stated, "input_tokens", "prompt_tokens")
        if self._excludes_cached:
            cached, cache_written = stated.get("cache_read_input_tokens"), stated.get("cache_creation_input_tokens")
            if all(type(each) is int for each in (read, cached or 0, cache_written or 0)):
                read += (cached or 0) + (cache_written or 0)
        reasoned = _first(object_in(of_written), "reasoning_tokens", "thinking_tokens")
        written, total = _first(stated, "output_tokens", "completion_tokens"), stated.get("total_tokens")
        if all(type(each) is int for each in (read, written or 0, total)) and total > read + (written or 0):
            # Some servers count thoughts in the total alone (Google, xAI).
            reasoned = total - read - (written or 0)
            written = total - read
        usage = possible(
            Usage(
                input_tokens=read,
                output_tokens=written,
                reasoning_tokens=reasoned or 0,
                cached_tokens=cached or 0,
                cache_write_tokens=cache_written or 0,
            )
        )
        if has_reasoning and not usage.reasoning_tokens:
            usage = structs.replace(usage, reasoning_tokens=None)
        if self._tariff is None:
            return usage
        served = name_in(reply.get("service_tier")) or name_in(stated.get("service_tier"))
        return structs.replace(usage, cost_usd=self._tariff.cost_usd(usage, served or None))

    def split(self, usage: Usage, lengths: Sequence[int], served: str | None) -> list[Usage]:
        """Return the usage of each of several samples: the prompt in equal parts, the output by the lengths of the texts, in characters.

        Some servers count the output of only one sample. If the count is too small for all texts, their lengths make it.
        """
        number, written = len(lengths), usage.output_tokens
        if (
            usage.visible_tokens is not None
            and written is not None
            and usage.visible_tokens * _TOO_MANY_CHARS < sum(lengths)
        ):
            usage = structs.replace(usage, output_tokens=written - usage.visible_tokens + sum(map(_tokens_in, lengths)))
        total_usd = None if self._tariff is None else self._tariff.cost_usd(usage, served)
        unwritten = structs.replace(usage, output_tokens=0)
        read_usd = 0.0 if self._tariff is None else self._tariff.cost_usd(unwritten, served) or 0.0
        equal = [1.0] * number
        weights = lengths if any(lengths) else equal
        shares = [weight / sum(weights) for weight in weights]
        read, cached = _parts(usage.input_tokens, equal), _parts(usage.cached_tokens, equal)
        cache_written = _parts(usage.cache_write_tokens, equal)
        outputs, reasoned = _parts(usage.output_tokens, shares), _parts(usage.reasoning_tokens, shares)
        return [
            Usage(
                input_tokens=read[index],
                output_tokens=outputs[index],
                cost_usd=None if total_usd is None else read_usd / number + (total_usd - read_usd) * shares[index],
                reasoning_tokens=reasoned[index],
                cached_tokens=cached[index] or 0,
                cache_write_tokens=cache_written[index] or 0,
                flaw=usage.flaw,
            )
            for index in range(number)
        ]


def _parts(total: int | None, shares: Sequence[float]) -> Sequence[int | None]:
    if total is None:
        return [None] * len(shares)
    return split(total, shares)
