"""Carries roles and moves their messages: ask, stream, tell, cancel. The same code in every runtime.

Within one dispatcher an ask awaits the handler in the asker's own task: no task, no timer, no queue. Between dispatchers a message
becomes an envelope; what is sent to one peer in one turn of the loop leaves as one batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from hashlib import blake2b
from types import UnionType
from typing import Any, cast, get_args

import msgspec
import structlog

from microagents.actors import Role
from microagents.errors import DeadlinePassed, InvalidDefinition, MicroagentsError, NoHandler, RoleFailed
from microagents.messages import Message, R, Request, Stream, address_of, reply_type, resolve
from microagents.runtimes import wire
from microagents.runtimes.channel import Channel
from microagents.runtimes.link import Link
from microagents.scope import Scope

UNDECODABLE = (TypeError, OverflowError, ValueError, RecursionError, msgspec.MsgspecError)


ITEMS_A_TURN = 64
CANCEL_S = 5.0
"""How long a cancelled asker waits until the handler on the other side has ended."""


class Seat:
    """One replica of a role, hosted here."""

    def __init__(self, name: str, role: Role, scope: Scope) -> None:
        self.name = name
        self.role = role
        self._handlers: dict[type[Message], tuple[Callable[[Any], Any], Any]] = {
            message: (getattr(role, method), _checkable(reply_type(message))) for message, method in role.handlers.items()
        }
        self._gate = None if role.concurrency is None else asyncio.Semaphore(role.concurrency)
        self._mailbox = Mailbox(self, scope)

    def ask(self, request: Request[R]) -> Coroutine[Any, Any, R]:
        """Handle one request in the asker's task, after what was told before."""
        return self._after_the_told(request) if self._mailbox.busy or self._gate is not None else self._handle(request)

    async def stream(self, request: Stream[R]) -> AsyncGenerator[R]:
        """Handle one streamed request in the asker's task, after what was told before."""
        if self._mailbox.busy:
            await self._mailbox.emptied()
        handler, expected = self._handlers[type(request)]
        try:
            async with self._gate or nullcontext(), aclosing(handler(request)) as items:
                async for item in items:
                    if expected is not None and not isinstance(item, expected):
                        raise self._mistyped(request, item, expected)  # noqa: TRY301 - ours, it goes through
                    yield item
        except MicroagentsError:
            raise
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            raise self._failed(request, error) from error

    def tell(self, request: Request[None]) -> None:
        """Queue a request whose reply nobody awaits; they are handled one after the other."""
        self._mailbox.put(request)

    def handle_told(self, request: Request[None]) -> Coroutine[Any, Any, None]:
        """Handle what was told."""
        return self._handle(request) if self._gate is None else self._handle_in_turn(self._gate, request)

    async def _after_the_told(self, request: Request[R]) -> R:
        if self._mailbox.busy:
            await self._mailbox.emptied()
        return await (self._handle(request) if self._gate is None else self._handle_in_turn(self._gate, request))

    async def _handle_in_turn(self, gate: asyncio.Semaphore, request: Request[R]) -> R:
        async with gate:
            return await self._handle(request)

    async def _handle(self, request: Request[R]) -> R:
        """Call the handler; whatever it raises, the asker gets one typed error."""
        handler, expected = self._handlers[type(request)]
        try:
            reply: R = await handler(request)
        except MicroagentsError:
            raise
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            raise self._failed(request, error) from error
        if expected is not None and not isinstance(reply, expected):
            raise self._mistyped(request, reply, expected)
        return reply

    def _mistyped(self, request: Message, reply: object, expected: Any) -> RoleFailed:
        return RoleFailed(self.name, type(request).__name__, f"it answered {reply!r:.200}, which is not {_shown(expected)}")

    def _failed(self, request: Message, error: BaseException) -> BaseException:
        """What the asker gets: a cancellation of its own as such, everything else as a failure of the role."""
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            return error
        return RoleFailed(self.name, type(request).__name__, said(error))


def said(error: BaseException) -> str:
    """What an error says of itself, where it can."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as broken:  # noqa: BLE001 - a user's __str__ may raise anything
        return f"{type(error).__name__} (whose text raises {type(broken).__name__})"


def is_cancelled() -> bool:
    """Whether it is this task that is cancelled, and not only something that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _cancel_at_the_next_await() -> None:
    """Put off the cancellation of this task that has just been caught."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
        task.cancel()


_reading: ContextVar[tuple[Mailbox, ...]] = ContextVar("_reading", default=())
"""The mailboxes whose messages led to where we are."""


class Mailbox:
    """What was told to a seat and is not handled yet: one reader handles it, one message after the other."""

    def __init__(self, seat: Seat, scope: Scope) -> None:
        self.busy = False
        """Whether something is still to be handled, or has failed: whoever asks the seat waits, or hears of it."""
        self._seat = seat
        self._scope = scope
        self._waiting: deque[Request[None]] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._wanted: asyncio.Future[None] | None = None
        self._emptied: list[asyncio.Future[None]] = []
        self._failure: MicroagentsError | None = None

    def put(self, request: Request[None]) -> None:
        """Queue a message; the reader takes it on the next turn of the loop.

        Raises:
            MicroagentsError: what an earlier told message failed with, since nobody was there to be told.
        """
        if self._failure is not None:
            raise self._failure
        self._waiting.append(request)
        self.busy = True
        if self._reader is None:
            self._reader = self._scope.start(self._read())
        elif self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            if not wanted.done():
                wanted.set_result(None)

    async def emptied(self) -> None:
        """Wait until all that was told is handled.

        Raises:
            MicroagentsError: what it failed with.
        """
        # What was told may lead back to its own seat: it must not wait for itself.
        if self._waiting_for_reader() and self not in _reading.get():
            emptied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._emptied.append(emptied)
            await emptied
        if self._failure is not None:
            raise self._failure

    def _waiting_for_reader(self) -> bool:
        return self._reader is not None and not self._reader.done() and self._wanted is None

    async def _read(self) -> None:
        _reading.set((*_reading.get(), self))
        while self._failure is None:
            while self._waiting:
                try:
                    await self._seat.handle_told(self._waiting.popleft())
                except MicroagentsError as error:
                    self._failure = error
                    self._waiting.clear()
            self.busy = self._failure is not None
            for emptied in self._emptied:
                if not emptied.done():
                    emptied.set_result(None)
            self._emptied.clear()
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted


def _checkable(reply: Any) -> Any:
    """What isinstance takes, fast; None for a type that only decoding can check."""
    if reply is None:
        return type(None)
    reply = get_args(reply) if isinstance(reply, UnionType) else reply
    try:
        isinstance(None, reply)
    except TypeError:
        return None
    return reply


def _shown(expected: Any) -> str:
    return expected.__qualname__ if isinstance(expected, type) else str(expected)


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
