"""Roles in Ray actors: a dispatcher in each actor, one in the driver, and the links between them.

The driver creates every actor, notices when one dies, puts another process into its slot and connects the other actors to it. Actors are
not detached: Ray ends them when the driver ends, also after SIGKILL.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import count
from types import TracebackType
from typing import Any, Self

from ray.exceptions import RayError

from microagents.actors.role import Context, Deployment, check_graph
from microagents.base.aio import TaskScope, finish, retrieve_exception, wait_to_end
from microagents.base.errors import MicroagentsError, NoHandler, PeerLost
from microagents.base.logs import log
from microagents.journal.messages import Subscribe
from microagents.runtimes.dispatcher import RoleMessenger
from microagents.runtimes.ray import actor_group, liveness
from microagents.runtimes.ray.actor_group import ActorGroup
from microagents.runtimes.ray.blueprint import Blueprint
from microagents.runtimes.ray.calls import NOT_CREATED, ActorDied
from microagents.runtimes.ray.cluster import Cluster, aside, connect, disconnect, may_grow, request_cpus
from microagents.runtimes.ray.lanes import AUTO, cpus_for_lanes, number_of_lanes, with_lanes
from microagents.runtimes.ray.placement import place_replicas, slots_of
from microagents.runtimes.ray.starting import ActorStarter
from microagents.runtimes.ray.totals import export_totals

GROW_EVERY_S = 10.0
"""Seconds between two looks for nodes that joined the cluster."""
LEAVE_EVERY_S = 0.5
"""Seconds between two looks whether a lane that is to end has ended its inputs."""
WAIT_FOR_NODES_S = 300.0
"""Seconds that the lanes for which a cluster has no CPU wait for nodes. Then they share the CPUs at hand."""


class RayRuntime:
    """Roles in Ray actors: one a lane, and one a replica of roles with a number or resources of their own. The driver hosts roles, too.

    An async context manager: on entry roles start in the order of their deployments, on exit they stop in reverse.
    """

    messenger: RoleMessenger
    """The driver's messenger, which may send every message that a deployed role handles."""

    def __init__(self, context: Context, deployments: Sequence[Deployment]) -> None:
        check_graph(deployments)
        self.start_s: dict[str, float] = {}
        """Seconds that each part of the start took."""
        self._cluster = Cluster(
            address=context.settings.get("address"), insecure=context.settings.get("insecure", False)
        )
        self._context = context
        self._given = deployments
        """The deployments without lanes."""
        self._wanted: str | None = context.settings.get("lanes")
        """The setting ``lanes``."""
        self._lanes = self._most_lanes = 1
        """Lanes that take inputs, and the most that there were."""
        self._is_asked = asyncio.Event()
        """Whether the setting has changed."""
        self._patient_until_s = 0.0
        """Time of the loop until which lanes without a CPU wait for nodes."""
        self._requested = 0
        """CPUs that the autoscaler was asked for."""
        self._scope = TaskScope()
        self._blueprint: Blueprint
        self._starter: ActorStarter
        self._actors: ActorGroup
        """The actors of the last attempt to start."""

    @classmethod
    def placement(cls, deployments: Sequence[Deployment], settings: Mapping[str, Any], /) -> dict[str, str]:
        """Name the actor of each replica: of as many lanes as are given by their number."""
        lanes = number_of_lanes(settings.get("lanes"), inputs=1, cpus=1)
        placed = with_lanes(deployments, lanes)
        return place_replicas(placed, slots_of(placed))

    async def __aenter__(self) -> Self:
        self._blueprint = Blueprint(self._context, self._given)
        self._starter = ActorStarter(self._context, self._blueprint)
        self._place(self._given)
        began_s = time.monotonic()
        await self._connect()
        connected_s = time.monotonic()
        _keep_signal_handlers()
        try:
            await self._blueprint.store()
            self._be_patient()
            deployments = self._with_lanes(await self._lanes_now())
            if self._lanes > 1 or self._requested:
                await self._starter.find_nodes()
            await self._start(deployments)
        except BaseException:
            await finish(self._stop)
            raise
        self.start_s = {"Ray": connected_s - began_s, "actors": time.monotonic() - connected_s}
        if may_grow():
            self._scope.start(export_totals(self._context.run_id, self.messenger))
        if len(self._context.tasks) > 1:
            self._scope.start(self._keep_lanes())
            if not self._context.strategy.spreads_inputs:
                self._scope.start(self._follow_settings())
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
            leaving = asyncio.ensure_future(aside(disconnect))
            leaving.add_done_callback(retrieve_exception)
            await wait_to_end([leaving])

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
                replica, cause = died.args
                if cause.startswith(NOT_CREATED):
                    raise PeerLost(replica, cause) from None
                if attempt > actor_group.MAX_DEATHS:
                    raise PeerLost(
                        replica, f"it died while it was started, {attempt} times, last because {cause}"
                    ) from None
                fields = {"replica": replica, "cause": cause}
                liveness.log("warning", "an actor died while it was started; all actors start anew", fields)
                await self._actors.stop()
                await self._starter.find_nodes_again()
            else:
                return

    # -- lanes ------------------------------------------------------------------------------------------------------------------------

    def _with_lanes(self, lanes: int) -> Sequence[Deployment]:
        """Return the deployments with this number of lanes, also for actors that start from now on."""
        self._lanes = lanes
        deployments = with_lanes(self._given, lanes)
        if lanes >= self._most_lanes:  # lanes that end may still need another process
            self._most_lanes = lanes
            self._blueprint.set_deployments(deployments)
        return deployments

    def _be_patient(self) -> None:
        """Wait for nodes from now on."""
        self._patient_until_s = asyncio.get_running_loop().time() + WAIT_FOR_NODES_S

    async def _lanes_now(self) -> int:
        """Count the lanes to have now: the wanted ones, but as long as nodes may join none without a CPU for a while."""
        inputs = len(self._context.tasks)
        await self._starter.count_free()
        reserved, avoided = self._actors.reserved_cpus, self._starter.avoided
        cpus = await aside(cpus_for_lanes, reserved, avoided, is_shared=may_grow())
        goal = number_of_lanes(self._wanted, inputs, cpus)
        if inputs == 1 or not may_grow():
            return goal
        there, needed = number_of_lanes(AUTO, goal, cpus), 0 if self._wanted in (None, AUTO) else goal
        if needed != self._requested and (self._requested or needed > there):
            await aside(request_cpus, needed)
            self._requested = needed
        if asyncio.get_running_loop().time() > self._patient_until_s:
            return goal
        return max(there, min(goal, self._lanes))  # one that works needs no further CPU

    async def _follow_settings(self) -> None:
        with suppress(NoHandler):  # a run without a keeper
            async with aclosing(self.messenger.stream(Subscribe())) as changes:
                async for conditions in changes:
                    if (wanted := conditions.settings.get("lanes", self._wanted)) != self._wanted:
                        self._wanted = wanted
                        self._be_patient()
                        self._is_asked.set()
                    if conditions.admission == "nothing":
                        break

    async def _keep_lanes(self) -> None:
        """Begin lanes for the CPUs that join the cluster, and begin or end lanes as the setting changes."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_EVERY_S if self._actors.leaving else GROW_EVERY_S):
                    await self._is_asked.wait()
            is_asked = self._is_asked.is_set()
            self._is_asked.clear()
            try:
                await self._actors.end_idle()
                lanes = await self._lanes_now()
                if is_asked and lanes < self._lanes:
                    self._actors.narrow(self._with_lanes(lanes))
                    log().info("lanes end once they have ended their inputs", lanes=lanes)
                if self._lanes < lanes:
                    await self._starter.find_nodes()
                while self._lanes < lanes:
                    await self._add_lane()
            except (RayError, MicroagentsError) as error:
                log().warning("the lanes stay as they are for now", lanes=self._lanes, cause=str(error))
                if is_asked:
                    self._is_asked.set()
                await asyncio.sleep(GROW_EVERY_S)

    async def _add_lane(self) -> None:
        before = self._lanes
        try:
            await self._actors.extend(self._with_lanes(before + 1))
        except BaseException:
            self._lanes = before
            raise
        log().info("a lane was added", lanes=self._lanes)

    async def _stop(self) -> None:
        try:
            await self._scope.close()
            await self._actors.stop()
            if self._requested and not self._actors.has_ray_ended:
                with suppress(RayError, PeerLost):
                    await aside(request_cpus, 0)
        finally:
            await self._disconnect()


def _keep_signal_handlers() -> None:
    """Install the program's signal handlers again, in the place of Ray's, which print a stack first."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if (handler := signal.getsignal(number)) is not None:
                signal.signal(number, handler)
