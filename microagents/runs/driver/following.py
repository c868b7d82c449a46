"""The recorded work on an input while it is being done, read from the journal in the driver's process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec import Struct

from microagents.base.aio import wait_to_end
from microagents.base.logs import log
from microagents.journal.messages import Account
from microagents.journal.reading import Reader
from microagents.runs.inspection.replay import drawn_work
from microagents.runs.plan import RunPlan

READ_EVERY_S = 1.0
"""Least interval of reads."""
READ_SHARE = 0.05
"""Greatest share of the time that reads take: after a long one, the next waits longer."""
OnSolution = Callable[[Struct], bool]
"""Gets the recorded work on an input; returns whether it wants to get it again."""


async def follow_solution(
    journal: Path,
    plan: RunPlan,
    report: Callable[[], Awaitable[Account]],
    in_thread: Sequence[OnSolution],
    on_loop: OnSolution | None,
) -> None:
    """Read the work on the only input about once a second, as long as it changes and a callback wants it. It never ends.

    Args:
        journal: the journal, which this process is writing.
        plan: the run.
        report: gives the account as of the last commit.
        in_thread: callbacks that are called in the thread that reads.
        on_loop: a callback that is called on the event loop.
    """
    seen, wait_s = None, READ_EVERY_S
    while in_thread or on_loop is not None:
        await asyncio.sleep(wait_s)
        if (account := await report()) == seen:
            continue
        seen, began_s = account, time.monotonic()
        solution, in_thread = await _in_thread(journal, plan, in_thread)
        wait_s = max(READ_EVERY_S, (time.monotonic() - began_s) / READ_SHARE)
        if solution is not None and on_loop is not None and not on_loop(solution):
            on_loop = None
    await asyncio.Event().wait()


def read_solution(journal: Path, plan: RunPlan) -> Struct | None:
    """Return the recorded work on the only input; None if it cannot be read now."""
    try:
        with Reader(journal) as reader:
            return drawn_work(reader, plan, 0)
    except Exception as error:  # noqa: BLE001 - it calls a user's code; the run does not depend on what is shown of it
        log().debug("the work cannot be read from the journal", error=repr(error))
        return None


def _read_and_pass_on(
    journal: Path, plan: RunPlan, callbacks: Sequence[OnSolution]
) -> tuple[Struct | None, Sequence[OnSolution]]:
    """Read the work; returns it, and the callbacks that want it again."""
    solution = read_solution(journal, plan)
    return solution, callbacks if solution is None else [each for each in callbacks if each(solution)]


async def _in_thread(
    journal: Path, plan: RunPlan, callbacks: Sequence[OnSolution]
) -> tuple[Struct | None, Sequence[OnSolution]]:
    """A cancelled wait waits for the end of the thread: while a reader is connected, the journal cannot be closed."""
    reading = asyncio.get_running_loop().run_in_executor(None, _read_and_pass_on, journal, plan, callbacks)
    try:
        return await asyncio.shield(reading)
    finally:
        await wait_to_end([reading])
