"""The recorded work on an input while it is being done, read from the journal in the driver's process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from microagents.base.aio import loop_has_threads, wait_to_end
from microagents.base.logs import log
from microagents.journal.messages import Report
from microagents.journal.reading import Reader
from microagents.runs.inspection.replay import drawn_work
from microagents.runs.plan import RunPlan
from microagents.runtimes.dispatcher import RoleMessenger

READ_EVERY_S = 1.0
"""Least interval of reads."""
READ_SHARE = 0.05
"""Greatest share of the time that reads take: after a long one, the next waits longer."""
OnSolution = Callable[[Struct], bool]
"""Gets the recorded work on an input; returns whether it wants to get it again."""


def is_followed(plan: RunPlan) -> bool:
    """Whether the recorded work of a run can be followed: on a single input, if a thread can read the journal."""
    return not plan.listed and plan.strategy.draws_solution and loop_has_threads()


async def follow_solution(journal: Path, plan: RunPlan, messenger: RoleMessenger, on_solution: OnSolution) -> None:
    """Read the work on the only input about once a second, as long as it changes and the callback wants it. It never ends."""
    seen, wait_s = None, READ_EVERY_S
    while True:
        await asyncio.sleep(wait_s)
        if (account := await messenger.ask(Report())) == seen:
            continue
        seen, began_s = account, time.monotonic()
        reading = asyncio.get_running_loop().run_in_executor(None, read_solution, journal, plan)
        try:
            solution = await asyncio.shield(reading)
        finally:  # while a reader is connected, the journal cannot be closed
            await wait_to_end([reading])
        wait_s = max(READ_EVERY_S, (time.monotonic() - began_s) / READ_SHARE)
        if solution is not None and not on_solution(solution):
            await asyncio.Event().wait()


def read_solution(journal: Path, plan: RunPlan) -> Struct | None:
    """Return the recorded work on the only input; None if it cannot be read now."""
    try:
        with Reader(journal) as reader:
            return drawn_work(reader, plan, 0)
    except Exception as error:  # noqa: BLE001 - it calls a user's code; the run does not depend on what is shown of it
        log().debug("the work cannot be read from the journal", error=repr(error))
        return None
