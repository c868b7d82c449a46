"""Reference to a replica of a role that another dispatcher hosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from msgspec import Raw

from microagents.base.errors import InvalidDefinition, RoleFailed
from microagents.base.messages import Batched, Message, R, Request, Stream, address_of, reply_type
from microagents.runtimes import wire
from microagents.runtimes.outgoing_calls import OutgoingCalls, Reply
from microagents.runtimes.peer import Peer, Waiting

REFILL = wire.MAX_ITEMS // 2
"""Items of a stream after whose reading the sender may send as many more."""


class RemoteRef:
    """A replica of a role, reached through the peer that hosts it."""

    def __init__(self, name: str, peer: Peer, outgoing: OutgoingCalls) -> None:
        self.name = name
        """Name of the replica, such as ``Solver/0``."""
        self._peer = peer
        self._outgoing = outgoing

    async def ask(self, request: Request[R]) -> R:
        """Send a request and await its reply.

        A reply that crosses the cancellation of the caller still counts, since it may have been paid for: it is returned, and the
        cancellation is raised at the next await.
        """
        body = self._pack(request)
        call, reply = self._outgoing.open_request()
        self._peer.ask(call, self._envelope(call, request, body))
        try:
            answer = await reply
        except asyncio.CancelledError:
            answer = await self._end_cancelled(call, reply)
            if answer is None:
                raise
            _cancel_at_next_await()
        finally:
            self._outgoing.close(call)
            self._peer.forget(call)
        value: R = self._unpack(answer, request)
        return value

    async def _end_cancelled(self, call: int, reply: Reply) -> Raw | None:
        """Give the reply if it has arrived before the caller's task heard of its cancellation; else cancel the call."""
        if (late := self._outgoing.pop_late_reply(call)) is not None:
            return late
        if reply.done() and not reply.cancelled() and reply.exception() is None:
            return reply.result()
        return await self._cancel(call)

    async def _cancel(self, call: int) -> Raw | None:
        return await self._peer.cancel(call, self._outgoing.expect_end(call))

    async def stream(self, request: Stream[R]) -> AsyncGenerator[R]:
        """Send a request and iterate its items; they start again from the first if the peer's process dies and another follows it."""
        body = self._pack(request)
        call, items = self._outgoing.open_stream()
        self._peer.ask(call, self._envelope(call, request, body))
        has_ended = False
        read = 0
        try:
            while not has_ended:
                match await items.get():
                    case wire.Item(_, item):
                        read += 1
                        if read % REFILL == 0:  # one `More` per item would double the number of envelopes
                            self._peer.enqueue(wire.More(call, REFILL))
                        yield self._unpack(item, request)
                    case wire.Failed() as failed:
                        has_ended = True
                        raise wire.unpack_error(failed)
                    case _:
                        has_ended = True
        finally:
            try:
                if not has_ended:
                    await self._cancel(call)
            finally:
                self._outgoing.close(call)
                self._peer.forget(call)

    def tell(self, request: Request[None]) -> None:
        """Send a one-way message."""
        if isinstance(request, Batched):
            self._peer.raise_if_lost()
            self._peer.tell(Waiting(self.name, request))
            return
        body = self._pack(request)
        self._peer.tell(self._envelope(None, request, body))

    def _envelope(self, call: int | None, request: Message, body: Raw) -> wire.Sent:
        return wire.Sent(call, self.name, address_of(type(request)), body)

    def _pack(self, request: Message) -> Raw:
        self._peer.raise_if_lost()
        try:
            return wire.pack(request, as_json=request.as_json)
        except wire.CODEC_ERRORS as error:
            raise InvalidDefinition(f"{type(request).__name__} cannot travel between roles: {error}") from None

    def _unpack(self, body: Raw | None, request: Message) -> Any:
        if body is None:
            raise RoleFailed(self.name, type(request).__name__, "its handler was cancelled")
        try:
            return wire.unpack(body, reply_type(type(request)), as_json=request.as_json)
        except wire.CODEC_ERRORS as error:
            raise RoleFailed(self.name, type(request).__name__, f"its reply cannot be read: {error}") from None


def _cancel_at_next_await() -> None:
    """Postpone the cancellation of this task that was caught just now."""
    task = asyncio.current_task()
    if task is not None:
        # The first call takes the caught cancellation back, the second requests another, which asyncio raises at the next await.
        task.uncancel()
        task.cancel()
