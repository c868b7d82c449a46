"""Seats that another dispatcher hosts: calls to them, and what was asked of us from there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import msgspec

from microagents.errors import InvalidDefinition, MicroagentsError, RoleFailed
from microagents.messages import Message, R, Request, Stream, address_of, reply_type
from microagents.runtimes import wire
from microagents.runtimes.channel import Channel
from microagents.runtimes.link import Link

UNDECODABLE = (TypeError, OverflowError, ValueError, RecursionError, msgspec.MsgspecError)
CANCEL_S = 5.0
"""How long a cancelled asker waits until the handler on the other side has ended."""


class Peer:
    """Another dispatcher, as seen from here."""

    def __init__(self, name: str, link: Link, receive: Callable[[Peer, bytes], None]) -> None:
        self.name = name
        self.channel = Channel(partial(link.send, name), partial(receive, self))
        self.outbox: list[wire.Envelope] = []
        self.serving: dict[int, asyncio.Task[None]] = {}

    def post(self, envelope: wire.Envelope) -> None:
        """Put an envelope into the outbox; it leaves on the next turn of the loop, with all that is put there until then."""
        if not self.outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self.outbox.append(envelope)

    def _flush(self) -> None:
        batch, self.outbox = self.outbox, []
        self.channel.send(wire.encode(batch))


class RemoteSeat:
    """A replica of a role that another dispatcher hosts."""

    def __init__(self, name: str, peer: Peer, calls: Calls) -> None:
        self.name = name
        self._peer = peer
        self._calls = calls

    async def ask(self, request: Request[R]) -> R:
        """Send a request and await the reply. One that meets the asker's cancel on its way still counts: it may have been paid for."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = self._send(request, future)
        try:
            body = await future
        except asyncio.CancelledError:
            body = self._calls.late.pop(call, None)
            if body is None:
                arrived = future.done() and not future.cancelled() and future.exception() is None
                body = future.result() if arrived else await self._cancel(call)
            if body is None:
                raise
            _cancel_at_the_next_await()
        finally:
            del self._calls.open[call]
        return cast("R", self._unpacked(body, request))

    async def _cancel(self, call: int) -> Any:
        """Cancel the handler and wait, for a while, until it has ended: as within one dispatcher, where both are one task.

        Gives its reply where it had one nevertheless.
        """
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.open[call] = ended
        self._peer.post(wire.Cancelled(call))
        with suppress(TimeoutError, MicroagentsError):  # a failure that meets the cancel is nobody's any more
            async with asyncio.timeout(CANCEL_S):
                return await ended
        return None

    async def stream(self, request: Stream[R]) -> AsyncGenerator[R]:
        """Send a request and iterate what comes back."""
        items: asyncio.Queue[wire.Envelope] = asyncio.Queue()
        call = self._send(request, items)
        ended = False
        try:
            while not ended:
                match await items.get():
                    case wire.Item(_, body):
                        yield self._unpacked(body, request)
                    case wire.Failed() as failed:
                        ended = True
                        raise wire.error_of(failed)
                    case _:
                        ended = True
        finally:
            if not ended:
                await self._cancel(call)
            del self._calls.open[call]

    def tell(self, request: Request[None]) -> None:
        """Send a request whose reply nobody awaits."""
        self._peer.post(self._envelope(None, request))

    def _send(self, request: Message, waiting: asyncio.Future[Any] | asyncio.Queue[wire.Envelope]) -> int:
        self._calls.last += 1
        call = self._calls.last
        envelope = self._envelope(call, request)
        self._calls.open[call] = waiting
        self._peer.post(envelope)
        return call

    def _envelope(self, call: int | None, request: Message) -> wire.Sent:
        try:
            return wire.Sent(call, self.name, address_of(type(request)), wire.pack(request))
        except UNDECODABLE as error:
            raise InvalidDefinition(f"{type(request).__name__} cannot travel between roles: {error}") from None

    def _unpacked(self, body: msgspec.Raw, request: Message) -> Any:
        try:
            return wire.unpack(body, reply_type(type(request)))
        except UNDECODABLE as error:
            raise RoleFailed(self.name, type(request).__name__, f"its reply cannot be read: {error}") from None


class Calls:
    """The open calls of one dispatcher to others, by number."""

    def __init__(self) -> None:
        self.last = 0
        self.open: dict[int, asyncio.Future[Any] | asyncio.Queue[wire.Envelope]] = {}
        self.late: dict[int, msgspec.Raw] = {}
        """Replies to calls whose asker was cancelled, but has not heard of it yet."""


def _cancel_at_the_next_await() -> None:
    """Put off the cancellation of this task that has just been caught."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
        task.cancel()
