"""Leases: no bound is passed, the lowest step goes first, none is lost or given twice, and a dead holder's are free again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from microagents.base.errors import Stopped
from microagents.journal.messages import Report
from microagents.roles.limits.bounds import Bound
from microagents.roles.limits.held_leases import HeldLease, Queue
from microagents.roles.limits.leases import Acquire
from microagents.runtimes.virtual import run_virtual
from tests.roles.replicas import Replica, World, a_world
from tests.runtimes.delayed import Faults


def virtually(seed: int, working: Coroutine[Any, Any, None]) -> None:
    run_virtual(working, seed=seed)


async def ended(calls: list[asyncio.Task[None]]) -> None:
    for call in calls:
        with suppress(asyncio.CancelledError):
            await call


async def stir(world: World, random: Random, *, calls: int, deaths: int) -> None:
    """Replicas come and go, their calls last differently long, and some are cancelled in every state."""
    replicas = [Replica(world, f"Solver/{number}") for number in range(random.randint(1, 6))]
    sent: list[asyncio.Task[None]] = []
    for number in range(calls):
        replica = random.choice(replicas[: random.choice([1, len(replicas)])])
        path = f"{random.randint(0, 3)}/step/{number}"
        sent.append(
            replica.call(
                path, lasts_s=random.choice([0.0, 0.01, random.expovariate(1)]), is_billed=random.random() < 0.8
            )
        )
        if random.random() < 0.1:
            asyncio.get_running_loop().call_later(random.expovariate(1), random.choice(sent).cancel)
        if random.random() < 0.3:
            await asyncio.sleep(random.choice([0.0, 0.02, random.expovariate(1)]))
        if deaths and random.random() < deaths / calls:
            dead = random.randrange(len(replicas))
            unended = await replicas[dead].die()
            replicas[dead] = Replica(world, replicas[dead].name)
            sent += [replicas[dead].call(f"0/step/{again}") for again in range(unended)]
    await ended(sent)


@pytest.mark.slow
def test_never_is_more_in_flight_than_allowed_and_every_call_is_sent_in_the_end() -> None:
    async def working(seed: int) -> None:
        random = Random(seed)
        bound = random.choice([1, 2, 5, 12])
        faults = random.choice([None, Faults(seed=seed, delay_s=0.02)])
        async with a_world(faults, concurrency=bound) as world:
            await stir(world, random, calls=80, deaths=random.choice([0, 3]))
            assert world.most <= bound
            assert world.open == 0

    for seed in range(4):
        virtually(seed, working(seed))


@pytest.mark.slow
def test_never_is_more_billed_than_allowed_and_all_that_is_allowed_is_used() -> None:
    async def working(seed: int) -> None:
        random = Random(seed)
        faults = random.choice([None, Faults(seed=seed, delay_s=0.02)])
        settings = {"max_calls": 30, **random.choice([{}, {"concurrency": 4}])}
        async with a_world(faults, **settings) as world:
            stirring = asyncio.create_task(stir(world, random, calls=150, deaths=random.choice([0, 3])))
            with pytest.raises(Stopped, match="--max-calls 30 is reached"):
                await world.messenger.ask(Report(when="stopped"))
            assert world.refused, "calls are left that were not sent"
            assert (world.open, world.billed) == (0, 30)
            stirring.cancel()

    for seed in range(4):
        virtually(seed, working(seed))


# -- who is next -------------------------------------------------------------------------------------------------------

ASKED = [
    ("1/step/0", 0),
    ("0/step/10", 0),
    ("0/step/9", 2),
    ("0/step/9", 0),
    ("0/step/9/undecided", 0),
    ("0/line/7/rate", 0),
]
IN_ORDER = [
    ("0/line/7/rate", 0),
    ("0/step/9", 0),
    ("0/step/9", 2),
    ("0/step/9/undecided", 0),
    ("0/step/10", 0),
    ("1/step/0", 0),
]


@pytest.mark.parametrize("replicas", [1, 2, 6])
def test_the_lowest_step_goes_first_then_who_was_launched_first_also_over_replicas_where_there_is_too_little_to_share(
    replicas: int,
) -> None:
    async def working() -> None:
        async with a_world(concurrency=1) as world:
            lanes = [Replica(world, f"Solver/{number}") for number in range(replicas)]
            calls = [lanes[0].call("0/step/99")]
            await asyncio.sleep(0.5)
            calls += [lanes[number % replicas].call(path, seq) for number, (path, seq) in enumerate(ASKED)]
            await ended(calls)
            assert world.began[1:] == IN_ORDER

    virtually(0, working())


@pytest.mark.slow
def test_every_replica_has_its_turn_while_all_want_more_than_there_is_and_waiters_are_refused_in_the_end() -> None:
    async def working() -> None:
        async with a_world(concurrency=40) as world:
            lanes = [Replica(world, f"Solver/{number}") for number in range(4)]
            calls = [lanes[0].call(f"0/step/{number}") for number in range(400)]
            await asyncio.sleep(0.5)
            assert [lane.open for lane in lanes] == [40, 0, 0, 0]
            calls += [lanes[number % 4].call(f"0/step/{number}/again") for number in range(400)]
            await asyncio.sleep(10)
            assert [lane.open for lane in lanes[1:]] == [10, 10, 10] or sum(lane.open for lane in lanes) == 40
            await lanes[3].die()
            await asyncio.sleep(0.1)
            assert sum(lane.open for lane in lanes[:3]) == 40
            draining = asyncio.create_task(world.messenger.ask(Report(when="drained")))
            await asyncio.gather(*calls, return_exceptions=True)
            assert world.refused
            await draining

    virtually(0, working())


async def test_a_call_that_needs_much_is_not_passed_by_later_ones_that_need_little() -> None:
    granted: list[HeldLease] = []
    bounds = {"tokens": Bound(10, renews=True), "other": Bound(1, renews=True)}
    queue = Queue(bounds)
    bounds["tokens"].take(5)
    for place, (name, amount) in enumerate([("tokens", 8), ("tokens", 1), ("other", 1)]):
        wanted = Acquire(path="0/step", seq=place, amounts={name: amount})
        queue.add(HeldLease(wanted, place, granted.append, None, {}))
    assert [lacking for _, lacking in queue.deal()] == [{"tokens": 8}]
    assert [each.request.seq for each in granted] == [2]
    bounds["tokens"].give_back(5, 0)
    assert list(queue.deal()) == []
    assert [each.request.seq for each in granted] == [2, 0, 1]
