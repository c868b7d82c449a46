"""Threads for functions that may block, and for the loop of coroutines that may. They keep no process alive."""

from __future__ import annotations

import _thread
import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar, TypeVarTuple

from microagents.base.aio import resolve_from_thread, retrieve_exception, wait_to_end

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Job = Callable[[], None]

END_S = 1.0
"""Time in which the coroutines of a loop may end once they are cancelled."""
MOST_IDLE = 32
_idle: list[SimpleQueue[Job]] = []
"""Threads without a call wait here for the next one."""
os.register_at_fork(after_in_child=_idle.clear)


def in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Call a function in a thread. A call that hangs keeps its thread, and does not hang the end of the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(retrieve_exception)

    def run() -> None:
        try:
            with _child_ends():
                result = function()
        except BaseException as error:  # noqa: BLE001 - it reaches the waiter
            resolve_from_thread(loop, future, None, _usual(error))
        else:
            resolve_from_thread(loop, future, result)

    try:
        thread = _idle.pop()
    except IndexError:
        # A new thread costs some 400 us. `Thread.start` waits besides until it runs, up to a switch interval of the interpreter: 5 ms.
        _thread.start_new_thread(_serve, (run,))
    else:
        thread.put(run)
    return future


class LoopThread:
    """An event loop in a thread, for coroutines that may block it. It begins with the first of them."""

    def __init__(self) -> None:
        self._loop: _Loop | None = None

    def call(self, function: Callable[[], Coroutine[Any, Any, T]], *, is_kept: bool) -> asyncio.Future[T]:
        """Call an async function in a copy of the caller's context. The end of the loop waits for a call that ``is_kept``."""
        if self._loop is None or self._loop.is_closed():  # a tool that exits ends the loop
            self._loop = _Loop()
        return _Call(function, self._loop, is_kept=is_kept)

    async def close(self) -> None:
        """Begin no further call, and end the loop after the calls that are kept; wait for it at most `END_S` if there is none."""
        if self._loop is not None:
            self._loop.soon(self._loop.closing.set)
            if not self._loop.kept:
                await wait_to_end([self._loop.ended], within_s=END_S)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that a thread runs. Its own threads keep no process alive, either."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = asyncio.Event()
        self.kept: dict[asyncio.Task[Any], None] = {}
        """Calls that end before the loop does."""
        self.ended = in_thread(self._serve)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self) as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        await self.closing.wait()
        while self.kept:
            await asyncio.wait(self.kept)

    def soon(self, callback: Callable[..., object], *given: object) -> None:
        """Call back in the thread of the loop, unless it has ended."""
        with suppress(RuntimeError):
            self.call_soon_threadsafe(callback, *given)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Call a function in a thread, as `asyncio.to_thread` asks for."""
        if executor is None:
            return in_thread(partial(func, *args))
        return super().run_in_executor(executor, func, *args)


class _Call(asyncio.Future[T]):
    """Outcome of a call in the loop of another thread. As in a task, `cancel` asks the coroutine to end, which may go on."""

    def __init__(self, function: Callable[[], Coroutine[Any, Any, T]], loop: _Loop, *, is_kept: bool) -> None:
        super().__init__()
        self.add_done_callback(retrieve_exception)
        self._in = loop
        self._is_kept = is_kept
        loop.soon(self._begin, function)

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002
        """Ask the coroutine to end."""
        self._in.soon(lambda: self._task.cancel())  # noqa: PLW0108 - the task may begin later
        return not self.done()

    def _begin(self, function: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._task = task = self._in.create_task(self._called(function))
        task.add_done_callback(self._end)
        if self._is_kept:
            self._in.kept[task] = None

    async def _called(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._in.closing.is_set():  # another call has blocked the loop until now
            raise RuntimeError("the run has ended")
        with _child_ends():
            try:
                return await function()
            except (SystemExit, KeyboardInterrupt) as error:  # they would end the loop
                raise _usual(error) from None

    def _end(self, task: asyncio.Task[T]) -> None:
        self._in.kept.pop(task, None)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            resolve_from_thread(self.get_loop(), self, task.result())
        else:
            resolve_from_thread(self.get_loop(), self, None, _usual(error))


@contextmanager
def _child_ends() -> Iterator[None]:
    """End a child that the body forks where the body ends: nothing of the run may go on in it."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(0)


def _usual(error: BaseException) -> Exception:
    """Return an error that a future takes, and that ends nothing but its waiter."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(repr(error))


def _serve(job: Job | None) -> None:
    """Do jobs, each in a context of its own, until enough other threads are idle."""
    jobs: SimpleQueue[Job] = SimpleQueue()
    while job is not None:
        Context().run(job)
        job = None  # what it holds is not kept alive by an idle thread
        if len(_idle) < MOST_IDLE:
            _idle.append(jobs)
            job = jobs.get()
