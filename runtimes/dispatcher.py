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
from microagents.errors import DeadlinePassed, MicroagentsError, NoHandler, RoleFailed
from microagents.messages import Message, R, Request, Stream, resolve
from microagents.runtimes import wire
from microagents.runtimes.link import Link
from microagents.runtimes.remote import UNDECODABLE, Calls, Peer, RemoteSeat
from microagents.runtimes.seats import Seat, said
from microagents.scope import Scope

ITEMS_A_TURN = 64


class Route:
    """Which replica of a role a message goes to."""

    def __init__(self, seats: Sequence[Seat | RemoteSeat], key: str | None) -> None:
        self.only = seats[0] if len(seats) == 1 else None
        self._seats = seats
        self._key = key
        self._next = 0

    def seat(self, message: Message) -> Seat | RemoteSeat:
        """Equal keys reach the same replica, whoever asks and however many there are (rendezvous hashing); without a key, in turn."""
        if self.only is not None:
            return self.only
        if self._key is None:
            self._next = (self._next + 1) % len(self._seats)
            return self._seats[self._next]
        key = bytes(wire.pack(getattr(message, self._key)))
        return max(self._seats, key=lambda seat: blake2b(key + seat.name.encode(), digest_size=8).digest())


class Desk:
    """The post of one role: what it may ask, and where that goes."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._routes: dict[type[Message], Route] = {}
        self._single: dict[type[Message], Seat | RemoteSeat] = {}

    def connect(self, routes: dict[type[Message], Route]) -> None:
        """Say where messages go; before the role starts."""
        self._routes = routes
        self._single = {message: route.only for message, route in routes.items() if route.only is not None}

    def ask(self, request: Request[R], timeout_s: float | None = None) -> Coroutine[Any, Any, R]:
        """Send a request and await its reply."""
        seat = self._single.get(type(request)) or self._seat(request)
        return seat.ask(request) if timeout_s is None else self._within(timeout_s, seat.ask, request)

    def stream(self, request: Stream[R], timeout_s: float | None = None) -> AsyncGenerator[R]:
        """Send a request and iterate its items."""
        items = (self._single.get(type(request)) or self._seat(request)).stream(request)
        return items if timeout_s is None else self._each_within(timeout_s, items, request)

    def tell(self, request: Request[None]) -> None:
        """Send a request whose reply nobody awaits."""
        (self._single.get(type(request)) or self._seat(request)).tell(request)

    def _seat(self, message: Message) -> Seat | RemoteSeat:
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

    def __init__(self, name: str) -> None:
        self.name = name
        self.seats: dict[str, Seat] = {}
        self.scope = Scope()
        self.calls = Calls()
        self._peers: dict[str, Peer] = {}

    def connect(self, peer: str, link: Link) -> None:
        """Make another dispatcher known."""
        self._peers[peer] = Peer(peer, link, self._take)

    def seat(self, name: str, home: str) -> Seat | RemoteSeat:
        """A replica that the dispatcher called ``home`` hosts, as reached from here."""
        return self.seats[name] if home == self.name else RemoteSeat(name, self._peers[home], self.calls)

    def host(self, name: str, role: Role) -> Seat:
        """Take in a replica of a role."""
        seat = self.seats[name] = Seat(name, role, self.scope)
        return seat

    def receive(self, peer: str, data: bytes) -> None:
        """Take what a link brings from a peer."""
        self._peers[peer].channel.receive(data)

    def _take(self, sender: Peer, batch: bytes) -> None:
        for envelope in wire.decode(batch):
            match envelope:
                case wire.Sent(call=None):
                    self._told(envelope)
                case wire.Sent():
                    self._serve(sender, envelope)
                case wire.Cancelled(call):
                    if (task := sender.serving.get(call)) is not None:
                        task.cancel()
                    else:  # it had ended by itself
                        sender.post(wire.Ended(call))
                case _:
                    self._deliver(envelope)

    async def close(self) -> None:
        """Cancel what is still being handled."""
        await self.scope.close()

    def disconnect(self) -> None:
        """Send nothing again to peers that may have gone."""
        for peer in self._peers.values():
            peer.channel.close()

    def _deliver(self, envelope: wire.Replied | wire.Item | wire.Ended | wire.Failed) -> None:
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
            case asyncio.Future() as future, wire.Ended() if not future.done():
                future.set_result(None)
            # Anything else answers a call that was cancelled on this side while the answer was on its way.

    def _told(self, envelope: wire.Sent) -> None:
        try:
            message = resolve(envelope.message, Request)
            self.seats[envelope.seat].tell(wire.unpack(envelope.body, message))
        except (MicroagentsError, *UNDECODABLE) as error:
            # Nobody awaits it; a seat that has failed says so to whoever asks it next.
            structlog.get_logger().warning("a told message was lost", seat=envelope.seat, message=envelope.message, error=str(error))

    def _serve(self, peer: Peer, envelope: wire.Sent) -> None:
        call = cast("int", envelope.call)
        task = self.scope.start(self._answer(peer, call, envelope))
        peer.serving[call] = task
        task.add_done_callback(lambda ended: self._served(peer, call, ended))

    def _served(self, peer: Peer, call: int, ended: asyncio.Task[None]) -> None:
        del peer.serving[call]
        if ended.cancelled():  # also where it was cancelled before its first step
            peer.post(wire.Ended(call))

    async def _answer(self, peer: Peer, call: int, envelope: wire.Sent) -> None:
        seat = self.seats[envelope.seat]
        try:
            message = resolve(envelope.message, Message)
            request = wire.unpack(envelope.body, message)
            if isinstance(request, Request):
                peer.post(wire.Replied(call, wire.pack(await seat.ask(request))))
                return
            async with aclosing(seat.stream(request)) as items:
                sent = 0
                async for item in items:
                    peer.post(wire.Item(call, wire.pack(item)))
                    sent += 1
                    if not sent % ITEMS_A_TURN:  # a stream that never waits must not keep everybody else from their turn
                        await asyncio.sleep(0)
            peer.post(wire.Ended(call))
        except MicroagentsError as error:
            peer.post(wire.failed(call, error))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, the asker must not wait for ever
            peer.post(wire.failed(call, RoleFailed(seat.name, envelope.message, said(error))))
