"""The steps of a chain: their number, and the length of their prompts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from types import NoneType
from typing import Any

from microagents.base.user_code import called
from microagents.replies.chat import Prompt
from microagents.task import ChainTask

MOST_WALKED = 100_000
"""Steps after which a walk by the oracle ends: a chain may be endless."""
MOST_ASKED = 1_000
"""Steps among which the longest prompt is looked for."""


def steps_of(task: ChainTask) -> int | None:
    """Count the steps of a chain: as it says itself, else by a walk with its oracle, up to `MOST_WALKED`. None if neither knows."""
    total: int | None = called(task.steps, gives=(int, NoneType))
    if total is not None:
        return total
    for number, state in enumerate(islice(_right_way(task), MOST_WALKED + 1)):
        if called(task.done, state, gives=bool, at=number):
            return number
    return None


def longest_prompt(task: ChainTask) -> int:
    """Return the bytes of the longest prompt among the first `MOST_ASKED` steps of the right way, or of those that the oracle knows."""
    longest = 0
    for number, state in enumerate(islice(_right_way(task), MOST_ASKED)):
        if called(task.done, state, gives=bool, at=number):
            break
        asked: Prompt = called(task.prompt, state, gives=Prompt, at=number)
        longest = max(longest, asked.size)
    return longest


def _right_way(task: ChainTask) -> Iterator[Any]:
    """Yield the states that the oracle leads to."""
    state = called(task.start)
    for number in count():
        yield state
        reply = called(task.oracle, state, at=number)
        if reply is None:
            return
        state = called(task.advance, state, reply, at=number)
