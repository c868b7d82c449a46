"""Another dispatcher, as one dispatcher knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby

from msgspec import Raw, Struct

from microagents.base.errors import MicroagentsError
from microagents.base.messages import Batched, address_of
from microagents.runtimes import wire
from microagents.runtimes.incoming_calls import IncomingCalls
from microagents.runtimes.link import Link
from microagents.runtimes.outgoing_calls import Reply

CANCEL_S = 5.0
"""Seconds that a cancelled caller waits until the handler at the peer has ended."""
MAX_ENVELOPES = 256
"""Envelopes in one batch."""


class Waiting(Struct, frozen=True):
    """A one-way message that is packed when it leaves, together with the others that wait."""

    replica: str
    message: Batched


def _packed(waiting: Sequence[wire.Envelope | Waiting]) -> Iterator[wire.Envelope]:
    """Pack envelopes in their order; messages beside each other that wait for the same replica are one."""
    for replica, some in groupby(waiting, lambda each: each.replica if isinstance(each, Waiting) else None):
        if replica is None:
            yield from (each for each in some if not isinstance(each, Waiting))
        else:
            messages = [each.message for each in some if isinstance(each, Waiting)]
            one = messages[0] if len(messages) == 1 else messages[0].together(messages)
            yield wire.Sent(None, replica, address_of(type(one)), wire.pack(one))


class Peer:
    """Another dispatcher: the link to its current process, and the calls that its next process will be asked again."""

    def __init__(self, link: Link, incarnation: int, on_envelope: Callable[[Peer, wire.Envelope], None]) -> None:
        self.incoming = IncomingCalls(self.enqueue)
        """The calls from this peer."""
        self._incarnation = incarnation
        self._on_envelope = on_envelope
        self._lost: MicroagentsError | None = None
        """Reason for which the peer was given up."""
        self._has_ended = False
        """Whether its process has ended in order, and no other follows yet."""
        self._outbox: list[wire.Envelope | Waiting] = []
        self._left_at = 0.0
        """Time of the event loop at which the outbox was last sent."""
        self._is_scheduled = False
        """Whether the outbox is sent on the next iteration of the event loop."""
        self._unanswered: dict[int, wire.Sent] = {}
        """Open calls to the peer, by number."""
        self._cancelled: dict[int, Reply] = {}
        """Ends of the calls that were cancelled here and still run at the peer, by number."""
        self._link = link

    @property
    def has_calls(self) -> bool:
        """Whether calls to the peer are open, or cancelled and not over there."""
        return bool(self._unanswered or self._cancelled)

    # -- calls to the peer ------------------------------------------------------------------------------------------------------------

    def raise_if_lost(self) -> None:
        """Refuse a message to a peer that was given up, with the reason that was passed to `lose`."""
        if self._lost is not None:
            raise self._lost

    def ask(self, call: int, sent: wire.Sent) -> None:
        """Send a request, and send it again to each later process until it is forgotten or cancelled."""
        self._unanswered[call] = sent
        self.enqueue(sent)

    def tell(self, sent: wire.Sent | Waiting) -> None:
        """Send a one-way message, in its order among all messages to the peer.

        One that follows others sooner than the link's `linger_s` waits until then, for more: a death of this process loses those alone.
        """
        if not self._link.linger_s:
            self.enqueue(sent)
            return
        if not self._outbox:
            asyncio.get_running_loop().call_at(self._left_at + self._link.linger_s, self._send_outbox)
        self._outbox.append(sent)

    def forget(self, call: int) -> None:
        """Do not send a request again."""
        self._unanswered.pop(call, None)

    async def cancel(self, call: int, end: Reply) -> Raw | None:
        """Cancel a call and wait until its handler has ended, at most `CANCEL_S` seconds; returns the reply, if it replied all the same.

        A call within one dispatcher behaves alike: handler and caller are one task there.
        """
        del self._unanswered[call]
        if self._lost is not None:
            return None
        self._cancelled[call] = end
        self.enqueue(wire.Cancelled(call))
        try:
            # The caller is gone, so the handler's error interests no caller.
            with suppress(TimeoutError, MicroagentsError):
                async with asyncio.timeout(CANCEL_S):
                    return await end
        finally:
            del self._cancelled[call]
        return None

    # -- the connection ---------------------------------------------------------------------------------------------------------------

    def enqueue(self, envelope: wire.Envelope | Waiting) -> None:
        """Put an envelope into the outbox; one batch takes all that is in it on the next iteration of the event loop."""
        self._outbox.append(envelope)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._send_outbox)

    def _send_outbox(self) -> None:
        self._is_scheduled = False
        self._left_at = asyncio.get_running_loop().time()
        waiting, self._outbox = self._outbox, []
        if self._lost is None and not self._has_ended:
            envelopes = list(_packed(waiting))
            for first in range(0, len(envelopes), MAX_ENVELOPES):
                self._link.send(wire.encode(envelopes[first : first + MAX_ENVELOPES]))

    def receive(self, batch: bytes, incarnation: int) -> None:
        """Take a batch from a link; one from a process that has died since is dropped."""
        if incarnation == self._incarnation and self._lost is None and not self._has_ended:
            for envelope in wire.decode(batch):
                self._on_envelope(self, envelope)

    async def flush(self) -> None:
        """Send the outbox and wait until it has arrived."""
        self._send_outbox()
        await self._link.flush()

    async def flush_tells(self) -> None:
        """Wait until one-way messages have arrived, if they may linger here."""
        if self._link.linger_s:
            await self.flush()

    def close(self) -> None:
        """Send nothing more."""
        self._link.close()

    # -- the processes of the peer ----------------------------------------------------------------------------------------------------

    def is_older_than(self, incarnation: int) -> bool:
        """Return whether the connected process came before the given incarnation."""
        return self._incarnation < incarnation

    def replace(self, link: Link, incarnation: int) -> None:
        """Connect to the process that follows one that died, and ask it all that the dead one left unanswered."""
        self.incoming.orphan_all()
        self._end_connection()
        # Answers and cancellations in the outbox concern calls of the dead process, and open requests are all sent again. One-way messages
        # that have not left yet exist only here.
        one_way = [
            envelope
            for envelope in self._outbox
            if isinstance(envelope, Waiting) or (isinstance(envelope, wire.Sent) and envelope.call is None)
        ]
        self._incarnation, self._has_ended = incarnation, False
        self._link = link
        self._outbox.clear()
        for envelope in (*one_way, *self._unanswered.values()):
            self.enqueue(envelope)

    def end(self) -> None:
        """Send nothing until another process follows: the current one has ended, and owes no answer."""
        self.incoming.orphan_all()
        self._end_connection()
        self._has_ended = True

    def lose(self, error: MicroagentsError) -> list[int]:
        """Give the peer up; messages to it raise ``error`` from now on. Returns the numbers of calls that are left without an answer."""
        self.incoming.orphan_all()
        self._end_connection()
        self._lost = error
        return list(self._unanswered)

    def _end_connection(self) -> None:
        self._link.close()
        for end in self._cancelled.values():  # the handlers have died with their process
            if not end.done():
                end.set_result(None)
