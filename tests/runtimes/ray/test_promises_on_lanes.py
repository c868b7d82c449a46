"""What a run on lanes promises: no input holds up others, limits hold over all lanes, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from microagents import Result, run
from microagents.actors.registry import TASKS
from microagents.journal.requests import SetRun
from microagents.journal.sharded import reader_of
from microagents.models.simulation.simulated import Purchases
from microagents.runs.driver import batch
from microagents.runs.inspection.control import ask_run, status_of
from microagents.runs.plan import settings_of
from microagents.runtimes.ray import liveness
from microagents.task import Task
from microagents.tasks.drift import Drift
from tests.cli.commands import STOPPED, write
from tests.runtimes.ray.ray_processes import Program, actors_of, until

pytestmark = [pytest.mark.usefixtures("ray_here"), pytest.mark.timeout(300)]

MODEL = "sim:perfect@error=0.4,flag=0.1,latency=0.01"
"""It errs so often that one wrong count would lead a walk elsewhere."""
BLOCKING = """
    import time
    from pathlib import Path

    from microagents.tasks.drift import Drift, Onward, Place

    class Blocking(Drift):
        blocks_s: float = 0.0
        once: str = ""

        def advance(self, state: Place, reply: Onward) -> Place:
            if self.blocks_s and state.steps_done == 3 and not Path(self.once).exists():
                Path(self.once).touch()
                time.sleep(self.blocks_s)
            return super().advance(state, reply)
    """
"""Walks of which some keep the event loop of their lane, once."""


@pytest.fixture(autouse=True)
def four_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by ``concurrency``: a lane that is blocked keeps the permits of its calls."""
    monkeypatch.setattr(batch, "MAX_OPEN", 4)


async def ended(inputs: Sequence[Task], **options: Any) -> tuple[Result, list[int]]:
    """A run, and its inputs in the order of their ends."""
    order: list[int] = []
    async with asyncio.timeout(120):
        given = {"models": MODEL, "k": 2, "runs_dir": None, "on_ending": lambda each: order.append(each.input)}
        result = await run(inputs, **{**given, **options})
    return result, order


def assert_same(*runs: Result) -> None:
    one, other = ((each.outcome, each.account.decisions_sha256, each.account.ballots_sha256) for each in runs)
    assert one == other
    assert runs[0].value == runs[1].value


@pytest.fixture
def blocking(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Any]]:
    """The class of walks that block; the actors import it from this folder, too."""
    write("blocking_walks.py", BLOCKING)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    yield TASKS.find("blocking_walks:Blocking", Task)
    sys.modules.pop("blocking_walks", None)


def walks(kind: type[Any], blocks_s: float) -> list[Task]:
    once = str(Path("blocked").absolute())
    return [kind(length=5, blocks_s=blocks_s, once=once), *[kind(length=5, once=once) for _ in range(15)]]


async def test_a_lane_whose_loop_is_blocked_holds_up_no_other_and_is_not_taken_for_dead(
    blocking: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "PING_EVERY_S", 0.2)
    with capture_logs() as logs:
        result, order = await ended(walks(blocking, 9.0), runtime="ray", lanes=2)
    # Two of four open inputs are in the blocked lane. All others were done meanwhile.
    assert order.index(0) >= len(order) - 2
    assert not [log for log in logs if "died" in log["event"]]
    assert_same(result, (await ended(walks(blocking, 0.0)))[0])


async def test_the_inputs_of_a_lane_that_is_blocked_for_good_are_taken_up_by_its_successor(
    blocking: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "PING_EVERY_S", 0.2)
    monkeypatch.setattr(liveness, "SILENT_S", 2.0)
    with capture_logs() as logs:
        result, _ = await ended(walks(blocking, 600.0), runtime="ray", lanes=2)
    assert [log["cause"] for log in logs if "died" in log["event"]] == [
        "it was not heard of for 2 s, but its node was: it is stopped, or code in it keeps its event loop"
    ]
    assert_same(result, (await ended(walks(blocking, 0.0)))[0])


async def test_lanes_begin_and_end_amid_a_run_without_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, given = [Drift(length=6)] * 60, dict[str, Any](models="sim:perfect@error=0.4,flag=0.1,latency=0.05")
    with monkeypatch.context() as at_once:
        at_once.setattr(batch, "MAX_OPEN", len(inputs))
        alone, _ = await ended(inputs, **given)
    begun = asyncio.Event()
    given["on_progress"] = lambda account: begun.set() if account.inputs_done else None

    async def until_there(lanes: int) -> None:
        await asyncio.to_thread(until, lambda: len(actors_of(os.getpid())) == lanes)

    async def change_lanes() -> None:
        await begun.wait()
        for lanes in (3, 1, 2):  # one of those that have ended is needed again
            assert (await asyncio.to_thread(ask_run, tmp_path, "r", SetRun(lanes=str(lanes)))).is_taken
            await until_there(lanes)
        assert status_of(tmp_path, "r").result.outcome == "running"

    changing = asyncio.create_task(change_lanes())
    result, _ = await ended(inputs, **given, runtime="ray", lanes=1, run_id="r", runs_dir=tmp_path)
    await changing
    assert_same(result, alone)
    assert (result.account.in_flight, result.account.lost_in_flight) == (0, 0)
    with reader_of(tmp_path, "r") as reader:
        assert settings_of(reader.experiment)["lanes"] == "2"


LIMITS = {"--max-calls": 100, "--concurrency": 5}


def test_limits_hold_to_the_call_over_all_lanes_and_neither_processes_nor_files_are_left() -> None:
    Path("walks.jsonl").write_text(
        "".join(f'{{"length": {length}}}\n' for length in (20, 3, 9, 14, 30, 25, 8, 2, 17, 12))
    )
    model = (
        *("--model", "sim:perfect@latency=0.02", "-k", "1", "--no-speculate", "--no-resend-stragglers"),
    )  # cancels no call
    words = ("-m", "microagents", "run", "drift", "--inputs", "walks.jsonl", *model, "--run-id", "r", "--json")
    limits = [str(word) for pair in LIMITS.items() for word in pair]
    purchases = Path("purchases").absolute()
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp") as folder:  # the paths of Ray's sockets must be short
        there = {"TMPDIR": folder, Purchases.VARIABLE: str(purchases)}
        with Program(*words, "--runtime", "ray", "--lanes", "3", *limits, **there) as program:
            code, out, err = program.end()
            assert code == STOPPED, err
            until(lambda: not program.left())
        assert [each.name for each in Path(folder).iterdir() if each.name != "ray"] == [], "Ray keeps its logs there"
    noted = [line.split()[0] for line in purchases.read_text().splitlines()]
    assert json.loads(out)["calls"] == noted.count("sent") == LIMITS["--max-calls"]
    in_flight = [noted[:place].count("sent") - noted[:place].count("billed") for place in range(len(noted) + 1)]
    assert max(in_flight) == LIMITS["--concurrency"]
    assert [each.name for each in Path("runs").iterdir() if each.name != ".gitignore"] == ["r.sqlite"]
