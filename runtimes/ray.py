"""Roles as Ray actors: a dispatcher in each, one in the driver, and the links between them.

The driver makes every actor, hears when one dies, makes another in its place and tells the rest; nobody else has to watch anybody. Actors
are neither detached nor named: Ray ends them when the driver ends, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import ray
import structlog
from msgspec import Struct
from ray.actor import ActorHandle
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from microagents.actors import Context, Deployment
from microagents.errors import InvalidDefinition, MicroagentsError, PeerLost, RoleFailed
from microagents.runtimes import wire
from microagents.runtimes.cluster import Cluster, connect, disconnect, missing
from microagents.runtimes.crew import STOP_S, Crew, seat_names
from microagents.runtimes.dispatcher import Desk, Dispatcher
from microagents.runtimes.seats import said
from microagents.scope import Scope

T = TypeVar("T")

DRIVER = "driver"
MOST_OPEN = 2
"""So many deliveries to one peer are under way at a time; what is sent meanwhile goes with the next."""
RESEND_S = 5.0
"""Ray loses nothing while both processes live; a network may."""
PLACE_S = 30.0
"""How long an actor may wait for resources that the cluster does not have."""
READY_S = 120.0
"""How long it may take to start where there is room for it."""
PING_EVERY_S = 10.0
SILENT_S = 30.0
"""An actor that does not answer for so long is taken for dead."""
MOST_DEATHS, WITHIN_S = 5, 600.0
"""An actor that dies more often than this is given up."""


class Place(Struct, kw_only=True):
    """One Ray actor: what lives in it, and what it needs."""

    name: str
    seats: dict[str, Deployment]
    num_cpus: float
    resources: dict[str, float]
    actor: Any = None
    """The handle of its process now."""
    incarnation: int = 0
    deaths: deque[float] = msgspec.field(default_factory=deque)
    cause: str | None = None
    """Why we ended its process ourselves."""


def places_of(deployments: Sequence[Deployment]) -> list[Place]:
    """One actor a replica; roles with one ``colocate`` share an actor, replica by replica.

    Raises:
        InvalidDefinition: roles that are to share actors have different numbers of replicas.
    """
    found: dict[str, Place] = {}
    for deployment in deployments:
        if deployment.in_driver:
            continue
        for replica, seat in enumerate(seat_names(deployment)):
            name = f"{deployment.colocate}/{replica}" if deployment.colocate else seat
            place = found.setdefault(name, Place(name=name, seats={}, num_cpus=0, resources={}))
            place.seats[seat] = deployment
            place.num_cpus += deployment.num_cpus
            for resource, amount in deployment.resources.items():
                place.resources[resource] = place.resources.get(resource, 0) + amount
    for label in {each.colocate: None for each in deployments if each.colocate}:
        replicas = {each.role.__name__: each.num_replicas for each in deployments if each.colocate == label}
        if len(set(replicas.values())) > 1:
            shown = ", ".join(f"{role} {number}" for role, number in replicas.items())
            raise InvalidDefinition(f"roles that share actors (colocate={label!r}) need as many replicas each; there are: {shown}")
    return list(found.values())


# -- in an actor ---------------------------------------------------------------------------------------------------------------------


class Host:
    """The actor: one dispatcher, and the roles that live in it. What its roles raise is returned, encoded: Ray would wrap it."""

    def __init__(self, name: str, incarnation: int, log_level: int) -> None:
        self._dispatcher = Dispatcher(name, incarnation=incarnation)
        self._name = name
        self._incarnation = incarnation
        self._up = UpLink()
        self._crew: Crew
        self._seats: Mapping[str, Deployment]
        _log_through(self._up.log, log_level, replica=name)

    @ray.method(enable_task_events=False)  # type: ignore[misc]
    async def deliver(self, sender: str, incarnation: int, frames: list[bytes]) -> None:
        """Take what a peer sends."""
        for frame in frames:
            self._dispatcher.receive(sender, frame, incarnation)

    @ray.method(enable_task_events=False)  # type: ignore[misc]
    async def collect(self) -> tuple[list[bytes], list[dict[str, Any]]]:
        """What there is for the driver, as soon as there is something: frames, and lines of its log."""
        return await self._up.taken()

    async def build(self, folders: Sequence[str], recipe: bytes, peers: Mapping[str, tuple[ActorHandle[Any], int]]) -> bytes | None:
        """Build the roles that live here; gives what went wrong."""
        return await _outcome(self._name, "building it", self._build(folders, recipe, peers))

    async def _build(self, folders: Sequence[str], recipe: bytes, peers: Mapping[str, tuple[ActorHandle[Any], int]]) -> None:
        _put_on_path(folders)
        context, deployments = ray.cloudpickle.loads(recipe)
        places = places_of(deployments)
        homes = _homes(deployments, places)
        structlog.contextvars.bind_contextvars(run_id=context.run_id)
        self._dispatcher.connect(DRIVER, self._up)
        for name, (actor, incarnation) in peers.items():
            self.meet(name, actor, incarnation)
        self._crew = Crew(self._dispatcher, deployments, homes)
        self._seats = next(place.seats for place in places if place.name == self._name)
        for name, deployment in self._seats.items():
            self._crew.build(name, deployment, context)
        self._crew.connect()

    def meet(self, name: str, actor: ActorHandle[Any], incarnation: int) -> None:
        """Send to this process what is for a peer, from now on."""
        self._dispatcher.connect(name, RayLink(self._name, self._incarnation, actor), incarnation)

    async def met(self, name: str, actor: ActorHandle[Any], incarnation: int) -> None:
        """The same, told by the driver."""
        self.meet(name, actor, incarnation)

    async def lose(self, name: str, failed: bytes) -> None:
        """A peer is given up."""
        self._dispatcher.lose(name, _error_in(failed))

    async def start(self, seat: str) -> bytes | None:
        """Start a role; gives what went wrong."""
        return await _outcome(seat, "start", self._crew.start(seat))

    async def open(self) -> None:
        """Handle what was asked meanwhile."""
        self._dispatcher.open()

    async def ping(self) -> None:
        """Say that the event loop turns."""

    async def settle(self) -> None:
        """Wait until all that was told has arrived."""
        await self._dispatcher.settled()

    async def close(self) -> None:
        """Cancel what is being handled."""
        await self._dispatcher.close()

    async def stop(self, seat: str) -> None:
        """Stop a role."""
        await self._crew.stop(seat)


class UpLink:
    """From an actor to the driver, which no actor can call: it collects."""

    resend_s = RESEND_S

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._lines: list[dict[str, Any]] = []
        self._wanted: asyncio.Future[None] | None = None

    def send(self, peer: str, batch: bytes) -> None:  # noqa: ARG002 - there is one
        """Keep it until the driver collects."""
        self._frames.append(batch)
        self._wake()

    def log(self, line: dict[str, Any]) -> None:
        """Keep a line of the log."""
        self._lines.append(line)
        self._wake()

    def _wake(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    async def taken(self) -> tuple[list[bytes], list[dict[str, Any]]]:
        """All there is, once there is something."""
        while not (self._frames or self._lines):
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted
        taken = self._frames, self._lines
        self._frames, self._lines = [], []
        return taken


class RayLink:
    """From any dispatcher to the actor that hosts another."""

    resend_s = RESEND_S

    def __init__(self, sender: str, incarnation: int, actor: ActorHandle[Any]) -> None:
        self._sender = sender
        self._incarnation = incarnation
        self._actor = actor
        self._waiting: list[bytes] = []
        self._open = 0
        self._loop = asyncio.get_running_loop()

    def send(self, peer: str, batch: bytes) -> None:  # noqa: ARG002 - there is one
        """Deliver it now, or with the next delivery."""
        self._waiting.append(batch)
        if self._open < MOST_OPEN:
            self._deliver()

    def _deliver(self) -> None:
        frames, self._waiting = self._waiting, []
        self._open += 1
        self._actor.deliver.remote(self._sender, self._incarnation, frames).future().add_done_callback(self._ended)

    def _ended(self, delivery: Any) -> None:
        """In a thread of Ray's."""
        delivery.exception()  # that a peer has died is heard elsewhere
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._delivered)

    def _delivered(self) -> None:
        self._open -= 1
        if self._waiting:
            self._deliver()


