"""The bill of a growing conversation with a cache: python -m tests.benchmarks.conversation_caches [--steps N] [--tokens N].

An agent reads a page of so many tokens at each step, k = 3, against a double that bills its cache of prefixes as Anthropic does: requests
at the same time find nothing of each other. Its samples begin at once (``stagger=off``), or at the first event of the first one
(``stagger=auto``). Each bill must be within 2 % of the double's own count, and the second one lower. Exit code 1 if not.
"""

from __future__ import annotations

import asyncio
import os
import sys

from microagents import Result
from tests.benchmarks.harness import options_of
from tests.doubles.prefix_cache import PrefixCache
from tests.doubles.strict_wires import strict_wires
from tests.models import test_caching

MOST_OFF = 0.02


async def conversation(cache: PrefixCache, stagger: str) -> Result[object]:
    """Let the agent read the book."""
    async with strict_wires(test_caching.next_page) as server:
        server.cache = cache
        return await test_caching.read_book(server, "messages", "anthropic:claude-haiku-5-5", stagger)


def main() -> int:
    """Compare the bills with the counts."""
    of = options_of(__doc__, steps=test_caching.STEPS, tokens=test_caching.STEP_TOKENS)
    test_caching.STEPS, test_caching.STEP_TOKENS = of.steps, of.tokens
    os.environ.setdefault("ANTHROPIC_API_KEY", "k")
    print(f"{of.steps} steps of {of.tokens} tokens, k = 3; units are tokens of input at their full price")
    units, offs = [], []
    for stagger in ("off", "auto"):
        cache = PrefixCache()
        account = asyncio.run(conversation(cache, stagger)).account
        billed = (account.cost_usd or 0.0) * 1e6 - test_caching.RATES["output"] * account.output_tokens
        units.append(cache.units)
        offs.append(abs(billed / cache.units - 1))
        print(
            f"stagger={stagger}: {cache.units:,.0f} units, {cache.uncached_units:,} without a cache; the bill is {offs[-1]:.2%} off the "
            "double's count"
        )
    return 0 if max(offs) <= MOST_OFF and units[1] < units[0] else 1


if __name__ == "__main__":
    sys.exit(main())
