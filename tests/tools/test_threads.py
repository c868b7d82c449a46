"""Threads for functions and for coroutines that may block."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from microagents.base.aio import retrieve_exception
from microagents.tools import threads
from microagents.tools.threads import LoopThread, in_thread

WAIT_S = 60.0


@asynccontextmanager
async def loop_thread() -> AsyncIterator[LoopThread]:
    thread = LoopThread()
    try:
        yield thread
    finally:
        await thread.close()


async def fork() -> int:
    return os.fork()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork beside threads
@pytest.mark.timeout(30)
async def test_a_child_that_a_function_forks_ends_where_the_function_returns() -> None:
    async with loop_thread() as thread:
        for child in (await in_thread(os.fork), await thread.call(fork, is_kept=False)):
            assert await asyncio.to_thread(os.waitpid, child, 0) == (child, 0)


async def test_coroutines_share_one_loop_of_another_thread_and_have_their_callers_context() -> None:
    said: ContextVar[str] = ContextVar("said")

    async def where() -> tuple[asyncio.AbstractEventLoop, int, str]:
        return asyncio.get_running_loop(), await asyncio.to_thread(threading.get_ident), said.get()

    async with loop_thread() as thread:
        said.set("by the caller")
        seen = [await thread.call(where, is_kept=False) for _ in range(3)]
    assert {words for _, _, words in seen} == {"by the caller"}
    (loop,) = {loop for loop, _, _ in seen}
    assert (loop.is_closed(), loop is asyncio.get_running_loop()) == (True, False)
    assert threading.get_ident() not in {ident for _, ident, _ in seen}


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), StopIteration(), asyncio.CancelledError()])
async def test_a_coroutine_that_raises_ends_nothing_but_its_call(error: BaseException) -> None:
    async def fail() -> None:
        raise error

    async def answer() -> int:
        await asyncio.sleep(0)
        return 3

    async with loop_thread() as thread:
        other = thread.call(answer, is_kept=False)
        with pytest.raises(Exception, match=r"no|SystemExit|StopIteration|CancelledError"):
            await thread.call(fail, is_kept=False)
        assert (await other, await thread.call(answer, is_kept=False)) == (3, 3)


async def test_after_a_task_that_exits_the_next_call_gets_a_new_loop() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def begin() -> asyncio.AbstractEventLoop:
        task = asyncio.create_task(leave())
        task.add_done_callback(retrieve_exception)
        await asyncio.wait([task])
        return asyncio.get_running_loop()

    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async with loop_thread() as thread:
        first = await thread.call(loop, is_kept=False)
        with pytest.raises(RuntimeError, match="CancelledError"):
            await thread.call(begin, is_kept=False)
        while not first.is_closed():  # noqa: ASYNC110 - the loop of another thread
            await asyncio.sleep(0)
        assert await thread.call(loop, is_kept=False) is not first


BEGUN, MAY_END = threading.Event(), threading.Event()


async def hang() -> None:
    BEGUN.set()
    while not MAY_END.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue


async def block() -> None:
    BEGUN.set()
    MAY_END.wait(WAIT_S)


async def spin() -> None:
    BEGUN.set()
    while not MAY_END.is_set():
        pass


@pytest.mark.parametrize("function", [hang, block, spin])
async def test_a_coroutine_that_does_not_end_is_left_and_none_begins_after_it(
    function: Callable[[], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "END_S", 0.05)
    BEGUN.clear()
    MAY_END.clear()
    thread, begun = LoopThread(), threading.Event()

    async def begin() -> None:
        begun.set()

    try:
        left = thread.call(function, is_kept=False)
        await asyncio.to_thread(BEGUN.wait, WAIT_S)
        assert left.cancel()
        await thread.close()
        assert not left.done()
        late = thread.call(begin, is_kept=True)
    finally:
        MAY_END.set()
    await left
    with pytest.raises(RuntimeError, match="the run has ended"):
        await late
    assert not begun.is_set()
