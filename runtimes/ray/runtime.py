"""Roles in Ray actors: a dispatcher in each actor, one in the driver, and the links between them.

The driver creates every actor, notices when one dies, puts another process into its slot and connects the other actors to it. Actors are
neither detached nor named: Ray ends them when the driver ends, also after SIGKILL.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import signal
import sys
import threading
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import ray
from ray.exceptions import ActorUnavailableError, ActorUnschedulableError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from microagents.actors import Context, Deployment
from microagents.aio import TaskScope, finish, retrieve_exception, wait_to_end
from microagents.errors import InvalidDefinition, MicroagentsError, NoHandler, PeerLost
from microagents.journal.messages import RecordLost
from microagents.logs import log
from microagents.runtimes import role_group
from microagents.runtimes.dispatcher import Dispatcher, RoleMessenger
from microagents.runtimes.ray.cluster import Cluster, aside, connect, disconnect, may_grow, missing_resource, request_cpus
from microagents.runtimes.ray.host import Host, RayLink, decode_error, encode_error
from microagents.runtimes.ray.lanes import AUTO, nodes_for_lanes, number_of_lanes, with_lanes
from microagents.runtimes.ray.placement import ActorSlot, place_replicas, slots_of
from microagents.runtimes.role_group import DRIVER, RoleGroup, replica_names

T = TypeVar("T")

NOT_CREATED = "it cannot be created"
"""The beginning of the cause of a death that every successor would have, too."""
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
DEATHS = (RayActorError, ActorUnschedulableError)
"""What a call of an actor raises that has died, or whose node has gone before it began."""

PLACE_S = 30.0
"""Seconds that an actor may wait for resources that the cluster does not have."""
READY_S = 120.0
"""Seconds that an actor may take to start where the cluster has room for it."""
MOST_SENT_BYTES = 1 << 20
"""A longer context goes into Ray's object store. A driver with objects there is ended by Ray itself, without a sentence, once Ray has ended
on its machine."""
PING_EVERY_S = 10.0
"""Seconds between two checks that an actor's event loop turns."""
SILENT_S = 30.0
"""Seconds without an answer after which an actor counts as dead and is killed."""
MAX_DEATHS, WITHIN_S = 5, 600.0
"""A slot is given up after more than `MAX_DEATHS` deaths within `WITHIN_S` seconds."""
FLUSH_BEFORE_STOP_S = 1.0
"""Seconds that the driver's roles wait, before they stop, for one-way messages from actors."""
GROW_EVERY_S = 10.0
"""Seconds between two looks for nodes that joined the cluster."""
WAIT_FOR_NODES_S = 300.0
"""Seconds that the lanes for which a cluster has no CPU wait for nodes. Then they share those that are there."""
RETRY_COLLECT_S = 0.5
"""Seconds until the driver collects again from an actor that could not be reached."""
ENDED_S = 20.0
"""Seconds without an answer after which Ray has ended on the driver's machine. Ray ends a program that has asked it in vain for 60."""
UNREACHABLE_S = 4.0
"""Seconds without a connection after which an actor counts as dead. Ray itself notices the end of a node some 15 seconds later."""


