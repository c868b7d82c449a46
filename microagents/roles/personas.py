"""Personas: one sample for each, as the planner, the worker and the composer of a swarm draw them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from microagents.problems.questions import prompt_of
from microagents.replies.chat import A, Prompt, Sampling
from microagents.work.durable import DurableRequest, Work


class DrawsByPersonas(DurableRequest[tuple[bytes, ...]], frozen=True, kw_only=True):
    """Draw one sample for each persona; returns the valid replies as JSON, in launch order."""

    asked: bytes
    """The question, a `StepQuestion` as JSON."""
    personas: tuple[str, ...]
    """Their texts."""
    sampling: Sampling


async def draw_by_personas(work: Work[Any, Any], request: DrawsByPersonas, system: str, asked: Struct, reply: type[A]) -> tuple[bytes, ...]:
    """One sample for each persona, no more: a flagged one is not replaced. Returns the valid replies as JSON, in launch order."""
    prompts: list[Prompt] = [prompt_of(system.format(persona=persona), asked) for persona in request.personas]
    drawn = await work.sample(request.at, prompts, reply, n=len(prompts), sampling=request.sampling, max_draws=len(prompts))
    return tuple(msgspec.json.encode(each) for each in drawn)
