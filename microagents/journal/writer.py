"""Keeps the disk out of the event loop: one thread that owns the store and does what it is given, one thing after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeVar

from microagents.errors import MicroagentsError
from microagents.journal.books import Books
from microagents.journal.lease import RENEW_EVERY_S
from microagents.journal.messages import Account, InputEnding, OpenElection, Recalled, Record
from microagents.journal.store import Store

T = TypeVar("T")
Job = tuple[Callable[[Any], Any], asyncio.Future[Any]]


class RecordStore(Protocol):
    """What keeps records: a store, or `NullStore`."""

    books: Books

    def commit(self, records: list[Record]) -> Account:
        """Keep records; gives the account with them."""
        ...

    def account_with_digests(self) -> Account:
        """The account of all that was committed, with the digests."""
        ...

    def recall(self, path: str) -> Recalled | None:
        """What was decided at a path."""
        ...

    def has_records(self, of_input: int) -> bool:
        """Whether anything was recorded of an input."""
        ...

    def open_elections(self) -> list[OpenElection]:
        """Elections that are not decided, with what was paid for them."""
        ...

    def failed_inputs(self) -> list[InputEnding]:
        """Inputs that ended otherwise than completed."""
        ...

    def end(self, outcome: str, reason: str | None, result: bytes | None) -> None:
        """Keep how the run ended."""
        ...

    def renew(self) -> None:
        """Say that the process is alive."""
        ...

    def close(self, *, forget: bool = False) -> None:
        """Let go."""
        ...


class NullStore:
    """Adds records up and keeps none of them: a run without a journal."""

    def __init__(self, books: Books) -> None:
        self.books = books

    def commit(self, records: list[Record]) -> Account:
        """The account with these records."""
        for record in records:
            self.books.add(record)
        return self.books.account()

    def account_with_digests(self) -> Account:
        """The same with the digests."""
        return self.books.account_with_digests()

    def recall(self, path: str) -> Recalled | None:  # noqa: ARG002 - it keeps nothing
        """Nothing."""
        return None

    def has_records(self, of_input: int) -> bool:  # noqa: ARG002 - it keeps nothing
        """Never."""
        return False

    def open_elections(self) -> list[OpenElection]:
        """None."""
        return []

    def failed_inputs(self) -> list[InputEnding]:
        """None."""
        return []

    def end(self, outcome: str, reason: str | None, result: bytes | None) -> None:
        """Nobody will ask."""

    def renew(self) -> None:
        """There is nothing to hold."""

    def close(self, *, forget: bool = False) -> None:
        """Nothing to let go of."""


class Inline:
    """Does a job where it is asked for: for runs without a journal, and in virtual time, where each job can be given a duration."""

    def __init__(self, open_keeper: Callable[[], RecordStore], takes_s: float = 0.0) -> None:
        self.keeper = open_keeper()
        self._takes_s = takes_s
        self._in_order = asyncio.Lock()

    async def do(self, job: Callable[[RecordStore], T]) -> T:
        """Do a job with the keeper, after those before it."""
        if not self._takes_s:
            return job(self.keeper)
        async with self._in_order:
            await asyncio.sleep(self._takes_s)
            return job(self.keeper)

    async def close(self, *, forget: bool = False) -> None:
        """Close the keeper."""
        self.keeper.close(forget=forget)


class Writer:
    """A thread that opens the store, does jobs with it, and renews its lease while there are none.

    It is a daemon: when the process leaves without a word, it must not be what keeps it.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = Thread(target=self._work, args=(open_store,), name="journal", daemon=True)
        self._thread.start()

    async def opened(self) -> None:
        """Wait until the store is open.

        Raises:
            MicroagentsError: it cannot be opened.
        """
        await asyncio.shield(self._opened)

    async def do(self, job: Callable[[Any], T]) -> T:
        """Do a job with the store, after those before it."""
        done: asyncio.Future[T] = self._loop.create_future()
        done.add_done_callback(_heard)
        self._jobs.put((job, done))
        return await asyncio.shield(done)  # the thread does it whether we wait or not

    async def close(self, *, forget: bool = False) -> None:
        """Close the store, after all jobs; also one that is still being opened."""
        await asyncio.wait([self._opened])
        if self._opened.exception() is None and self._thread.is_alive():
            await self.do(lambda store: store.close(forget=forget))
            self._jobs.put(None)
            await asyncio.shield(self._ended)
        self._thread.join()

    def _work(self, open_store: Callable[[], Store]) -> None:
        try:
            store = open_store()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self._tell(self._opened, None, error)
            return
        self._tell(self._opened, None, None)
        while True:
            try:
                job = self._jobs.get(timeout=RENEW_EVERY_S / 2)
            except Empty:
                _renew(store)
                continue
            if job is None:
                self._tell(self._ended, None, None)
                return
            do, done = job
            try:
                self._tell(done, do(store), None)
            except BaseException as error:  # noqa: BLE001 - as above
                self._tell(done, None, error)

    def _tell(self, future: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(_settle, future, value, error)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return


def _renew(store: Store) -> None:
    try:
        store.renew()
    except MicroagentsError:  # the next commit meets the same, and somebody hears of that
        return


def _heard(done: asyncio.Future[Any]) -> None:
    """Take note of a failure whose waiter was cancelled."""
    if not done.cancelled():
        done.exception()


def _settle(future: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
