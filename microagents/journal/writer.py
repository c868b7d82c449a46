"""Runs the store outside of the event loop: one thread owns it and runs one job after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from microagents.base.aio import CLOSE_S, resolve_from_thread, retrieve_exception, wait_to_end
from microagents.base.errors import MicroagentsError
from microagents.journal.books import Books
from microagents.journal.lease import RENEW_EVERY_S
from microagents.journal.messages import (
    Account,
    InputEnding,
    Recall,
    Recollection,
    Record,
    RecordDecision,
)
from microagents.journal.sitting import JournalConfig
from microagents.journal.store import Store

T = TypeVar("T")
Job = tuple[Callable[[Any], Any], asyncio.Future[Any]]
"""A function of the store, and the future of its result."""


class NullStore:
    """Store of a run without a journal: it adds records up and writes none."""

    def __init__(self, books: Books) -> None:
        self.books = books

    def add(self, records: Iterable[Record]) -> None:
        """Add records."""
        for record in records:
            self.books.add(record)
            if isinstance(record, RecordDecision):
                self.books.forget(record.id.input)
            elif isinstance(record, InputEnding):
                self.books.forget(record.input)

    def account_with_digests(self) -> Account:
        """Return the account of all records so far, with the digests."""
        return self.books.account_with_digests()

    def recall(self, request: Recall) -> Recollection:
        """Return the progress of this sitting: there are no records."""
        is_input = request.path.isdecimal()
        return Recollection(
            checkpoint=self.books.reached.get(int(request.path)) if is_input else None,
            ended=b"" if request.path else bytes(self.books.ended),
        )

    def pause(self) -> None:
        """None: no other process knows the run."""

    def end(self, outcome: str, reason: str | None, traceback: str, result: bytes | None) -> None:
        """Do nothing: there is no journal."""

    def close(self, *, forget: bool = False) -> None:
        """Do nothing: there is no file."""


AnyStore = Store | NullStore


def writer_of(config: JournalConfig) -> Writer | Inline:
    """Begin to open a journal for writing."""
    opening = partial(Store, config)
    return Writer(opening) if config.inline_s is None else Inline(opening, config.inline_s)


class Inline:
    """Runs jobs on the event loop: for runs without a journal, and for virtual time, which has no threads, where a job takes seconds."""

    def __init__(self, open_store: Callable[[], AnyStore], takes_s: float = 0.0) -> None:
        self.store = open_store()
        self._takes_s = takes_s
        self._in_order = asyncio.Lock()  # a job that takes time may overlap the next one

    async def do(self, job: Callable[[AnyStore], T]) -> T:
        """Run a job with the store, after all earlier jobs."""
        if not self._takes_s:
            return job(self.store)
        async with self._in_order:
            await asyncio.sleep(self._takes_s)
            return job(self.store)

    async def close(self, *, forget: bool = False) -> None:
        """Close the store."""
        self.store.close(forget=forget)


class Writer:
    """A thread that opens the store, runs jobs with it, and renews the lease while it is idle.

    The thread is a daemon, so that it cannot keep a process alive that exits without closing the writer.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._opened.add_done_callback(retrieve_exception)  # it may fail after its waiter was cancelled
        self._closed: asyncio.Future[None] = self._loop.create_future()
        """Done once the thread has no more work, also if the store could not be opened."""
        self._thread = Thread(target=self._work, args=(open_store,), name="journal", daemon=True)
        self._thread.start()

    async def opened(self) -> None:
        """Wait until the store is open.

        Raises:
            MicroagentsError: the store cannot be opened.
        """
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

    def _work(self, open_store: Callable[[], Store]) -> None:
        resolve = partial(resolve_from_thread, self._loop)
        try:
            store = open_store()
        except BaseException as error:  # noqa: BLE001 - raised again in `opened`
            resolve(self._opened, None, error)
            resolve(self._closed, None)
            return
        resolve(self._opened, None)
        while True:
            _renew(store)  # also between jobs that write nothing, which may follow each other for hours
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


def _renew(store: Store) -> None:
    try:
        store.renew()
    except MicroagentsError:  # the next commit fails likewise, and it has a waiter
        return
