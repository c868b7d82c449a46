"""The actors of a run with the driver's dispatcher: started together, replaced one by one, stopped in reverse."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from ray.exceptions import ActorUnavailableError, RayError

from microagents.actors.role import Context, Deployment
from microagents.base.aio import TaskScope, retrieve_exception, wait_to_end
from microagents.base.errors import MicroagentsError, NoHandler, PeerLost
from microagents.journal.messages import Record, ReplicaEnded
from microagents.runtimes.dispatcher import Dispatcher
from microagents.runtimes.ray import liveness, starting
from microagents.runtimes.ray.calls import (
    DEATHS,
    NEVER_RAN,
    ActorDied,
    call_role,
    end_process,
    gather,
    try_calls,
    unless_dead,
)
from microagents.runtimes.ray.host import encode_error
from microagents.runtimes.ray.links import RayLink, future_of
from microagents.runtimes.ray.liveness import collect_until_death, kill_if_silent, log
from microagents.runtimes.ray.placement import ActorSlot, place_replicas, slots_of
from microagents.runtimes.ray.starting import ActorStarter
from microagents.runtimes.role_group import DRIVER, STOP_S, RoleGroup, replica_names

MAX_DEATHS, WITHIN_S = 5, 600.0
"""A slot is given up after more than `MAX_DEATHS` deaths within `WITHIN_S` seconds."""
FLUSH_BEFORE_STOP_S = 1.0
"""Seconds that the driver's roles wait, before they stop, for one-way messages and log lines from actors."""


