"""The wait for the end of a run: until its work is done, its caller ends it, the keeper stops it, or its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from microagents.base.aio import TaskScope
from microagents.base.errors import Refused, Stopped, Undecided
from microagents.journal.ending import RunEnding
from microagents.journal.messages import Report
from microagents.runs.driver.keywords import OnProgress, RunControl, ends_in
from microagents.runs.settings import Settings
from microagents.runtimes.dispatcher import RoleMessenger

T = TypeVar("T")

PROGRESS_EVERY_S = 0.2
"""Interval between calls of ``on_progress``."""
INTERRUPTED = RunEnding(outcome="interrupted", reason="interrupted before its end; all decisions so far are kept")


async def conduct_until_end(
    messenger: RoleMessenger,
    conducting: Coroutine[Any, Any, str | None],
    listening: Iterable[Coroutine[Any, Any, None]],
    settings: Settings,
    control: RunControl,
) -> RunEnding:
    """Do the work until it ends, the caller ends it, the keeper stops it or its time is over; returns the ending.

    An interrupt first waits for the calls in flight. `terminate`, a failure and the end of a listener end the work at once.
    """
    scope = TaskScope()

    def wait_for(event: asyncio.Event | None) -> asyncio.Task[Any]:
        return scope.start((event or asyncio.Event()).wait())

    try:
        work = scope.start(conducting)
        failure = scope.start(messenger.ask(Report(when="stopped")))
        interrupt, terminate = wait_for(control.get("interrupt")), wait_for(control.get("terminate"))
        listeners = [scope.start(each) for each in listening]
        await wait_for_first(work, failure, interrupt, terminate, *listeners)
        if interrupt.done() and not work.done():
            # Calls in flight are paid for, so they are waited for. The work may end meanwhile: then its own outcome counts.
            drained = scope.start(messenger.ask(Report(when="drained")))
            await wait_for_first(drained, work, failure, terminate, *listeners)
        if not work.done():
            for each in (*listeners, failure):
                if each.done():
                    await each  # raises the failure of a callback of the caller, or the keeper's reason to stop
            return INTERRUPTED
        value = await work
    except Refused as error:
        if error.may_concern_all and not (await messenger.ask(Report())).valid:
            raise error.of_all from None
        return RunEnding(outcome="refused", reason=error.in_run(settings["run_id"]))
    except Undecided as error:
        return RunEnding(outcome="undecided", reason=error.in_run(settings["run_id"]))
    except Stopped as error:
        return RunEnding(outcome="stopped", reason=str(error))
    finally:
        await scope.close()
    return RunEnding(outcome="completed", result=value)


async def wait_for_first(*tasks: asyncio.Task[Any]) -> None:
    """Wait until one of the tasks has ended."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def unless_ended(work: Coroutine[Any, Any, T], control: RunControl) -> T | None:
    """Prepare the work of a run; returns its result, or None if the caller ended the run first."""
    scope = TaskScope()
    begun = scope.start(work)
    ends = [scope.start(event.wait()) for event in ends_in(control)]
    try:
        await wait_for_first(begun, *ends)
        if not begun.done():
            return None
        return await begun
    finally:
        # Else it would go on behind the back of a run that has ended; on a cluster that may take long.
        await scope.close(within_s=None)


async def report_progress(messenger: RoleMessenger, on_progress: OnProgress) -> None:
    """Pass the account on at intervals. It never ends."""
    while True:
        await asyncio.sleep(PROGRESS_EVERY_S)
        account = await messenger.ask(Report())
        on_progress(account)
