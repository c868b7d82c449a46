"""Limits of cost against a seller who counts for himself."""

from __future__ import annotations

import asyncio
import sys


async def measure() -> None:
    """Run `tests.benchmarks.budget` in a process of its own: it forks, which a running event loop does not bear."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.benchmarks.budget")
    await process.wait()
