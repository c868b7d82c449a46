"""The Ray actor that hosts a dispatcher with the roles that live in it, and the links between such actors and the driver."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import ray
import structlog
from msgspec import Struct

from microagents.errors import MicroagentsError, RoleFailed
from microagents.runtimes import wire
from microagents.runtimes.dispatcher import Dispatcher
from microagents.runtimes.local_ref import said
from microagents.runtimes.ray.placement import homes_of, slots_of
from microagents.runtimes.role_group import DRIVER, RoleGroup

MOST_OPEN = 2
"""So many deliveries to one peer are under way at a time; what is sent meanwhile goes with the next."""
ENOUGH_BYTES = 50_000
"""A delivery takes no more frames once it has so many bytes: beyond 100 KB Ray takes the way through its object store."""
RESEND_S = 5.0
"""Ray loses nothing while both processes live; a network may."""
ACKNOWLEDGE_S = 1.0
"""What goes the other way mostly says it before."""
LINGER_S = 0.2
"""What an actor tells the driver is for the record; to collect it costs as much as to ask."""
YOUNG_OBJECTS = 50_000
"""After so many new objects Python looks for those that nobody needs any more, in an actor."""


class Delivery(Struct, frozen=True, array_like=True):
    """What one call carries to a peer, as one argument of bytes: these Ray hands on as they are, any other costs both ends time."""

    sender: str
    incarnation: int
    frames: list[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Delivery).decode


class Host:
    """The actor: one dispatcher, and the roles that live in it. What its roles raise is returned, encoded: Ray would wrap it."""

    def __init__(self, run_id: str, name: str, incarnation: int, log_level: int) -> None:
        self._dispatcher = Dispatcher(name, incarnation=incarnation)
        self._name = name
        self._incarnation = incarnation
        self._up = UpLink()
        self._group: RoleGroup
        _log_through(self._up.log, log_level, run_id=run_id, replica=name)

    @ray.method(enable_task_events=False)
    async def deliver(self, data: bytes) -> None:
        """Take what a peer sends: an encoded `Delivery`."""
        delivery = _decode(data)
        for frame in delivery.frames:
            self._dispatcher.receive(delivery.sender, frame, delivery.incarnation)

    @ray.method(enable_task_events=False)
    async def collect(self) -> tuple[list[bytes], list[dict[str, Any]]]:
        """What there is for the driver, as soon as there is something: frames, and lines of its log."""
        return await self._up.taken()

    async def build(self, folders: Sequence[str], recipe: bytes, peers: Mapping[str, tuple[Any, int]]) -> bytes | None:
        """Build the roles that live here; gives what went wrong."""
        return await _outcome(self._name, "building it", self._build(folders, recipe, peers))

    async def _build(self, folders: Sequence[str], recipe: bytes, peers: Mapping[str, tuple[Any, int]]) -> None:
        _put_on_path(folders)
        context, deployments = ray.cloudpickle.loads(recipe)
        places = slots_of(deployments)
        homes = homes_of(deployments, places)
        self._dispatcher.connect(DRIVER, self._up)
        for name, (actor, incarnation) in peers.items():
            self.meet(name, actor, incarnation)
        self._group = RoleGroup(self._dispatcher, deployments, homes)
        seats = next(place.seats for place in places if place.name == self._name)
        for name, deployment in seats.items():
            self._group.build(name, deployment, context)
        self._group.connect()
        # Calls under way are many objects that all live for a while: looking through them again and again took a third of the time.
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)

    def meet(self, name: str, actor: Any, incarnation: int) -> None:
        """Send to this process what is for a peer, from now on."""
        self._dispatcher.connect(name, RayLink(self._name, self._incarnation, actor), incarnation)

    async def met(self, name: str, actor: Any, incarnation: int) -> None:
        """The same, told by the driver."""
        self.meet(name, actor, incarnation)

    async def lose(self, name: str, failed: bytes) -> None:
        """A peer is given up."""
        self._dispatcher.lose(name, error_in(failed))

    async def start(self, seat: str) -> bytes | None:
        """Start a role; gives what went wrong."""
        return await _outcome(seat, "start", self._group.start(seat))

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
        await self._group.stop(seat)


class UpLink:
    """From an actor to the driver, which no actor can call: it collects."""

    resend_s = RESEND_S
    acknowledge_s = ACKNOWLEDGE_S
    linger_s = LINGER_S

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._lines: list[dict[str, Any]] = []
        self._wanted: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def send(self, peer: str, batch: bytes) -> None:  # noqa: ARG002 - there is one
        """Keep it until the driver collects."""
        self._frames.append(batch)
        self._wake()

    def log(self, line: dict[str, Any]) -> None:
        """Keep a line of the log, whichever thread it comes from."""
        self._lines.append(line)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    async def taken(self) -> tuple[list[bytes], list[dict[str, Any]]]:
        """All there is, once there is something."""
        self._loop = asyncio.get_running_loop()
        while not (self._frames or self._lines):
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted
        taken = self._frames, self._lines
        self._frames, self._lines = [], []
        return taken


class RayLink:
    """From any dispatcher to the actor that hosts another."""

    resend_s = RESEND_S
    acknowledge_s = ACKNOWLEDGE_S
    linger_s = 0.0

    def __init__(self, sender: str, incarnation: int, actor: Any) -> None:
        self._sender = sender
        self._incarnation = incarnation
        self._actor = actor
        self._waiting: deque[bytes] = deque()
        self._free = deque([None] * MOST_OPEN)
        """One for each delivery that may be opened now."""
        self._loop = asyncio.get_running_loop()

    def send(self, peer: str, batch: bytes) -> None:  # noqa: ARG002 - there is one
        """Deliver it now, or with the next delivery."""
        self._waiting.append(batch)
        self._deliver()

    def _deliver(self) -> None:
        while self._waiting and self._free:
            self._free.pop()
            frames, size = [], 0
            while self._waiting and size < ENOUGH_BYTES:
                frames.append(self._waiting.popleft())
                size += len(frames[-1])
            delivery = Delivery(self._sender, self._incarnation, frames)
            self._actor.deliver.remote(_encode(delivery)).future().add_done_callback(self._ended)

    def _ended(self, delivery: Any) -> None:
        """In a thread of Ray's."""
        delivery.exception()  # that a peer has died is heard elsewhere
        self._free.append(None)
        # Waking the loop costs it a turn. Here a place is free before we look for what waits, and `send` lets it wait before it looks for a
        # place: whichever comes first, one of both sees it.
        if self._waiting:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._deliver)


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


def error_in(failed: bytes) -> MicroagentsError:
    """What a role raised in an actor."""
    (envelope,) = wire.decode(failed)
    assert isinstance(envelope, wire.Failed)
    return wire.error_of(envelope)


def _log_through(keep: Callable[[dict[str, Any]], None], level: int, **always: str) -> None:
    """Send what this process logs to the driver, as structured lines."""

    def forward(_: Any, name: str, event: Any) -> Any:
        said = {key: value if isinstance(value, str | int | float | None) else repr(value) for key, value in event.items()}
        keep({"level": name, "event": said.pop("event", None), "said": {**always, **said}})
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.format_exc_info, forward],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )

    class Forward(logging.Handler):
        """For libraries, which use the standard library's log."""

        def emit(self, record: logging.LogRecord) -> None:
            getattr(structlog.get_logger(), record.levelname.lower(), structlog.get_logger().warning)(
                record.getMessage(), logger=record.name
            )

    logging.getLogger().addHandler(Forward(max(level, logging.WARNING)))
