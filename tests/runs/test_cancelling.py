"""Runs that are cancelled, at any moment and any number of times: all that they took is given back."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from microagents import Conductor, Result, Strategy, Work, run
from microagents.base.aio import CLOSE_S
from microagents.journal import writer
from microagents.runs.driver.execute import CANCELLED
from microagents.runs.inspection.runs import inspect_run
from microagents.runtimes.virtual import VirtualLoop, run_virtual
from microagents.tasks.drift import Drift

MODEL = "sim:perfect@error=0.2,flag=0.1,latency=0.01"
WITHIN_TURNS = 12
"""A second and a third cancellation come at most so many iterations of the loop after the one before."""
TIMES = (1, 2, 3)


class CountedTurns:
    """Counts the turns of an event loop, and calls back at the beginning of some."""

    turn = 0

    def __init__(self) -> None:
        super().__init__()
        self.callbacks: dict[int, Callable[[], object]] = {}

    def _run_once(self) -> None:
        self.turn += 1
        if (callback := self.callbacks.pop(self.turn, None)) is not None:
            callback()
        super()._run_once()  # type: ignore[misc]


class VirtualTurns(CountedTurns, VirtualLoop):
    pass


class RealTurns(CountedTurns, asyncio.SelectorEventLoop):
    pass


class RunOnLoop:
    """A run on a loop of its own.

    Args:
        work: the run.
        loop: the kind of loop.
        turns: when it is cancelled.
        what: what is cancelled then: the run, or all tasks of the loop, as asyncio.run does after a second Ctrl-C.
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, Result],
        loop: type[CountedTurns],
        turns: list[int] | None = None,
        *,
        what: str = "the run",
    ) -> None:
        own: Any = loop()

        def cancel() -> None:
            for task in [running, *asyncio.all_tasks(own)] if what == "all tasks" else [running]:
                task.cancel()

        with closing(own):
            running = own.create_task(work)
            own.callbacks = dict.fromkeys(turns or [], cancel)
            self.result: Result | None = None
            with suppress(asyncio.CancelledError):
                self.result = own.run_until_complete(running)
            self.turns: int = own.turn
            self.left = [
                *map(str, asyncio.all_tasks(own)),
                *(each.name for each in threading.enumerate() if each.name == "journal"),
            ]
            own.callbacks.clear()
            own.run_until_complete(own.shutdown_asyncgens())


def open_files(folder: Path) -> list[str]:
    files = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            files.append(str(each.readlink()))
    return [file for file in files if file.startswith(str(folder.resolve()))]


def holders(journal: Path) -> list[object]:
    """The process that has the lease of a journal, if it is there."""
    if not journal.exists():
        return []
    with closing(sqlite3.connect(journal)) as db:
        found = db.execute("SELECT content ->> '$.holder' FROM run WHERE part = 'lease'").fetchall()
    return [holder for (holder,) in found if holder is not None]


def moments(turns: int, number: int) -> Iterator[list[int]]:
    """The turns at which runs are cancelled: by turns one, two and three, the first spread over the whole run, the others soon after."""
    random = Random(0)
    for moment in range(number):
        at = [1 + moment // 3 * 3 * turns // number]
        while len(at) < TIMES[moment % len(TIMES)]:
            at.append(at[-1] + random.randint(1, WITHIN_TURNS))
        yield at


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loop", "runtime", "number", "what"),
    [
        (VirtualTurns, "linked", 6, "the run"),
        (VirtualTurns, "local", 6, "all tasks"),
        (RealTurns, "linked", 3, "all tasks"),
        (RealTurns, "ray", 3, "all tasks"),
    ],
)
def test_a_cancelled_run_gives_back_its_lease_tasks_threads_and_files(
    loop: type[CountedTurns], runtime: str, number: int, what: str, tmp_path: Path
) -> None:
    def work() -> Coroutine[Any, Any, Result]:
        return run(Drift(length=3), models=MODEL, k=2, runtime=runtime, run_id="cut")

    journal = tmp_path / "runs" / "cut.sqlite"
    undisturbed = RunOnLoop(work(), loop)
    assert undisturbed.result is not None
    for at in moments(undisturbed.turns, number):
        journal.unlink(missing_ok=True)
        cancelled = RunOnLoop(work(), loop, at, what=what)
        assert [*cancelled.left, *open_files(tmp_path), *holders(journal)] == [], at
        if not at[0] % 10:
            resumed = RunOnLoop(work(), loop).result
            assert resumed is not None
            assert resumed.account.ballots_sha256 == undisturbed.result.account.ballots_sha256, at


class StubbornConductor(Conductor[Drift, "Stubborn"]):
    async def conduct(self, work: Work[Drift, Stubborn]) -> None:
        work.progress(0)
        for _ in range(100):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(10)


class Stubborn(Strategy):
    solves = (Drift,)
    conductor = StubbornConductor


def test_work_that_refuses_to_end_does_not_keep_the_lease(tmp_path: Path) -> None:
    async def cancel() -> float:
        running = asyncio.create_task(run(Drift(length=3), models=MODEL, strategy=Stubborn(), run_id="stubborn"))
        await asyncio.sleep(5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not holders(tmp_path / "runs" / "stubborn.sqlite")
        return asyncio.get_running_loop().time()

    assert run_virtual(cancel()) == pytest.approx(5 + CLOSE_S, abs=1)


def test_a_keeper_that_cannot_write_its_last_records_in_time_gives_the_lease_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "VIRTUAL_COMMIT_S", 1000.0)

    async def cancel() -> None:
        async with asyncio.timeout(2500):
            await run(Drift(length=3), models=MODEL, run_id="late")

    with pytest.raises(TimeoutError):
        run_virtual(cancel())
    assert not holders(tmp_path / "runs" / "late.sqlite")


async def test_a_run_that_its_program_cancels_was_interrupted_and_not_cut_off(tmp_path: Path) -> None:
    working = asyncio.Event()
    begun = asyncio.create_task(
        run(Drift(length=500), models=MODEL, runs_dir=tmp_path, run_id="r", on_decision=lambda _: working.set())
    )
    await working.wait()
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    found = inspect_run(tmp_path, "r")
    assert (found.outcome, found.reason) == ("interrupted", CANCELLED)
