"""Starting of actors: a process for a slot, on a node with room for it, with its roles built."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from microagents.actors.role import Context
from microagents.base.errors import InvalidDefinition, PeerLost
from microagents.base.user_code import import_folders
from microagents.runtimes.ray.blueprint import Blueprint
from microagents.runtimes.ray.calls import call_role, ends_within
from microagents.runtimes.ray.cluster import aside, free_cpus, missing_resource
from microagents.runtimes.ray.host import Host
from microagents.runtimes.ray.lanes import nodes_for_lanes
from microagents.runtimes.ray.links import future_of
from microagents.runtimes.ray.liveness import log
from microagents.runtimes.ray.placement import ActorSlot
from microagents.runtimes.ray.totals import set_waiting

LOOK_S = 3.0
"""Seconds between two looks whether the cluster has room for an actor that has not started."""
READY_S = 120.0
"""Seconds that an actor may take to start if the cluster has room for it."""
AVOIDED_S = 120.0
"""Seconds that nothing is started on a node with an actor that could not be reached. Ray itself misses a silent one after some 70."""
_names = Counter[str]()
"""How many actors of this program had a name: Ray forgets a name some time after the death of its actor."""


class ActorStarter:
    """Starts the processes of slots.

    Args:
        context: the context of the run.
        blueprint: the plan of their roles.
    """

    def __init__(self, context: Context, blueprint: Blueprint) -> None:
        self._run_id = context.run_id
        self._max_wait_s: float = context.settings.get("max_outage_s", READY_S)
        self._blueprint = blueprint
        self._working = str(Path.cwd())  # users' code may change it
        self._nodes: list[str] = []
        """Ids of nodes by lane; empty for a single lane."""
        self._free = 0
        """CPUs that nothing has reserved, when they were last counted."""
        self._unreachable: dict[str, float] = {}
        """Nodes with an actor that could not be reached, by id: until when, by the loop's clock, nothing is started on them."""

    async def count_free(self) -> None:
        """Count the CPUs that the lanes to start next may reserve."""
        self._free = await aside(free_cpus, self.avoided)

    async def find_nodes(self) -> None:
        """Spread lanes over the nodes that are there now."""
        self._nodes = await aside(nodes_for_lanes)

    async def find_nodes_again(self) -> None:
        """Look for nodes after a death, if lanes are spread over them, and for a CPU."""
        await self.count_free()
        if self._nodes:
            await self.find_nodes()

    def avoid(self, node: str) -> None:
        """Start nothing on a node until Ray has noticed that it has gone. The driver's own has not."""
        if node != ray.get_runtime_context().get_node_id():
            self._unreachable[node] = asyncio.get_running_loop().time() + AVOIDED_S

    @property
    def avoided(self) -> list[str]:
        """Ids of the nodes on which nothing is started now."""
        now_s = asyncio.get_running_loop().time()
        return [node for node, until_s in self._unreachable.items() if until_s > now_s]

    async def create(self, slot: ActorSlot) -> None:
        """Ask Ray for a process.

        Raises:
            InvalidDefinition: no actor can have these resources.
        """
        if slot.is_lane:
            # A lane reserves a CPU, so that the next run takes another; with none free it shares them, and need not wait.
            needed = sum(each.num_cpus for each in slot.replicas.values())
            slot.num_cpus = needed or float(self._free > 0)
            self._free -= 1
        level = logging.getLevelNamesMapping().get(os.environ.get("MICROAGENTS_LOG", "info").upper(), logging.INFO)
        # Ray takes GPUs and memory as options with names of their own, not among the resources.
        # An actor that needs nothing is placed by a random node, also a silent one, and its affinity counts for nothing (measured).
        named = {"num_gpus": slot.resources.get("GPU", 0), "memory": slot.resources.get("memory", 1)}
        kind = type(
            slot.kind, (Host,), {}
        )  # Ray shows the name of the class: in its states, its dashboard and its processes
        avoided = self.avoided
        name = f"{slot.name} of {self._run_id}"
        _names[name] += 1
        try:
            described: Any = ray.remote(kind).options(
                name=name if _names[name] == 1 else f"{name} ({_names[name]})",
                namespace=f"microagents-{ray.get_runtime_context().get_job_id()}",
                num_cpus=slot.num_cpus,
                resources={name: amount for name, amount in slot.resources.items() if name not in ("GPU", "memory")},
                **{name: amount for name, amount in named.items() if amount},
                # The driver itself creates the next process, so that each has its own handle and incarnation.
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=self._strategy_of(slot),
                label_selector={"ray.io/node-id": f"!in({','.join(avoided)})"} if avoided else None,
                enable_task_events=False,
            )
            # Ray registers the name and the class of an actor before it returns.
            incarnation = slot.incarnation
            actor = await aside(described.remote, self._run_id, slot.name, incarnation, level)
            slot.process = actor, incarnation
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise InvalidDefinition(f"{slot.name} cannot be deployed like this: {reason}") from None

    def _strategy_of(self, slot: ActorSlot) -> Any:
        """Place for an actor: the actors of one lane on one node, as long as it is there and has room."""
        nodes = [each for each in self._nodes if each not in self.avoided]
        if not nodes:
            return "SPREAD"
        return NodeAffinitySchedulingStrategy(
            node_id=nodes[slot.number % len(nodes)], soft=True, _spill_on_unavailable=bool(slot.num_cpus)
        )

    async def wait_ready(self, slot: ActorSlot) -> None:
        """Wait until the process answers.

        Raises:
            PeerLost: the cluster has no room for it, or it does not start in time.
        """
        ready = asyncio.ensure_future(future_of(slot.actor.ping.remote()))
        try:
            if not await ends_within(ready, LOOK_S):
                await self._wait_for_room(slot, ready)
                if not await ends_within(ready, READY_S):
                    raise PeerLost(
                        slot.name, f"its process did not start within {READY_S:g} s; Ray's logs say why (`ray logs`)"
                    )
            slot.mark_ready(ready.result())
        finally:
            ready.cancel()

    async def _wait_for_room(self, slot: ActorSlot, ready: asyncio.Future[Any]) -> None:
        """Wait until the cluster has room for an actor, and say so; Ray asks its autoscaler for nodes by itself."""
        try:
            await self._look_for_room(slot, ready)
        finally:
            if slot.waits_since_s is not None:
                set_waiting(self._run_id, slot.name, is_waiting=False)

    async def _look_for_room(self, slot: ActorSlot, ready: asyncio.Future[Any]) -> None:
        loop = asyncio.get_running_loop()
        while (lacking := await self._lacking(slot)) is not None:
            if (began_s := slot.waits_since_s) is not None and loop.time() > began_s + self._max_wait_s:
                raise PeerLost(
                    slot.name, f"there was no room for it within {self._max_wait_s:g} s (max_outage_s): {lacking}"
                )
            if began_s is None:
                slot.waits_since_s = loop.time()
                fields = {"replica": slot.name, "lacking": lacking, "max_outage_s": self._max_wait_s}
                log("warning", "waiting for a node", fields)
                set_waiting(self._run_id, slot.name, is_waiting=True)
            if await ends_within(ready, LOOK_S):
                return

    async def _lacking(self, slot: ActorSlot) -> str | None:
        return await aside(missing_resource, slot.actor, slot.num_cpus, slot.resources, self.avoided)

    async def build(self, slot: ActorSlot, slots: Mapping[str, ActorSlot]) -> None:
        """Build the roles of a slot, connected to the processes of the others."""
        peers = {each.name: each.process for each in slots.values() if each is not slot}
        context, deployments = self._blueprint.context, self._blueprint.deployments
        # Ray stores long arguments before it returns.
        building = await aside(slot.actor.build.remote, import_folders(), self._working, context, deployments, peers)
        await call_role(building)
