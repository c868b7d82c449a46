"""Structured concurrency: tasks with an owner, cleanup that nothing cuts short, waiters woken at once, slots for the first in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from heapq import heappop, heappush
from typing import Any, Self, TypeVar

from microagents.base.logs import log

T = TypeVar("T")

CLOSE_S = 30.0
"""Seconds that cancelled tasks may take to end. A task that refuses to end must not keep a journal, or the process."""


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Mark the exception of a future as retrieved, so that asyncio does not report it as lost."""
    if not future.cancelled():
        future.exception()


def resolve_from_thread(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], result: object, error: BaseException | None = None
) -> None:
    """Give a future of a loop its result or its error from another thread, unless it is done or the loop is closed."""

    def resolve() -> None:
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    with suppress(RuntimeError):  # the loop is closed, so nobody waits
        loop.call_soon_threadsafe(resolve)


def is_cancelled() -> bool:
    """Return whether the current task itself is cancelled, and not only a future that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_cancellation(error: BaseException) -> bool:
    """Return whether an error is the cancellation of the current task itself."""
    return isinstance(error, asyncio.CancelledError) and is_cancelled()


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own: in this thread, or in another one if this thread runs a loop, as a notebook does.

    A `KeyboardInterrupt` cancels it.
    """
    is_inside = True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        is_inside = False
    # Outside of the handler, else every error of the work is shown as one that happened while handling another.
    if not is_inside:
        return asyncio.run(work)
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def cancellable() -> T:
        current = asyncio.current_task()
        assert current is not None
        running.append((asyncio.get_running_loop(), current))
        return await work

    with ThreadPoolExecutor(1, thread_name_prefix="run") as pool:
        # A notebook knows by the context to which cell an output belongs.
        ended = pool.submit(copy_context().run, asyncio.run, cancellable())
        try:
            return ended.result()
        except KeyboardInterrupt:
            for loop, started in running:
                loop.call_soon_threadsafe(started.cancel)
            raise


def loop_has_threads() -> bool:
    """Whether the running event loop can wait for threads and files. One in virtual time cannot, and says so: ``has_threads = False``."""
    return getattr(asyncio.get_running_loop(), "has_threads", True)


async def wait_to_end(futures: Iterable[asyncio.Future[Any]], *, within_s: float | None = None) -> None:
    """Wait until all futures are done, or for ``within_s`` seconds; a caller that is cancelled meanwhile is so at the end."""
    loop, waited = asyncio.get_running_loop(), list(futures)
    deadline_s = None if within_s is None else loop.time() + within_s
    interrupted: asyncio.CancelledError | None = None
    while pending := [future for future in waited if not future.done()]:
        left_s = None if deadline_s is None else deadline_s - loop.time()
        if left_s is not None and left_s <= 0:
            break
        try:
            await asyncio.wait(pending, timeout=left_s)
        except asyncio.CancelledError as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted


