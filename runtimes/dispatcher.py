"""Carries roles and moves their messages: ask, stream, tell, cancel. The same code in every runtime.

Within one dispatcher an ask awaits the handler in the asker's own task: no task, no timer, no queue. Between dispatchers a message
becomes an envelope; what is sent to one peer in one turn of the loop leaves as one batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from hashlib import blake2b
from typing import Any, cast

import structlog

from microagents.actors import Role
from microagents.aio import TaskScope
from microagents.errors import DeadlinePassed, MicroagentsError, NoHandler, RoleFailed
from microagents.messages import Message, R, Request, Stream, resolve
from microagents.runtimes import wire
from microagents.runtimes.link import Link
from microagents.runtimes.local_ref import LocalRef, said
from microagents.runtimes.remote_ref import CANCEL_S, IncomingCall, OutgoingCalls, Peer, RemoteRef

ITEMS_A_TURN = 64


class Route:
    """Which replica of a role a message goes to."""

    def __init__(self, seats: Sequence[LocalRef | RemoteRef], key: str | None) -> None:
        self.only = seats[0] if len(seats) == 1 else None
        self._seats = seats
        self._key = key
        self._next = 0

    def seat(self, message: Message) -> LocalRef | RemoteRef:
        """Equal keys reach the same replica, whoever asks and however many there are (rendezvous hashing); without a key, in turn."""
        if self.only is not None:
            return self.only
        if self._key is None:
            self._next = (self._next + 1) % len(self._seats)
            return self._seats[self._next]
        key = bytes(wire.pack(getattr(message, self._key)))
        return max(self._seats, key=lambda seat: blake2b(key + seat.name.encode(), digest_size=8).digest())


class RoleMessenger:
    """The post of one role: what it may ask, and where that goes."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._routes: dict[type[Message], Route] = {}
        self._single: dict[type[Message], LocalRef | RemoteRef] = {}

    def connect(self, routes: dict[type[Message], Route]) -> None:
        """Say where messages go; before the role starts."""
        self._routes = routes
        self._single = {message: route.only for message, route in routes.items() if route.only is not None}

    def ask(self, request: Request[R], timeout_s: float | None = None) -> Coroutine[Any, Any, R]:
        """Send a request and await its reply."""
        seat = self._single.get(type(request)) or self._seat(request)
        if timeout_s is None:
            return seat.ask(request)
        return seat.ask(request, timeout_s) if isinstance(seat, RemoteRef) else self._within(timeout_s, seat.ask, request)

    def stream(self, request: Stream[R], timeout_s: float | None = None) -> AsyncGenerator[R]:
        """Send a request and iterate its items."""
        items = (self._single.get(type(request)) or self._seat(request)).stream(request)
        return items if timeout_s is None else self._each_within(timeout_s, items, request)

    def tell(self, request: Request[None]) -> None:
        """Send a request whose reply nobody awaits."""
        (self._single.get(type(request)) or self._seat(request)).tell(request)

    def _seat(self, message: Message) -> LocalRef | RemoteRef:
        route = self._routes.get(type(message))
        if route is None:
            raise NoHandler(f"{self._owner} sends {type(message).__name__} without listing it: add it to {self._owner}.asks")
        return route.seat(message)

    async def _each_within(self, timeout_s: float, items: AsyncGenerator[R], message: Message) -> AsyncGenerator[R]:
        async with aclosing(items):
            while True:
                try:
                    yield await self._within(timeout_s, lambda _: anext(items), message)
                except StopAsyncIteration:
                    return

    async def _within(self, timeout_s: float, call: Callable[[Any], Awaitable[Any]], message: Message) -> Any:
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await call(message)
        except TimeoutError:
            if limit.expired():
                raise DeadlinePassed(type(message).__name__, timeout_s) from None
            raise


