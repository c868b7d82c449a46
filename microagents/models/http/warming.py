"""The first call with a long static part goes ahead of the others, so that they read it from the provider's cache; or to an address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b

MAX_WARMED = 4
"""Number of static parts of a run that are warmed: one that changes with every question is not static."""
MAX_WAIT_S = 5.0
"""Longest wait for the first call: a provider has the entry once it has read the prompt, before it replies."""


class Warming:
    """Static parts that a call of this process has sent."""

    def __init__(self) -> None:
        self._sent: dict[bytes, asyncio.Event] = {}

    @asynccontextmanager
    async def warmed(self, static: str) -> AsyncIterator[bool]:
        """Wait while the first call with a static part is under way, which lasts as long as its block; yields whether this is the first."""
        key = blake2b(static.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        sent = self._sent.get(key)
        if sent is None and len(self._sent) < MAX_WARMED:
            sent = self._sent[key] = asyncio.Event()
            try:
                yield True
            finally:
                sent.set()
            return
        if sent is not None and not sent.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_WAIT_S):
                    await sent.wait()
        yield False

    def clear(self) -> None:
        """Forget all: the events belong to an event loop that may end."""
        self._sent.clear()
