"""Slots go to the waiter with the lowest key, and none is lost when a waiter is cancelled. A coroutine can begin without a task."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from microagents.base.aio import Slots, begin
from microagents.runtimes.virtual import run_virtual


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


@pytest.mark.slow
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


# -- coroutines that begin without a task --------------------------------------------------------------------------------


def test_a_coroutine_that_waits_goes_on_as_a_task_in_every_order_of_tasks() -> None:
    async def worked() -> tuple[list[str], int]:
        steps, event = list[str](), asyncio.Event()

        async def work() -> int:
            steps.append("begun")
            await asyncio.sleep(0)
            steps.append("a turn later")
            await event.wait()
            async with asyncio.timeout(1.0):  # in a task of its own by now
                await asyncio.sleep(0.5)
            steps.append("ended")
            return 7

        task = begin(work())
        assert steps == ["begun"]
        event.set()
        assert task is not None
        assert "work" in repr(task)
        assert task.get_stack()
        return steps, await task

    for seed in range(20):
        assert run_virtual(worked(), seed=seed) == (["begun", "a turn later", "ended"], 7)


@pytest.mark.parametrize("turns", range(4))
async def test_it_is_cancelled_as_a_task_is_whenever_that_comes(turns: int) -> None:
    awaited, cancelled = asyncio.get_running_loop().create_future(), list[int]()

    async def work() -> None:
        try:
            await awaited
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    task = begin(work())
    assert task is not None
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == [1]
    assert awaited.cancelled(), "by this the holder of a slot knows that no one waits for it"
