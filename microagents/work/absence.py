"""Panels that go on without members who do not answer in time. Who was absent is recorded before anything can depend on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import msgspec

from microagents.base.aio import TaskScope
from microagents.work.durable import Work

SLOW_S = 0.5
"""Replies that took longer are safe at the keeper before they are used. It is below the least time after which a member is absent."""
ABSENT = "absent"
"""Last component of the place at which the absent members of a panel are recorded."""


class PanelCall(NamedTuple):
    """A durable call on behalf of a member of a panel."""

    at: str
    """Its place in the work."""
    member: int
    start: Callable[[], Coroutine[Any, Any, Any]]


async def gather_present(
    work: Work, at: str, calls: Sequence[PanelCall], *, quorum: int, absent_after_s: float
) -> list[Any]:
    """Make durable calls on behalf of the members of a panel, all at the same time; returns their results, None for an absent member's.

    Args:
        work: the work that they are a part of.
        at: place of the panel.
        calls: the calls.
        quorum: number of members that must have answered all their calls, also if that takes longer.
        absent_after_s: time after which the panel continues without the others; at least 1 s.
    """
    place, loop = f"{at}/{ABSENT}", asyncio.get_running_loop()
    recorded = await work.recorded(place)
    if recorded is None or recorded.value is None:
        absent = None
    else:
        absent = msgspec.json.decode(recorded.value, type=list[int])
    began_s = loop.time()
    async with TaskScope() as scope:
        started = [(call, scope.start(call.start())) for call in calls if absent is None or call.member not in absent]
        if absent is None:
            absent = await _absent(work, started, quorum, absent_after_s)
            if absent:
                await work.record_answer(place, absent)
            elif loop.time() >= began_s + SLOW_S:
                # A replay must not find a member absent whose reply was used, so the replies of this panel must not die with this process.
                await work.flush()
        replies = iter([await task for call, task in started if call.member not in absent])
        return [None if call.member in absent else next(replies) for call in calls]


async def _absent(
    work: Work, started: Sequence[tuple[PanelCall, asyncio.Task[Any]]], quorum: int, absent_after_s: float
) -> list[int]:
    """Wait for calls as long as the quorum says; returns the members with a call that has not ended."""
    members = list(dict.fromkeys(call.member for call, _ in started))
    timeout_s: float | None = absent_after_s
    while pending := [task for _, task in started if not task.done()]:
        # The first wait is for all calls or the first failure. If it was in vain, each further call may complete the quorum.
        await asyncio.wait(
            pending, timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION if timeout_s else asyncio.FIRST_COMPLETED
        )
        for _, task in started:
            if task.done():
                task.result()  # raises the failure of a call
        # A recorded reply may take long to be recalled. Its member is not absent.
        waiting = [call for call, task in started if not task.done()]
        unrecorded = [call.member for call in waiting if await work.recorded(call.at) is None]
        absent = list(dict.fromkeys(unrecorded))
        recalled = any(call.member not in absent for call in waiting)
        if not recalled and len(members) - len(absent) >= quorum:
            return absent
        timeout_s = None
    return []