def _put_on_path(folders: Sequence[str]) -> None:
    """Let modules of the user's own be imported: from where the driver has them, or from this node's copy of the working directory."""
    for folder in folders:
        here = folder if Path(folder).is_dir() else os.path.join(os.getcwd(), os.path.basename(folder))  # noqa: PTH109, PTH118, PTH119
        if here not in sys.path:
            sys.path.insert(0, here)


async def _outcome(seat: str, doing: str, work: Awaitable[None]) -> bytes | None:
    try:
        await work
    except MicroagentsError as error:
        return wire.encode([wire.failed(0, error)])
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's module raises
        return wire.encode([wire.failed(0, RoleFailed(seat, doing, said(error)))])
    return None


def _error_in(failed: bytes) -> MicroagentsError:
    (envelope,) = wire.decode(failed)
    assert isinstance(envelope, wire.Failed)
    return wire.error_of(envelope)


def _log_through(keep: Callable[[dict[str, Any]], None], level: int, **always: str) -> None:
    """Send what this process logs to the driver, as structured lines."""

    def forward(_: Any, name: str, event: Any) -> Any:
        keep({"level": name, **always, **{key: value if isinstance(value, str | int | float | None) else repr(value) for key, value in event.items()}})
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.format_exc_info, forward],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )

    class Forward(logging.Handler):
        """For libraries, which use the standard library's log."""

        def emit(self, record: logging.LogRecord) -> None:
            getattr(structlog.get_logger(), record.levelname.lower(), structlog.get_logger().warning)(record.getMessage(), logger=record.name)

    logging.getLogger().addHandler(Forward(max(level, logging.WARNING)))