class RayRuntime:
    """Roles in Ray actors, one actor per replica unless deployments are colocated; the driver hosts a dispatcher, too.

    An async context manager: on entry roles start in the order of their deployments, on exit they stop in reverse.
    """

    def __init__(self, context: Context, deployments: Sequence[Deployment]) -> None:
        self._cluster = Cluster(address=context.settings.get("address"), insecure=context.settings.get("insecure", False))
        self._context = context
        self._given = deployments
        """The deployments without lanes."""
        self._deployments = deployments
        self._lanes = 1
        self._nodes: list[str] = []
        """Ids of nodes by lane; empty for a single lane."""
        self._has_requested = False
        self._has_ended = False
        """Whether Ray has ended on the driver's machine."""
        """Whether the autoscaler was asked for CPUs."""
        self._unreachable: dict[str, None] = {}
        """Ids of nodes with an actor that could not be reached; Ray may not have noticed yet that they have gone."""
        self._pickled_context: Any
        """The pickled context. Of a long one Ray's reference: each node then gets one copy of the options of all inputs, not one a lane."""
        self._pickled_deployments: bytes
        self._reset()

    def _reset(self) -> None:
        """Begin with empty slots; called before every attempt to start."""
        self._slots = {slot.name: slot for slot in slots_of(self._deployments)}
        self._slot_of = {replica: slot for slot in self._slots.values() for replica in slot.replicas}
        self._dispatcher = Dispatcher(DRIVER)
        self._group = RoleGroup(self._dispatcher, self._deployments, place_replicas(self._deployments, list(self._slots.values())))
        self._scope = TaskScope()
        self._connecting = asyncio.Lock()
        self._lost: dict[str, bytes] = {}
        """Encoded errors of the slots that are given up, by name."""
        self._is_started = asyncio.Event()
        self._early_death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises `_ActorDied` when an actor dies while roles are started."""
        self._early_death.add_done_callback(retrieve_exception)
        self.messenger: RoleMessenger = self._group.messenger(DRIVER)
        """The driver's messenger, which may send every message that a deployed role handles."""

    async def __aenter__(self) -> Self:
        _refuse_main(self._context, self._deployments)
        pickled, self._pickled_deployments = _pickled(self._context), _pickled_deployments(self._given)
        await self._connect()
        _keep_signal_handlers()
        try:
            self._pickled_context = await aside(ray.put, pickled) if len(pickled) > MOST_SENT_BYTES else pickled
            del pickled
            wanted, inputs = self._context.settings.get("lanes"), len(self._context.tasks)
            goal = await aside(number_of_lanes, wanted, inputs)
            there = await aside(number_of_lanes, AUTO, goal)
            is_waiting = inputs > 1 and goal > there and may_grow()
            if is_waiting:
                await aside(request_cpus, goal)
                self._has_requested = True
            self._set_lanes(there if is_waiting else goal)
            self._nodes = await aside(nodes_for_lanes) if self._lanes > 1 or is_waiting else []
            self._reset()
            await self._start_with_retries()
        except BaseException:
            await finish(self._stop)
            raise
        self._is_started.set()
        self._scope.start(self._watch_driver_node())
        if inputs > 1 and wanted in (None, AUTO):
            self._scope.start(self._grow(inputs))
        elif is_waiting:
            self._scope.start(self._grow(goal, WAIT_FOR_NODES_S))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await finish(self._stop)

    async def flush(self) -> None:
        """Wait until all one-way messages sent so far have arrived, except those from and to actors that die."""
        await _gather([_try_call(slot.actor.flush.remote(), role_group.STOP_S) for slot in self._slots.values()])
        await self._dispatcher.flush()

    # -- starting ---------------------------------------------------------------------------------------------------------------------

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
        if self._has_ended:  # nobody is left to answer
            return
        await wait_to_end([asyncio.get_running_loop().run_in_executor(None, disconnect)])

    async def _start_with_retries(self) -> None:
        """Start all roles; when an actor dies, start all of them anew, since no work is done yet.

        Raises:
            PeerLost: more than `MAX_DEATHS` attempts failed, or an actor cannot be created.
        """
        for attempt in range(1, MAX_DEATHS + 2):
            starting = asyncio.ensure_future(self._start_all())
            try:
                await asyncio.wait([starting, self._early_death], return_when=asyncio.FIRST_COMPLETED)
                if self._early_death.done():  # the start may not wait for the actor that died
                    await self._early_death
                await starting
            except _ActorDied as died:
                if died.cause.startswith(NOT_CREATED):
                    raise PeerLost(died.replica, died.cause) from None
                if attempt > MAX_DEATHS:
                    raise PeerLost(died.replica, f"it died while it was started, {attempt} times, last because {died.cause}") from None
                _warn("an actor died while it was started; all actors start anew", replica=died.replica, cause=died.cause)
                await _cancel(starting)
                await self._end_actors()
                await self._look_for_nodes()
                self._reset()
            except asyncio.CancelledError:
                await _cancel(starting)
                raise
            else:
                return

    async def _start_all(self) -> None:
        slots = list(self._slots.values())
        for slot in slots:
            self._create_actor(slot)
        await _gather([_unless_dead(slot, self._wait_ready(slot)) for slot in slots])
        for slot in slots:
            self._dispatcher.connect(slot.name, RayLink(DRIVER, 0, slot.actor))
        await _gather([_unless_dead(slot, self._build(slot)) for slot in slots])
        self._build_in_driver()
        for slot in slots:
            self._supervise(slot, self._collect(slot, slot.actor, slot.incarnation))
            self._supervise(slot, self._ping(slot, slot.actor))
        await self._start_replicas()

    def _build_in_driver(self) -> None:
        for deployment in self._deployments:
            for replica in replica_names(deployment) if deployment.in_driver else ():
                self._group.build(replica, deployment, self._context)
        self._group.connect()

    async def _start_replicas(self) -> None:
        for deployment in self._deployments:
            for replica in replica_names(deployment):
                if deployment.in_driver:
                    await self._group.start(replica)
                else:
                    slot = self._slot_of[replica]
                    await _unless_dead(slot, _call_role(slot.actor.start.remote(replica)))

    # -- one actor --------------------------------------------------------------------------------------------------------------------

    def _create_actor(self, slot: ActorSlot) -> None:
        level = logging.getLevelNamesMapping().get(os.environ.get("MICROAGENTS_LOG", "info").upper(), logging.INFO)
        # Ray takes GPUs and memory as options with names of their own, not among the resources.
        named = {"num_gpus": slot.resources.get("GPU", 0), "memory": slot.resources.get("memory", 0)}
        try:
            actor = (
                ray.remote(Host)
                .options(
                    num_cpus=slot.num_cpus,
                    resources={name: amount for name, amount in slot.resources.items() if name not in ("GPU", "memory")},
                    **{name: amount for name, amount in named.items() if amount},
                    # The driver itself creates the next process, so that each has its own handle and incarnation.
                    max_restarts=0,
                    max_task_retries=0,
                    scheduling_strategy=self._strategy_of(slot),
                    enable_task_events=False,
                )
                .remote(self._context.run_id, slot.name, slot.incarnation, level)
            )
        except ValueError as error:
            raise InvalidDefinition(f"{slot.name} cannot be deployed like this: {' '.join(str(error).split())}") from None
        slot.occupy(actor)

    def _strategy_of(self, slot: ActorSlot) -> Any:
        """Where Ray should start an actor: those of one lane on one node, as long as it is there and has room."""
        nodes = [each for each in self._nodes if each not in self._unreachable]
        if not nodes:
            return "SPREAD"
        lane = int(slot.name.rpartition("/")[2])
        # Ray takes a soft affinity for nothing where an actor needs nothing (measured), and a hard one must not keep it from a GPU.
        return NodeAffinitySchedulingStrategy(node_id=nodes[lane % len(nodes)], soft=bool(slot.num_cpus or slot.resources))

    async def _wait_ready(self, slot: ActorSlot) -> None:
        """Wait until the actor answers.

        Raises:
            PeerLost: the cluster has no room for it, or it does not start in time.
        """
        ready = asyncio.ensure_future(_future(slot.actor.ping.remote()))
        try:
            if not await _ends_within(ready, PLACE_S):
                lacking = await aside(missing_resource, slot.num_cpus, slot.resources)
                if lacking is not None:
                    raise PeerLost(slot.name, f"there was no room for it within {PLACE_S:g} s: {lacking}")
                if not await _ends_within(ready, READY_S - PLACE_S):
                    raise PeerLost(slot.name, f"its process did not start within {READY_S:g} s; Ray's logs say why (`ray logs`)")
            slot.mark_ready(ready.result())
        finally:
            ready.cancel()

    async def _build(self, slot: ActorSlot) -> None:
        peers = {each.name: (each.actor, each.incarnation) for each in self._slots.values() if each is not slot}
        await _call_role(slot.actor.build.remote(_import_folders(), self._pickled_context, self._pickled_deployments, peers))

    def _supervise(self, slot: ActorSlot, work: Coroutine[Any, Any, None]) -> None:
        self._scope.start(self._lose_on_error(slot, work))

    async def _lose_on_error(self, slot: ActorSlot, work: Coroutine[Any, Any, None]) -> None:
        """Await the work for a slot; on an unexpected error give the slot up, so that no caller waits for it for ever."""
        try:
            await work
        except Exception as error:
            await self._lose(slot, PeerLost(slot.name, f"{type(error).__name__}: {error}"))
            raise

    async def _collect(self, slot: ActorSlot, actor: Any, incarnation: int) -> None:
        """Receive frames and log lines from an actor until it dies, and start its replacement then.

        One call to the actor is always open, so this is also where its death is noticed.
        """
        loop = asyncio.get_running_loop()
        reached_s: float | None = None
        """Time at which it was last there, while it cannot be reached."""
        while True:
            try:
                frames, lines = await _future(actor.collect.remote())
                reached_s = None
            except ActorUnavailableError:
                reached_s = loop.time() if reached_s is None else reached_s
                if loop.time() > reached_s + UNREACHABLE_S:
                    self._give_up_process(slot, actor, f"it could not be reached for {UNREACHABLE_S:g} s")
                    return
                await asyncio.sleep(RETRY_COLLECT_S)  # frames that were lost are sent again
                continue
            except DEATHS as error:
                self._notice_death(slot, slot.kill_cause or _cause_of(error))
                return
            for frame in frames:
                self._dispatcher.receive(slot.name, frame, incarnation)
            for line in lines:
                _log(line["level"], line["event"], line["fields"])

    def _give_up_process(self, slot: ActorSlot, actor: Any, cause: str) -> None:
        """Count the process of a slot as dead, and its node as gone."""
        slot.mark_killed(cause)
        ray.kill(actor)
        if slot.node is not None:
            self._unreachable[slot.node] = None
        self._notice_death(slot, cause)

    def _notice_death(self, slot: ActorSlot, cause: str) -> None:
        if not self._is_started.is_set() and not self._early_death.done():
            self._early_death.set_exception(_ActorDied(slot.name, cause))
        self._supervise(slot, self._replace(slot, cause))

    async def _ping(self, slot: ActorSlot, actor: Any) -> None:
        """Kill an actor whose event loop no longer turns."""
        while True:
            await asyncio.sleep(PING_EVERY_S)
            try:
                async with asyncio.timeout(SILENT_S):
                    await _future(actor.ping.remote())
            except TimeoutError:
                slot.mark_killed(f"it was not heard of for {SILENT_S:g} s: something in it keeps its event loop")
                ray.kill(actor)
                return
            except ActorUnavailableError:
                continue
            except DEATHS:
                return

    async def _watch_driver_node(self) -> None:
        """Give all slots up when Ray ends on the driver's machine: deaths of actors are no longer reported then."""
        own = ray.get_runtime_context().get_node_id()
        while True:
            await asyncio.sleep(PING_EVERY_S)
            with suppress(RayError, TimeoutError):
                async with asyncio.timeout(ENDED_S):
                    nodes = await aside(ray.nodes)
                    if any(node["NodeID"] == own and node["Alive"] for node in nodes):
                        continue
            self._has_ended = True
            for slot in self._slots.values():
                slot.mark_lost()
                self._dispatcher.lose(slot.name, PeerLost(slot.name, "Ray has ended on the machine of the driver"))
            return

    # -- lanes ------------------------------------------------------------------------------------------------------------------------

    def _set_lanes(self, lanes: int) -> None:
        self._lanes = lanes
        has_many = len(self._context.tasks) > 1
        if lanes > 1 or has_many:
            self._deployments = with_lanes(self._given, lanes, shared=has_many)
            self._pickled_deployments = _pickled_deployments(self._deployments)

    async def _grow(self, most: int, wait_s: float = math.inf) -> None:
        """Add a lane for each CPU that joins the cluster, up to a number of lanes; all that are left after some time."""
        over_s = asyncio.get_running_loop().time() + wait_s
        while True:
            await asyncio.sleep(GROW_EVERY_S)
            with suppress(RayError):
                is_over = asyncio.get_running_loop().time() > over_s
                wanted = most if is_over else await aside(number_of_lanes, AUTO, most)
                self._nodes = await aside(nodes_for_lanes)
                while self._lanes < wanted:
                    await self._add_lane()

    async def _add_lane(self) -> None:
        self._set_lanes(self._lanes + 1)
        new = [slot for slot in slots_of(self._deployments) if slot.name not in self._slots]
        for slot in new:
            self._slots[slot.name] = slot
            self._slot_of.update(dict.fromkeys(slot.replicas, slot))
        for slot in new:
            await self._start_process(slot)
        self._group.extend(self._deployments, place_replicas(self._deployments, list(self._slots.values())))
        log().info("a lane was added for a node that joined", lanes=self._lanes)

    # -- after a death ----------------------------------------------------------------------------------------------------------------

    async def _replace(self, slot: ActorSlot, cause: str) -> None:
        """Put another process into the slot of one that died, or give the slot up after too many deaths."""
        await self._is_started.wait()
        if slot.name in self._lost:
            return
        _warn("an actor died; another takes its place", replica=slot.name, cause=cause)
        with suppress(NoHandler):  # a run without a recorder
            for replica in slot.replicas:
                self.messenger.tell(RecordLost(source=replica))
        deaths = slot.count_death(asyncio.get_running_loop().time(), WITHIN_S)
        try:
            if deaths > MAX_DEATHS:
                raise PeerLost(slot.name, f"it died {deaths} times within {WITHIN_S / 60:g} minutes, last because {cause}")
            await self._start_successor(slot)
        except DEATHS as error:  # the successor has died as well, which its own `_collect` notices
            if isinstance(error, ActorUnavailableError):
                ray.kill(slot.actor)
        except MicroagentsError as error:
            await self._lose(slot, error)

    async def _start_successor(self, slot: ActorSlot) -> None:
        slot.begin_incarnation()
        await self._look_for_nodes()
        await self._start_process(slot)

    async def _look_for_nodes(self) -> None:
        if self._nodes:
            self._nodes = await aside(nodes_for_lanes)

    async def _start_process(self, slot: ActorSlot) -> None:
        """Start a process in a slot while the others work."""
        self._create_actor(slot)
        actor, incarnation = slot.actor, slot.incarnation
        self._supervise(slot, self._collect(slot, actor, incarnation))  # from now on its death is noticed
        await self._wait_ready(slot)
        # One successor at a time, so that each is built with the current process of every other slot and is made known to all of them.
        async with self._connecting:
            if slot.incarnation != incarnation:  # it died while it waited for the lock, and its own successor starts already
                return
            await self._build(slot)
            for name, failed in self._lost.items():
                await _future(actor.lose.remote(name, failed))
            others = [each for each in self._slots.values() if each is not slot and each.is_ready]
            await _gather([_try_call(each.actor.connect.remote(slot.name, actor, incarnation), SILENT_S) for each in others])
            self._dispatcher.connect(slot.name, RayLink(DRIVER, 0, actor), incarnation)
        self._supervise(slot, self._ping(slot, actor))
        try:
            async with asyncio.timeout(READY_S):
                for replica in slot.replicas:
                    await _call_role(actor.start.remote(replica))
                await _call_role(actor.open.remote())
        except TimeoutError:
            raise PeerLost(slot.name, f"it took the place of one that died, but did not start within {READY_S:g} s") from None

    async def _lose(self, slot: ActorSlot, error: MicroagentsError) -> None:
        """Give a slot up: all open and later calls to it raise the error."""
        failed = self._lost[slot.name] = encode_error(error)
        ray.kill(slot.actor)  # it may still wait for resources
        slot.mark_lost()
        self._dispatcher.lose(slot.name, error)
        others = [each for each in self._slots.values() if each is not slot]
        await _gather([_try_call(each.actor.lose.remote(slot.name, failed), SILENT_S) for each in others])

    # -- stopping ---------------------------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        try:
            await self._end_actors()
            if self._has_requested and not self._has_ended:
                with suppress(RayError, TimeoutError):
                    async with asyncio.timeout(SILENT_S):
                        await aside(request_cpus, 0)
        finally:
            await self._disconnect()

    async def _end_actors(self) -> None:
        self._is_started.clear()  # from now on a death starts no successor
        actors = [slot.actor for slot in self._slots.values() if slot.is_ready]
        async with AsyncExitStack() as steps:  # in reverse order, each even if one before it fails or is cancelled
            steps.callback(self._kill_actors)
            steps.callback(self._dispatcher.disconnect)
            steps.push_async_callback(self._scope.close)
            steps.push_async_callback(_hear_out, actors)
            for deployment in self._deployments:
                for replica in replica_names(deployment):
                    if deployment.in_driver:
                        steps.push_async_callback(self._group.stop, replica)
                        steps.push_async_callback(_flush_to_driver, actors)
                    elif self._slot_of[replica].is_ready:
                        steps.push_async_callback(self._stop_replica, replica)
            steps.push_async_callback(self._dispatcher.close)
            await _gather([_try_call(actor.close.remote(), role_group.STOP_S) for actor in actors])

    def _kill_actors(self) -> None:
        for slot in self._slots.values():
            if slot.actor is not None and not self._has_ended:
                ray.kill(slot.actor)

    async def _stop_replica(self, replica: str) -> None:
        try:
            async with asyncio.timeout(role_group.STOP_S):
                await _future(self._slot_of[replica].actor.stop.remote(replica))
        except TimeoutError as error:
            log().warning("a role did not stop cleanly", role=replica.partition("/")[0], error=repr(error))
        except RayError:
            return  # its actor has died


