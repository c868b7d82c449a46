"""A role's seat in a dispatcher: its handlers, its mailbox for what is told, its bound of messages at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, nullcontext
from contextvars import ContextVar
from types import UnionType
from typing import Any, get_args

from microagents.actors import Role
from microagents.aio import Notifier, TaskScope
from microagents.errors import MicroagentsError, RoleFailed
from microagents.messages import Message, R, Request, Stream, reply_type


class LocalRef:
    """One replica of a role, hosted here."""

    def __init__(self, name: str, role: Role, scope: TaskScope) -> None:
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


_reading: ContextVar[tuple[Mailbox, ...]] = ContextVar("_reading", default=())
"""The mailboxes whose messages led to where we are."""


class Mailbox:
    """What was told to a seat and is not handled yet: one reader handles it, one message after the other."""

    def __init__(self, seat: LocalRef, scope: TaskScope) -> None:
        self.busy = False
        """Whether something is still to be handled, or has failed: whoever asks the seat waits, or hears of it."""
        self._seat = seat
        self._scope = scope
        self._waiting: deque[Request[None]] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._wanted: asyncio.Future[None] | None = None
        self._emptied = Notifier()
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
            await self._emptied.wait()
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
            self._emptied.notify()
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
