"""The Ray actor that hosts a dispatcher and its roles, and the links between such actors and the driver."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from types import FrameType
from typing import Any, TextIO

import msgspec
import ray
import structlog
from msgspec import Struct

from microagents.actors.role import Role
from microagents.base.errors import MicroagentsError
from microagents.base.messages import Message
from microagents.base.user_code import role_failed
from microagents.runtimes import wire
from microagents.runtimes.dispatcher import Dispatcher
from microagents.runtimes.ray.placement import place_replicas, slots_of
from microagents.runtimes.role_group import DRIVER, RoleGroup

MAX_DELIVERIES = 2
"""Deliveries to one peer that may be under way at a time; later frames wait and leave together with the next delivery."""
ENOUGH_BYTES = 50_000
"""Bytes from which a delivery takes no more frames. Above 100 KB Ray uses its object store, which halved the rate (measured)."""
STORED_BYTES = 90_000
"""Bytes from which a thread hands over a delivery: Ray puts it into its object store, and returns only then."""
RESEND_S = 5.0
"""Ray loses no delivery while both processes live, so only a failure of the network needs a repetition."""
ACKNOWLEDGE_S = 1.0
"""Batches in the other direction acknowledge most batches earlier."""
LINGER_S = 0.2
"""One-way messages to the driver are for the record, and a collection costs as much as a call, so they wait for company."""
RAYS_LINES = (":actor_name:", ":task_name:", ":job_id:")
"""Beginnings of the lines by which Ray itself finds its way in what a process prints."""
YOUNG_OBJECTS = 50_000
"""New objects after which Python's garbage collector runs in an actor."""


class Delivery(Struct, frozen=True, array_like=True):
    """Argument of one `Host.deliver` call.

    It travels as one argument of bytes, which Ray hands on unchanged; with three arguments a step took a tenth longer (measured).
    """

    sender: str
    incarnation: int
    frames: list[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Delivery).decode


class Host:
    """Actor: one dispatcher with its roles.

    Methods that run code of roles return an encoded error, or None, since Ray would wrap an exception.

    Args:
        run_id: the run, for the log.
        name: name of the slot and of the dispatcher.
        incarnation: number of processes that the slot had before.
        log_level: level from which the log is sent to the driver.
    """

    def __init__(self, run_id: str, name: str, incarnation: int, log_level: int) -> None:
        self._dispatcher = Dispatcher(name, incarnation=incarnation, watch=self._watch)
        self._handled: dict[int, asyncio.Event] = {}
        """Ends of the handled requests that Ray's timeline shows, by number."""
        self._title = f"{name} of {run_id}"
        self._name = name
        self._incarnation = incarnation
        self._numbers = count()
        self._up = UpLink()
        self._group: RoleGroup
        _log_through(self._up.log, log_level, run_id, name)

    def __repr__(self) -> str:
        """Ray's prefix of each line that this process prints, also of one that could not be made."""
        return getattr(self, "_title", type(self).__name__)

    @ray.method(enable_task_events=False)
    async def deliver(self, data: bytes) -> None:
        """Take an encoded `Delivery` from a peer."""
        delivery = _decode(data)
        for frame in delivery.frames:
            self._dispatcher.receive(delivery.sender, frame, delivery.incarnation)

    def _watch(self, title: str) -> Callable[[], None]:
        """Show a handled request in Ray's timeline, by a task of this actor that lasts as long."""
        ended, number = asyncio.Event(), next(self._numbers)
        self._handled[number] = ended
        ray.get_runtime_context().current_actor.handle.options(name=title).remote(number)
        return ended.set

    @ray.method(enable_task_events=True)
    async def handle(self, number: int) -> None:
        """Run until the handled request has ended."""
        await self._handled[number].wait()
        del self._handled[number]

    @ray.method(enable_task_events=False)
    async def collect(self) -> tuple[list[bytes], list[dict[str, Any]]]:
        """Wait until there are frames or lines of the log for the driver, and return all of them."""
        return await self._up.take()

    async def build(
        self, folders: Sequence[str], context: bytes, deployments: bytes, peers: Mapping[str, tuple[Any, int]]
    ) -> bytes | None:
        """Build the roles of this actor; returns the encoded error, or None.

        Args:
            folders: folders of the driver's import path that hold the user's modules.
            context: the context of the run, pickled.
            deployments: its deployments, pickled.
            peers: handle and incarnation of every other actor, by name of its slot.
        """
        return await _error_of(self._name, "building it", self._build(folders, (context, deployments), peers))

    async def _build(
        self, folders: Sequence[str], pickled: tuple[bytes, bytes], peers: Mapping[str, tuple[Any, int]]
    ) -> None:
        _extend_import_path(folders)
        context, deployments = map(ray.cloudpickle.loads, pickled)
        slots = slots_of(deployments)
        self._dispatcher.connect(DRIVER, self._up)
        for name, (actor, incarnation) in peers.items():
            await self.connect(name, actor, incarnation)
        self._group = RoleGroup(self._dispatcher, deployments, place_replicas(deployments, slots))
        own = next(slot for slot in slots if slot.name == self._name)
        for name, deployment in own.replicas.items():
            self._group.build(name, deployment, context)
        self._group.connect()
        # Thousands of open calls are many objects that live for a while. With Python's default threshold of 700 new objects the garbage
        # collector took a third of the time (measured).
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)

    async def connect(self, name: str, actor: Any, incarnation: int) -> None:
        """Send envelopes for a peer to this process from now on."""
        self._dispatcher.connect(name, RayLink(self._name, self._incarnation, actor), incarnation)

    async def lose(self, name: str, failed: bytes) -> None:
        """Give a peer up; ``failed`` is the encoded error for its callers."""
        self._dispatcher.lose(name, decode_error(failed))

    async def end_peer(self, name: str) -> None:
        """Send nothing to a peer that has ended in order, until another process is connected."""
        self._dispatcher.end(name)

    async def start(self, replica: str) -> bytes | None:
        """Start a replica; returns the encoded error, or None."""
        return await _error_of(replica, "start", self._group.start(replica))

    async def open(self) -> None:
        """Handle the calls that arrived before the roles were started, and all later ones."""
        self._dispatcher.open()

    async def ping(self) -> str:
        """Return the id of its node, which shows that the event loop turns."""
        return str(ray.get_runtime_context().get_node_id())

    async def flush(self) -> None:
        """Wait until all one-way messages sent so far have arrived."""
        await self._dispatcher.flush()

    async def close(self) -> None:
        """Cancel all handlers that still run."""
        await self._dispatcher.close()

    async def stop(self, replica: str) -> None:
        """Stop a replica."""
        await self._group.stop(replica)