class _ActorDied(Exception):
    """An actor died while roles were started."""

    def __init__(self, replica: str, cause: str) -> None:
        super().__init__(replica, cause)
        self.replica = replica
        self.cause = cause


# -- calls of actors ----------------------------------------------------------------------------------------------------------------------


def _future(reference: Any) -> asyncio.Future[Any]:
    """The result of a call as a future of this event loop."""
    return asyncio.wrap_future(reference.future())


async def _call_role(reference: Any) -> None:
    """Await a `Host` method that runs code of roles, and raise the error that it returns."""
    failed = await _future(reference)
    if failed is not None:
        raise decode_error(failed)


async def _try_call(reference: Any, timeout_s: float) -> None:
    """Await a call for a while; the death of its actor is no error here."""
    with suppress(RayError, TimeoutError):
        async with asyncio.timeout(timeout_s):
            await _future(reference)


async def _flush_to_driver(actors: Sequence[Any]) -> None:
    """Wait a moment for the one-way messages that actors have sent."""
    await _gather([_try_call(actor.flush.remote(), FLUSH_BEFORE_STOP_S) for actor in actors])


async def _hear_out(actors: Sequence[Any]) -> None:
    """Wait a moment for what actors have logged: it comes before the answer to a later call."""
    await _gather([_try_call(actor.ping.remote(), FLUSH_BEFORE_STOP_S) for actor in actors])


