"""Seats that another dispatcher hosts: calls to them, and what was asked of us from there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import msgspec
from msgspec import structs

from microagents.errors import DeadlinePassed, InvalidDefinition, MicroagentsError, RoleFailed
from microagents.messages import Message, R, Request, Stream, address_of, reply_type
from microagents.runtimes import wire
from microagents.runtimes.channel import Channel
from microagents.runtimes.deadlines import Deadlines
from microagents.runtimes.link import Link

UNDECODABLE = (TypeError, OverflowError, ValueError, RecursionError, msgspec.MsgspecError)
CANCEL_S = 5.0
"""How long a cancelled asker waits until the handler on the other side has ended, and how long work goes on for an asker that died."""
MOST_ENVELOPES = 256
"""So many leave in one batch."""
MOST_ITEMS = 256
"""So many items of a stream are on their way at a time: a slow reader must not fill anybody's memory."""


class Peer:
    """Another dispatcher, as seen from here: of the process that hosts it now, and of those that come after."""

    def __init__(self, name: str, link: Link, receive: Callable[[Peer, bytes], None]) -> None:
        self.name = name
        self.incarnation = 0
        """How many processes it had before."""
        self.lost: MicroagentsError | None = None
        """Why nothing can be asked of it any more."""
        self.outbox: list[wire.Envelope] = []
        self._leaves = False
        """Whether the outbox is sent on the next turn of the loop."""
        self.asked: dict[int, wire.Sent] = {}
        """What was asked of it and is not answered: another process of the same name is asked again."""
        self.cancelled: dict[int, asyncio.Future[Any]] = {}
        """What need not be answered any more, and is waited for until it has ended."""
        self.serving: dict[int, IncomingCall] = {}
        self.orphans: dict[wire.CallKey, IncomingCall] = {}
        """What its process before had asked: if it asks the same again, it gets this."""
        self._receive = partial(receive, self)
        self._connect(link)

    def _connect(self, link: Link) -> None:
        self._linger_s = link.linger_s
        self.channel = Channel(partial(link.send, self.name), self._receive, resend_s=link.resend_s, acknowledge_s=link.acknowledge_s)

    def post(self, envelope: wire.Envelope) -> None:
        """Put an envelope into the outbox; it leaves on the next turn of the loop, with all that is put there until then."""
        self.outbox.append(envelope)
        if not self._leaves:
            self._leaves = True
            asyncio.get_running_loop().call_soon(self.flush)

    def tell(self, envelope: wire.Sent) -> None:
        """The same for what nobody awaits: it may linger, and leaves in its turn with what is awaited."""
        if not self._linger_s:
            self.post(envelope)
            return
        if not self.outbox:
            asyncio.get_running_loop().call_later(self._linger_s, self.flush)
        self.outbox.append(envelope)

    def flush(self) -> None:
        """Send what is in the outbox."""
        self._leaves = False
        envelopes, self.outbox = self.outbox, []
        if self.lost is None:
            for first in range(0, len(envelopes), MOST_ENVELOPES):
                self.channel.send(wire.encode(envelopes[first : first + MOST_ENVELOPES]))

    def replace(self, link: Link, incarnation: int) -> None:
        """Go on with another process of the same name: ask it what its forerunner left unanswered."""
        self._leave()
        told = [each for each in self.outbox if isinstance(each, wire.Sent) and each.call is None]
        self.incarnation = incarnation
        self._connect(link)
        self.outbox.clear()
        for envelope in (*told, *self.asked.values()):
            self.post(envelope)

    def lose(self, error: MicroagentsError) -> None:
        """Give it up: who waits for it gets this error."""
        self._leave()
        self.lost = error

    def _leave(self) -> None:
        self.channel.close()
        for ended in self.cancelled.values():
            if not ended.done():
                ended.set_result(None)


class IncomingCall:
    """What a peer has asked of us, while it is handled."""

    def __init__(self, peer: Peer, call: int, sent: wire.Sent) -> None:
        self.call = call
        self.sent = sent
        self.is_stream = False
        self.task: asyncio.Task[None] | None = None
        self._peer = peer
        self._kept: list[wire.Envelope] | None = None
        """Answers to an asker that has died."""
        self._may_send = MOST_ITEMS
        self._more: asyncio.Future[None] | None = None

    def post(self, envelope: wire.Envelope) -> None:
        """Answer; an asker that has died is answered once it has come back."""
        if self._kept is None:
            self._peer.post(envelope)
        else:
            self._kept.append(envelope)

    async def send_item(self, item: object) -> None:
        """Send an item of a stream once its reader has room for it."""
        while not self._may_send:
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        self._may_send -= 1
        self.post(wire.Item(self.call, wire.pack(item)))

    def let_send(self, items: int) -> None:
        """The reader has room for so many more items."""
        self._may_send += items
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def orphan(self) -> wire.CallKey:
        """Its asker has died; gives what it will be recognized by, if it is asked again."""
        self._kept = []
        return self.sent.seat, self.sent.message, bytes(self.sent.body)

    def adopt(self, call: int) -> None:
        """The asker has come back and asks the same again."""
        kept, self._kept, self.call = self._kept or (), None, call
        for envelope in kept:
            self._peer.post(structs.replace(envelope, call=call))

    def cancel(self) -> None:
        """Nobody awaits it any more."""
        if self.task is not None:
            self.task.cancel()


