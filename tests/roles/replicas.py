"""Replicas of the solver without models, and the keeper whose leases they hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from microagents import Context, Deployment
from microagents.base.aio import TaskScope
from microagents.base.errors import NotSent
from microagents.journal.messages import Ended, Entry, Outcome, Record, RecordCalls, ReplicaEnded, Subscribe
from microagents.models.rates import Rate
from microagents.roles import Keeper
from microagents.roles.limits.leases import Acquire, Leases
from microagents.roles.limits.reservations import Reservations
from microagents.runtimes.dispatcher import RoleMessenger
from microagents.runtimes.local import LinkedRuntime
from microagents.systems import Maker
from microagents.tasks.drift import Drift
from tests.runtimes.delayed import DelayedRuntime, Faults


class Replica:
    """A replica of the solver without a model: a call lasts as long as it is told."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.open = 0
        self._world = world
        self._scope = TaskScope()
        self._calls: list[asyncio.Task[None]] = []
        self._conditions = world.messenger.stream(Subscribe())
        self._subscribed = self._scope.start(self._subscribe())
        world.replicas.append(self)

    async def _subscribe(self) -> Leases:
        leases = Leases(self._world.messenger.ask, self._end)
        leases.holder = (await anext(self._conditions)).holder
        return leases

    async def _acquire(self, wanted: Acquire) -> int:
        number, _ = await (await asyncio.shield(self._subscribed)).acquire(wanted)
        return number

    def _end(self, ended: Ended) -> None:
        self._record(RecordCalls(source=self.name, in_flight={"x": self.open}, ended=[ended]))

    def _release(self, ended: Ended) -> None:
        self._subscribed.result().release(ended)

    def call(self, path: str, seq: int = 0, *, lasts_s: float = 1.0, is_billed: bool = True) -> asyncio.Task[None]:
        """Send a call."""
        self._calls.append(self._scope.start(self._call(path, seq, lasts_s, is_billed=is_billed)))
        return self._calls[-1]

    async def _call(self, path: str, seq: int, lasts_s: float, *, is_billed: bool) -> None:
        world = self._world
        try:
            number = await self._acquire(Acquire(path=path, seq=seq, amounts=world.amounts))
        except NotSent:
            world.refused += self in world.replicas
            return
        if self not in world.replicas:  # it died as it was granted
            return
        world.began.append((path, seq))
        self.open += 1
        self._record(RecordCalls(source=self.name, in_flight={"x": self.open}))
        world.most = max(world.most, world.open)
        try:
            await asyncio.sleep(lasts_s)
        finally:
            self.open -= 1
            if self in world.replicas:
                world.billed += is_billed
                ended = RecordCalls(source=self.name, in_flight={"x": self.open}, calls=int(is_billed))
                self._record(ended)
                self._release(Ended(number=number, spent={"calls": 1} if is_billed else {}))

    def _record(self, entry: Entry) -> None:
        self._world.messenger.tell(Record.of(entry))

    async def die(self) -> int:
        """End like a process that is killed: its calls are not heard of again. Returns their number."""
        unended = sum(not call.done() for call in self._calls)
        self._scope.cancel()
        self._world.replicas.remove(self)
        self._world.billed += self.open
        self._record(ReplicaEnded(source=self.name))
        await self.close()
        return unended

    async def close(self) -> None:
        await self._scope.close()
        await self._conditions.aclose()

    async def attempt(self, path: str, model: str) -> Outcome:
        """Make one attempt at a call to a throttled model, and tell the throttle how it ended."""
        number = await self._acquire(Acquire(path=path, seq=0, amounts={model: 1}, throttle=model))
        outcome = await self._world.answer()
        self._release(Ended(number=number, outcome=outcome))
        return outcome

    async def counted(self, path: str, name: str, rate: Rate, *, takes: int, spends: int) -> None:
        """Make a call that a provider counts by the minute, at once."""
        number = await self._acquire(Acquire(path=path, seq=0, amounts={name: takes}, rates={name: rate}))
        self._world.billed += spends
        self._release(Ended(number=number, spent={name: spends}))


class World:
    """A keeper, and what the holders of its leases did."""

    def __init__(self, messenger: RoleMessenger, settings: dict[str, int]) -> None:
        self.messenger = messenger
        self.amounts = Reservations(settings).plain.amounts
        self.replicas: list[Replica] = []
        self.began: list[tuple[str, int]] = []
        self.most = self.billed = self.refused = 0

    async def answer(self) -> Outcome:
        """How an attempt ends; a test sets it."""
        raise NotImplementedError

    @property
    def open(self) -> int:
        return sum(replica.open for replica in self.replicas)


class Linked(LinkedRuntime):
    """A keeper behind a link."""

    @classmethod
    def placement(cls, deployments: Sequence[Deployment], settings: Mapping[str, Any], /) -> dict[str, str]:
        return {**super().placement(deployments, settings), "Keeper/0": cls.OTHER}


class Delayed(Linked, DelayedRuntime):
    """A keeper behind a link that delays messages."""


@asynccontextmanager
async def a_world(faults: Faults | None = None, **settings: int) -> AsyncIterator[World]:
    context = Context(run_id="a", seed=0, tasks=[Drift(length=1)], strategy=Maker(), settings=settings)
    deployments = [Deployment(role=Keeper)]
    runtime = Linked(context, deployments) if faults is None else Delayed(context, deployments, faults=faults)
    async with asyncio.timeout(1e5), runtime as opened:
        world = World(opened.messenger, settings)
        try:
            yield world
        finally:
            for replica in world.replicas:
                await replica.close()
