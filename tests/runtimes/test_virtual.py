"""Virtual time: a clock that jumps, an order of tasks that a seed decides, and nothing real."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from microagents import Result, run
from microagents.base.errors import InvalidUsage
from microagents.runtimes.virtual import VIRTUAL, Deadlocked, NotVirtual, VirtualLoop, run_virtual
from microagents.tasks.drift import Drift

WEEK_S = 7 * 24 * 3600.0
SEEDS = 150


def loop() -> VirtualLoop:
    running = asyncio.get_running_loop()
    assert isinstance(running, VirtualLoop)
    return running


def noop() -> None:
    """A callback."""


# -- the clock ---------------------------------------------------------------------------------------------------------


def test_a_week_of_waiting_takes_no_time() -> None:
    async def wait() -> float:
        for _ in range(7 * 24):
            await asyncio.sleep(3600)
        return loop().time()

    started = time.process_time()
    assert run_virtual(wait()) == WEEK_S
    assert time.process_time() - started < 5


def test_timers_fire_at_their_time_and_equal_ones_in_the_order_in_which_they_were_set() -> None:
    async def fire() -> list[tuple[float, int]]:
        fired: list[tuple[float, int]] = []

        def note(number: int) -> None:
            fired.append((loop().time(), number))

        for number, delay in enumerate([2.0, 1.0, 2.0, 1.0, 2.0, 0.0, 1.0, -1.0]):
            loop().call_later(delay, note, number)
        await asyncio.sleep(3)
        return fired

    in_order = [(0.0, 7), (0.0, 5), (1.0, 1), (1.0, 3), (1.0, 6), (2.0, 0), (2.0, 2), (2.0, 4)]
    assert run_virtual(fire()) == run_virtual(fire(), seed=1) == in_order


# -- the order of tasks ------------------------------------------------------------------------------------------------


async def meeting(size: int = 5) -> list[int]:
    """Tasks that are woken together; who came first."""
    came: list[int] = []
    door = asyncio.Event()

    async def come(guest: int) -> None:
        await door.wait()
        came.append(guest)

    guests = [asyncio.create_task(come(guest)) for guest in range(size)]
    await asyncio.sleep(0.001)
    door.set()
    await asyncio.gather(*guests)
    return came


def test_a_seed_repeats_its_order_and_seeds_reach_every_order() -> None:
    orders = [tuple(run_virtual(meeting(3), seed=seed)) for seed in range(100)]
    assert orders == [tuple(run_virtual(meeting(3), seed=seed)) for seed in range(100)]
    assert len(set(orders)) == 6


def test_callbacks_that_step_no_task_keep_their_order_and_their_places() -> None:
    async def mix() -> list[str]:
        ran: list[str] = []

        async def note() -> None:
            ran.append("task")

        tasks = []
        for number in range(20):
            tasks.append(asyncio.create_task(note()))
            loop().call_soon(ran.append, f"{number}")
            loop().call_soon(partial(ran.append, f"{number} again"))
        await asyncio.gather(*tasks)
        return ran

    in_places = [name for number in range(20) for name in ("task", f"{number}", f"{number} again")]
    for seed in range(20):
        assert run_virtual(mix(), seed=seed) == in_places


def test_tasks_that_a_set_makes_ready_run_in_an_order_that_is_the_seeds_alone() -> None:
    """asyncio.TaskGroup cancels its tasks in the order of a set."""

    async def cancel(order: list[int]) -> list[int]:
        ended: list[int] = []

        async def end(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(number)

        tasks = [asyncio.create_task(end(number)) for number in range(5)]
        await asyncio.sleep(1)
        for number in order:
            tasks[number].cancel()
        await asyncio.wait(tasks)
        return ended

    for seed in range(20):
        assert run_virtual(cancel([0, 1, 2, 3, 4]), seed=seed) == run_virtual(cancel([3, 1, 4, 0, 2]), seed=seed)
    assert run_virtual(cancel([3, 1, 4, 0, 2])) == [3, 1, 4, 0, 2]


# -- nothing real ------------------------------------------------------------------------------------------------------


async def handler(*_: object) -> None:
    """Of a server."""


REAL: dict[str, Callable[[socket.socket], object]] = {
    "run_in_executor": lambda _: asyncio.to_thread(noop),
    "create_connection": lambda _: asyncio.open_connection("127.0.0.1", 1),
    "create_server": lambda _: asyncio.start_server(handler, "127.0.0.1"),
    "create_unix_connection": lambda _: asyncio.open_unix_connection("nowhere"),
    "subprocess_exec": lambda _: asyncio.create_subprocess_exec("true"),
    "subprocess_shell": lambda _: asyncio.create_subprocess_shell("true"),
    "getaddrinfo": lambda _: loop().getaddrinfo("localhost", 80),
    "sock_recv": lambda end: loop().sock_recv(end, 1),
    "add_reader": lambda end: loop().add_reader(end, noop),
    "add_writer": lambda end: loop().add_writer(end, noop),
    "add_signal_handler": lambda _: loop().add_signal_handler(signal.SIGTERM, noop),
}


@pytest.mark.parametrize("called", REAL)
def test_what_is_real_is_refused(called: str) -> None:
    async def reach() -> None:
        here, there = socket.socketpair()
        with here, there:
            reached = REAL[called](here)
            if inspect.isawaitable(reached):
                await reached

    with pytest.raises(NotVirtual, match=rf"^{called}\(\) was called in virtual time"):
        run_virtual(reach())


def test_everything_that_asyncio_knows_is_virtual_or_refused() -> None:
    names = {name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("_")}
    assert names >= VIRTUAL
    with closing(VirtualLoop()) as virtual:
        for name in names - VIRTUAL:
            with pytest.raises(NotVirtual):
                getattr(virtual, name)()


def test_another_thread_may_not_call_in() -> None:
    refused: list[NotVirtual] = []

    def call_in(virtual: VirtualLoop) -> None:
        try:
            virtual.call_soon_threadsafe(noop)
        except NotVirtual as error:
            refused.append(error)

    async def start() -> None:
        loop().call_soon_threadsafe(noop)
        thread = threading.Thread(target=call_in, args=(loop(),))
        thread.start()
        thread.join()

    run_virtual(start())
    assert [str(error).partition(" was")[0] for error in refused] == ["call_soon_threadsafe() from another thread"]


# -- deadlocks ---------------------------------------------------------------------------------------------------------


async def stuck_in(event: asyncio.Event) -> None:
    await event.wait()


async def wait_for_each_other() -> None:
    event = asyncio.Event()
    tasks = [asyncio.create_task(stuck_in(event), name=name) for name in ("second", "third")]
    done = asyncio.create_task(asyncio.sleep(2.5))
    tasks.append(asyncio.create_task(stuck_in(event)))
    await done
    await asyncio.gather(*tasks)


def line_of(function: Callable[..., object], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(number for number, line in enumerate(lines, first) if text in line)


@pytest.mark.parametrize("seed", [None, 1])
def test_a_deadlock_tells_who_waits_and_where_in_the_order_of_creation(seed: int | None) -> None:
    with pytest.raises(Deadlocked) as caught:
        run_virtual(wait_for_each_other(), seed=seed)
    time_s, waiting = caught.value.args
    assert time_s == 2.5
    main = f"wait_for_each_other (test_virtual.py:{line_of(wait_for_each_other, 'gather(*tasks)')})"
    stuck = f"stuck_in (test_virtual.py:{line_of(stuck_in, 'event.wait()')}) > Event.wait (locks.py:"
    assert [line.partition(stuck)[0] for line in waiting] == [f"Task-1: {main}", "second: ", "third: ", "Task-5: "]
    assert all(stuck in line for line in waiting[1:])
    assert str(caught.value).startswith("nothing is ready and no timer is set at virtual time 2.5 s")


def test_a_forgotten_task_is_kept_and_reported() -> None:
    """Where asyncio lets the garbage collector decide."""

    async def forget() -> None:
        asyncio.create_task(stuck_in(asyncio.Event()), name="forgotten")  # noqa: RUF006 - on purpose
        await asyncio.sleep(1)
        gc.collect()
        await asyncio.Event().wait()

    with pytest.raises(Deadlocked, match="forgotten: stuck_in"):
        run_virtual(forget())
    with pytest.raises(Deadlocked, match=r"Task-1: sleep "):
        run_virtual(asyncio.sleep(float("inf")))


def test_tasks_of_a_deadlock_are_cancelled_and_clean_up() -> None:
    cleaned: list[str] = []

    async def stick() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            cleaned.append("up")

    with pytest.raises(Deadlocked):
        run_virtual(stick())
    assert cleaned == ["up"]


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_task_that_fails_while_it_is_cancelled_is_reported() -> None:
    reported: list[dict[str, Any]] = []

    async def fail() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("on the way out")

    async def main() -> None:
        loop().set_exception_handler(lambda _, context: reported.append(context))
        loop().create_task(fail())
        await asyncio.sleep(0)

    run_virtual(main())
    assert [str(context["exception"]) for context in reported] == ["on the way out"]


async def test_it_does_not_start_within_another_loop() -> None:
    with pytest.raises(InvalidUsage, match="while an event loop runs"):
        run_virtual(meeting())


# -- the trace ---------------------------------------------------------------------------------------------------------


async def traced(main: Coroutine[Any, Any, object]) -> str:
    await main
    return loop().trace_sha256


def test_equal_seeds_leave_equal_traces_and_other_interleavings_others() -> None:
    """24 orders of four guests: as many traces, whatever the number of seeds."""
    by_order: dict[tuple[int, ...], set[str]] = {}

    async def main() -> tuple[tuple[int, ...], str]:
        return tuple(await meeting(4)), loop().trace_sha256

    runs = {seed: run_virtual(main(), seed=seed) for seed in range(SEEDS)}
    assert runs == {seed: run_virtual(main(), seed=seed) for seed in range(SEEDS)}
    for order, trace in runs.values():
        by_order.setdefault(order, set()).add(trace)
    assert len(by_order) == 24
    traces = [trace for found in by_order.values() for trace in found]
    assert len(traces) == len(set(traces)), "no trace belongs to two orders"


@pytest.mark.parametrize(
    ("one", "other"),
    [((asyncio.sleep, 1), (asyncio.sleep, 2)), ((meeting, 2), (meeting, 3)), ((asyncio.sleep, 1), (meeting, 1))],
)
def test_the_trace_tells_times_numbers_and_names_apart(one: tuple[Any, int], other: tuple[Any, int]) -> None:
    first, second = (run_virtual(traced(function(argument))) for function, argument in (one, other))
    assert first != second


OTHER_PROCESS = """
import asyncio, sys
if sys.argv[1] == "python":
    sys.modules["_asyncio"] = None
