"""An ordered owner of tasks: children are cancelled in the order of their launch, in every process the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def take_note(future: asyncio.Future[Any]) -> None:
    """Take note of a failure that nobody may ask for any more, so that it is not reported as lost."""
    if not future.cancelled():
        future.exception()


class TaskScope:
    """Owns the tasks started in it until they end or it is closed (``asyncio.TaskGroup`` iterates a set, so its order changes)."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task of this scope."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def cancel(self) -> None:
        """Cancel every task, first launched first."""
        for task in list(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """Cancel every task and wait until each has ended."""
        self.cancel()
        if running := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(running)
            for task in running:
                take_note(task)  # whoever cancels does not care how it ended


class Notifier:
    """What several wait for, each until it happens next. Each gets a future of its own, since one that leaves cancels what it awaits."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def next(self) -> asyncio.Future[None]:
        """Done when it happens next."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return waiting

    def tell(self) -> None:
        """It has happened."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
