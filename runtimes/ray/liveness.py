"""Watching of processes: frames and log lines of an actor, and the signs that it or Ray itself has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError

from microagents.base.logs import log as library_log
from microagents.runtimes.dispatcher import Dispatcher
from microagents.runtimes.ray.calls import DEATHS, cause_of, future_of
from microagents.runtimes.ray.cluster import aside
from microagents.runtimes.ray.placement import ActorSlot

PING_EVERY_S = 10.0
"""Seconds between two checks that an actor's event loop turns."""
SILENT_S = 30.0
"""Seconds without an answer after which an actor counts as dead and is killed."""
RETRY_COLLECT_S = 0.5
"""Seconds until the driver collects again from an actor that could not be reached."""
ENDED_S = 20.0
"""Seconds without an answer after which Ray has ended on the driver's machine. Ray ends a program that has asked it in vain for 60."""
UNREACHABLE_S = 4.0
"""Seconds without a connection after which an actor counts as dead. Ray itself notices the end of a node some 15 seconds later."""


async def collect_until_death(slot: ActorSlot, dispatcher: Dispatcher) -> str:
    """Receive frames and log lines from the current process of a slot until it dies; returns the cause.

    One call to the process is always open, so its death is noticed here, too.
    """
    loop, actor, incarnation = asyncio.get_running_loop(), slot.actor, slot.incarnation
    reached_s: float | None = None
    """Time at which it was last there, while it cannot be reached."""
    while True:
        try:
            frames, lines = await future_of(actor.collect.remote())
            reached_s = None
        except ActorUnavailableError:
            reached_s = loop.time() if reached_s is None else reached_s
            if loop.time() > reached_s + UNREACHABLE_S:
                slot.is_unreachable = True
                kill(slot, actor, cause := f"it could not be reached for {UNREACHABLE_S:g} s")
                return cause
            await asyncio.sleep(RETRY_COLLECT_S)  # frames that were lost are sent again
            continue
        except DEATHS as error:
            return slot.kill_cause or cause_of(error)
        for frame in frames:
            dispatcher.receive(slot.name, frame, incarnation)
        for line in lines:
            log(line["level"], line["event"], line["fields"])


async def kill_if_silent(slot: ActorSlot, actor: Any) -> None:
    """Kill a process of a slot once its event loop no longer turns."""
    while True:
        await asyncio.sleep(PING_EVERY_S)
        try:
            async with asyncio.timeout(SILENT_S):
                await future_of(actor.ping.remote())
        except TimeoutError:
            kill(slot, actor, f"it was not heard of for {SILENT_S:g} s: something in it keeps its event loop")
            return
        except ActorUnavailableError:
            continue
        except DEATHS:
            return


def kill(slot: ActorSlot, actor: Any, cause: str) -> None:
    """Kill a process of a slot for this cause."""
    slot.kill_cause = cause
    ray.kill(actor)


async def wait_for_rays_end() -> None:
    """Wait until Ray has ended on the driver's machine: deaths of actors are no longer reported then."""
    own = ray.get_runtime_context().get_node_id()
    while True:
        await asyncio.sleep(PING_EVERY_S)
        with suppress(RayError, TimeoutError):
            async with asyncio.timeout(ENDED_S):
                nodes = await aside(ray.nodes)
                if any(node["NodeID"] == own and node["Alive"] for node in nodes):
                    continue
        return


def log(level: str, event: Any, fields: Mapping[str, Any]) -> None:
    """Log a line. A log that cannot be written, such as a pipe that its reader has closed, must not end the run."""
    with suppress(OSError, ValueError):
        getattr(library_log(), level, library_log().warning)(event, **fields)
