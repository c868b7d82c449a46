"""Allotments of calls: a solver sends a call only once the journal says that it may. So the journal of a killed run bounds those sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import exp

from microagents.base.aio import Notifier, TaskScope
from microagents.base.errors import MicroagentsError
from microagents.journal.messages import AllotCalls
from microagents.models.model import Most

LEAST = 4
"""Calls of the smallest block."""
AT_ONCE = 256
"""Calls of the first block if models answer at once: such a run would else wait three times before its blocks are large enough."""
AHEAD_S = 0.06
"""A block is for the calls of this time, three intervals of commits, and the next one is asked for when half of it is left. So after a kill
at most 1.5 blocks are counted too many, about the calls of 0.1 s: a tenth of the calls in flight if a reply takes a second."""
HEADROOM = 1.25
"""An allotment is for calls whose most is up to this many times the largest so far."""
MEMORY_S = 0.2
"""Calls that were sent this long ago count for a third in the rate of calls."""


class CallAllotment:
    """Calls that one solver replica may send.

    Args:
        source: name of the replica.
        ask: sends a request to the keeper.
        first: calls of the first block.
    """

    def __init__(self, source: str, ask: Callable[[AllotCalls], Awaitable[int]], first: int = LEAST) -> None:
        self._source = source
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._scope = TaskScope()
        self._left = 0
        self._block = 0
        self._most = Most(tokens=0, cost_usd=None)
        """The most that a call of the allotment may use."""
        self._wanted = self._most
        """The most that any call wanted to use."""
        self._sent = self._waiting = 0
        """Number of calls since the last block was asked for, and of calls that wait for the next one."""
        self._rate = first / AHEAD_S
        """Calls a second, lately."""
        self._asked_s = self._loop.time()
        self._is_asking = False
        self._granted = Notifier()
        self._failure: MicroagentsError | None = None

    async def take(self, most: Most | None = None) -> None:
        """Take one call of the allotment; if none is left, or none that may use this much, wait for the next block.

        Args:
            most: the most that the call can use; None if neither tokens nor cost are limited.

        Raises:
            MicroagentsError: the journal cannot be written any more.
        """
        while not self.take_now(most):
            if self._failure is not None:
                raise self._failure
            self._waiting += 1
            try:
                self._ask_soon()
                await self._granted.wait()
            finally:
                self._waiting -= 1

    def take_now(self, most: Most | None = None) -> bool:
        """Take one call of the allotment; False if none is left, or none that may use this much."""
        if (most is not None and self._is_beyond(most)) or self._left < 1:
            return False
        self._left -= 1
        self._sent += 1
        if self._left < self._block / 2:
            self._ask_soon()
        return True

    def give_back(self) -> None:
        """Take back a call that was not sent."""
        self._left += 1
        self._sent -= 1

    def _is_beyond(self, most: Most) -> bool:
        """Whether the allotment is for smaller calls. The next one then is for somewhat larger ones, since prompts grow slowly."""
        allotted = self._most
        if most.tokens <= allotted.tokens and (most.cost_usd or 0.0) <= (allotted.cost_usd or 0.0):
            return False
        cost_usd = self._wanted.cost_usd
        if most.cost_usd is not None:
            cost_usd = max(cost_usd or 0.0, most.cost_usd * HEADROOM)
        self._wanted = Most(tokens=max(self._wanted.tokens, round(most.tokens * HEADROOM)), cost_usd=cost_usd)
        return True

    async def close(self) -> None:
        """Ask for no more."""
        await self._scope.close()

    def _ask_soon(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self._scope.start(self._extend())

    async def _extend(self) -> None:
        calls, most = self._next_block(), self._wanted
        self._block = calls
        try:
            request = AllotCalls(
                source=self._source,
                calls=calls,
                waiting=self._waiting,
                call_tokens=most.tokens,
                call_usd=most.cost_usd,
            )
            allotted = await self._ask(request)
            self._left, self._most, self._block = self._left + allotted, most, allotted
        except MicroagentsError as error:
            self._failure = error
        finally:
            self._is_asking = False
            self._granted.notify()

    def _next_block(self) -> int:
        now_s = self._loop.time()
        self._rate = self._rate * exp((self._asked_s - now_s) / MEMORY_S) + self._sent / MEMORY_S
        self._asked_s, self._sent = now_s, 0
        grown = 4 * self._block if self._waiting else 0  # calls that wait say that the last block was too small
        return max(LEAST, self._waiting, round(self._rate * AHEAD_S), grown)
