"""Roles as Ray actors: a dispatcher in each, one in the driver, and the links between them.

The driver makes every actor, hears when one dies, makes another in its place and tells the rest; nobody else has to watch anybody. Actors
are neither detached nor named: Ray ends them when the driver ends, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import ray
import structlog
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from microagents.actors import Context, Deployment
from microagents.aio import TaskScope, retrieve_exception
from microagents.errors import InvalidDefinition, MicroagentsError, NoHandler, PeerLost
from microagents.journal.messages import RecordLost
from microagents.runtimes import role_group, wire
from microagents.runtimes.dispatcher import Dispatcher, RoleMessenger
from microagents.runtimes.ray.cluster import Cluster, connect, disconnect, missing
from microagents.runtimes.ray.host import Host, RayLink, error_in
from microagents.runtimes.ray.placement import ActorSlot, homes_of, slots_of
from microagents.runtimes.role_group import DRIVER, RoleGroup, replica_names

T = TypeVar("T")

PLACE_S = 30.0
"""How long an actor may wait for resources that the cluster does not have."""
READY_S = 120.0
"""How long it may take to start where there is room for it."""
PING_EVERY_S = 10.0
SILENT_S = 30.0
"""An actor that does not answer for so long is taken for dead."""
MOST_DEATHS, WITHIN_S = 5, 600.0
"""An actor that dies more often than this is given up."""


class RayRuntime:
    """Dispatchers in Ray actors, one a replica of a role unless some are colocated; the driver's own is one of them.

    An async context manager: on entry roles start in the order of their deployments, on exit they stop in reverse.
    """

    def __init__(self, context: Context, deployments: Sequence[Deployment], *, cluster: Cluster) -> None:
        self._cluster = cluster
        self._context = context
        self._deployments = deployments
        self._recipe: bytes
        self._lay_out()

    def _lay_out(self) -> None:
        self._places = {place.name: place for place in slots_of(self._deployments)}
        self._home_of = {seat: place for place in self._places.values() for seat in place.seats}
        self._dispatcher = Dispatcher(DRIVER)
        self._group = RoleGroup(self._dispatcher, self._deployments, homes_of(self._deployments, list(self._places.values())))
        self._scope = TaskScope()
        self._introducing = asyncio.Lock()
        self._lost: dict[str, bytes] = {}
        """Why actors are given up, encoded, by place."""
        self._is_up = asyncio.Event()
        self._fallen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails when an actor dies while roles are started."""
        self._fallen.add_done_callback(retrieve_exception)
        self.messenger: RoleMessenger = self._group.messenger(DRIVER)
        """The driver's own post: it may ask everybody."""

    async def __aenter__(self) -> Self:
        _refuse_main(self._context, self._deployments)
        self._recipe = _pickled(self._context, self._deployments)
        await _to_its_end(asyncio.to_thread(connect, self._cluster), undo=disconnect)
        _keep_our_signals()
        try:
            await self._begin_again_and_again()
        except BaseException:
            await self._stop()
            raise
        self._is_up.set()
        self._scope.start(self._watch_this_node())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stop()

    async def _begin_again_and_again(self) -> None:
        """Nothing is done yet while roles are started: where one dies, all begin anew."""
        for deaths in range(1, MOST_DEATHS + 2):
            beginning = asyncio.ensure_future(self._begin())
            try:
                await asyncio.wait([beginning, self._fallen], return_when=asyncio.FIRST_COMPLETED)
                if self._fallen.done():  # also one that nobody waits for
                    await self._fallen
                await beginning
            except _Died as died:
                if deaths > MOST_DEATHS:
                    raise PeerLost(died.replica, f"it died while it was started, {deaths} times, last because {died.cause}") from None
                _warn("an actor died while it was started; all begin anew", replica=died.replica, cause=died.cause)
                await _cancelled(beginning)
                await self._end_actors()
                self._lay_out()
            except asyncio.CancelledError:
                await _cancelled(beginning)
                raise
            else:
                return

    async def _begin(self) -> None:
        places = list(self._places.values())
        for place in places:
            self._make(place)
        await _together([_alive(place, self._ready(place)) for place in places])
        for place in places:
            self._dispatcher.connect(place.name, RayLink(DRIVER, 0, place.actor))
        await _together([_alive(place, self._build(place)) for place in places])
        for deployment in self._deployments:
            for seat in replica_names(deployment) if deployment.in_driver else ():
                self._group.build(seat, deployment, self._context)
        self._group.connect()
        for place in places:
            self._start(place, self._collect(place, place.actor, place.incarnation))
            self._start(place, self._listen(place, place.actor))
        for deployment in self._deployments:
            for seat in replica_names(deployment):
                if deployment.in_driver:
                    await self._group.start(seat)
                else:
                    home = self._home_of[seat]
                    await _alive(home, _done(home.actor.start.remote(seat)))

    async def settled(self) -> None:
        """Wait until what roles have told has arrived, as far as they live."""
        await _together([_gone_or_done(place.actor.settle.remote(), role_group.STOP_S) for place in self._places.values()])
        await self._dispatcher.settled()

    # -- one actor --------------------------------------------------------------------------------------------------------------------

    def _make(self, place: ActorSlot) -> None:
        level = logging.getLevelNamesMapping().get(os.environ.get("MICROAGENTS_LOG", "info").upper(), logging.INFO)
        named = {"num_gpus": place.resources.get("GPU", 0), "memory": place.resources.get("memory", 0)}  # Ray's own have names of their own
        place.is_ready = False
        try:
            place.actor = (
                ray.remote(Host)
                .options(
                    num_cpus=place.num_cpus,
                    resources={name: amount for name, amount in place.resources.items() if name not in ("GPU", "memory")},
                    **{name: amount for name, amount in named.items() if amount},
                    max_restarts=0,
                    max_task_retries=0,
                    scheduling_strategy="SPREAD",
                    enable_task_events=False,
                )
                .remote(self._context.run_id, place.name, place.incarnation, level)
            )
        except ValueError as error:
            raise InvalidDefinition(f"{place.name} cannot be deployed like this: {' '.join(str(error).split())}") from None

    async def _ready(self, place: ActorSlot) -> None:
        """Wait until it runs.

        Raises:
            PeerLost: there is no room for it, or it does not start.
        """
        ready = asyncio.ensure_future(_result(place.actor.ping.remote()))
        try:
            if await _ends(ready, PLACE_S):
                place.is_ready = True
                return
            lacking = await asyncio.to_thread(missing, place.num_cpus, place.resources)
            if lacking is not None:
                raise PeerLost(place.name, f"there was no room for it within {PLACE_S:g} s: {lacking}")
            if not await _ends(ready, READY_S - PLACE_S):
                raise PeerLost(place.name, f"its process did not start within {READY_S:g} s; Ray's logs say why (`ray logs`)")
            place.is_ready = True
        finally:
            ready.cancel()

    async def _build(self, place: ActorSlot) -> None:
        peers = {each.name: (each.actor, each.incarnation) for each in self._places.values() if each is not place}
        await _done(place.actor.build.remote(_folders(), self._recipe, peers))

    async def _collect(self, place: ActorSlot, actor: Any, incarnation: int) -> None:
        """Take what an actor has for the driver, until it dies."""
        while True:
            try:
                frames, lines = await _result(actor.collect.remote())
            except ActorUnavailableError:
                await asyncio.sleep(1)  # what it had is sent again
                continue
            except RayActorError as error:
                cause = place.cause or _why(error)
                if not self._is_up.is_set() and not self._fallen.done():
                    self._fallen.set_exception(_Died(place.name, cause))
                self._start(place, self._revive(place, cause))
                return
            for frame in frames:
                self._dispatcher.receive(place.name, frame, incarnation)
            for line in lines:
                _log(line["level"], line["event"], line["said"])

    def _start(self, place: ActorSlot, work: Coroutine[Any, Any, None]) -> None:
        self._scope.start(self._heard(place, work))

    async def _heard(self, place: ActorSlot, work: Coroutine[Any, Any, None]) -> None:
        """A defect of ours must not leave anybody waiting."""
        try:
            await work
        except Exception as error:
            await self._lose(place, PeerLost(place.name, f"{type(error).__name__}: {error}"))
            raise

    async def _watch_this_node(self) -> None:
        """Where Ray ends on the driver's own machine, no death of an actor is heard of any more."""
        mine = ray.get_runtime_context().get_node_id()
        while True:
            await asyncio.sleep(PING_EVERY_S)
            with suppress(RayError, TimeoutError):
                async with asyncio.timeout(SILENT_S):
                    nodes = await asyncio.to_thread(ray.nodes)
                    if any(node["NodeID"] == mine and node["Alive"] for node in nodes):
                        continue
            for place in self._places.values():
                place.is_ready = False
                self._dispatcher.lose(place.name, PeerLost(place.name, "Ray has ended on the machine of the driver"))
            return

    async def _listen(self, place: ActorSlot, actor: Any) -> None:
        """End an actor whose event loop does not turn any more."""
        while True:
            await asyncio.sleep(PING_EVERY_S)
            try:
                async with asyncio.timeout(SILENT_S):
                    await _result(actor.ping.remote())
            except TimeoutError:
                place.cause = f"it was not heard of for {SILENT_S:g} s: something in it keeps its event loop"
                ray.kill(actor)
                return
            except ActorUnavailableError:
                continue
            except RayActorError:
                return

    async def _revive(self, place: ActorSlot, cause: str) -> None:
        """Put another process in the place of one that died, and let everybody know."""
        await self._is_up.wait()
        if place.name in self._lost:
            return
        _warn("an actor died; another takes its place", replica=place.name, cause=cause)
        with suppress(NoHandler):  # roles that keep no record
            for seat in place.seats:
                self.messenger.tell(RecordLost(source=seat))
        now_s = asyncio.get_running_loop().time()
        place.deaths.append(now_s)
        while place.deaths[0] < now_s - WITHIN_S:
            place.deaths.popleft()
        try:
            if len(place.deaths) > MOST_DEATHS:
                raise PeerLost(place.name, f"it died {len(place.deaths)} times within {WITHIN_S / 60:g} minutes, last because {cause}")
            await self._follow(place)
        except RayActorError as error:  # the next one has died as well, which is heard of in its turn
            if isinstance(error, ActorUnavailableError):
                ray.kill(place.actor)
        except MicroagentsError as error:
            await self._lose(place, error)

    async def _follow(self, place: ActorSlot) -> None:
        place.incarnation += 1
        place.cause = None
        self._make(place)
        actor, incarnation = place.actor, place.incarnation
        self._start(place, self._collect(place, actor, incarnation))  # also hears of its death, whenever that is
        await self._ready(place)
        async with self._introducing:  # one after the other, so that everybody has the same of everybody
            if place.incarnation != incarnation:  # it has died as well, and another is on its way
                return
            await self._build(place)
            for name, failed in self._lost.items():
                await _result(actor.lose.remote(name, failed))
            others = [each for each in self._places.values() if each is not place and each.is_ready]
            await _together([_gone_or_done(each.actor.met.remote(place.name, actor, incarnation), SILENT_S) for each in others])
            self._dispatcher.connect(place.name, RayLink(DRIVER, 0, actor), incarnation)
        self._start(place, self._listen(place, actor))
        try:
            async with asyncio.timeout(READY_S):
                for seat in place.seats:
                    await _done(actor.start.remote(seat))
                await _done(actor.open.remote())
        except TimeoutError:
            raise PeerLost(place.name, f"it took the place of one that died, but did not start within {READY_S:g} s") from None

    async def _lose(self, place: ActorSlot, error: MicroagentsError) -> None:
        failed = self._lost[place.name] = wire.encode([wire.failed(0, error)])
        ray.kill(place.actor)  # it may still wait for its place
        place.is_ready = False
        self._dispatcher.lose(place.name, error)
        others = [each for each in self._places.values() if each is not place]
        await _together([_gone_or_done(each.actor.lose.remote(place.name, failed), SILENT_S) for each in others])

    async def _stop(self) -> None:
        try:
            await _to_its_end(self._end_actors())
        finally:
            await _to_its_end(asyncio.to_thread(disconnect))

    async def _end_actors(self) -> None:
        self._is_up.clear()
        actors = [place.actor for place in self._places.values() if place.is_ready]
        await _together([_gone_or_done(actor.close.remote(), role_group.STOP_S) for actor in actors])
        await self._dispatcher.close()
        for deployment in reversed(self._deployments):
            for seat in reversed(replica_names(deployment)):
                if deployment.in_driver:
                    await _together([_gone_or_done(actor.settle.remote(), 1.0) for actor in actors])
                    await self._group.stop(seat)
                elif self._home_of[seat].is_ready:
                    await self._stop_seat(seat)
        await self._scope.close()
        self._dispatcher.disconnect()
        for place in self._places.values():
            if place.actor is not None:
                ray.kill(place.actor)

    async def _stop_seat(self, seat: str) -> None:
        try:
            async with asyncio.timeout(role_group.STOP_S):
                await _result(self._home_of[seat].actor.stop.remote(seat))
        except TimeoutError as error:
            structlog.get_logger().warning("a role did not stop cleanly", role=seat.partition("/")[0], error=repr(error))
        except RayError:
            return  # it is gone


