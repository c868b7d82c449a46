"""Links between the processes of a run on Ray. Ray reports of each delivery whether it arrived, so nothing is acknowledged here."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

import msgspec
import ray
from msgspec import Struct
from ray.exceptions import ActorUnavailableError, RayError

from microagents.base.aio import Notifier, TaskScope
from microagents.base.errors import PeerLost
from microagents.runtimes.ray.cluster import aside

MAX_DELIVERIES = 2
"""Deliveries to one peer that may be under way at a time; later batches wait and leave together with the next delivery."""
ENOUGH_BYTES = 50_000
"""Bytes from which a delivery takes no more batches. Above 100 KB Ray uses its object store, which halved the rate (measured)."""
STORED_BYTES = 90_000
"""Bytes from which a thread puts a delivery into Ray's object store, which takes a while."""
AGAIN_S = 0.1
"""Seconds until a call is made again of which Ray cannot say whether it ran."""
LINGER_S = 0.2
"""One-way messages to the driver are for the record, and a collection costs as much as a call, so those that come fast wait for company."""


class Delivery(Struct, frozen=True, array_like=True):
    """Argument of one `Host.deliver` call.

    It travels as one argument of bytes, which Ray hands on unchanged; with three arguments a step took a tenth longer (measured).
    """

    sender: str
    incarnation: int
    number: int
    """Counted from 1 for each process that receives: a delivery that is made again may have arrived the first time."""
    batches: list[bytes]


Collection = tuple[list[bytes], list[dict[str, Any]]]
"""Batches, and lines of the log."""
_encode = msgspec.msgpack.Encoder().encode
decode_delivery = msgspec.msgpack.Decoder(Delivery).decode


def future_of(reference: Any) -> asyncio.Future[Any]:
    """Return the result of a call as a future of this event loop."""
    return asyncio.wrap_future(reference.future())


async def call_again(method: Any, *given: object) -> Any:
    """Call a method of an actor, and once more whenever Ray cannot say whether it ran.

    Raises:
        RayError: the actor has died.
    """
    while True:
        with suppress(ActorUnavailableError):
            return await future_of(method.remote(*given))
        await asyncio.sleep(AGAIN_S)


class RayLink:
    """Link from the driver or an actor to an actor.

    Args:
        sender: name of the dispatcher that sends.
        incarnation: incarnation of its process.
        actor: Ray's handle of the receiving actor.
    """

    linger_s = 0.0

    def __init__(self, sender: str, incarnation: int, actor: Any) -> None:
        self._sender = sender
        self._incarnation = incarnation
        self._actor = actor
        self._waiting: deque[bytes] = deque()
        self._number = 0
        self._scope = TaskScope()
        self._delivering: list[asyncio.Task[None]] = []
        """Each delivers until no batch waits."""

    def send(self, batch: bytes) -> None:
        """Deliver a batch now, or with the next delivery."""
        self._waiting.append(batch)
        if len(self._delivering) < MAX_DELIVERIES:
            self._delivering.append(self._scope.start(self._deliver_all()))

    async def flush(self) -> None:
        """Wait until all batches have arrived, or the receiver has died."""
        if self._delivering:
            await asyncio.wait(self._delivering)

    def close(self) -> None:
        """Send nothing more."""
        self._waiting.clear()
        self._scope.cancel()

    async def _deliver_all(self) -> None:
        try:
            while self._waiting:
                frame = self._next()
                await self._deliver(_encode(frame))
        except RayError:  # it has died, which the driver notices
            self._waiting.clear()
        finally:
            own = asyncio.current_task()
            self._delivering = [each for each in self._delivering if each is not own]

    def _next(self) -> Delivery:
        batches, size = [], 0
        while self._waiting and size < ENOUGH_BYTES:
            batches.append(self._waiting.popleft())
            size += len(batches[-1])
        self._number += 1
        return Delivery(self._sender, self._incarnation, self._number, batches)

    async def _deliver(self, data: bytes) -> None:
        argument: object = data
        while argument is data and len(data) >= STORED_BYTES:
            try:
                argument = await aside(ray.put, data)
            except (PeerLost, RayError):  # Ray takes long, or its store is full
                await asyncio.sleep(AGAIN_S)
        await call_again(self._actor.deliver, argument)


class Arrivals:
    """Deliveries from one process, in their order: two may be under way, and one that is made again may have arrived before."""

    def __init__(self) -> None:
        self._last = 0
        self._early: dict[int, list[bytes]] = {}

    def take(self, delivery: Delivery) -> list[bytes]:
        """Return the batches that are next in order."""
        if delivery.number > self._last:
            self._early[delivery.number] = delivery.batches
        batches = []
        while self._last + 1 in self._early:
            self._last += 1
            batches += self._early.pop(self._last)
        return batches


class UpLink:
    """Link from an actor to the driver: actors cannot call the driver, so batches wait until the driver collects them."""

    linger_s = LINGER_S

    def __init__(self) -> None:
        self._batches: list[bytes] = []
        self._lines: list[dict[str, Any]] = []
        """Lines of the log."""
        self._given: Collection = ([], [])
        """The last collection."""
        self._collections = self._collected = 0
        """Number of collections, and of those that have arrived."""
        self._is_needed = Notifier()
        """Wakes `take`."""
        self._has_arrived = Notifier()
        self._loop: asyncio.AbstractEventLoop | None = None

    def send(self, batch: bytes) -> None:
        """Keep a batch until the driver collects it."""
        self._batches.append(batch)
        self._is_needed.notify()

    def log(self, line: dict[str, Any]) -> None:
        """Keep a line of the log until the driver collects it; may be called from any thread."""
        self._lines.append(line)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._is_needed.notify)

    async def flush(self) -> None:
        """Wait until all batches have arrived."""
        due = self._collections + bool(self._batches)
        while self._collected < due:
            await self._has_arrived.wait()

    def close(self) -> None:
        """Do nothing: the driver may collect until the process ends."""

    async def take(self, collected: int) -> Collection:
        """Wait until there are batches or lines, and return all of them; the last ones again if they have not arrived."""
        self._loop = asyncio.get_running_loop()
        self._collected = collected
        self._has_arrived.notify()
        while collected == self._collections and not (self._batches or self._lines):
            await self._is_needed.wait()
        if collected == self._collections:
            self._given = self._batches, self._lines
            self._batches, self._lines = [], []
            self._collections += 1
        return self._given
