"""Batches between two dispatchers, each once and in order, over a link that may delay, reorder, repeat or drop them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from msgspec import Struct

from microagents.aio import Notifier


class Frame(Struct, frozen=True, array_like=True):
    """A batch with its number, from 1 on; 0 for one that only acknowledges."""

    number: int
    received: int
    """All frames of the other side up to this one have arrived."""
    batch: bytes
    wants_answer: bool = False
    """Whether what has arrived is to be acknowledged at once."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


class Channel:
    """One end: numbers what it sends and keeps it until it is acknowledged; holds what arrives too early, and drops what it had."""

    def __init__(self, send: Callable[[bytes], None], deliver: Callable[[bytes], None], *, resend_s: float, acknowledge_s: float) -> None:
        self._send = send
        self._resend_s = resend_s
        """After so long without an acknowledgement a batch is sent again."""
        self._acknowledge_s = acknowledge_s
        """After so long what arrived is acknowledged, if no batch went the other way that could say so."""
        self._drained = Notifier()
        self._deliver = deliver
        self._sent = 0
        self._unacknowledged: dict[int, bytes] = {}
        self._received = self._acknowledged = 0
        self._early: dict[int, bytes] = {}
        self._resend_timer: asyncio.TimerHandle | None = None
        self._resend_from = 0
        """Frames up to this one were sent before the timer was set, so that they are late when it fires."""
        self._acknowledge_timer: asyncio.TimerHandle | None = None

    def send(self, batch: bytes) -> None:
        """Send a batch."""
        self._sent += 1
        self._unacknowledged[self._sent] = batch
        self._send_frame(self._sent, batch)
        if self._resend_timer is None:
            self._set_resend_timer()

    def receive(self, data: bytes) -> None:
        """Take a frame from the link; delivers what is next, and all that waited for it."""
        frame = _decode(data)
        while self._unacknowledged and (first := next(iter(self._unacknowledged))) <= frame.received:
            del self._unacknowledged[first]
        if not self._unacknowledged:
            self._drained.notify()
        if frame.wants_answer:
            self._send(_encode(Frame(0, self._received, b"")))
        if not frame.number:
            return
        if frame.number > self._received:
            self._early[frame.number] = frame.batch
        else:  # it came before: what told the other side so was lost
            self._acknowledged = min(self._acknowledged, frame.number - 1)
        if self._acknowledge_timer is None:
            self._acknowledge_timer = asyncio.get_running_loop().call_later(self._acknowledge_s, self._acknowledge)
        while (batch := self._early.pop(self._received + 1, None)) is not None:
            self._received += 1
            self._deliver(batch)

    async def drained(self) -> None:
        """Wait until all that was sent has arrived, or cannot any more."""
        if self._unacknowledged:
            self._send(_encode(Frame(0, self._received, b"", wants_answer=True)))
        while self._unacknowledged:
            await self._drained.wait()

    def close(self) -> None:
        """Send nothing again."""
        for timer in (self._resend_timer, self._acknowledge_timer):
            if timer is not None:
                timer.cancel()
        self._unacknowledged.clear()
        self._drained.notify()

    def _send_frame(self, number: int, batch: bytes) -> None:
        self._acknowledged = self._received
        self._send(_encode(Frame(number, self._received, batch)))

    def _set_resend_timer(self) -> None:
        self._resend_from = self._sent
        self._resend_timer = asyncio.get_running_loop().call_later(self._resend_s, self._resend)

    def _resend(self) -> None:
        self._resend_timer = None
        late = [(number, batch) for number, batch in self._unacknowledged.items() if number <= self._resend_from]
        for number, batch in late:
            self._send_frame(number, batch)
        if self._unacknowledged:
            self._set_resend_timer()

    def _acknowledge(self) -> None:
        self._acknowledge_timer = None
        if self._acknowledged < self._received:
            self._send_frame(0, b"")