class _Died(Exception):
    """An actor died while it was started."""

    def __init__(self, replica: str, cause: str) -> None:
        super().__init__(replica, cause)
        self.replica = replica
        self.cause = cause


async def _cancelled(task: asyncio.Future[None]) -> None:
    """Cancel it and wait until it has ended."""
    task.cancel()
    await asyncio.wait([task])
    retrieve_exception(task)


async def _to_its_end(work: Coroutine[Any, Any, None], undo: Callable[[], None] | None = None) -> None:
    """Wait for what must not be left half done, also where we are cancelled meanwhile; then it is undone, if it can be."""
    task = asyncio.ensure_future(work)
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            interrupted = error
    task.result()
    if interrupted is not None:
        if undo is not None:
            await asyncio.to_thread(undo)
        raise interrupted


def _pickled(context: Context, deployments: Sequence[Deployment]) -> bytes:
    """All that a role is built from, for other processes."""
    try:
        pickled: bytes = ray.cloudpickle.dumps((context, [_shipped(each) for each in deployments]))
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        raise InvalidDefinition(f"the task, the strategy or an option of a deployment cannot be sent to other processes: {error}") from None
    return pickled


def _warn(event: str, **said: str) -> None:
    _log("warning", event, said)


def _log(level: str, event: Any, said: Mapping[str, Any]) -> None:
    """A log that cannot be written, such as to a pipe that nobody reads any more, ends nothing."""
    with suppress(OSError, ValueError):
        getattr(structlog.get_logger(), level, structlog.get_logger().warning)(event, **said)