async def _unless_dead(slot: ActorSlot, work: Awaitable[None]) -> None:
    """Await a call of an actor; its death is raised as `_ActorDied`."""
    try:
        await work
    except DEATHS as error:
        raise _ActorDied(slot.name, _cause_of(error)) from None


def _cause_of(error: RayError) -> str:
    """The cause of a death in Ray's words, without Ray's advice."""
    lines = [" ".join(line.split()) for line in _ESCAPES.sub("", str(error)).splitlines() if line.strip()]
    if isinstance(error, RayActorError) and error.actor_init_failed:  # its lines are a traceback, with the error last
        return f"{NOT_CREATED}: {lines[-1]}"
    text = " ".join(lines)
    found = re.search(r"because (.+?)(?:\. Some common causes|$)", text)
    return found[1] if found else text


# -- waiting ------------------------------------------------------------------------------------------------------------------------------


async def _cancel(task: asyncio.Future[None]) -> None:
    """Cancel a task and wait until it has ended."""
    task.add_done_callback(retrieve_exception)
    task.cancel()
    await wait_to_end([task])


async def _ends_within(work: asyncio.Future[Any], timeout_s: float) -> bool:
    """Whether a future ends in time. It is not cancelled at the timeout, and its exception is raised."""
    done, _ = await asyncio.wait([work], timeout=timeout_s)
    for each in done:
        each.result()
    return bool(done)


