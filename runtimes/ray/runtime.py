"""Roles in Ray actors: a dispatcher in each actor, one in the driver, and the links between them.

The driver creates every actor, notices when one dies, puts another process into its slot and connects the other actors to it. Actors are
neither detached nor named: Ray ends them when the driver ends, also after SIGKILL.
"""

from __future__ import annotations

import asyncio
import math
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Self

from ray.exceptions import RayError

from microagents.actors import Context, Deployment, check_graph
from microagents.aio import finish, wait_to_end
from microagents.errors import PeerLost
from microagents.logs import log
from microagents.runtimes.dispatcher import RoleMessenger
from microagents.runtimes.ray import actor_group, watching
from microagents.runtimes.ray.actor_group import ActorGroup
from microagents.runtimes.ray.blueprint import Blueprint
from microagents.runtimes.ray.calls import NOT_CREATED, ActorDied
from microagents.runtimes.ray.cluster import Cluster, aside, connect, disconnect, may_grow, request_cpus
from microagents.runtimes.ray.lanes import AUTO, number_of_lanes, with_lanes
from microagents.runtimes.ray.starting import ActorStarter

GROW_EVERY_S = 10.0
"""Seconds between two looks for nodes that joined the cluster."""
WAIT_FOR_NODES_S = 300.0
"""Seconds that the lanes for which a cluster has no CPU wait for nodes. Then they share those that are there."""


class RayRuntime:
    """Roles in Ray actors, one actor per replica unless deployments are colocated; the driver hosts a dispatcher, too.

    An async context manager: on entry roles start in the order of their deployments, on exit they stop in reverse.
    """

    messenger: RoleMessenger
    """The driver's messenger, which may send every message that a deployed role handles."""

    def __init__(self, context: Context, deployments: Sequence[Deployment]) -> None:
        check_graph(deployments)
        self._cluster = Cluster(
            address=context.settings.get("address"), insecure=context.settings.get("insecure", False)
        )
        self._context = context
        self._given = deployments
        """The deployments without lanes."""
        self._lanes = 1
        self._has_requested = False
        """Whether the autoscaler was asked for CPUs."""
        self._blueprint: Blueprint
        self._starter: ActorStarter
        self._actors: ActorGroup
        """Those of the last attempt to start."""

    async def __aenter__(self) -> Self:
        self._blueprint = Blueprint(self._context, self._given)
        self._starter = ActorStarter(self._context.run_id, self._blueprint)
        self._place(self._given)
        await self._connect()
        _keep_signal_handlers()
        try:
            await self._blueprint.store()
            wanted, inputs = self._context.settings.get("lanes"), len(self._context.tasks)
            goal = await aside(number_of_lanes, wanted, inputs)
            there = await aside(number_of_lanes, AUTO, goal)
            is_waiting = inputs > 1 and goal > there and may_grow()
            if is_waiting:
                await aside(request_cpus, goal)
                self._has_requested = True
            deployments = self._with_lanes(there if is_waiting else goal)
            if self._lanes > 1 or is_waiting:
                await self._starter.find_nodes()
            await self._start(deployments)
        except BaseException:
            await finish(self._stop)
            raise
        self._actors.scope.start(self._actors.watch_ray())
        if inputs > 1 and wanted in (None, AUTO):
            self._actors.scope.start(self._grow(inputs))
        elif is_waiting:
            self._actors.scope.start(self._grow(goal, WAIT_FOR_NODES_S))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await finish(self._stop)

    async def flush(self) -> None:
        """Wait until all one-way messages sent so far have arrived, except those from and to actors that die."""
        await self._actors.flush()

    async def _connect(self) -> None:
        connecting = asyncio.get_running_loop().run_in_executor(None, connect, self._cluster)
        try:
            await wait_to_end([connecting])
        except asyncio.CancelledError:
            if connecting.exception() is None:
                await self._disconnect()
            raise
        await connecting

    async def _disconnect(self) -> None:
        if not self._actors.has_ray_ended:  # nobody would be left to answer
            await wait_to_end([asyncio.get_running_loop().run_in_executor(None, disconnect)])

    def _place(self, deployments: Sequence[Deployment]) -> None:
        """Place the roles in actors that are to be started."""
        self._actors = ActorGroup(self._context, deployments, self._starter)
        self.messenger = self._actors.messenger

    async def _start(self, deployments: Sequence[Deployment]) -> None:
        """Start all roles; when an actor dies, start all of them anew, since no work is done yet.

        Raises:
            PeerLost: more than `MAX_DEATHS` attempts failed, or an actor cannot be created.
        """
        for attempt in count(1):
            self._place(deployments)
            try:
                await self._actors.start()
            except ActorDied as died:
                if died.cause.startswith(NOT_CREATED):
                    raise PeerLost(died.replica, died.cause) from None
                if attempt > actor_group.MAX_DEATHS:
                    raise PeerLost(
                        died.replica, f"it died while it was started, {attempt} times, last because {died.cause}"
                    ) from None
                fields = {"replica": died.replica, "cause": died.cause}
                watching.log("warning", "an actor died while it was started; all actors start anew", fields)
                await self._actors.stop()
                await self._starter.find_nodes_again()
            else:
                return

    def _with_lanes(self, lanes: int) -> Sequence[Deployment]:
        """Return the deployments with so many lanes, also for actors that start from now on."""
        self._lanes = lanes
        has_many = len(self._context.tasks) > 1
        if lanes == 1 and not has_many:
            return self._given
        deployments = with_lanes(self._given, lanes, shared=has_many)
        self._blueprint.set_deployments(deployments)
        return deployments

    async def _grow(self, most: int, wait_s: float = math.inf) -> None:
        """Add a lane for each CPU that joins the cluster, up to a number of lanes; all that are left after some time."""
        over_s = asyncio.get_running_loop().time() + wait_s
        while True:
            await asyncio.sleep(GROW_EVERY_S)
            with suppress(RayError):
                is_over = asyncio.get_running_loop().time() > over_s
                wanted = most if is_over else await aside(number_of_lanes, AUTO, most)
                await self._starter.find_nodes()
                while self._lanes < wanted:
                    await self._add_lane()

    async def _add_lane(self) -> None:
        await self._actors.extend(self._with_lanes(self._lanes + 1))
        log().info("a lane was added for a node that joined", lanes=self._lanes)

    async def _stop(self) -> None:
        try:
            await self._actors.stop()
            if self._has_requested and not self._actors.has_ray_ended:
                with suppress(RayError, TimeoutError):
                    async with asyncio.timeout(watching.SILENT_S):
                        await aside(request_cpus, 0)
        finally:
            await self._disconnect()


def _keep_signal_handlers() -> None:
    """Install the program's signal handlers again, in the place of Ray's, which print a stack first."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if (handler := signal.getsignal(number)) is not None:
                signal.signal(number, handler)