# -- in the driver -------------------------------------------------------------------------------------------------------------------


class RayRuntime:
    """Dispatchers in Ray actors, one a replica of a role unless some are colocated; the driver's own is one of them.

    An async context manager: on entry roles start in the order of their deployments, on exit they stop in reverse.
    """

    def __init__(self, context: Context, deployments: Sequence[Deployment], *, cluster: Cluster) -> None:
        self._cluster = cluster
        self._context = context
        self._places = {place.name: place for place in places_of(deployments)}
        self._deployments = deployments
        self._dispatcher = Dispatcher(DRIVER)
        self._crew = Crew(self._dispatcher, deployments, _homes(deployments, list(self._places.values())))
        self._seats = {name: each for each in deployments if each.in_driver for name in seat_names(each)}
        self._home_of = {seat: place for place in self._places.values() for seat in place.seats}
        self._scope = Scope()
        self._reviving = asyncio.Lock()
        self._is_up = asyncio.Event()
        self._recipe: bytes
        self._is_ours = False
        self._on_lost: Callable[[str], None] = lambda seat: None
        self.desk: Desk = self._crew.desk(DRIVER)
        """The driver's own post: it may ask everybody."""

    async def __aenter__(self) -> Self:
        _refuse_main(self._context, self._deployments)
        self._recipe = ray.cloudpickle.dumps((self._context, [_shipped(each) for each in self._deployments]))
        self._is_ours = await asyncio.to_thread(connect, self._cluster)
        try:
            await self._begin()
        except RayActorError as error:
            await self._stop()
            raise PeerLost("a role", f"its process died while it was started: {_why(error)}") from None
        except BaseException:
            await self._stop()
            raise
        self._is_up.set()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stop()

    async def _begin(self) -> None:
        places = list(self._places.values())
        for place in places:
            self._make(place)
        await _together([self._ready(place) for place in places])
        for place in places:
            self._dispatcher.connect(place.name, RayLink(DRIVER, 0, place.actor))
        await _together([self._build(place) for place in places])
        for name, deployment in self._seats.items():
            self._crew.build(name, deployment, self._context)
        self._crew.connect()
        for place in places:
            self._attend(place)
        for deployment in self._deployments:
            for seat in seat_names(deployment):
                if deployment.in_driver:
                    await self._crew.start(seat)
                else:
                    await _done(self._home_of[seat].actor.start.remote(seat))

    async def settled(self) -> None:
        """Wait until what roles have told has arrived, as far as they live."""
        await _together([_gone_or_done(place.actor.settle.remote(), STOP_S) for place in self._places.values()])
        await self._dispatcher.settled()

    # -- one actor --------------------------------------------------------------------------------------------------------------------

    def _make(self, place: Place) -> None:
        level = logging.getLevelNamesMapping().get(os.environ.get("MICROAGENTS_LOG", "info").upper(), logging.INFO)
        actor = ray.remote(Host).options(
            num_cpus=place.num_cpus,
            resources=place.resources or None,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            enable_task_events=False,
        )
        place.actor = actor.remote(place.name, place.incarnation, level)

    async def _ready(self, place: Place) -> None:
        """Wait until it runs.

        Raises:
            PeerLost: there is no room for it, or it does not start.
        """
        ready = asyncio.ensure_future(_result(place.actor.ping.remote()))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(PLACE_S):
                    return await asyncio.shield(ready)
            lacking = await asyncio.to_thread(missing, place.num_cpus, place.resources)
            if lacking is not None:
                raise PeerLost(place.name, f"there was no room for it within {PLACE_S:g} s: {lacking}")
            with suppress(TimeoutError):
                async with asyncio.timeout(READY_S - PLACE_S):
                    return await asyncio.shield(ready)
            raise PeerLost(place.name, f"its process did not start within {READY_S:g} s; Ray's logs say why (`ray logs`)")
        finally:
            ready.cancel()

    async def _build(self, place: Place) -> None:
        peers = {each.name: (each.actor, each.incarnation) for each in self._places.values() if each is not place}
        await _done(place.actor.build.remote(_folders(), self._recipe, peers))

    def _attend(self, place: Place) -> None:
        self._scope.start(self._collect(place, place.actor, place.incarnation))
        self._scope.start(self._listen(place, place.actor))

    async def _collect(self, place: Place, actor: ActorHandle[Any], incarnation: int) -> None:
        """Take what an actor has for the driver, until it dies."""
        while True:
            try:
                frames, lines = await _result(actor.collect.remote())
            except ActorUnavailableError:
                await asyncio.sleep(1)  # what it had is sent again
                continue
            except RayActorError as error:
                self._scope.start(self._revive(place, place.cause or _why(error)))
                return
            for frame in frames:
                self._dispatcher.receive(place.name, frame, incarnation)
            for line in lines:
                getattr(structlog.get_logger(), line.pop("level"))(line.pop("event"), **line)

    async def _listen(self, place: Place, actor: ActorHandle[Any]) -> None:
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

    async def _revive(self, place: Place, cause: str) -> None:
        """Put another process in the place of one that died, and let everybody know."""
        await self._is_up.wait()
        async with self._reviving:
            structlog.get_logger().warning("an actor died; another takes its place", replica=place.name, cause=cause)
            for seat in place.seats:
                self._on_lost(seat)
            now_s = asyncio.get_running_loop().time()
            place.deaths.append(now_s)
            while place.deaths[0] < now_s - WITHIN_S:
                place.deaths.popleft()
            try:
                if len(place.deaths) > MOST_DEATHS:
                    raise PeerLost(place.name, f"it died {len(place.deaths)} times within {WITHIN_S / 60:g} minutes, last because {cause}")
                await self._follow(place)
            except RayActorError:
                return  # the next one has died as well, which is heard of in its turn
            except MicroagentsError as error:
                await self._lose(place, error)

    async def _follow(self, place: Place) -> None:
        place.incarnation += 1
        place.cause = None
        self._make(place)
        await self._ready(place)
        await self._build(place)
        self._attend(place)
        others = [each for each in self._places.values() if each is not place]
        met = (place.name, place.actor, place.incarnation)
        await _together([_gone_or_done(each.actor.met.remote(*met), SILENT_S) for each in others])
        self._dispatcher.connect(place.name, RayLink(DRIVER, 0, place.actor), place.incarnation)
        for seat in place.seats:
            await _done(place.actor.start.remote(seat))
        await _done(place.actor.open.remote())

    async def _lose(self, place: Place, error: MicroagentsError) -> None:
        failed = wire.encode([wire.failed(0, error)])
        self._dispatcher.lose(place.name, error)
        others = [each for each in self._places.values() if each is not place]
        await _together([_gone_or_done(each.actor.lose.remote(place.name, failed), SILENT_S) for each in others])

    async def _stop(self) -> None:
        self._is_up.clear()
        actors = [place.actor for place in self._places.values() if place.actor is not None]
        await _together([_gone_or_done(actor.close.remote(), STOP_S) for actor in actors])
        await self._dispatcher.close()
        for deployment in reversed(self._deployments):
            for seat in reversed(seat_names(deployment)):
                if deployment.in_driver:
                    await _together([_gone_or_done(actor.settle.remote(), 1.0) for actor in actors])
                    await self._crew.stop(seat)
                elif self._home_of[seat].actor is not None:
                    await _gone_or_done(self._home_of[seat].actor.stop.remote(seat), STOP_S)
        await self._scope.close()
        self._dispatcher.disconnect()
        for actor in actors:
            ray.kill(actor)
        await asyncio.to_thread(disconnect, is_ours=self._is_ours)