def _keep_our_signals() -> None:
    """Ray puts a handler of its own, which prints a stack, before those that are there."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if (handler := signal.getsignal(number)) is not None:
                signal.signal(number, handler)


async def _alive(place: ActorSlot, work: Awaitable[None]) -> None:
    try:
        await work
    except RayActorError as error:
        raise _Died(place.name, _why(error)) from None


def _shipped(deployment: Deployment) -> Deployment:
    """What other processes need to know of a deployment."""
    return deployment.model_copy(update={"options": {}}) if deployment.in_driver else deployment


def _folders() -> list[str]:
    """Where modules of the user's own are found."""
    installed = (sys.prefix, sys.base_prefix)
    return [each for each in map(os.path.abspath, sys.path) if Path(each).is_dir() and not each.startswith(installed)]


def _refuse_main(context: Context, deployments: Sequence[Deployment]) -> None:
    classes = [type(context.strategy), *map(type, context.tasks[:1])]
    for deployment in deployments:
        classes += [deployment.role, *deployment.role.handlers]
    for each in classes:
        if each.__module__ == "__main__":
            raise InvalidDefinition(
                f"{each.__qualname__} is defined in the program that was started, which other processes cannot import; put it into a "
                "module of its own, and import it from there"
            )


def _why(error: RayActorError) -> str:
    """What Ray says of a death, without its advice."""
    text = " ".join(str(error).split())
    found = re.search(r"because (.+?)(?:\. Some common causes|$)", text)
    return (found[1] if found else text)[:300]


def _result(reference: Any) -> asyncio.Future[Any]:
    return asyncio.wrap_future(reference.future())


async def _ends(work: asyncio.Future[Any], within_s: float) -> bool:
    """Whether it ends in time; it is not cancelled where it does not. Raises what it raised."""
    done, _ = await asyncio.wait([work], timeout=within_s)
    for each in done:
        each.result()
    return bool(done)


async def _done(reference: Any) -> None:
    """Wait for a call of a `Host`, and raise what its roles raised."""
    failed = await _result(reference)
    if failed is not None:
        raise error_in(failed)


async def _gone_or_done(reference: Any, timeout_s: float) -> None:
    """Wait for a call for a while; an actor that has died needs nothing any more."""
    with suppress(RayError, TimeoutError):
        async with asyncio.timeout(timeout_s):
            await _result(reference)


async def _together(work: Sequence[Coroutine[Any, Any, T]]) -> None:
    """Do all of it side by side; the first failure is raised, and ends the rest."""
    scope = TaskScope()
    try:
        await asyncio.gather(*[scope.start(each) for each in work])
    finally:
        await scope.close()
