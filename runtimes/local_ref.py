"""Reference to a replica of a role that this dispatcher hosts: its handlers, its mailbox and its bound on concurrency."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, nullcontext
from contextvars import ContextVar
from types import UnionType
from typing import Any, get_args

from microagents.actors.role import Role, is_eager, is_plain
from microagents.base.aio import Notifier, TaskScope, is_cancellation
from microagents.base.errors import MicroagentsError, RoleFailed
from microagents.base.messages import Message, R, Request, Stream, reply_type
from microagents.base.user_code import role_failed
from microagents.journal.messages import Load

Watch = Callable[[str], Callable[[], None]]
"""Begins to show under a name that a request is handled; returns the function that ends it."""


class LocalRef:
    """A replica of a role in this process. Its scope owns the task that reads the mailbox."""

    def __init__(self, name: str, role: Role, scope: TaskScope, watch: Watch | None = None) -> None:
        self.name = name
        self._watch, self._is_due = watch, False
        """Shows how long a request is handled, and whether the next one is shown."""
        self._handlers: dict[type[Message], tuple[Callable[[Any], Any], Any]] = {
            message: (getattr(role, method), _checkable(reply_type(message)))
            for message, method in role.handlers.items()
        }
        """By message: the handler, and the type of its reply as `_checkable` gives it."""
        self._gate = None if role.concurrency is None else asyncio.Semaphore(role.concurrency)
        self._plain = frozenset(message for message, (handler, _) in self._handlers.items() if is_plain(handler))
        self._at_once = self._plain if self._gate is None else frozenset[type[Message]]()
        """One-way messages that are handled without a wait."""
        self._is_told = False
        """Whether a plain handler takes a one-way message, so that another one waits for its end."""
        self._mailbox = Mailbox(self._handle_queued, scope)
        self._handled = self._open = 0
        """Requests since the last `load`, and open ones."""

    def load(self, within_s: float, process: str) -> Load:
        """Return its open work in a process; the last call was ``within_s`` seconds ago. The next request is shown."""
        handled, self._handled, self._is_due = self._handled, 0, self._watch is not None
        return Load(per_s=round(handled / within_s), open=self._open, process=process)

    def is_eager(self, message: type[Message]) -> bool:
        """Whether the handler of a message may begin in the sender's task."""
        return self._gate is None and is_eager(self._handlers[message][0])

    def ask(self, request: Request[R]) -> Coroutine[Any, Any, R]:
        """Handle a request in the caller's task, after all one-way messages before it.

        Raises:
            RoleFailed: the handler raised an error that is no `MicroagentsError`, or its reply has the wrong type.
        """
        # Most asks need neither mailbox nor gate, and save a second coroutine around `_handle`.
        if self._mailbox.is_blocking or self._gate is not None:
            return self._ask_after_mailbox(request)
        return self._handle(request)

    async def stream(self, request: Stream[R]) -> AsyncGenerator[R]:
        """Handle a streamed request in the caller's task, after all one-way messages before it. `RoleFailed` as in `ask`."""
        if self._mailbox.is_blocking:
            await self._mailbox.join()
        handler, expected = self._handlers[type(request)]
        self._handled += 1
        self._open += 1
        try:
            async with self._gate or nullcontext(), aclosing(handler(request)) as items:
                async for item in items:
                    if expected is not None and not isinstance(item, expected):
                        raise self._mistyped(request, item, expected)  # noqa: TRY301 - passes as a MicroagentsError
                    yield item
        except (MicroagentsError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raise self._failed(request, error) from error
        finally:
            self._open -= 1

    def tell(self, request: Request[None]) -> None:
        """Handle a one-way message after those before it: now, if its handler is plain and none waits, else from the mailbox."""
        mailbox = self._mailbox
        if type(request) not in self._at_once or mailbox.is_blocking or self._is_told:
            mailbox.put(request)
            return
        self._is_told = True
        try:
            self._call(request)
        except MicroagentsError as error:
            mailbox.fail(error)
        finally:
            self._is_told = False

    def _handle_queued(self, request: Request[None]) -> Coroutine[Any, Any, None]:
        """Handle a message from the mailbox."""
        if self._gate is None:
            return self._handle(request)
        return self._handle_alone(self._gate, request)

    async def _ask_after_mailbox(self, request: Request[R]) -> R:
        if self._mailbox.is_blocking:
            await self._mailbox.join()
        return await (self._handle(request) if self._gate is None else self._handle_alone(self._gate, request))

    async def _handle_alone(self, gate: asyncio.Semaphore, request: Request[R]) -> R:
        async with gate:
            return await self._handle(request)

    async def _handle(self, request: Request[R]) -> R:
        """Call the handler; every error of it reaches the caller as a `MicroagentsError`."""
        self._handled += 1
        if type(request) in self._plain:
            return self._call(request)
        handler, expected = self._handlers[type(request)]
        self._open += 1
        end = self._shown(request) if self._is_due else None
        try:
            reply: R = await handler(request)
        except (MicroagentsError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self._failed(request, error) from error
        finally:
            self._open -= 1
            if end is not None:
                end()
        if expected is not None and not isinstance(reply, expected):
            raise self._mistyped(request, reply, expected)
        return reply

    def _shown(self, request: Message) -> Callable[[], None] | None:
        self._is_due = False
        if self._watch is None:
            return None
        return self._watch(f"{self.name}: {type(request).__name__}")

    def _call(self, request: Request[R]) -> R:
        """Call a plain handler; as `_handle`, without a wait."""
        handler, expected = self._handlers[type(request)]
        try:
            reply: R = handler(request)
        except (MicroagentsError, KeyboardInterrupt):
            raise
        except BaseException as error:  # it waits for nothing, so no cancellation is the caller's
            raise role_failed(self.name, type(request).__name__, error) from error
        if expected is not None and not isinstance(reply, expected):
            raise self._mistyped(request, reply, expected)
        return reply

    def _mistyped(self, request: Message, reply: object, expected: Any) -> RoleFailed:
        return RoleFailed(
            self.name, type(request).__name__, f"it answered {reply!r:.200}, which is not {_shown(expected)}"
        )

    def _failed(self, request: Message, error: BaseException) -> BaseException:
        """Return the error for the caller: a cancellation of the caller's own task as it is, any other error as a failure of the role."""
        if is_cancellation(error):
            return error
        return role_failed(self.name, type(request).__name__, error)


_reading: ContextVar[tuple[Mailbox, ...]] = ContextVar("_reading", default=())
"""The mailboxes whose messages led to the current call."""


class Mailbox:
    """One-way messages of one replica that are not handled yet; one task handles them one after the other."""

    def __init__(self, handle: Callable[[Request[None]], Coroutine[Any, Any, None]], scope: TaskScope) -> None:
        self.is_blocking = False
        """Whether a message is not handled yet, or one has failed, so that each caller must go through `join` first."""
        self._handle = handle
        self._scope = scope
        self._waiting: deque[Request[None]] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._wakeup: asyncio.Future[None] | None = None
        """Wakes the reader; None while it handles messages."""
        self._emptied = Notifier()
        self._failure: MicroagentsError | None = None

    def put(self, request: Request[None]) -> None:
        """Queue a message for the next iteration of the event loop. Raises the error of an earlier one, which had no caller."""
        self.check()
        self._waiting.append(request)
        self.is_blocking = True
        if self._reader is None:
            self._reader = self._scope.start(self._read())
        elif self._wakeup is not None:
            wakeup, self._wakeup = self._wakeup, None
            if not wakeup.done():  # it is done if the reader was cancelled
                wakeup.set_result(None)

    def fail(self, error: MicroagentsError) -> None:
        """Keep the error of a message for all later callers. The messages behind it may rely on its effect, so they are dropped."""
        self._failure, self.is_blocking = error, True
        self._waiting.clear()

    def check(self) -> None:
        """Raise the error of an earlier message, if one has failed."""
        if self._failure is not None:
            raise self._failure

    async def join(self) -> None:
        """Wait until all messages are handled; raises the error of one of them."""
        # A one-way message may lead to an ask of its own replica. Waiting for the reader would be a deadlock there, for the reader waits
        # for that ask.
        if self._failure is None and self._is_reading() and self not in _reading.get():
            await self._emptied.wait()
        self.check()

    def _is_reading(self) -> bool:
        return self._reader is not None and not self._reader.done() and self._wakeup is None

    async def _read(self) -> None:
        _reading.set((*_reading.get(), self))
        while self._failure is None:
            while self._waiting:
                try:
                    await self._handle(self._waiting.popleft())
                except MicroagentsError as error:
                    self.fail(error)
            self.is_blocking = self._failure is not None
            self._emptied.notify()
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup


def _checkable(reply: Any) -> Any:
    """A type as isinstance takes it; None for a type that only decoding can check."""
    if reply is None:
        return type(None)
    reply = get_args(reply) if isinstance(reply, UnionType) else reply
    try:
        isinstance(None, reply)
    except TypeError:
        return None
    return reply


def _shown(expected: Any) -> str:
    if isinstance(expected, type):
        return expected.__qualname__
    return str(expected)
