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
from microagents.tools.threads import LoopThread

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
