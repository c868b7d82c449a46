"""Calls of the simulated model, and what its replies say, for its tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import sqrt

from microagents.elections.election import ElectionId, SampleId
from microagents.elections.red_flags import flag_unread
from microagents.models.model import Call, Model, ModelSpec
from microagents.models.simulation.simulated import SimulatedModel
from microagents.replies.chat import Prompt, Sample
from microagents.replies.parsing import Malformed, parse
from microagents.replies.reply import Reply
from microagents.task import Task, flag_of
from microagents.tasks.drift import Drift, Onward, Place

FLAG_ABOVE_TOKENS = 750
UNCUT = 4096
"""A cap that no simulated reply reaches."""
DRIFT = Drift()
NUMBER = DRIFT.prompt(Place(number=5))
RIGHT = DRIFT.oracle(Place(number=5))


def model(spec: str, task: Task = DRIFT, seed: int = 0) -> SimulatedModel:
    return SimulatedModel(ModelSpec.parse(spec), [task], seed)


def call(
    seq: int = 0,
    *,
    prompt: Prompt = NUMBER,
    reply: type[Reply] = Onward,
    path: str = "0/step/0",
    question_digest: bytes = b"fork",
    temperature: float | None = None,
    cap: int = UNCUT,
) -> Call:
    sample = SampleId(election=ElectionId(path=path, question_digest=question_digest), seq=seq)
    return Call(id=sample, prompt=prompt, reply=reply, temperature=temperature, max_output_tokens=cap)


def replies(asked: Model, calls: Sequence[Call]) -> list[Sample]:
    """The replies to these calls, one after the other."""

    async def each() -> list[Sample]:
        return [await asked.complete(one) for one in calls]

    return asyncio.run(each())


def read(sample: Sample, reply: type[Reply] = Onward, task: Task = DRIFT) -> Reply | None:
    """The reply in a sample, as the real screen reads it; None for a flagged one."""
    if flag_unread(sample, FLAG_ABOVE_TOKENS) is not None:
        return None
    try:
        found = parse(sample.text, reply, task.format)
    except Malformed:
        return None
    return found if flag_of(task, found, b"") is None else None


def is_rate(hits: int, n: int, rate: float) -> bool:
    return abs(hits - n * rate) <= 5 * sqrt(n * rate * (1 - rate))