from microagents import run
from microagents.runtimes.virtual import run_virtual
from microagents.tasks.drift import Drift

async def main():
    async with asyncio.TaskGroup() as group:
        for name in {"a", "b", "c"}:
            group.create_task(asyncio.sleep(1))
    result = await run(Drift(length=12), models="sim:gpt-4.1-mini@latency=1.0", runtime="linked")
    return asyncio.get_running_loop().trace_sha256, result.account.ballots_sha256

for seed in (None, 0, 1):
    print(*run_virtual(main(), seed=seed))
"""


def in_another_process(hash_seed: str, tasks: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    words = [sys.executable, "-c", OTHER_PROCESS, tasks]
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()


@pytest.mark.slow
def test_processes_leave_the_same_trace_whatever_their_hash_seed_and_kind_of_tasks() -> None:
    traces = in_another_process("1", "c")
    assert traces == in_another_process("2", "python")
    assert len(set(traces)) == 3


# -- the engine --------------------------------------------------------------------------------------------------------


MODEL = "sim:gpt-4.1-mini@error=0.3,flag=0.1,sigma=1.0,latency="


async def drift(runtime: str) -> Result:
    return await run(Drift(length=10), models=f"{MODEL}0.002", k=2, runtime=runtime)


def digests(result: Result) -> tuple[str | None, str | None]:
    assert result.outcome == "completed"
    return result.account.decisions_sha256, result.account.ballots_sha256


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["local", "linked"])
def test_the_engine_decides_the_same_under_every_interleaving(runtime: str) -> None:
    async def replayed() -> tuple[tuple[str | None, str | None], float, str]:
        return digests(await drift(runtime)), loop().time(), loop().trace_sha256

    runs = [run_virtual(replayed(), seed=seed) for seed in range(3)]
    assert {found for found, _, _ in runs} == {digests(asyncio.run(drift(runtime)))}
    assert all(virtual_s > 0.01 for _, virtual_s, _ in runs)
    assert len({trace for *_, trace in runs}) > 1, "the seeds interleave it in many ways"
    assert run_virtual(replayed(), seed=2) == runs[2]
