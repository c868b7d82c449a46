"""How many steps a chain has."""

from __future__ import annotations

from types import NoneType
from typing import Any

from microagents.base.user_code import called
from microagents.task import ChainTask

MOST_WALKED = 100_000
"""Steps after which a walk by the oracle ends: a chain may be endless."""


def steps_of(task: ChainTask[Any, Any]) -> int | None:
    """Count the steps of a chain: as it says itself, else by a walk with its oracle, up to `MOST_WALKED`. None if neither knows."""
    total: int | None = called(task.steps, gives=(int, NoneType))
    if total is not None:
        return total
    state = called(task.start)
    for number in range(MOST_WALKED + 1):
        if called(task.done, state, gives=bool, at=number):
            return number
        reply = called(task.oracle, state, at=number)
        if reply is None:
            return None
        state = called(task.advance, state, reply, at=number)
    return None
