"""Message passing between roles: ask, stream, tell and cancel. The code is the same in every runtime.

Within one dispatcher an ask awaits the handler in the caller's own task: no task, no timer, no queue. Between dispatchers a message
becomes an envelope, and all envelopes to one peer from one iteration of the event loop leave as one batch.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from hashlib import blake2b
from typing import Any

from microagents.actors.role import Role
from microagents.base.aio import TaskScope, is_cancelled
from microagents.base.errors import DeadlinePassed, MicroagentsError, NoHandler
from microagents.base.logs import log
from microagents.base.messages import Message, R, Request, Stream, resolve
from microagents.base.user_code import role_failed
from microagents.journal.messages import Record, RecordLoads
from microagents.runtimes import wire
from microagents.runtimes.incoming_calls import IncomingCall
from microagents.runtimes.link import Link
from microagents.runtimes.local_ref import LocalRef, Watch
from microagents.runtimes.outgoing_calls import OutgoingCalls
from microagents.runtimes.peer import Peer
from microagents.runtimes.remote_ref import RemoteRef

LOADS_EVERY_S = 2.0
"""Interval of reports of what roles have to do."""
Ref = LocalRef | RemoteRef


class Route:
    """Replicas that handle a message, and the rule that picks one: a field whose equal values reach the same replica, or None for turns."""

    def __init__(self, refs: Sequence[Ref], key: str | None) -> None:
        self.only = refs[0] if len(refs) == 1 else None
        """The replica, if there is only one."""
        self.refs = refs
        """All of them."""
        self._key = key
        self._next = 0

    def pick(self, message: Message) -> Ref:
        """Return the replica for a message.

        Rendezvous hashing: equal keys reach the same replica from every sender, and a change of the number of replicas moves few keys.
        """
        if self.only is not None:
            return self.only
        if self._key is None:
            self._next = (self._next + 1) % len(self.refs)
            return self.refs[self._next]
        key = bytes(wire.pack(getattr(message, self._key)))
        # Python's own hash of text differs between processes, so senders would disagree.
        return max(self.refs, key=lambda ref: blake2b(key + ref.name.encode(), digest_size=8).digest())


class RoleMessenger:
    """Messenger of one role: sends its messages to the replicas that handle them."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._routes: dict[type[Message], Route] = {}
        self._single: dict[type[Message], Ref] = {}
        """References of the routes with one replica: the common case takes one look-up."""

    def connect(self, routes: dict[type[Message], Route]) -> None:
        """Set the routes of all messages that the role may send; called before the role starts."""
        self._routes = routes
        self._single = {message: route.only for message, route in routes.items() if route.only is not None}

    def replicas(self, message: type[Message]) -> int:
        """Number of replicas that a message may go to; 0 if no deployed role handles it."""
        if message not in self._routes:
            return 0
        return len(self._routes[message].refs)

    def reaches_eager(self, message: type[Message]) -> bool:
        """Whether all handlers that a message may go to are eager, and in this dispatcher."""
        return all(isinstance(ref, LocalRef) and ref.is_eager(message) for ref in self._routes[message].refs)

    def ask_replica(self, number: int, request: Request[R]) -> Coroutine[Any, Any, R]:
        """Send a request to one replica that handles it, and await its reply.

        Raises:
            RoleFailed: the handler raised.
        """
        return self._routes[type(request)].refs[number].ask(request)

    def ask(self, request: Request[R], timeout_s: float | None = None) -> Coroutine[Any, Any, R]:
        """Send a request and await its reply.

        Raises:
            NoHandler: the role does not list the message in its ``asks``.
            DeadlinePassed: the reply took longer than ``timeout_s`` seconds.
            RoleFailed: the handler raised.
        """
        ref = self._single.get(type(request)) or self._ref(request)
        if timeout_s is None:
            return ref.ask(request)
        return self._within(timeout_s, ref.ask, request)

    def stream(self, request: Stream[R], timeout_s: float | None = None) -> AsyncGenerator[R]:
        """Send a request and iterate its items; ``timeout_s`` bounds the wait for each, in seconds.

        Raises:
            NoHandler: the role does not list the message in its ``asks``.
            DeadlinePassed: an item took longer than ``timeout_s`` seconds.
            RoleFailed: the handler raised.
        """
        items = (self._single.get(type(request)) or self._ref(request)).stream(request)
        if timeout_s is None:
            return items
        return self._each_within(timeout_s, items, request)

    def tell(self, request: Request[None]) -> None:
        """Send a one-way message.

        Raises:
            NoHandler: the role does not list the message in its ``asks``.
        """
        (self._single.get(type(request)) or self._ref(request)).tell(request)

    def _ref(self, message: Message) -> Ref:
        route = self._routes.get(type(message))
        if route is None:
            raise NoHandler(
                f"{self._owner} sends {type(message).__name__} without listing it: add it to {self._owner}.asks"
            )
        return route.pick(message)

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
                reply = await call(message)
        except TimeoutError:
            if limit.expired():
                raise DeadlinePassed(type(message).__name__, timeout_s) from None
            raise  # a TimeoutError of the handler itself
        if limit.expired():  # the reply crossed it: Python 3.11 and 3.12 raise its cancellation at the next await
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
        return reply


