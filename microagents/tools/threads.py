"""Threads for functions that may block. They serve one call after another, and keep no process alive."""

from __future__ import annotations

import _thread
import asyncio
import os
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue
from typing import TypeVar

from microagents.base.aio import resolve_from_thread, retrieve_exception

T = TypeVar("T")
Job = Callable[[], None]

MOST_IDLE = 32
_idle: list[SimpleQueue[Job]] = []
"""Threads without a call wait here for the next one."""
os.register_at_fork(after_in_child=_idle.clear)


def in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Call a function in a thread. A call that hangs keeps its thread, and does not hang the end of the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(retrieve_exception)

    process = os.getpid()

    def run() -> None:
        try:
            try:
                result = function()
            finally:
                if os.getpid() != process:  # a child that the function forked: nothing of the run may go on in it
                    os._exit(0)
        except BaseException as error:  # noqa: BLE001 - it reaches the waiter
            # A future takes no StopIteration, and one of a thread's own ends nothing here.
            is_usual = isinstance(error, Exception) and not isinstance(error, StopIteration)
            resolve_from_thread(loop, future, None, error if is_usual else RuntimeError(repr(error)))
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


def _serve(job: Job | None) -> None:
    """Do jobs, each in a context of its own, until enough other threads are idle."""
    jobs: SimpleQueue[Job] = SimpleQueue()
    while job is not None:
        Context().run(job)
        job = None  # what it holds is not kept alive by an idle thread
        if len(_idle) < MOST_IDLE:
            _idle.append(jobs)
            job = jobs.get()
