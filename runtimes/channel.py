"""Ordered delivery of batches between two dispatchers, each batch once, over a link that may delay, reorder, repeat or drop them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from msgspec import Struct

from microagents.base.aio import Notifier


class Frame(Struct, frozen=True, array_like=True):
    """A batch with its number, counted from 1; number 0 marks a frame that only acknowledges."""

    number: int
    received: int
    """Number up to which all frames from the other side have arrived."""
    batch: bytes
    wants_answer: bool = False
    """Whether the other side must acknowledge at once."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


class Channel:
    """One end of a connection: resends batches until they are acknowledged, and delivers received batches once and in order.

    A batch is sent again after ``resend_s`` without an acknowledgement. A received one is acknowledged after ``acknowledge_s``, unless a
    batch in the other direction has done so.
    """

    def __init__(
        self, send: Callable[[bytes], None], deliver: Callable[[bytes], None], *, resend_s: float, acknowledge_s: float
    ) -> None:
        self._send = send
        self._deliver = deliver
        self._resend_s = resend_s
        self._acknowledge_s = acknowledge_s
        self._sent = 0
        """Number of the last frame sent."""
        self._unacknowledged: dict[int, bytes] = {}
        """Batches that may have to be sent again, by number, in ascending order."""
        self._all_acknowledged = Notifier()
        self._received = 0
        """Number up to which all frames have arrived and are delivered."""
        self._acknowledged = 0
        """Number up to which the other side has been sent an acknowledgement."""
        self._early: dict[int, bytes] = {}
        """Batches that arrived before one of their predecessors, by number."""
        self._resend_timer: asyncio.TimerHandle | None = None
        self._resend_up_to = 0
        """Last frame sent before the resend timer was set; frames up to it are late when the timer fires."""
        self._acknowledge_timer: asyncio.TimerHandle | None = None

    def send(self, batch: bytes) -> None:
        """Send a batch, and send it again until it is acknowledged."""
        self._sent += 1
        self._unacknowledged[self._sent] = batch
        self._send_frame(self._sent, batch)
        if self._resend_timer is None:
            self._set_resend_timer()

    def receive(self, data: bytes) -> None:
        """Take a frame from the link and deliver all batches that are next in order."""
        frame = _decode(data)
        self._drop_acknowledged(frame.received)
        if frame.wants_answer:
            self._send(_encode(Frame(0, self._received, b"")))
        if not frame.number:
            return
        if frame.number > self._received:
            self._early[frame.number] = frame.batch
        else:
            # The other side repeats a frame that arrived before, so its acknowledgement was lost: acknowledge it again.
            self._acknowledged = min(self._acknowledged, frame.number - 1)
        if self._acknowledge_timer is None:  # later, since a batch in the other direction mostly acknowledges for free
            self._acknowledge_timer = asyncio.get_running_loop().call_later(self._acknowledge_s, self._acknowledge)
        self._deliver_in_order()

    async def flush(self) -> None:
        """Wait until all sent batches have arrived, or the channel is closed."""
        if self._unacknowledged:
            # Asks for an acknowledgement now. If this frame or its answer is lost, the batches are sent again and acknowledged then.
            self._send(_encode(Frame(0, self._received, b"", wants_answer=True)))
        while self._unacknowledged:
            await self._all_acknowledged.wait()

    def close(self) -> None:
        """Stop sending, and wake all callers of `flush`."""
        for timer in (self._resend_timer, self._acknowledge_timer):
            if timer is not None:
                timer.cancel()
        self._unacknowledged.clear()
        self._all_acknowledged.notify()

    def _drop_acknowledged(self, received: int) -> None:
        while self._unacknowledged and (first := next(iter(self._unacknowledged))) <= received:
            del self._unacknowledged[first]
        if not self._unacknowledged:
            self._all_acknowledged.notify()

    def _deliver_in_order(self) -> None:
        while (batch := self._early.pop(self._received + 1, None)) is not None:
            self._received += 1
            self._deliver(batch)

    def _send_frame(self, number: int, batch: bytes) -> None:
        self._acknowledged = self._received
        self._send(_encode(Frame(number, self._received, batch)))

    def _set_resend_timer(self) -> None:
        # One timer for all frames: a frame sent while it runs waits for the next round, so it is sent again after one to two `resend_s`.
        self._resend_up_to = self._sent
        self._resend_timer = asyncio.get_running_loop().call_later(self._resend_s, self._resend)

    def _resend(self) -> None:
        self._resend_timer = None
        late = [(number, batch) for number, batch in self._unacknowledged.items() if number <= self._resend_up_to]
        for number, batch in late:
            self._send_frame(number, batch)
        if self._unacknowledged:
            self._set_resend_timer()

    def _acknowledge(self) -> None:
        self._acknowledge_timer = None
        if self._acknowledged < self._received:
            self._send_frame(0, b"")