class Dispatcher:
    """Hosts replicas of roles, and exchanges envelopes with the dispatchers that host the others.

    The ``incarnation`` is the number of processes that hosted a dispatcher before; ``watch`` shows a share of the handled requests.
    """

    def __init__(self, name: str, *, incarnation: int = 0, watch: Watch | None = None) -> None:
        self._name, self._watch = name, watch
        self._replicas: dict[str, LocalRef] = {}
        self._scope = TaskScope()
        self._is_disconnected = False
        self._outgoing = OutgoingCalls()
        self._peers: dict[str, Peer] = {}
        self._held: list[tuple[Peer, wire.Sent | wire.Cancelled]] | None = [] if incarnation else None
        """Envelopes that wait for `open`; None once it was called. Peers send to a later process before its roles are started."""

    # -- set-up -----------------------------------------------------------------------------------------------------------------------

    def connect(self, peer: str, link: Link, incarnation: int = 0) -> None:
        """Connect to another dispatcher, or to the process that follows one that died."""
        known = self._peers.get(peer)
        if known is None:
            self._peers[peer] = Peer(link, incarnation, self._take)
        elif known.is_older_than(incarnation):  # the same process may be announced twice
            self._drop_held(known)
            known.replace(link, incarnation)

    def host(self, name: str, role: Role) -> None:
        """Host a replica of a role under a name."""
        self._replicas[name] = LocalRef(name, role, self._scope, self._watch)

    def ref(self, name: str, dispatcher: str) -> Ref:
        """A reference to a replica, given the name of the dispatcher that hosts it."""
        if dispatcher == self._name:
            return self._replicas[name]
        return RemoteRef(name, self._peers[dispatcher], self._outgoing)

    def report_loads(self, messenger: RoleMessenger) -> None:
        """Report the open work of its replicas to the keeper from now on."""
        self._scope.start(self._report_loads(messenger))

    async def _report_loads(self, messenger: RoleMessenger) -> None:
        loop, told = asyncio.get_running_loop(), None
        process = f"{self._name} on {socket.gethostname()}, pid {os.getpid()}"
        with suppress(MicroagentsError):  # the keeper has failed, which ends the run
            while True:
                began_s = loop.time()
                await asyncio.sleep(LOADS_EVERY_S)
                loads = {name: each.load(loop.time() - began_s, process) for name, each in self._replicas.items()}
                if loads != told:  # a run that waits for a person writes nothing
                    messenger.tell(Record.of(RecordLoads(loads=loads)))
                    told = loads

    def open(self) -> None:
        """Handle the envelopes that arrived before the roles were started, and from now on each at its arrival."""
        held, self._held = self._held or (), None
        for sender, envelope in held:
            self._take(sender, envelope)

    # -- the end ----------------------------------------------------------------------------------------------------------------------

    def end(self, peer: str) -> None:
        """Send nothing to a peer whose process has ended in order, until another process is connected."""
        self._peers[peer].end()

    def lose(self, peer: str, error: MicroagentsError) -> None:
        """Give a peer up: all open and all later calls to it raise ``error``."""
        lost = self._peers[peer]
        self._drop_held(lost)
        for call in lost.lose(error):
            self._outgoing.deliver(wire.pack_error(call, error))

    def has_calls(self, peer: str) -> bool:
        """Return whether calls to a peer are open."""
        return self._peers[peer].has_calls

    async def flush(self) -> None:
        """Wait until all envelopes sent so far have arrived."""
        # Some roles collect one-way messages and send them in the next iteration of the event loop.
        await asyncio.sleep(0)
        for peer in self._peers.values():
            await peer.flush()

    async def close(self) -> None:
        """Cancel all handlers that still run for peers, and the mailboxes' readers."""
        await self._scope.close()

    def disconnect(self) -> None:
        """Stop sending to peers, which may have ended already, and drop their late messages."""
        self._is_disconnected = True
        for peer in self._peers.values():
            peer.close()

    # -- envelopes --------------------------------------------------------------------------------------------------------------------

    def receive(self, peer: str, batch: bytes, incarnation: int = 0) -> None:
        """Take a batch that a link brings from a process of a peer."""
        if not self._is_disconnected:
            self._peers[peer].receive(batch, incarnation)

    def _take(self, sender: Peer, envelope: wire.Envelope) -> None:
        match envelope:
            case wire.Replied():  # first, as every second envelope is one
                self._outgoing.deliver(envelope)
            case wire.Sent() | wire.Cancelled() if self._held is not None:
                self._held.append((sender, envelope))
            case wire.Sent():
                self._take_message(sender, envelope)
            case wire.Cancelled(call):
                sender.incoming.cancel(call)
            case wire.More(call, items):
                sender.incoming.let_send(call, items)
            case _:
                self._outgoing.deliver(envelope)

    def _drop_held(self, sender: Peer) -> None:
        """Drop the held envelopes of a process that has died: its successor sends its own."""
        if self._held is not None:
            self._held = [(peer, envelope) for peer, envelope in self._held if peer is not sender]

    def _take_message(self, sender: Peer, sent: wire.Sent) -> None:
        if sent.call is None:
            self._put_into_mailbox(sent)
        else:
            sender.incoming.serve(sent.call, sent, self._start)

    def _put_into_mailbox(self, sent: wire.Sent) -> None:
        try:
            message = resolve(sent.message, Request)
            self._replicas[sent.replica].tell(wire.unpack(sent.body, message, as_json=message.as_json))
        except Exception as error:  # noqa: BLE001 - any error of a user's message class; the rest of the batch must still be handled
            # The sender awaits no reply. If the mailbox refused the message because of an earlier error, the next ask raises that error.
            log().warning("a one-way message was lost", replica=sent.replica, message=sent.message, error=str(error))

    def _start(self, incoming: IncomingCall) -> asyncio.Task[None]:
        return self._scope.start(self._handle(incoming), incoming.end)

    async def _handle(self, incoming: IncomingCall) -> None:
        """Handle a call from a peer and send its answers."""
        sent = incoming.sent
        replica = self._replicas[sent.replica]
        try:
            message = resolve(sent.message, Message)
            request = wire.unpack(sent.body, message, as_json=message.as_json)
            if isinstance(request, Request):
                reply = await self._reply(replica, request)
                incoming.reply(wire.pack(reply, as_json=message.as_json))
            else:
                await incoming.send_items(replica.stream(request))
        except MicroagentsError as error:
            incoming.fail(error)
        except asyncio.CancelledError:  # `IncomingCalls` answers the caller once this task has ended
            raise
        except BaseException as error:  # noqa: BLE001 - after any error the caller must not wait for ever
            incoming.fail(role_failed(replica.name, sent.message, error))

    async def _reply(self, replica: LocalRef, request: Request[R]) -> R:
        """Handle a request of a peer; returns its reply, or raises its error, once that may leave."""
        try:
            return await replica.ask(request)
        finally:
            if request.replies_after_tells and not is_cancelled():
                for peer in self._peers.values():
                    await peer.flush_tells()