async def _gather(work: Sequence[Coroutine[Any, Any, T]]) -> None:
    """Run coroutines side by side; the first error is raised and cancels the others."""
    scope = TaskScope()
    try:
        await asyncio.gather(*[scope.start(each) for each in work])
    finally:
        await scope.close()


# -- the driver's process -----------------------------------------------------------------------------------------------------------------


def _pickled(part: object) -> bytes:
    """A part of what other processes build roles from."""
    try:
        pickled: bytes = ray.cloudpickle.dumps(part)
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        raise InvalidDefinition(f"the task, the strategy or an option of a deployment cannot be sent to other processes: {error}") from None
    return pickled


def _pickled_deployments(deployments: Sequence[Deployment]) -> bytes:
    return _pickled([_without_driver_options(each) for each in deployments])


def _without_driver_options(deployment: Deployment) -> Deployment:
    """A deployment without the options of a role in the driver, which need not be picklable."""
    return deployment.model_copy(update={"options": {}}) if deployment.in_driver else deployment


def _import_folders() -> list[str]:
    """The folders of the import path that hold the user's modules."""
    installed = (sys.prefix, sys.base_prefix)
    return [each for each in map(os.path.abspath, sys.path) if Path(each).is_dir() and not each.startswith(installed)]


def _refuse_main(context: Context, deployments: Sequence[Deployment]) -> None:
    """Refuse classes of the main program, which other processes cannot import.

    Raises:
        InvalidDefinition: the task, the strategy, a role or a message is defined there.
    """
    classes = [type(context.strategy), *map(type, context.tasks[:1])]
    for deployment in deployments:
        classes += [deployment.role, *deployment.role.handlers]
    for each in classes:
        if each.__module__ == "__main__":
            raise InvalidDefinition(
                f"{each.__qualname__} is defined in the program that was started, which other processes cannot import; put it into a "
                "module of its own, and import it from there"
            )


def _keep_signal_handlers() -> None:
    """Install the program's signal handlers again, in the place of Ray's, which print a stack first."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if (handler := signal.getsignal(number)) is not None:
                signal.signal(number, handler)


def _warn(event: str, **fields: str) -> None:
    _log("warning", event, fields)


def _log(level: str, event: Any, fields: Mapping[str, Any]) -> None:
    # A log that cannot be written, such as a pipe that its reader has closed, must not end the run.
    with suppress(OSError, ValueError):
        getattr(log(), level, log().warning)(event, **fields)
