"""Marks: no call is sent before the journal bounds what a kill would lose, and that stays small."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from microagents.journal.messages import Account, Ended, Lost
from microagents.roles.limits.leases import Acquire
from microagents.roles.limits.limiter import Limiter
from microagents.roles.limits.reservations import units
from microagents.runtimes.virtual import run_virtual

COMMIT_S = 0.02


class Keeper:
    """Commits marks beside a limiter, as a keeper does, and checks them against the calls that may have been sent."""

    def __init__(self, **settings: Any) -> None:
        self.raised = 0
        """Number of commits that calls waited for."""
        self.most = Lost()
        """The durable mark."""
        self.sent: dict[int, Acquire] = {}
        """Calls that are sent without a durable end."""
        self.spent = 0
        """Durable cost, in units."""
        self._short = asyncio.Event()
        self.stopped: list[str] = []
        self.limiter = Limiter(
            settings,
            on_stop=lambda reason, *_: self.stopped.append(reason),
            on_outage=lambda: None,
            on_settled=lambda *_: None,
            on_short=self._short.set,
        )
        self.holder = self.limiter.admit()
        self._in_order = asyncio.Lock()
        self._unrecorded: list[int] = []
        self._number = 0

    async def commit(self) -> None:
        async with self._in_order:
            recorded, self._unrecorded = self._unrecorded, []
            mark = self.limiter.marks.raised()
            await asyncio.sleep(COMMIT_S)
            self.most = mark
            for number in recorded:
                self.spent += self.sent.pop(number).amounts.get("cost", 0)
            self.check()
            self.limiter.marks.commit()

    def check(self) -> None:
        """A kill now loses no more than the mark says."""
        assert len(self.sent) <= self.most.calls
        assert sum(each.amounts.get("cost", 0) for each in self.sent.values()) <= units(self.most.cost_usd)

    async def work(self) -> None:
        while True:
            await self._short.wait()
            self._short.clear()
            self.raised += 1
            await self.commit()

    async def call(self, lasts_s: float = 1.0, amounts: dict[str, int] | None = None) -> None:
        self._number += 1
        number = self._number
        wanted = Acquire(holder=self.holder, number=number, path="0", seq=0, amounts=amounts or {"calls": 1})
        if await self.limiter.acquire(wanted) is None:
            return
        self.sent[number] = wanted
        self.check()
        await asyncio.sleep(lasts_s)
        self.limiter.release(Ended(holder=self.holder, number=number, spent=dict(wanted.amounts)))
        self._unrecorded.append(number)


def virtually(work: Callable[[Keeper], Awaitable[None]], **settings: Any) -> Keeper:
    async def working() -> Keeper:
        keeper = Keeper(**settings)
        keeper.limiter.begin(Account())
        committing = asyncio.create_task(keeper.work())
        try:
            await work(keeper)
        finally:
            committing.cancel()
        return keeper

    return run_virtual(working())


@pytest.mark.parametrize("in_flight", [1, 20, 300])
def test_steady_work_waits_for_few_commits_and_a_kill_loses_twice_the_calls_in_flight_at_most(in_flight: int) -> None:
    async def work(keeper: Keeper) -> None:
        async def lane(first_s: float) -> None:
            await asyncio.sleep(first_s)
            for _ in range(20):
                await keeper.call(1.0)

        lanes = [asyncio.create_task(lane(number / in_flight)) for number in range(in_flight)]
        for _ in range(100):
            await asyncio.sleep(0.1)
            await keeper.commit()
        assert keeper.most.calls <= max(14, 2.4 * in_flight), (
            "twice those in flight, and those that ended since the last commit"
        )
        await asyncio.gather(*lanes)

    assert virtually(work).raised <= in_flight.bit_length() + 1


def test_whatever_calls_come_and_end_a_limit_has_room_for_what_a_kill_loses() -> None:
    async def work(keeper: Keeper) -> None:
        random, calls = Random(5), list[asyncio.Task[None]]()
        for _ in range(400):
            cost = random.choice([1, 10, 100]) * 1_000_000
            calls.append(asyncio.create_task(keeper.call(random.expovariate(5), {"calls": 1, "cost": cost})))
            if random.random() < 0.1:
                calls[-1].cancel()
            await asyncio.sleep(random.choice([0, 0, 0.01, 0.1]))
            if random.random() < 0.3:
                calls.append(asyncio.create_task(keeper.commit()))
            assert keeper.spent + units(keeper.most.cost_usd) <= units(5.0)
        await asyncio.sleep(10)
        assert keeper.spent > units(4.7)
        keeper.limiter.dismiss()
        await asyncio.gather(*calls, return_exceptions=True)

    virtually(work, max_cost_usd=5.0)


def test_calls_that_come_while_a_lower_mark_is_committed_fit_that_too() -> None:
    async def work(keeper: Keeper) -> None:
        await asyncio.gather(*[keeper.call(0.1) for _ in range(64)])
        for _ in range(2):
            await keeper.commit()
        lowering = asyncio.create_task(keeper.commit())
        await asyncio.sleep(0)
        calls = [asyncio.create_task(keeper.call()) for _ in range(120)]
        await lowering
        assert 64 < len(keeper.sent) < 120
        await asyncio.gather(*calls)

    virtually(work)


def test_a_replica_that_dies_loses_its_leases_and_nothing_else() -> None:
    async def work(keeper: Keeper) -> None:
        calls = [asyncio.create_task(keeper.call(0.5 + number, {"calls": 1, "cost": 10})) for number in range(4)]
        await asyncio.sleep(1)
        assert keeper.limiter.end(keeper.holder) == Lost(calls=3, cost_usd=3e-8)
        for call in calls:
            call.cancel()

    virtually(work, max_cost_usd=1.0)


def test_calls_that_wait_for_a_mark_are_refused_once_none_will_be_durable() -> None:
    async def work(keeper: Keeper) -> None:
        call = asyncio.create_task(keeper.call())
        await asyncio.sleep(0)
        keeper.limiter.dismiss()
        await call
        assert not keeper.sent

    virtually(work)