def _homes(deployments: Sequence[Deployment], places: Sequence[Place]) -> dict[str, str]:
    """Which dispatcher each replica lives in."""
    of_driver = {name: DRIVER for each in deployments if each.in_driver for name in seat_names(each)}
    return {**of_driver, **{seat: place.name for place in places for seat in place.seats}}


def _shipped(deployment: Deployment) -> Deployment:
    """What other processes need to know of a deployment."""
    return deployment.model_copy(update={"options": {}}) if deployment.in_driver else deployment


def _folders() -> list[str]:
    """Where modules of the user's own are found."""
    installed = (sys.prefix, sys.base_prefix)
    return [each for each in map(os.path.abspath, sys.path) if Path(each).is_dir() and not each.startswith(installed)]


def _refuse_main(context: Context, deployments: Sequence[Deployment]) -> None:
    classes = [type(context.strategy), *map(type, context.tasks)]
    for deployment in deployments:
        classes += [deployment.role, *deployment.role.handlers]
    for each in classes:
        if each.__module__ == "__main__":
            raise InvalidDefinition(
                f"{each.__qualname__} is defined in the program that was started, which other processes cannot import; put it into a module of its "
                "own, and import it from there"
            )


def _why(error: RayActorError) -> str:
    """What Ray says of a death, on one line."""
    text = " ".join(str(error).split())
    for start in ("because ", "The actor died ", "Worker exit detail: "):
        _, found, rest = text.partition(start)
        if found:
            return (rest if start != "The actor died " else found + rest)[:300]
    return text[:300]


def _result(reference: Any) -> asyncio.Future[Any]:
    return asyncio.wrap_future(reference.future())


async def _done(reference: Any) -> None:
    """Wait for a call of a `Host`, and raise what its roles raised."""
    failed = await _result(reference)
    if failed is not None:
        raise _error_in(failed)


async def _gone_or_done(reference: Any, timeout_s: float) -> None:
    """Wait for a call for a while; an actor that has died needs nothing any more."""
    with suppress(RayError, TimeoutError):
        async with asyncio.timeout(timeout_s):
            await _result(reference)


async def _together(work: Sequence[Coroutine[Any, Any, T]]) -> None:
    """Do all of it side by side; the first failure is raised, and ends the rest."""
    scope = Scope()
    try:
        await asyncio.gather(*[scope.start(each) for each in work])
    finally:
        await scope.close()
