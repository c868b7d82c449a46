"""Watching of processes: batches and log lines of an actor, and the signs that it or Ray itself has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError

from microagents.base.errors import PeerLost
from microagents.base.logs import log as library_log
from microagents.runtimes.dispatcher import Dispatcher
from microagents.runtimes.ray.calls import DEATHS, cause_of, end_process, ends_within
from microagents.runtimes.ray.cluster import ANSWER_S, aside, node_answers
from microagents.runtimes.ray.links import future_of
from microagents.runtimes.ray.placement import ActorSlot

PING_EVERY_S = 5.0
"""Seconds between two checks that an actor's event loop turns, and that Ray is there."""
QUIET_S = 10.0
"""Seconds without an answer from an actor after which its node is asked. Ray itself misses a silent node after more than a minute."""
SILENT_S = 30.0
"""Seconds without an answer after which an actor counts as dead and is killed."""
RETRY_COLLECT_S = 0.5
"""Seconds until the driver collects again from an actor that could not be reached."""
UNREACHABLE_S = 4.0
"""Seconds without a connection after which an actor counts as dead. Ray itself notices the end of a node some 15 seconds later."""


async def collect_until_death(slot: ActorSlot, dispatcher: Dispatcher) -> str:
    """Receive batches and log lines from the current process of a slot until it dies; returns the cause.

    One call to the process is always open, so its death is noticed here, too.
    """
    loop, (actor, incarnation) = asyncio.get_running_loop(), slot.process
    collected = 0
    reached_s: float | None = None
    """Time at which it was last there, while it cannot be reached."""
    while True:
        try:
            batches, lines = await future_of(actor.collect.remote(collected))
        except ActorUnavailableError:
            reached_s = loop.time() if reached_s is None else reached_s
            if loop.time() > reached_s + UNREACHABLE_S:
                slot.is_unreachable = True
                await kill(slot, actor, cause := f"it could not be reached for {UNREACHABLE_S:g} s")
                return cause
            await asyncio.sleep(RETRY_COLLECT_S)
            continue
        except DEATHS as error:
            return slot.kill_cause or cause_of(error)
        collected, reached_s = collected + 1, None
        for batch in batches:
            dispatcher.receive(slot.name, batch, incarnation)
        for line in lines:
            log(line["level"], line["event"], line["fields"])


async def kill_if_silent(slot: ActorSlot, actor: Any) -> None:
    """Kill a process of a slot once its node no longer answers, or its event loop no longer turns."""
    while True:
        await asyncio.sleep(PING_EVERY_S)
        ping = asyncio.ensure_future(future_of(actor.ping.remote()))
        try:
            if await ends_within(ping, QUIET_S):
                continue
            if slot.node is not None and not await aside(node_answers, slot.node):
                slot.is_unreachable = True
                await kill(slot, actor, "its node does not answer: it is frozen, or its network is down")
                return
            if not await ends_within(ping, SILENT_S - QUIET_S):
                words = f"it was not heard of for {SILENT_S:g} s, but its node was: it is stopped, or code in it keeps its event loop"
                await kill(slot, actor, words)
                return
        except (ActorUnavailableError, PeerLost):
            continue
        except DEATHS:
            return
        finally:
            ping.cancel()


async def kill(slot: ActorSlot, actor: Any, cause: str) -> None:
    """Kill a process of a slot for this cause."""
    slot.kill_cause = cause
    await end_process(actor)


async def wait_for_rays_end() -> str:
    """Wait until Ray has ended on the driver's machine, so that deaths of actors are no longer reported; returns the words for it."""
    own = ray.get_runtime_context().get_node_id()
    while True:
        await asyncio.sleep(PING_EVERY_S)
        try:
            nodes = await aside(ray.nodes)
        except (RayError, PeerLost):
            return f"the head of Ray has not answered for {ANSWER_S:g} s"
        if not any(node["NodeID"] == own and node["Alive"] for node in nodes):
            return "Ray has ended on the machine of the driver"


def log(level: str, event: Any, fields: Mapping[str, Any]) -> None:
    """Log a line. A log that cannot be written, such as a pipe that its reader has closed, must not end the run."""
    with suppress(OSError, ValueError):
        getattr(library_log(), level, library_log().warning)(event, **fields)