class UpLink:
    """Link from an actor to the driver: actors cannot call the driver, so frames wait until the driver collects them."""

    resend_s = RESEND_S
    acknowledge_s = ACKNOWLEDGE_S
    linger_s = LINGER_S

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._lines: list[dict[str, Any]] = []
        """Lines of the log."""
        self._wakeup: asyncio.Future[None] | None = None
        """Wakes `take`."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def send(self, peer: str, batch: bytes) -> None:  # noqa: ARG002 - the driver is the only peer
        """Keep a batch until the driver collects it."""
        self._frames.append(batch)
        self._wake()

    def log(self, line: dict[str, Any]) -> None:
        """Keep a line of the log until the driver collects it; may be called from any thread."""
        self._lines.append(line)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def take(self) -> tuple[list[bytes], list[dict[str, Any]]]:
        """Wait until there are frames or lines of the log, and remove and return all of them."""
        self._loop = asyncio.get_running_loop()
        while not (self._frames or self._lines):
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
        taken = self._frames, self._lines
        self._frames, self._lines = [], []
        return taken


class RayLink:
    """Link from the driver or an actor to an actor.

    Args:
        sender: name of the dispatcher that sends.
        incarnation: incarnation of its process.
        actor: Ray's handle of the receiving actor.
    """

    resend_s = RESEND_S
    acknowledge_s = ACKNOWLEDGE_S
    linger_s = 0.0

    def __init__(self, sender: str, incarnation: int, actor: Any) -> None:
        self._sender = sender
        self._incarnation = incarnation
        self._actor = actor
        self._waiting: deque[bytes] = deque()
        self._permits = deque([None] * MAX_DELIVERIES)
        """One entry per delivery that may start now. A deque, since its append and pop are atomic between threads."""
        self._loop = asyncio.get_running_loop()

    def send(self, peer: str, batch: bytes) -> None:  # noqa: ARG002 - the actor is the only peer
        """Deliver a batch now, or with the next delivery."""
        self._waiting.append(batch)
        self._deliver()

    def _deliver(self) -> None:
        while self._waiting and self._permits:
            self._permits.pop()
            frames, size = [], 0
            while self._waiting and size < ENOUGH_BYTES:
                frames.append(self._waiting.popleft())
                size += len(frames[-1])
            delivery = Delivery(self._sender, self._incarnation, frames)
            data = _encode(delivery)
            if len(data) < STORED_BYTES:
                self._send(data)
            else:
                threading.Thread(target=self._send, args=(data,), daemon=True).start()

    def _send(self, data: bytes) -> None:
        self._actor.deliver.remote(data).future().add_done_callback(self._end_delivery)

    def _end_delivery(self, delivery: Any) -> None:
        """Return the permit of a delivery that has ended; Ray calls this in one of its threads."""
        delivery.exception()  # marks it as seen: the death of a peer is noticed by the driver
        self._permits.append(None)
        # Waking the loop costs it a turn, so it is woken only when a frame waits. No frame is forgotten: this thread frees the permit
        # before it looks for frames, and `send` queues its frame before it looks for a permit, so the later of the two sees both.
        if self._waiting:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._deliver)


def _extend_import_path(folders: Sequence[str]) -> None:
    """Make the user's modules importable, behind all packages: from the driver's folders, or from this node's copy of the job's folder."""
    for folder in folders:
        here = folder if os.path.isdir(folder) else os.path.join(os.getcwd(), os.path.basename(folder))  # noqa: PTH109, PTH118, PTH119
        if here not in sys.path:
            sys.path.append(here)


async def _error_of(replica: str, doing: str, work: Awaitable[None]) -> bytes | None:
    """Await code of a role and return its error, encoded; None if it raised none."""
    try:
        await work
    except MicroagentsError as error:
        return encode_error(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's module may raise anything
        return encode_error(role_failed(replica, doing, error))
    return None


def encode_error(error: MicroagentsError) -> bytes:
    """Encode an error for another process; its class and ``args`` survive, which Ray does not promise."""
    return wire.encode([wire.pack_error(0, error)])


def decode_error(failed: bytes) -> MicroagentsError:
    """Decode an error from another process."""
    (envelope,) = wire.decode(failed)
    assert isinstance(envelope, wire.Failed)
    return wire.unpack_error(envelope)


class Printed:
    """Standard output of an actor: prints go into Ray's file, and as a line of the log to the driver."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._line = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """Write text, and log the lines that it ends."""
        *lines, self._line = f"{self._line}{text}".split("\n")
        for line in lines:
            if not line.startswith(RAYS_LINES):
                structlog.get_logger().warning(line, printed=True)
        return self._file.write(text)


