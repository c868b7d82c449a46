"""Calls of Ray actors: awaited for a while, for ever, or until their actor dies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, RayActorError, RayError

from microagents.base.aio import TaskScope
from microagents.base.errors import PeerLost
from microagents.runtimes.ray.cluster import aside
from microagents.runtimes.ray.host import decode_error
from microagents.runtimes.ray.links import call_again, future_of

NOT_CREATED = "it cannot be created"
"""The beginning of the cause of a death that every successor would have, too."""
NEVER_RAN = "The actor never ran"
"""Words of the cause if a process was to start on a node that had gone."""
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
DEATHS = (RayActorError, ActorUnschedulableError)
"""What a call of an actor raises that has died, or whose node has gone before it began."""


class ActorDied(Exception):
    """An actor died while roles were started. Its arguments are the name of its slot and the cause."""


async def call_role(reference: Any) -> None:
    """Await a `Host` method that runs code of roles, and raise the error that it returns."""
    failed = await future_of(reference)
    if failed is not None:
        raise decode_error(failed)


async def try_calls(methods: Iterable[Any], timeout_s: float, *given: object) -> None:
    """Call methods of actors side by side for a while, which may run twice; the death of an actor is not an error here."""
    calls = [_try_call(each, timeout_s, given) for each in methods]
    await gather(calls)


async def _try_call(method: Any, timeout_s: float, given: Sequence[object]) -> None:
    with suppress(RayError, TimeoutError):
        async with asyncio.timeout(timeout_s):
            await call_again(method, *given)


async def end_process(actor: Any) -> None:
    """End the process of an actor, unless Ray itself has ended."""
    with suppress(RayError, PeerLost):
        await aside(ray.kill, actor)


async def unless_dead(name: str, work: Awaitable[None]) -> None:
    """Await a call of the actor with this name; its death is raised as `ActorDied`."""
    try:
        await work
    except DEATHS as error:
        raise ActorDied(name, cause_of(error)) from None


def cause_of(error: RayError) -> str:
    """Return the cause of a death in Ray's words, without Ray's advice."""
    text = _ESCAPES.sub("", str(error))
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    if isinstance(error, RayActorError) and error.actor_init_failed:  # its lines are a traceback, with the error last
        return f"{NOT_CREATED}: {lines[-1]}"
    text = " ".join(lines)
    found = re.search(r"because (.+?)(?:\. Some common causes|$)", text)
    if found:
        return found[1]
    return text


async def ends_within(work: asyncio.Future[Any], timeout_s: float) -> bool:
    """Whether a future ends in time. It is not cancelled at the timeout, and its exception is raised."""
    done, _ = await asyncio.wait([work], timeout=timeout_s)
    for each in done:
        each.result()
    return bool(done)


async def gather(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines side by side; the first error is raised and cancels the others."""
    scope = TaskScope()
    try:
        tasks = [scope.start(each) for each in work]
        await asyncio.gather(*tasks)
    finally:
        await scope.close()
