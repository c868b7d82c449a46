"""Threads for functions and for coroutines that may block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from microagents.tools import threads
from microagents.tools.threads import LoopThread

WAIT_S = 60.0


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
