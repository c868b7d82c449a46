"""Slots go to the waiter with the lowest key, and none is lost when a waiter is cancelled."""

from __future__ import annotations

import asyncio
from random import Random

from microagents.aio import Slots
from microagents.runtimes.testing.virtual import run_virtual


def test_a_free_slot_goes_to_the_lowest_key_whenever_it_asked() -> None:
    async def order() -> list[int]:
        slots, served = Slots(1), list[int]()

        async def work(key: int) -> None:
            await slots.acquire(lambda: key)
            served.append(key)
            await asyncio.sleep(1.0)
            slots.release()

        async with asyncio.TaskGroup() as group:
            for key in (5, 3, 4, 1, 2):
                group.create_task(work(key))
        return served

    assert run_virtual(order()) == [5, 1, 2, 3, 4]


def test_no_slot_is_lost_or_made_whoever_is_cancelled_and_when() -> None:
    async def most_at_a_time(seed: int) -> tuple[int, int]:
        slots, random = Slots(3), Random(seed)
        busy = most = done = 0

        async def work(key: int) -> None:
            nonlocal busy, most, done
            await slots.acquire(lambda: key)
            busy += 1
            most = max(most, busy)
            try:
                await asyncio.sleep(random.choice((0.0, 0.5, 1.0)))
            finally:
                busy -= 1
                done += 1
                slots.release()

        tasks = [asyncio.ensure_future(work(random.randrange(10))) for _ in range(40)]
        while not all(task.done() for task in tasks):
            random.choice(tasks).cancel()
            await asyncio.sleep(random.choice((0.0, 0.0, 0.5)))
        for _ in range(3):  # all three are there again
            await asyncio.wait_for(slots.acquire(lambda: 0), timeout=1.0)
        return most, done

    for seed in range(100):
        most, done = run_virtual(most_at_a_time(seed), seed=seed)
        assert most <= 3
        assert done


def test_dismissed_waiters_pass_at_once_and_the_number_of_slots_is_kept_afterwards() -> None:
    async def dismissed() -> bool:
        slots = Slots(1)
        await slots.acquire(lambda: 0)
        waiting = [asyncio.ensure_future(slots.acquire(lambda: 0)) for _ in range(5)]
        await asyncio.sleep(0)
        slots.dismiss()
        await asyncio.wait_for(asyncio.gather(*waiting), timeout=1.0)
        for _ in range(6):
            slots.release()
        await slots.acquire(lambda: 0)
        late = asyncio.ensure_future(slots.acquire(lambda: 0))
        await asyncio.sleep(1.0)
        late.cancel()
        return late.done()

    assert run_virtual(dismissed()) is False