async def finish(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do work to its end in a task of its own; a caller that is cancelled meanwhile is so at the end."""
    interrupted: asyncio.CancelledError | None = None
    has_begun = False

    async def begin() -> None:
        nonlocal has_begun
        has_begun = True
        await work()

    while True:
        task = asyncio.get_running_loop().create_task(begin())
        task.add_done_callback(retrieve_exception)  # a cancellation is raised in the place of a failure
        try:
            await wait_to_end([task])
        except asyncio.CancelledError as error:
            interrupted = error
        # `asyncio.run` may cancel all tasks, and a task that is cancelled before its first step does nothing.
        if has_begun:
            break
    if interrupted is not None:
        raise interrupted
    await task


def begin(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
    """Run a coroutine to its first wait now, and the rest as a task; None if it has ended without a wait.

    Python 3.12 calls this an eager task. A coroutine that has nothing to wait for costs no task and no iteration of the loop: 5 us. Until
    its first wait it runs in the caller's task, so it must not ask for the current task there, as a timeout does. An error that it raises
    before its first wait reaches the caller.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration:
        return None
    return asyncio.get_running_loop().create_task(_Begun(coroutine, awaited))


class _Begun(Coroutine[Any, Any, T]):
    """A coroutine that already waits, for a task: its first step gives the awaited future, or None to resume in the next iteration."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], awaited: asyncio.Future[Any] | None) -> None:
        self._coroutine: Any = coroutine
        self.__qualname__ = str(getattr(coroutine, "__qualname__", ""))  # the name of the task's work in reports
        self._awaited = awaited
        self._is_taken_up = False
        """Whether the task waits for it."""

    def __await__(self) -> Any:
        return self

    @property
    def cr_frame(self) -> Any:
        """Frame in which it stands, for reports."""
        return self._coroutine.cr_frame

    @property
    def cr_await(self) -> Any:
        """Awaitable in which it waits, for reports."""
        return self._coroutine.cr_await

    def send(self, value: Any) -> Any:
        """Take the next step."""
        if self._is_taken_up:
            return self._coroutine.send(value)
        self._is_taken_up = True
        return self._awaited

    def throw(self, *error: Any) -> Any:
        """Raise an error at its await."""
        # A task that is cancelled cancels the future that it waits for, which holders of the future look at. This one did not wait yet.
        if not self._is_taken_up and self._awaited is not None:
            self._awaited.cancel()
        self._is_taken_up = True
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End it."""
        self._coroutine.close()


class TaskScope:
    """Owns the tasks started in it until they end or it is closed; ``async with`` closes it.

    ``asyncio.TaskGroup`` iterates a set, so its order of cancellation changes from process to process; this order never does.
    """

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], Callable[[], None] | None] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    def start(self, coroutine: Coroutine[Any, Any, T], on_end: Callable[[], None] | None = None) -> asyncio.Task[T]:
        """Run a coroutine as a task of this scope; ``on_end`` is called when it has ended."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = on_end
        task.add_done_callback(self._end)  # one for all: each takes 2 us, a tenth of an ask between dispatchers
        return task

    def _end(self, task: asyncio.Task[Any]) -> None:
        on_end = self._tasks.pop(task)
        retrieve_exception(task)  # of several failures one is raised, and a cancelled task may end with any
        if on_end is not None:
            on_end()

    async def join(self) -> None:
        """Wait until every task has ended, also tasks started meanwhile. The first failure is raised at once."""
        while running := list(self._tasks):
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                if task.done():
                    task.result()

    def cancel(self) -> None:
        """Cancel every task, first launched first."""
        for task in list(self._tasks):
            task.cancel()

    async def close(self, *, within_s: float | None = CLOSE_S) -> None:
        """Cancel every task and wait until each has ended, however often the caller is cancelled meanwhile.

        Tasks that have not ended after ``within_s`` seconds are left to themselves, and a warning is logged.
        """
        self.cancel()
        if not self._tasks:
            return
        try:
            await wait_to_end(self._tasks, within_s=within_s)
        finally:
            left = [repr(task.get_coro()) for task in self._tasks if not task.done()]
            if left:
                log().warning("tasks were cancelled and did not end", within_s=within_s, tasks=left)


class Notifier:
    """Wakes all current waiters at once, any number of times."""

    def __init__(self) -> None:
        # One future for each waiter: a cancelled waiter cancels the future that it awaits, and must not cancel it for others.
        self._waiters: list[asyncio.Future[None]] = []

    def wait(self) -> asyncio.Future[None]:
        """Return a future that is done at the next notification."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def notify(self) -> None:
        """Wake every current waiter."""
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Slots:
    """A number of slots. A free slot goes to the waiter with the lowest key, whenever it came."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._asked = 0
        self._waiting: list[tuple[Any, int, asyncio.Future[None]]] = []
        """A heap. A waiter that was cancelled stays in it until its turn comes."""

    async def acquire(self, key: Callable[[], Any]) -> None:
        """Take a slot, at once if one is free; else wait for it in the order of keys, which may be costly to compute."""
        if self._free > 0:
            self._free -= 1
            return
        self._asked += 1
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (key(), self._asked, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # granted as it was cancelled: the slot goes to the next
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back."""
        while self._waiting:
            granted = heappop(self._waiting)[-1]
            if not granted.done():
                granted.set_result(None)
                return
        self._free += 1

    def dismiss(self) -> None:
        """Let every waiter pass at once, beyond the number of slots, because the work is over and they only have to find that out."""
        while self._waiting:
            granted = heappop(self._waiting)[-1]
            if not granted.done():
                self._free -= 1
                granted.set_result(None)
