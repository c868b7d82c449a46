"""The throttle of a model, shared by all solvers of a run: it follows a provider whose limit moves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from microagents.journal.messages import Outcome
from microagents.models.rates import Rate
from microagents.models.throttle import START
from microagents.runtimes.virtual import run_virtual
from tests.roles.replicas import Replica, World, a_world

MODEL = "a model"
MOVES_S = 60.0
OUTAGE_S = 1800.0


def test_during_an_outage_few_calls_are_sent_and_after_it_all_are_answered() -> None:
    async def working() -> None:
        async with a_world() as world:
            sent_s: list[float] = []
            loop = asyncio.get_running_loop()

            async def answer() -> Outcome:
                sent_s.append(loop.time())
                await asyncio.sleep(0.1)
                return "failed" if loop.time() < OUTAGE_S else "replied"

            async def until_answered(replica: Replica, number: int) -> None:
                while await replica.attempt(f"0/step/{number}", MODEL) != "replied":  # noqa: ASYNC110 - as the solver does
                    await asyncio.sleep(0.5)

            world.answer = answer  # type: ignore[method-assign]
            lanes = [Replica(world, f"Solver/{number}") for number in range(3)]
            await asyncio.gather(*(until_answered(lanes[number % 3], number) for number in range(1000)))
            during = sum(each_s < OUTAGE_S for each_s in sent_s)
            assert during < START + OUTAGE_S / 30 + 10
            assert len(sent_s) - during <= 1001
            assert loop.time() < OUTAGE_S + 60

    run_virtual(working(), seed=0)


@pytest.mark.slow
def test_what_a_provider_counts_by_the_minute_is_used_as_fast_as_it_comes_and_no_faster() -> None:
    async def working() -> None:
        async with a_world() as world:
            rate, loop = Rate(each_minute=6000, left=1000), asyncio.get_running_loop()
            lanes = [Replica(world, f"Solver/{number}") for number in range(5)]

            async def watched() -> None:
                while True:
                    assert world.billed <= 1000 + 100 * loop.time()
                    await asyncio.sleep(0.01)

            watching = asyncio.create_task(watched())
            calls = [
                lanes[number % 5].counted(f"0/step/{number}", "tokens", rate, takes=80, spends=40)
                for number in range(400)
            ]
            await asyncio.gather(*calls)
            watching.cancel()
            assert world.billed == 16_000
            assert loop.time() < 1.05 * (16_000 - 1000) / 100

    run_virtual(working(), seed=0)


class Provider:
    """Takes so many requests at a time, and refuses more at once; its limit moves."""

    def __init__(self, world: World, seed: int) -> None:
        self.limit = 0
        self.in_flight = self.replies = self.refusals = 0
        self._random = Random(seed)
        world.answer = self.answer  # type: ignore[method-assign]

    async def answer(self) -> Outcome:
        await asyncio.sleep(0.005)
        if self.in_flight >= self.limit:
            self.refusals += 1
            return "refused"
        self.in_flight += 1
        await asyncio.sleep(self._random.lognormvariate(0, 0.3))
        self.in_flight -= 1
        self.replies += 1
        return "replied"


async def keep_asking(replica: Replica, number: int, random: Random) -> None:
    """Ask again and again; after a refusal wait as the solver does."""
    refusals = 0
    for asked in range(1_000_000):
        if await replica.attempt(f"{number}/step/{asked}", MODEL) == "replied":
            refusals = 0
        else:
            refusals += 1
            await asyncio.sleep(min(60.0, 0.5 * 2 ** (refusals - 1)) * random.uniform(0.5, 1.5))


def followed(
    limits: Sequence[int], *, replicas: int, callers: int, most_refused: float = 0.01
) -> list[tuple[int, float]]:
    """Let a provider's limit move every minute; returns each limit and the calls in flight after 30 s."""

    async def working() -> list[tuple[int, float]]:
        async with a_world() as world:
            provider, random, used = Provider(world, 0), Random(0), []
            lanes = [Replica(world, f"Solver/{number}") for number in range(replicas)]
            asking = [
                asyncio.create_task(keep_asking(lanes[number % replicas], number, random)) for number in range(callers)
            ]
            for provider.limit in limits:
                await asyncio.sleep(MOVES_S / 2)
                seen = []
                for _ in range(100):
                    await asyncio.sleep(MOVES_S / 200)
                    seen.append(provider.in_flight)
                used.append((provider.limit, sum(seen) / len(seen)))
            for task in asking:
                task.cancel()
            await asyncio.wait(asking)
            assert provider.refusals < most_refused * (provider.replies + provider.refusals)
            return used

    return run_virtual(working(), seed=0)


@pytest.mark.slow
def test_it_follows_a_limit_within_30_s_and_is_hardly_refused() -> None:
    for limit, used in followed([60, 20], replicas=2, callers=100, most_refused=0.015):  # with one cut in two minutes
        assert 0.8 * limit <= used <= limit
