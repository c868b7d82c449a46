"""Structured concurrency: `TaskScope` owns tasks and cancels them in launch order, `Notifier` wakes waiters."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def retrieve_exception(future: asyncio.Future[Any]) -> None:
    """Mark the exception of a future as retrieved, so that asyncio does not report it as lost."""
    if not future.cancelled():
        future.exception()


class TaskScope:
    """Owns the tasks started in it until they end or it is closed.

    ``asyncio.TaskGroup`` iterates a set, so its order of cancellation changes from process to process; this order never does.
    """

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task of this scope."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(retrieve_exception)  # of several failures one is raised, and a cancelled task may end with any
        return task

    async def join(self) -> None:
        """Wait until every task has ended, also those that are started meanwhile. The first failure is raised at once."""
        while running := list(self._tasks):
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in running:
                if task.done():
                    task.result()

    def cancel(self) -> None:
        """Cancel every task, first launched first."""
        for task in list(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """Cancel every task and wait until each has ended."""
        self.cancel()
        if running := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(running)


class Notifier:
    """Wakes all current waiters at once, any number of times."""

    def __init__(self) -> None:
        # One future for each waiter: a cancelled waiter cancels the future that it awaits, and must not cancel it for others.
        self._waiters: list[asyncio.Future[None]] = []

    def wait(self) -> asyncio.Future[None]:
        """A future that is done at the next notification."""
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
