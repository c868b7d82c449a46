"""Threads for functions that may block."""

from __future__ import annotations

import asyncio
import os

import pytest

from microagents.tools.threads import in_thread


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork beside threads
@pytest.mark.timeout(30)
async def test_a_child_that_a_function_forks_ends_where_the_function_returns() -> None:
    child = await in_thread(os.fork)
    assert await asyncio.to_thread(os.waitpid, child, 0) == (child, 0)