def _speaker() -> dict[str, Any]:
    """Name the innermost role on the stack, and the input of the innermost message that is about one; neither in a thread."""
    found: dict[str, Any] = {}
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - as the module `inspect` does
    while frame is not None and len(found) < 2:  # noqa: PLR2004 - both
        role, request = frame.f_locals.get("self"), frame.f_locals.get("request")
        if isinstance(role, Role) and hasattr(role, "context"):
            found.setdefault("replica", role.context.name)
        place = getattr(request, "id", request) if isinstance(request, Message) else None
        if (of_input := getattr(getattr(place, "election", place), "input", None)) is not None:
            found.setdefault("input", of_input)
        frame = frame.f_back
    return found


def _log_through(keep: Callable[[dict[str, Any]], None], level: int, run_id: str, slot: str) -> None:
    """Send the log of this process and its prints to the driver, as structured lines with run, replica and input."""

    def forward(_: Any, name: str, event: Any) -> Any:
        fields = {
            key: value if isinstance(value, str | int | float | None) else repr(value) for key, value in event.items()
        }
        bound = {"run_id": run_id, "replica": slot, **_speaker()}
        keep({"level": name, "event": fields.pop("event", None), "fields": {**bound, **fields}})
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.format_exc_info, forward],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )

    class Forward(logging.Handler):
        """Forwards the standard library's log, which libraries use."""

        def emit(self, record: logging.LogRecord) -> None:
            getattr(structlog.get_logger(), record.levelname.lower(), structlog.get_logger().warning)(
                record.getMessage(), logger=record.name
            )

    logging.getLogger().addHandler(Forward(max(level, logging.WARNING)))
    sys.stdout = Printed(sys.stdout)
