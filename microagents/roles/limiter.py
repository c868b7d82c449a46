"""The limiter: grants all replicas of the solver permits to send calls. It runs in the driver's process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from heapq import heappop, heappush
from typing import Any

from microagents.actors import Context, Messenger, Role
from microagents.aio import TaskScope
from microagents.elections.admission import FollowAdmission
from microagents.elections.election import SampleId
from microagents.journal.digests import in_order
from microagents.journal.messages import RecordLimit, Report
from microagents.messages import Request, Stream


class Permit(Stream[None], frozen=True, kw_only=True):
    """Ask for a permit to send one call. One item grants it; it lasts until the solver closes the stream, or dies.

    The stream ends without an item once no more calls may be sent.
    """

    id: SampleId
    asker: str
    """Name of the solver's replica."""
    number: int
    """Sequence number of the request within its solver."""


class Unbilled(Request[None], frozen=True, kw_only=True):
    """Report that the call of a permit was not billed or not sent, so that it does not count for ``--max-calls``.

    The solver sends it before it closes the stream. It also withdraws a permit that is not granted yet.
    """

    permit: Permit


def is_limited(settings: Mapping[str, Any]) -> bool:
    """Whether calls need a permit."""
    return settings.get("concurrency") is not None or settings.get("max_calls") is not None


class Limiter(Role):
    """Bounds the calls in flight (``--concurrency``) and the billed calls (``--max-calls``). Calls of the lowest step go first."""

    asks = (FollowAdmission, RecordLimit, Report)

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._concurrency: int | None = context.settings.get("concurrency")
        self._max_calls: int | None = context.settings.get("max_calls")
        self._left: int | None = None
        """Number of calls that may still be billed; None for no bound."""
        self._may_send = True
        self._is_reported = False
        """Whether the limit was reported to the recorder."""
        self._asked = 0
        """Number of permits requested so far."""
        self._open = 0
        """Number of granted permits that are not returned."""
        self._claims: dict[Permit, Claim] = {}
        """Requests for permits whose streams are open."""
        self._waiting: list[Claim] = []
        """A heap of claims. A claim whose stream was closed stays in it, and is dropped when its turn comes."""
        self._scope = TaskScope()
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        """Subtract the calls of earlier sittings from the limit."""
        if self._max_calls is not None:
            self._left = max(0, self._max_calls - (await self.ask(Report())).calls)
        if is_limited(self.context.settings):
            self._scope.start(self._follow_admission())

    async def stop(self) -> None:
        """Stop following the admission."""
        await self._scope.close()

    async def permit(self, request: Permit) -> AsyncIterator[None]:
        """Yield one item once the call may be sent."""
        self._asked += 1
        claim = self._claims[request] = Claim(request, self._asked)
        heappush(self._waiting, claim)
        self._grant()
        try:
            if await claim.granted:
                yield None
                await self._loop.create_future()  # until the asker closes the stream, or dies
        finally:
            self._open -= claim.is_open
            # The replacement of a dead replica may have sent an equal request, whose claim is then in this place.
            if self._claims.get(request) is claim:
                del self._claims[request]
            self._grant()

    async def unbilled(self, request: Unbilled) -> None:
        """Give the call of a permit back to the limit."""
        claim = self._claims.get(request.permit)
        if claim is None:
            return
        if not claim.granted.done():
            claim.granted.set_result(False)
        if claim.counts and self._left is not None:
            claim.counts = False
            self._left += 1
        self._grant()

    async def _follow_admission(self) -> None:
        async with aclosing(self.stream(FollowAdmission())) as changes:
            async for admission in changes:
                if admission == "nothing":
                    break
        self._may_send = False
        self._grant()

    def _grant(self) -> None:
        """Grant permits in the order of claims, while there is capacity; refuse all claims once no calls may be sent."""
        while self._waiting and (self._has_capacity() or not self._may_send):
            claim = heappop(self._waiting)
            if claim.granted.done():
                continue
            if self._may_send:
                claim.is_open = claim.counts = True
                self._open += 1
                if self._left is not None:
                    self._left -= 1
            claim.granted.set_result(self._may_send)
        # Open permits come first: a call of theirs that turns out unbilled gives the limit one call back.
        if self._left == 0 and not self._open and not self._is_reported and any(not claim.granted.done() for claim in self._waiting):
            self._is_reported = True
            self.tell(RecordLimit(limit=f"--max-calls {self._max_calls}"))

    def _has_capacity(self) -> bool:
        return self._left != 0 and (self._concurrency is None or self._open < self._concurrency)


class Claim:
    """A request for a permit, until the permit is returned."""

    def __init__(self, permit: Permit, number: int) -> None:
        self.granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.is_open = False
        """Whether the permit is granted."""
        self.counts = False
        """Whether its call counts for ``--max-calls``."""
        self._order = (in_order(permit.id.election.path), permit.id.seq, number)

    def __lt__(self, other: Claim) -> bool:
        return self._order < other._order
