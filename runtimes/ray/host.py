"""The Ray actor that hosts a dispatcher and its roles."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from types import FrameType
from typing import Any, TextIO

import ray
import structlog

from microagents.actors.role import Role
from microagents.base import interrupts
from microagents.base.errors import OWN_FAILURES, MicroagentsError
from microagents.base.messages import Message
from microagents.base.user_code import extend_import_path, role_failed, work_in
from microagents.runtimes import wire
from microagents.runtimes.dispatcher import Dispatcher
from microagents.runtimes.ray.links import Arrivals, Collection, RayLink, UpLink, decode_delivery
from microagents.runtimes.ray.placement import place_replicas, slots_of
from microagents.runtimes.role_group import DRIVER, RoleGroup

RAYS_LINES = (":actor_name:", ":task_name:", ":job_id:")
"""Beginnings of the lines by which Ray itself finds its way in what a process prints."""
YOUNG_OBJECTS = 50_000
"""New objects after which Python's garbage collector runs in an actor."""


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
        self._is_built = asyncio.Event()
        self._arrivals = defaultdict[tuple[str, int], Arrivals](Arrivals)
        """By name and incarnation of the process that sends."""
        self._group: RoleGroup
        _log_through(self._up.log, log_level, run_id, name)
        interrupts.end_children_by_signals()

    def __repr__(self) -> str:
        """Ray's prefix of each line that this process prints, also of one that could not be made."""
        return getattr(self, "_title", type(self).__name__)

    @ray.method(enable_task_events=False)
    async def deliver(self, data: bytes) -> None:
        """Take an encoded `Delivery` from a peer."""
        await self._is_built.wait()  # a peer that was built meanwhile knows this process, and this one not yet the peer
        delivery = decode_delivery(data)
        for batch in self._arrivals[delivery.sender, delivery.incarnation].take(delivery):
            self._dispatcher.receive(delivery.sender, batch, delivery.incarnation)

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
    async def collect(self, collected: int) -> Collection:
        """Wait until there are batches or lines of the log for the driver, and return all of them.

        Args:
            collected: number of earlier collections that have arrived. The last one is returned again if it has not.
        """
        return await self._up.take(collected)

    async def build(
        self,
        folders: Sequence[str],
        working: str,
        context: bytes,
        deployments: bytes,
        peers: Mapping[str, tuple[Any, int]],
    ) -> bytes | None:
        """Build the roles of this actor; returns the encoded error, or None.

        Args:
            folders: folders of the driver's import path that hold the user's modules.
            working: its working folder.
            context: the context of the run, pickled.
            deployments: its deployments, pickled.
            peers: handle and incarnation of every other actor, by name of its slot.
        """
        return await _error_of(
            self._name, "building it", self._build((folders, working), (context, deployments), peers)
        )

    async def _build(
        self, where: tuple[Sequence[str], str], pickled: tuple[bytes, bytes], peers: Mapping[str, tuple[Any, int]]
    ) -> None:
        folders, working = where
        work_in(working)
        extend_import_path(folders)
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
        self._is_built.set()
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


async def _error_of(replica: str, doing: str, work: Awaitable[None]) -> bytes | None:
    """Await code of a role and return its error, encoded; None if it raised none."""
    try:
        await work
    except MicroagentsError as error:
        return encode_error(error)
    except OWN_FAILURES as error:
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