class Dispatcher:
    """Hosts seats, and answers the envelopes that peers send to them."""

    def __init__(self, name: str, *, incarnation: int = 0) -> None:
        self.name = name
        self.seats: dict[str, LocalRef] = {}
        self.scope = TaskScope()
        self.calls = OutgoingCalls()
        self._peers: dict[str, Peer] = {}
        self._held: list[tuple[Peer, wire.Envelope]] | None = [] if incarnation else None
        """What others ask a process that follows one that died, until its roles are started."""

    def connect(self, peer: str, link: Link, incarnation: int = 0) -> None:
        """Make another dispatcher known, or the process that follows one that died."""
        known = self._peers.get(peer)
        if known is None:
            known = self._peers[peer] = Peer(peer, link, self._take)
            known.incarnation = incarnation
        elif known.incarnation < incarnation:
            self._orphan(known)
            known.replace(link, incarnation)

    def lose(self, peer: str, error: MicroagentsError) -> None:
        """Give a peer up: whoever waits for it, or asks it from now on, gets this error."""
        lost = self._peers[peer]
        self._orphan(lost)
        lost.lose(error)
        for call in list(lost.asked):
            self._deliver(wire.failed(call, error))

    def seat(self, name: str, home: str) -> LocalRef | RemoteRef:
        """A replica that the dispatcher called ``home`` hosts, as reached from here."""
        return self.seats[name] if home == self.name else RemoteRef(name, self._peers[home], self.calls)

    def host(self, name: str, role: Role) -> LocalRef:
        """Take in a replica of a role."""
        seat = self.seats[name] = LocalRef(name, role, self.scope)
        return seat

    def open(self) -> None:
        """Handle what was asked before the roles were started, and all that comes."""
        held, self._held = self._held or (), None
        for sender, envelope in held:
            self._take_one(sender, envelope)

    def receive(self, peer: str, data: bytes, incarnation: int = 0) -> None:
        """Take what a link brings from a peer; what a process sent that has died since is dropped."""
        sender = self._peers[peer]
        if incarnation == sender.incarnation and sender.lost is None:
            sender.channel.receive(data)

    async def settled(self) -> None:
        """Wait until all that was sent until now has arrived."""
        await asyncio.sleep(0)  # some is told on the next turn of the loop
        for peer in self._peers.values():
            peer.flush()
            await peer.channel.drained()

    async def close(self) -> None:
        """Cancel what is still being handled."""
        await self.scope.close()

    def disconnect(self) -> None:
        """Send nothing again to peers that may have gone."""
        for peer in self._peers.values():
            peer.channel.close()
        self.calls.deadlines.close()

    def _take(self, sender: Peer, batch: bytes) -> None:
        for envelope in wire.decode(batch):
            self._take_one(sender, envelope)

    def _take_one(self, sender: Peer, envelope: wire.Envelope) -> None:
        match envelope:
            case wire.Sent() | wire.Cancelled() if self._held is not None:
                self._held.append((sender, envelope))
            case wire.Sent(call=None):
                self._told(envelope)
            case wire.Sent():
                self._serve(sender, envelope)
            case wire.Cancelled(call):
                if (serving := sender.serving.get(call)) is not None:
                    serving.cancel()
                else:  # it had ended by itself
                    sender.post(wire.Finished(call))
            case wire.More(call, items):
                if (serving := sender.serving.get(call)) is not None:
                    serving.let_send(items)
            case _:
                self._deliver(envelope)

    def _deliver(self, envelope: wire.Replied | wire.Item | wire.Finished | wire.Failed) -> None:
        match self.calls.open.get(envelope.call), envelope:
            case asyncio.Queue() as items, _:
                items.put_nowait(envelope)
            case asyncio.Future() as future, wire.Replied(call, body):
                if future.cancelled():
                    self.calls.late[call] = body
                elif not future.done():
                    future.set_result(body)
            case asyncio.Future() as future, wire.Failed() as failed if not future.done():
                future.set_exception(wire.error_of(failed))
            case asyncio.Future() as future, wire.Finished() if not future.done():
                future.set_result(None)
            # Anything else answers a call that was cancelled on this side while the answer was on its way.

    def _told(self, envelope: wire.Sent) -> None:
        try:
            message = resolve(envelope.message, Request)
            self.seats[envelope.seat].tell(wire.unpack(envelope.body, message))
        except Exception as error:  # noqa: BLE001 - what a user's message raises when it is made must not lose the rest of the batch
            # Nobody awaits it; a seat that has failed says so to whoever asks it next.
            structlog.get_logger().warning("a told message was lost", seat=envelope.seat, message=envelope.message, error=str(error))

    def _serve(self, peer: Peer, envelope: wire.Sent) -> None:
        call = cast("int", envelope.call)
        if peer.orphans and (orphan := peer.orphans.pop((envelope.seat, envelope.message, bytes(envelope.body)), None)) is not None:
            peer.serving[call] = orphan
            orphan.adopt(call)
            if orphan.task is not None and orphan.task.done():
                self._served(peer, orphan)
            return
        serving = peer.serving[call] = IncomingCall(peer, call, envelope)
        serving.task = self.scope.start(self._answer(serving))
        serving.task.add_done_callback(lambda _: self._served(peer, serving))

    def _served(self, peer: Peer, serving: IncomingCall) -> None:
        if peer.serving.get(serving.call) is not serving:  # its asker has died
            return
        del peer.serving[serving.call]
        if serving.task is not None and serving.task.cancelled():  # also where it was cancelled before its first step
            serving.post(wire.Finished(serving.call))

    def _orphan(self, peer: Peer) -> None:
        """Let go on for a while what a process asked that has died: the one after it may ask it again."""
        if self._held is not None:
            self._held = [each for each in self._held if each[0] is not peer]
        orphans, peer.serving = list(peer.serving.values()), {}
        for serving in orphans:
            question = serving.orphan()
            if serving.is_stream:  # what it has sent would not be sent again
                serving.cancel()
            else:
                peer.orphans[question] = serving
        if orphans:
            asyncio.get_running_loop().call_later(CANCEL_S, self._abandon, peer, orphans)

    def _abandon(self, peer: Peer, orphans: list[IncomingCall]) -> None:
        for serving in orphans:
            if peer.serving.get(serving.call) is not serving:
                serving.cancel()
        for question in [question for question, serving in peer.orphans.items() if serving in orphans]:
            del peer.orphans[question]

    async def _answer(self, serving: IncomingCall) -> None:
        sent = serving.sent
        seat = self.seats[sent.seat]
        try:
            message = resolve(sent.message, Message)
            request = wire.unpack(sent.body, message)
            if isinstance(request, Request):
                reply = wire.pack(await seat.ask(request))
                serving.post(wire.Replied(serving.call, reply))
                return
            serving.is_stream = True
            async with aclosing(seat.stream(request)) as items:
                count = 0
                async for item in items:
                    await serving.send_item(item)
                    count += 1
                    if not count % ITEMS_A_TURN:  # a stream that never waits must not keep everybody else from their turn
                        await asyncio.sleep(0)
            serving.post(wire.Finished(serving.call))
        except MicroagentsError as error:
            serving.post(wire.failed(serving.call, error))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, the asker must not wait for ever
            serving.post(wire.failed(serving.call, RoleFailed(seat.name, sent.message, said(error))))