class ActorGroup:
    """Actors of one attempt to start a run.

    Args:
        context: the context of the roles.
        deployments: all roles, also the driver's.
        starter: starts processes.

    Raises:
        InvalidDefinition: roles cannot be placed like this.
    """

    def __init__(self, context: Context, deployments: Sequence[Deployment], starter: ActorStarter) -> None:
        self._context = context
        self._deployments = deployments
        self._starter = starter
        self.slots = {slot.name: slot for slot in slots_of(deployments)}
        self.scope = TaskScope()
        """Tasks that end with the actors."""
        self.has_ray_ended = False
        """Whether Ray has ended on the driver's machine."""
        self.leaving: dict[str, ActorSlot] = {}
        """Slots that get no new work, by name: they end once they have no work left."""
        self._ended: dict[str, ActorSlot] = {}
        """Slots that have ended like that, by name. One may be needed again."""
        self._slot_of = {replica: slot for slot in self.slots.values() for replica in slot.replicas}
        self._dispatcher = Dispatcher(DRIVER)
        places = place_replicas(deployments, list(self.slots.values()))
        self._roles = RoleGroup(self._dispatcher, deployments, places)
        self.messenger = self._roles.messenger(DRIVER)
        self._connecting = asyncio.Lock()
        self._lost: dict[str, bytes] = {}
        """Encoded errors of the slots that are given up, by name."""
        self._is_started = asyncio.Event()
        self._early_death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises `ActorDied` when an actor dies while roles are started, or `PeerLost` when Ray ends."""
        self._early_death.add_done_callback(retrieve_exception)

    @property
    def reserved_cpus(self) -> float:
        """CPUs that its lanes have reserved."""
        return sum(slot.num_cpus for slot in self.slots.values() if slot.is_lane)

    async def flush(self) -> None:
        """Wait until all one-way messages sent so far have arrived, except those from and to actors that die."""
        flushes = [slot.actor.flush for slot in self.slots.values()]
        await try_calls(flushes, STOP_S)
        await self._dispatcher.flush()

    # -- starting ---------------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all roles, in the order of their deployments.

        Raises:
            ActorDied: an actor died meanwhile. No work is done yet, so all of them may start anew.
            PeerLost: Ray has ended.
        """
        self.scope.start(self._watch_ray())
        work = asyncio.ensure_future(self._start())
        try:
            await asyncio.wait([work, self._early_death], return_when=asyncio.FIRST_COMPLETED)
            if self._early_death.done():  # the start may not wait for the actor that died
                await self._early_death
            await work
        except (ActorDied, MicroagentsError, asyncio.CancelledError):
            work.add_done_callback(retrieve_exception)
            work.cancel()
            await wait_to_end([work])
            raise
        self._is_started.set()

    async def _start(self) -> None:
        slots = list(self.slots.values())
        for slot in slots:
            await self._starter.create(slot)
        becoming_ready = [unless_dead(slot.name, self._starter.wait_ready(slot)) for slot in slots]
        await gather(becoming_ready)
        for slot in slots:
            self._dispatcher.connect(slot.name, RayLink(DRIVER, 0, slot.actor))
        building = [unless_dead(slot.name, self._starter.build(slot, self.slots)) for slot in slots]
        await gather(building)
        for deployment in self._deployments:
            for replica in replica_names(deployment) if deployment.in_driver else ():
                self._roles.build(replica, deployment, self._context)
        self._roles.connect()
        for slot in slots:
            self.scope.start(self._collect(slot))
            self.scope.start(self._ping(slot, slot.actor))
        for deployment in self._deployments:
            for replica in replica_names(deployment):
                if deployment.in_driver:
                    await self._roles.start(replica)
                else:
                    slot = self._slot_of[replica]
                    await unless_dead(slot.name, call_role(slot.actor.start.remote(replica)))

    async def extend(self, deployments: Sequence[Deployment]) -> None:
        """Start the further replicas of these deployments while the others work; if that fails, none of them.

        Raises:
            PeerLost: an actor does not start.
            RayError: an actor died.
        """
        # Those of slots that leave are also stopped at the end.
        self._deployments = max(self._deployments, deployments, key=_replicas_in)
        new = [self._ended.pop(slot.name, slot) for slot in slots_of(deployments) if slot.name not in self.slots]
        for slot in new:
            self.slots[slot.name] = slot
            self._slot_of.update(dict.fromkeys(slot.replicas, slot))
        try:
            for slot in new:
                await self._start_process(slot)
        except (MicroagentsError, RayError):
            await self._remove(new)
            raise
        self.narrow(deployments)

    def narrow(self, deployments: Sequence[Deployment]) -> None:
        """Send new work only to the replicas of these deployments; the other slots are `leaving`."""
        kept = {slot.name for slot in slots_of(deployments)}
        self.leaving = {name: slot for name, slot in self.slots.items() if name not in kept}
        places = place_replicas(deployments, list(self.slots.values()))
        self._roles.extend(deployments, places)

    async def end_idle(self) -> None:
        """End the lanes that get no new work and have none left."""
        lanes = defaultdict[int, list[ActorSlot]](list)
        for slot in self.leaving.values():
            lanes[slot.number].append(slot)
        for slots in lanes.values():
            # The driver asks only the conductor of a lane; the calls to its other roles end with those.
            if all(slot.is_ready and not self._dispatcher.has_calls(slot.name) for slot in slots):
                await self._end(slots)
                log("info", "a lane has ended", {"replicas": [slot.name for slot in slots]})

    async def _end(self, slots: Sequence[ActorSlot]) -> None:
        """Stop the roles of slots, let their last records arrive, and end their processes."""
        actors = [slot.actor for slot in slots]
        await try_calls([actor.close for actor in actors], STOP_S)
        for deployment in reversed(self._deployments):
            for replica in replica_names(deployment):
                if self._slot_of.get(replica) in slots:
                    await self._stop_replica(replica)
        await _wait_for("flush", actors)
        await _wait_for("ping", actors)
        await self._remove(slots)
        for slot in slots:
            self._dispatcher.end(slot.name)
            others = [each for each in self.slots.values() if each.is_ready]
            await try_calls([each.actor.end_peer for each in others], liveness.SILENT_S, slot.name)
        with suppress(NoHandler):  # a run without a keeper
            for slot in slots:
                for replica in slot.replicas:
                    self.messenger.tell(Record.of(ReplicaEnded(source=replica)))

    async def _remove(self, slots: Sequence[ActorSlot]) -> None:
        """End the processes of slots, which have no successors unless the slots are needed again."""
        for slot in slots:
            actor = slot.actor
            slot.begin_incarnation()
            self.leaving.pop(slot.name, None)
            self._ended[slot.name] = self.slots.pop(slot.name)
            await end_process(actor)

    async def _start_process(self, slot: ActorSlot) -> None:
        """Start a process in a slot while the others work."""
        await self._starter.create(slot)
        actor, incarnation = slot.process
        self.scope.start(self._collect(slot))  # from now on its death is noticed
        await self._starter.wait_ready(slot)
        # One successor at a time, so that each is built with the current process of every other slot and is made known to all of them.
        async with self._connecting:
            if (
                slot.incarnation != incarnation
            ):  # it died while it waited for the lock, and its own successor starts already
                return
            await self._starter.build(slot, self.slots)
            for name, failed in self._lost.items():
                await future_of(actor.lose.remote(name, failed))
            others = [each for each in self.slots.values() if each is not slot and each.is_ready]
            methods = [each.actor.connect for each in others]
            await try_calls(methods, liveness.SILENT_S, slot.name, actor, incarnation)
            self._dispatcher.connect(slot.name, RayLink(DRIVER, 0, actor), incarnation)
        self.scope.start(self._ping(slot, actor))
        try:
            async with asyncio.timeout(starting.READY_S):
                for replica in slot.replicas:
                    await call_role(actor.start.remote(replica))
                await call_role(actor.open.remote())
        except TimeoutError:
            raise PeerLost(
                slot.name, f"it took the place of one that died, but did not start within {starting.READY_S:g} s"
            ) from None

    # -- deaths -----------------------------------------------------------------------------------------------------------------------

    async def _collect(self, slot: ActorSlot) -> None:
        """Receive the current process's messages until it dies, and put another one into its slot then."""
        async with self._losing_on_error(slot):
            incarnation = slot.incarnation
            cause = await collect_until_death(slot, self._dispatcher)
            if slot.incarnation != incarnation:  # it was ended
                return
            if slot.is_unreachable and slot.node is not None:
                self._starter.avoid(slot.node)
            if not self._is_started.is_set() and not self._early_death.done():
                self._early_death.set_exception(ActorDied(slot.name, cause))
            await self._replace(slot, cause)

    async def _ping(self, slot: ActorSlot, actor: Any) -> None:
        async with self._losing_on_error(slot):
            await kill_if_silent(slot, actor)

    @asynccontextmanager
    async def _losing_on_error(self, slot: ActorSlot) -> AsyncGenerator[None]:
        """Give a slot up on an unexpected error in the body, so that no caller waits for it for ever."""
        try:
            yield
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            await self._lose(slot, PeerLost(slot.name, reason))
            raise

    async def _replace(self, slot: ActorSlot, cause: str) -> None:
        """Put another process into the slot of one that died, or give the slot up after too many deaths."""
        await self._is_started.wait()
        if slot.name in self._lost:
            return
        try:
            if (
                NEVER_RAN in cause
            ):  # Ray had not noticed yet that the node of the one before it has gone: still the same death
                await asyncio.sleep(starting.LOOK_S)
            else:
                self._count_death(slot, cause)
            slot.begin_incarnation()
            await self._starter.find_nodes_again()
            await self._start_process(slot)
        except DEATHS as error:  # the successor has died as well, which its own `_collect` notices
            if isinstance(error, ActorUnavailableError):
                await end_process(slot.actor)
        except MicroagentsError as error:
            await self._lose(slot, error)

    def _count_death(self, slot: ActorSlot, cause: str) -> None:
        log("warning", "an actor died; another takes its place", {"replica": slot.name, "cause": cause})
        with suppress(NoHandler):  # a run without a keeper
            for number, replica in enumerate(slot.replicas):
                actor = "" if number else slot.name
                ended = ReplicaEnded(source=replica, actor=actor)
                self.messenger.tell(Record.of(ended))
        deaths = slot.count_death(asyncio.get_running_loop().time(), WITHIN_S)
        if deaths > MAX_DEATHS:
            raise PeerLost(slot.name, f"it died {deaths} times within {WITHIN_S / 60:g} minutes, last because {cause}")

    async def _lose(self, slot: ActorSlot, error: MicroagentsError) -> None:
        """Give a slot up: all open and later calls to it raise the error."""
        failed = self._lost[slot.name] = encode_error(error)
        slot.is_ready = False
        self._dispatcher.lose(slot.name, error)
        await end_process(slot.actor)  # it may still wait for resources
        others = [each for each in self.slots.values() if each is not slot]
        await try_calls([each.actor.lose for each in others], liveness.SILENT_S, slot.name, failed)

    async def _watch_ray(self) -> None:
        """Give all slots up when Ray ends on the driver's machine."""
        cause = await liveness.wait_for_rays_end()
        self.has_ray_ended = True
        for slot in self.slots.values():
            slot.is_ready = False
            if self._is_started.is_set():
                self._dispatcher.lose(slot.name, PeerLost(slot.name, cause))
        if not self._early_death.done():
            self._early_death.set_exception(PeerLost("Ray", cause))

    # -- stopping ---------------------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop all roles, then end the actors."""
        self._is_started.clear()  # from now on a death starts no successor
        actors = [slot.actor for slot in self.slots.values() if slot.is_ready]
        async with AsyncExitStack() as steps:  # in reverse order, each even if one before it fails or is cancelled
            steps.push_async_callback(self._kill_actors)
            steps.callback(self._dispatcher.disconnect)
            steps.push_async_callback(self._dispatcher.close)  # calls that came while roles were stopped
            steps.push_async_callback(self.scope.close)
            steps.push_async_callback(
                _wait_for, "ping", actors
            )  # what they have logged comes before the answer to a later call
            for deployment in self._deployments:
                for replica in replica_names(deployment):
                    if deployment.in_driver:
                        steps.push_async_callback(self._roles.stop, replica)
                        steps.push_async_callback(_wait_for, "flush", actors)
                    elif self._slot_of[replica].is_ready:
                        steps.push_async_callback(self._stop_replica, replica)
            steps.push_async_callback(self._dispatcher.close)
            await try_calls([actor.close for actor in actors], STOP_S)

    async def _kill_actors(self) -> None:
        if not self.has_ray_ended:
            actors = [slot.actor for slot in self.slots.values()]
            await gather([end_process(actor) for actor in actors if actor is not None])

    async def _stop_replica(self, replica: str) -> None:
        try:
            async with asyncio.timeout(STOP_S):
                await future_of(self._slot_of[replica].actor.stop.remote(replica))
        except TimeoutError as error:
            log("warning", "a role did not stop cleanly", {"role": replica.partition("/")[0], "error": repr(error)})
        except RayError:
            return  # its actor has died


def _replicas_in(deployments: Sequence[Deployment]) -> int:
    return sum(each.num_replicas for each in deployments)


async def _wait_for(method: str, actors: Sequence[Any]) -> None:
    """Wait a moment for the answers of actors to a call."""
    methods = [getattr(actor, method) for actor in actors]
    await try_calls(methods, FLUSH_BEFORE_STOP_S)
