"""Runs the store outside of the event loop: one thread owns it and runs one job after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from microagents.base.aio import CLOSE_S, loop_has_threads, resolve_from_thread, retrieve_exception, wait_to_end
from microagents.base.errors import MicroagentsError
from microagents.journal.lease import RENEW_EVERY_S
from microagents.journal.sitting import JournalConfig
from microagents.journal.store import Store

T = TypeVar("T")
Job = tuple[Callable[[Any], Any], asyncio.Future[Any]]
"""A function of the store, and the future of its result."""

VIRTUAL_COMMIT_S = 0.005
"""Duration of a commit in virtual time."""


class Writer:
    """A thread that opens the store, runs jobs with it, and renews the lease while it is idle.

    The thread is a daemon, so that it cannot keep a process alive that exits without closing the writer.
    """

    def __init__(self, config: JournalConfig) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._opened.add_done_callback(retrieve_exception)  # it may fail after its waiter was cancelled
        self._closed: asyncio.Future[None] = self._loop.create_future()
        """Done once the thread has no more work, also if the store could not be opened."""
        self._thread = Thread(target=self._work, name="journal", daemon=True)

    async def open(self) -> None:
        """Open the store.

        Raises:
            MicroagentsError: the store cannot be opened.
        """
        self._thread.start()
        await asyncio.shield(self._opened)  # shared by all waiters: a cancelled one must not cancel it

    async def do(self, job: Callable[[Store], T]) -> T:
        """Run a job with the store, after all earlier jobs."""
        done: asyncio.Future[T] = self._loop.create_future()
        # If the waiter is cancelled, asyncio would report a failure of the job as never retrieved.
        done.add_done_callback(retrieve_exception)
        self._jobs.put((job, done))
        return await asyncio.shield(done)  # the thread runs the job even if the waiter is cancelled

    async def close(self, *, forget: bool = False) -> None:
        """Close the store after all jobs, and end the thread, however often the caller is cancelled meanwhile.

        A store that is still being opened is closed once it is open.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        done.add_done_callback(retrieve_exception)
        self._jobs.put((lambda store: store.close(forget=forget), done))
        self._jobs.put(None)
        try:
            await wait_to_end([self._closed], within_s=CLOSE_S)  # it takes longer only if the disk does not answer
        finally:
            if self._closed.done():
                self._thread.join()  # does not block the loop: the thread ends right after it resolved its last future
        if done.done():
            done.result()

    def _work(self) -> None:
        resolve = partial(resolve_from_thread, self._loop)
        try:
            store = Store(self._config)
        except BaseException as error:  # noqa: BLE001 - raised again in `opened`
            resolve(self._opened, None, error)
            resolve(self._closed, None)
            return
        resolve(self._opened, None)
        while True:
            with suppress(MicroagentsError):  # the next commit fails likewise, and it has a waiter
                store.renew()  # also between jobs that write nothing, which may follow each other for hours
            try:
                job = self._jobs.get(timeout=RENEW_EVERY_S / 2)
            except Empty:
                continue
            if job is None:
                resolve(self._closed, None)
                return
            do, done = job
            try:
                resolve(done, do(store))
            except BaseException as error:  # noqa: BLE001 - raised again in `do`
                resolve(done, None, error)


class VirtualWriter(Writer):
    """Runs jobs on the event loop, for virtual time, which has no threads: each takes `VIRTUAL_COMMIT_S`, but in memory no time."""

    def __init__(self, config: JournalConfig) -> None:
        super().__init__(config)
        self._in_order = asyncio.Lock()  # a job may overlap the next one
        self._store: Store | None = None

    async def open(self) -> None:
        """Open the store."""
        self._store = Store(self._config)

    async def do(self, job: Callable[[Store], T]) -> T:
        """Run a job with the store, after all earlier jobs."""
        assert self._store is not None
        async with self._in_order:
            await asyncio.sleep(0.0 if self._config.path is None else VIRTUAL_COMMIT_S)
            return job(self._store)

    async def close(self, *, forget: bool = False) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close(forget=forget)


def writer_of(config: JournalConfig) -> Writer:
    """Return the writer of a journal, which is not open yet."""
    if loop_has_threads():
        return Writer(config)
    return VirtualWriter(config)
