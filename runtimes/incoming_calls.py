"""Calls from one peer to replicas that this dispatcher hosts, including calls that outlive the process of their caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from msgspec import Raw, structs

from microagents.base.errors import MicroagentsError
from microagents.runtimes import wire

ORPHAN_S = 5.0
"""Seconds that a call runs on after its caller's process died, so that the next process can adopt it."""
ITEMS_PER_TURN = 64
"""Items of a stream after which other tasks get an iteration of the event loop."""

RequestKey = tuple[str, str, bytes]
"""Identity of a request under any call number: replica, address of the message's class, encoded message."""


class IncomingCall:
    """One call from a peer, by the caller's number, and the task that handles it."""

    def __init__(
        self, call: int, sent: wire.Sent, send: Callable[[wire.Envelope], None], on_end: Callable[[IncomingCall], None]
    ) -> None:
        self.call = call
        """The number under which the current process of the caller knows the call."""
        self.sent = sent
        self.is_stream = False
        """Whether the handler yields items; known once its task has taken its first step."""
        self._send = send
        self._on_end = on_end
        self._task: asyncio.Task[None] | None = None
        self._kept: list[wire.Envelope] | None = None
        """Answers since the caller's process died; None while it lives."""
        self._credit = wire.MAX_ITEMS
        """Number of items that the reader still has room for."""
        self._more: asyncio.Future[None] | None = None
        """Done once the reader has room again."""

    @property
    def key(self) -> RequestKey:
        """Identity by which a repetition of the request is recognized."""
        return self.sent.replica, self.sent.message, bytes(self.sent.body)

    @property
    def is_done(self) -> bool:
        """Whether the task that handles the call has ended."""
        return self._task is not None and self._task.done()

    def run(self, task: asyncio.Task[None]) -> None:
        """Attach the task that handles the call."""
        self._task = task

    def end(self) -> None:
        """Note that the task has ended."""
        self._on_end(self)

    def reply(self, body: Raw) -> None:
        """Send the reply to a request."""
        self._answer(wire.Replied(self.call, body))

    def fail(self, error: MicroagentsError) -> None:
        """Send an error."""
        self._answer(wire.pack_error(self.call, error))

    async def send_items(self, items: AsyncGenerator[object]) -> None:
        """Send the items of a stream as fast as the reader takes them, then the end of the stream."""
        self.is_stream = True
        async with aclosing(items):
            count = 0
            async for item in items:
                await self._send_item(item)
                count += 1
                if not count % ITEMS_PER_TURN:  # a stream that never waits would keep the event loop for itself
                    await asyncio.sleep(0)
        self._answer(wire.Finished(self.call))

    async def _send_item(self, item: object) -> None:
        while not self._credit:
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        self._credit -= 1
        self._answer(wire.Item(self.call, wire.pack(item)))

    def let_send(self, items: int) -> None:
        """Note that the reader has room for more items."""
        self._credit += items
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def cancel(self) -> None:
        """Cancel the handler."""
        if self._task is not None:
            self._task.cancel()

    def report_cancellation(self) -> None:
        """Send the end of a call whose task was cancelled, also of one that was cancelled before its first step."""
        if self._task is not None and self._task.cancelled():
            self._answer(wire.Finished(self.call))

    def detach(self) -> None:
        """Keep further answers, since the caller's process has died."""
        self._kept = []

    def adopt(self, call: int) -> None:
        """Send all kept and further answers to the caller's next process, which asks the same under another number."""
        kept, self._kept, self.call = self._kept or (), None, call
        for envelope in kept:
            self._send(structs.replace(envelope, call=call))

    def _answer(self, envelope: wire.Envelope) -> None:
        if self._kept is None:
            self._send(envelope)
        else:
            self._kept.append(envelope)


class IncomingCalls:
    """Open calls from one peer."""

    def __init__(self, send: Callable[[wire.Envelope], None]) -> None:
        self._send = send
        self._open: dict[int, IncomingCall] = {}
        """By the caller's number."""
        self._orphans: dict[RequestKey, IncomingCall] = {}
        """Calls of the peer's previous process that the current one has not asked again."""

    def serve(self, call: int, sent: wire.Sent, start: Callable[[IncomingCall], asyncio.Task[None]]) -> None:
        """Handle a request in a new task, or adopt the orphan that handles the same request."""
        incoming = IncomingCall(call, sent, self._send, self._remove)
        # Keys are computed only while there are orphans: each costs a copy of the message.
        orphan = self._orphans.pop(incoming.key, None) if self._orphans else None
        if orphan is not None:
            self._adopt(call, orphan)
            return
        self._open[call] = incoming
        incoming.run(start(incoming))

    def _adopt(self, call: int, orphan: IncomingCall) -> None:
        self._open[call] = orphan
        orphan.adopt(call)
        if orphan.is_done:
            self._remove(orphan)

    def cancel(self, call: int) -> None:
        """Cancel a call; one that has already ended is reported as finished, since the caller waits for its end."""
        if (incoming := self._open.get(call)) is not None:
            incoming.cancel()
        else:
            self._send(wire.Finished(call))

    def let_send(self, call: int, items: int) -> None:
        """Let a stream send more items."""
        if (incoming := self._open.get(call)) is not None:
            incoming.let_send(items)

    def orphan_all(self) -> None:
        """Detach all calls from the peer's process, which has died.

        A request runs on for `ORPHAN_S` seconds, in which the next process may adopt it. A stream is cancelled: its first items died with
        their reader, and the next process reads from the beginning.
        """
        orphans, self._open = list(self._open.values()), {}
        for orphan in orphans:
            orphan.detach()
            if orphan.is_stream:
                orphan.cancel()
            else:
                self._orphans[orphan.key] = orphan
        if orphans:
            asyncio.get_running_loop().call_later(ORPHAN_S, self._abandon, orphans)

    def _abandon(self, orphans: list[IncomingCall]) -> None:
        for orphan in orphans:
            if self._open.get(orphan.call) is not orphan:  # it was not adopted
                orphan.cancel()
        # After another death a newer orphan may have one of these keys; it stays.
        for key in [key for key, orphan in self._orphans.items() if orphan in orphans]:
            del self._orphans[key]

    def _remove(self, incoming: IncomingCall) -> None:
        # An orphan is not open here, and the next process may have given its number to another call.
        if self._open.get(incoming.call) is not incoming:
            return
        del self._open[incoming.call]
        incoming.report_cancellation()
