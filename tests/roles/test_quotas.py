"""Quotas of the bounds of a run: exact, without asking for each call, fair, and free again when their holder dies."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from microagents.base.errors import NotSent, Stopped
from microagents.roles.limits.bounds import Bound
from microagents.roles.limits.quotas import Change
from microagents.roles.recorder import AwaitFailure
from microagents.runtimes.lossy import Faults
from microagents.runtimes.virtual import run_virtual
from tests.roles.replicas import Replica, World, a_world


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


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_never_is_more_in_flight_than_allowed_and_every_call_is_sent_in_the_end(first: int) -> None:
    async def working(seed: int) -> None:
        random = Random(seed)
        bound = random.choice([1, 2, 5, 12])
        faults = random.choice([None, Faults(seed=seed, delay_s=0.02)])
        async with a_world(faults, concurrency=bound) as world:
            await stir(world, random, calls=80, deaths=random.choice([0, 3]))
            assert world.most <= bound
            assert world.open == 0

    for seed in range(first, first + 20):
        virtually(seed, working(seed))


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_never_is_more_billed_than_allowed_and_all_that_is_allowed_is_used(first: int) -> None:
    async def working(seed: int) -> None:
        random = Random(seed)
        faults = random.choice([None, Faults(seed=seed, delay_s=0.02)])
        settings = {"max_calls": 30, **random.choice([{}, {"concurrency": 4}])}
        async with a_world(faults, **settings) as world:
            stirring = asyncio.create_task(stir(world, random, calls=150, deaths=random.choice([0, 3])))
            with pytest.raises(Stopped, match="--max-calls 30 is reached"):
                await world.messenger.ask(AwaitFailure())
            assert not stirring.done(), "calls are left that were not sent"
            assert (world.open, world.billed) == (0, 30)
            stirring.cancel()

    for seed in range(first, first + 20):
        virtually(seed, working(seed))


def test_a_holder_that_gives_parts_back_gets_an_amount_whole_once_it_has_told_of_the_part_on_its_way() -> None:
    """Granted the difference, it gave back each part as the other one was on its way, for ever."""
    pool = Bound(60, renews=False)
    pool.keep = 0
    pool.trade(1, Change(wanted=6, first=6, path="0/step/9"))
    part = dict(pool.deal())[1]
    pool.trade(1, Change(wanted=40, first=40, path="0/step/1"))
    assert part < 40
    assert not list(pool.deal())
    pool.trade(1, Change(returned=part, received=part, wanted=40, first=40, path="0/step/1"))
    assert dict(pool.deal())[1] >= 40


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


def test_where_all_replicas_want_more_than_there_is_each_gets_as_much_and_hardly_any_asks_again() -> None:
    async def working() -> None:
        async with a_world(concurrency=40) as world:
            lanes = [Replica(world, f"Solver/{number}") for number in range(4)]
            calls = [lanes[0].call(f"0/step/{number}") for number in range(400)]
            await asyncio.sleep(0.5)
            assert [lane.open for lane in lanes] == [40, 0, 0, 0], (
                "one that wants all gets all while no other wants anything"
            )
            calls += [lanes[number % 4].call(f"{number}/step/0") for number in range(1600)]
            await asyncio.sleep(3)
            assert [lane.open for lane in lanes] == [10, 10, 10, 10]
            asked = world.trades
            await asyncio.sleep(20)
            assert [lane.open for lane in lanes] == [10, 10, 10, 10]
            assert world.trades - asked < 10, "800 calls were sent meanwhile"
            await lanes[3].die()
            await asyncio.sleep(3.1)
            assert sum(lane.open for lane in lanes[:3]) == 40
            for lane in lanes[:3]:
                lane.dismiss()
            endings = await asyncio.gather(*calls, return_exceptions=True)
            assert any(isinstance(ending, NotSent) for ending in endings)

    virtually(0, working())


def test_what_one_replica_does_not_need_goes_to_another_that_does() -> None:
    async def working() -> None:
        async with a_world(concurrency=40) as world:
            first, second = (Replica(world, f"Solver/{number}") for number in range(2))
            calls = [first.call(f"0/step/{number}") for number in range(40)]
            calls += [second.call(f"1/step/{number}") for number in range(200)]
            calls += [first.call("0/step/40", lasts_s=10)]
            await asyncio.sleep(1.8)
            assert (first.open, second.open) == (20, 20)
            await asyncio.sleep(1.9)
            assert first.open == 1
            assert second.open == 39
            await ended(calls)

    virtually(0, working())


def test_the_last_calls_are_sent_wherever_they_wait_however_many_others_hold() -> None:
    async def working() -> None:
        async with a_world(max_calls=100) as world:
            first, second = (Replica(world, f"Solver/{number}") for number in range(2))
            await ended([first.call(f"0/step/{number}") for number in range(3)])
            await ended([second.call(f"1/step/{number}") for number in range(97)])
            assert world.billed == 100
            last = second.call("1/step/98")
            with pytest.raises(Stopped, match="--max-calls 100 is reached"):
                await world.messenger.ask(AwaitFailure())
            last.cancel()

    virtually(0, working())


def test_a_run_that_needs_no_more_calls_than_it_may_send_reaches_no_limit() -> None:
    async def working() -> None:
        async with a_world(max_calls=10, concurrency=3) as world:
            replica = Replica(world, "Solver/0")
            await ended([replica.call(f"0/step/{number}") for number in range(10)])
            waiting = replica.call("0/step/10")
            waiting.cancel()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(100):
                    await world.messenger.ask(AwaitFailure())

    virtually(0, working())