class RemoteRef:
    """A replica of a role that another dispatcher hosts."""

    def __init__(self, name: str, peer: Peer, calls: OutgoingCalls) -> None:
        self.name = name
        self._peer = peer
        self._calls = calls

    async def ask(self, request: Request[R], timeout_s: float | None = None) -> R:
        """Send a request and await the reply. One that meets the asker's cancel on its way still counts: it may have been paid for.

        Raises:
            DeadlinePassed: it took longer than ``timeout_s``.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = self._send(request, future)
        if timeout_s is not None:
            self._calls.deadlines.add(call, timeout_s)
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
        except DeadlineReached:
            body = await self._cancel(call)
            if body is None:
                raise DeadlinePassed(type(request).__name__, timeout_s or 0.0) from None
        finally:
            self._forget(call)
            if timeout_s is not None:
                self._calls.deadlines.remove(call, timeout_s)
        return cast("R", self._unpacked(body, request))

    def _forget(self, call: int) -> None:
        del self._calls.open[call]
        self._peer.asked.pop(call, None)

    async def _cancel(self, call: int) -> Any:
        """Cancel the handler and wait, for a while, until it has ended: as within one dispatcher, where both are one task.

        Gives its reply where it had one nevertheless.
        """
        del self._peer.asked[call]
        if self._peer.lost is not None:
            return None
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.open[call] = self._peer.cancelled[call] = ended
        self._peer.post(wire.Cancelled(call))
        try:
            with suppress(TimeoutError, MicroagentsError):  # a failure that meets the cancel is nobody's any more
                async with asyncio.timeout(CANCEL_S):
                    return await ended
        finally:
            del self._peer.cancelled[call]
        return None

    async def stream(self, request: Stream[R]) -> AsyncGenerator[R]:
        """Send a request and iterate what comes back; from the beginning again where the callee dies and comes back."""
        items: asyncio.Queue[wire.Envelope] = asyncio.Queue()
        call = self._send(request, items)
        ended = False
        read = 0
        try:
            while not ended:
                match await items.get():
                    case wire.Item(_, body):
                        read += 1
                        if read % (MOST_ITEMS // 2) == 0:
                            self._peer.post(wire.More(call, MOST_ITEMS // 2))
                        yield self._unpacked(body, request)
                    case wire.Failed() as failed:
                        ended = True
                        raise wire.error_of(failed)
                    case _:
                        ended = True
        finally:
            if not ended:
                await self._cancel(call)
            self._forget(call)

    def tell(self, request: Request[None]) -> None:
        """Send a request whose reply nobody awaits."""
        self._check()
        self._peer.tell(self._envelope(None, request))

    def _send(self, request: Message, waiting: asyncio.Future[Any] | asyncio.Queue[wire.Envelope]) -> int:
        self._check()
        self._calls.last += 1
        call = self._calls.last
        envelope = self._peer.asked[call] = self._envelope(call, request)
        self._calls.open[call] = waiting
        self._peer.post(envelope)
        return call

    def _check(self) -> None:
        if self._peer.lost is not None:
            raise self._peer.lost

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


class OutgoingCalls:
    """The open calls of one dispatcher to others, by number."""

    def __init__(self) -> None:
        self.last = 0
        self.open: dict[int, asyncio.Future[Any] | asyncio.Queue[wire.Envelope]] = {}
        self.late: dict[int, msgspec.Raw] = {}
        """Replies to calls whose asker was cancelled, but has not heard of it yet."""
        self.deadlines = Deadlines(self._end)

    def _end(self, call: int) -> None:
        match self.open.get(call):
            case asyncio.Future() as future if not future.done():
                future.set_exception(DeadlineReached())
            case _:
                pass


class DeadlineReached(Exception):
    """A call's time is over."""


def _cancel_at_the_next_await() -> None:
    """Put off the cancellation of this task that has just been caught."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
        task.cancel()
