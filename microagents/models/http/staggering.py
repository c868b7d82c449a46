"""The first request with a prefix goes ahead of the others, which read the prefix from the provider's cache; or the first to an address."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from microagents.base.text_digests import digest_of
from microagents.models.http.sending import OnLine

MAX_WAIT_S = 10.0
"""Longest wait for the first reply to begin: a provider has the entry once it has read the prompt."""
MAX_KNOWN = 1024
"""Number of prefixes that are known, the latest ones."""


class Staggering:
    """Prefixes that requests of this process had."""

    def __init__(self) -> None:
        self._begun: OrderedDict[bytes, asyncio.Event] = OrderedDict()

    @asynccontextmanager
    async def behind_first(self, *prefixes: str) -> AsyncIterator[OnLine | None]:
        """Wait until the reply to the first request with each of the prefixes has begun, or its block has ended.

        Yields the function to call once the reply to this request begins, if it is the first with one of them; else None.
        """
        leads = list[asyncio.Event]()

        def begin(_: bytes) -> None:
            for each in leads:
                each.set()

        try:
            for prefix in prefixes:
                key = digest_of(prefix)
                begun = self._begun.get(key)
                if begun is None:
                    begun = self._begun[key] = asyncio.Event()
                    leads.append(begun)
                elif not begun.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(MAX_WAIT_S):
                            await begun.wait()
            while len(self._begun) > MAX_KNOWN:
                self._begun.popitem(last=False)
            yield begin if leads else None
        finally:
            begin(b"")

    def clear(self) -> None:
        """Forget all: the events belong to an event loop that may end."""
        self._begun.clear()
