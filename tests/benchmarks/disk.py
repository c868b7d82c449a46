"""The promises on a disk with faults: ``python -m tests.benchmarks.disk``.

Each seed runs a chain, three of them, a problem that is cut up, a document, or an agent, in virtual time and on a disk with faults
(`tests.journal.faulty_disk`): power cuts, kills, a full disk, errors, lost syncs. What the run promises is checked after each sitting, and
it is resumed until it ends. A seed that fails is printed, and ``--seed N`` replays it alone.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from math import inf
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Literal, cast, get_args
from unittest.mock import patch

import msgspec
from msgspec import Struct

from microagents import InvalidUsage, MicroagentsError, Result, run
from microagents.base import processes
from microagents.journal import live_files, store, transactions, writer
from microagents.journal.ending import RunEnding
from microagents.journal.messages import Account, RecordedDecision
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import Reader
from microagents.runs.inspection.runs import decide, inspect_run
from microagents.runtimes.virtual import run_virtual
from microagents.tasks.drift import Drift
from microagents.tasks.multiplication import Multiplication
from tests.benchmarks.faults import ALIKE
from tests.benchmarks.harness import checked, options_of, sent
from tests.journal.faulty_disk import Fault, FaultyDisk, Plan
from tests.systems.agents import shop
from tests.systems.documents.lines import Lines

NOISY = "error=0.3,flag=0.1,latency=1.0,sigma=0.7"
TASKS: tuple[tuple[Any, Mapping[str, Any]], ...] = (
    (Drift(length=6), {"models": f"sim:perfect@{NOISY}", "k": 2}),
    ([Drift(length=length) for length in (2, 1)], {"models": f"sim:perfect@{NOISY}", "k": 2}),
    (Multiplication(digits=2), {"models": f"sim:perfect@{NOISY}", "k": 2}),
    (Lines(n=2), {"models": (f"sim:perfect@{NOISY}", f"sim:o3-mini@{NOISY}"), "strategy": "seqcv"}),
    (shop.Ticket(), {"models": "sim:perfect@latency=1.0"}),
)
WEIGHTS = (3, 2, 1, 1, 3)
"""How often each task is drawn: those that decide much take long."""
FAULTS: tuple[Fault, ...] = get_args(Fault)
COMMIT_S = 0.3
"""Slow enough that several records are in a commit, and that calls are in flight during it."""
MOST_SITTINGS = 20


class Case(Struct, frozen=True, kw_only=True):
    """How the seeds of a case run, but for the faults."""

    task: int
    durability: str
    is_network: bool
    """Whether the journal has a rollback journal, as on a network file system, instead of a write-ahead log."""
    seed: int
    """Seed of the run."""


def case_of(random: Random) -> Case:
    """Draw a case."""
    return Case(
        task=random.choices(range(len(TASKS)), WEIGHTS)[0],
        durability=random.choice(("full", "full", "full", "normal")),
        is_network=random.random() < 0.2,
        seed=random.randrange(2),
    )


@contextmanager
def machine(case: Case, number: int) -> Iterator[None]:
    """Another process, whose clock is virtual time; its commits wait for the disk, and it makes a checkpoint often."""

    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time(), time=time.time)
    with (
        patch.object(writer, "VIRTUAL_COMMIT_S", COMMIT_S),
        patch.object(store, "on_network", lambda _: case.is_network),
        patch.object(live_files, "LONG_LOG_BYTES", 12 * 4096),
        patch.object(processes, "_start_and_state", lambda _: (f"{number}", "running")),
        patch.object(transactions, "time", clock),
    ):
        yield


def sitting(
    case: Case, folder: Path, disk: FaultyDisk, number: int, decided: Callable[[RecordedDecision], None]
) -> Result | None:
    """A sitting of the run; None if the process or the power ended first.

    Raises:
        MicroagentsError: it was refused.
    """
    task, given = TASKS[case.task]
    given = {**given, "seed": case.seed, "durability": case.durability, "on_decision": decided}

    async def until_end() -> Result | None:
        running = asyncio.ensure_future(run(task, run_id="r", runs_dir=folder / "runs", **given))
        disk.on_end = lambda: asyncio.get_running_loop().call_soon(running.cancel)
        try:
            return cast("Result", await running)
        except (asyncio.CancelledError, MicroagentsError):
            if disk.has_ended:
                return None
            raise
        finally:
            disk.on_end = lambda: None

    with machine(case, number), disk.in_use():
        result = run_virtual(until_end(), seed=case.seed)
        return None if disk.has_ended else result


@contextmanager
def world() -> Iterator[Path]:
    """A folder for the journal, the log of calls to models, and that of effects."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        (folder / "runs").mkdir()
        with (
            patch.dict(os.environ, {"MICROAGENTS_PURCHASES": str(folder / "purchases")}),
            patch.object(shop, "WORLD", folder / "world"),
        ):
            yield folder


@cache
def undisturbed(case: Case) -> tuple[Account, int]:
    """What is decided and counted without faults, and how often the disk is changed."""
    with world() as folder:
        disk = FaultyDisk(folder / "runs", Random(0))
        result = sitting(case, folder, disk, 0, lambda _: None)
        assert result is not None
        assert result.outcome == "completed", result.reason
        return result.account, disk.changes


class Trial:
    """A run of a seed: its sittings, and what it has promised so far.

    Args:
        seed: draws the case and its faults.
        folder: an empty folder for them.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self._random = Random(seed)
        self._folder = folder
        self._runs = folder / "runs"
        self._journal = self._runs / "r.sqlite"
        self.case = case_of(self._random)
        self.came: list[Fault | Literal["refused"]] = []
        """What came of its faults."""
        self._sittings = 0
        self._durable: dict[str, object] = {}
        """Decisions that were said to be durable."""
        self._keeps_all = self._is_sound = True
        """Whether no power cut came that may lose the last commits, and none that may leave a damaged journal."""
        self._has_asked = False
        """Whether a person said what became of a call."""

    def check(self) -> None:
        """Run with faults, then without, to the end.

        Raises:
            AssertionError: a promise does not hold.
        """
        for _ in range(self._random.randint(1, 2)):
            self._sit(self._plan(), is_cut_after=self._random.random() < 0.3)
        while (result := self._sit(None)) is not None and self._ask_person():
            assert self._sittings < MOST_SITTINGS, result.reason
        if "refused" in self.came:
            return
        assert result is not None
        assert result.outcome == "completed", result.reason
        account, (right, _) = result.account, undisturbed(self.case)
        acts = isinstance(TASKS[self.case.task][0], shop.Ticket)
        if not self._has_asked:
            for name in ALIKE:
                if name == "errors" and acts and not self._keeps_all:
                    continue  # an effect whose record a disk lost is made again, and the task's check sees it
                found, wanted = getattr(account, name), getattr(right, name)
                assert found == wanted, f"{name} is {found!r}, undisturbed {wanted!r}"
        if acts and self._keeps_all:
            made = [each["what"] for each in shop.done()]
            assert made == ["label", "refund", "mail"], f"effects are {made}"

    def _plan(self) -> Plan:
        at = self._random.randint(1, undisturbed(self.case)[1] * 11 // 10)
        until = at + self._random.choice((1, 2, 5, 20, inf))
        return Plan(fault=self._random.choice(FAULTS), at=at, until=until)

    def _sit(self, plan: Plan | None, *, is_cut_after: bool = False) -> Result | None:
        """Run until the end or the fault, and check what is left; None unless the run itself ended."""
        if "refused" in self.came:
            return None
        self._sittings += 1
        disk, result, said = FaultyDisk(self._runs, self._random, plan), None, ""
        try:
            result = sitting(self.case, self._folder, disk, self._sittings, self._note)
            said = "" if result is None or result.outcome == "completed" else f"{result.reason}"
        except MicroagentsError as error:
            said = f"{error}"
            if plan is None and not self._is_sound:
                self.came.append("refused")
        assert "\n" not in said, f"more than one sentence: {said!r}"
        if plan is not None and (disk.has_ended or disk.refused):
            self.came.append(plan.fault)
        if is_cut_after and not disk.has_ended:
            disk.cut_power()
            self.came.append("power cut")
        if disk.has_ended:
            disk.restart()
            self._is_sound &= plan is None or plan.fault != "lying disk"
            self._keeps_all &= self._is_sound and (self._waits_for_disk or self.came[-1] == "kill")
        self._check_journal(said, is_completed=result is not None and not said)
        return result

    @property
    def _waits_for_disk(self) -> bool:
        return self.case.durability == "full" or isinstance(TASKS[self.case.task][0], shop.Ticket)

    def _note(self, decision: RecordedDecision) -> None:
        self._durable[decision.path] = msgspec.to_builtins(decision.value)

    def _check_journal(self, said: str, *, is_completed: bool) -> None:
        """Check what is left in the journal.

        Args:
            said: the sentence with which the sitting ended; empty for none.
            is_completed: whether it ended with the result.
        """
        kept: dict[str, object] = {}
        ending: RunEnding | None = None
        calls, most = sent(self._folder / "purchases"), 0
        try:
            if not holds_nothing(self._journal):
                with Reader(self._journal) as reader:
                    rows = dict(reader.decisions())
                    kept = {path: msgspec.json.decode(row.value) for path, row in rows.items() if row.value is not None}
                    account, damage, ending = reader.account(is_cut_off=True), reader.verify(), reader.ending()
                assert not damage or not self._is_sound, damage
                most = account.calls + account.lost_in_flight
        except InvalidUsage as error:
            if self._is_sound:
                raise AssertionError(f"it is refused: {error}") from error
            self.came.append("refused")
            return
        assert "begin another" not in said or not self._is_sound, f"it can be read, but was said to be damaged: {said}"
        if self._keeps_all:
            lost = {path for path, value in self._durable.items() if kept.get(path) != value}
            assert not lost, f"lost or changed: {sorted(lost)}"
            assert not is_completed or (ending is not None and ending.outcome == "completed"), "the ending is lost"
            assert calls <= most, f"{calls} calls were sent, and the journal knows of {most}"
        self._durable = {path: value for path, value in kept.items() if path in self._durable}

    def _ask_person(self) -> bool:
        """Let a person say what became of the calls of unknown outcome; whether there are any."""
        waiting = inspect_run(self._runs, "r").waiting
        for path, call, _ in waiting:
            made = any(each["what"] == call.tool for each in shop.done())
            decide(self._runs, "r", path, 'done "it was made"' if made else "not-done")
        self._has_asked |= bool(waiting)
        return bool(waiting)


def check(seed: int) -> Sequence[str]:
    """Check a seed; returns what came of its faults.

    Raises:
        AssertionError: a promise does not hold.
    """
    with world() as folder:
        trial = Trial(seed, folder)
        try:
            trial.check()
        except AssertionError as error:
            error.add_note(f"seed {seed}, {trial.case}, {trial.came}")
            raise
        return trial.came


def main() -> None:
    """Check seeds, and print those that fail."""
    came, failed = checked(check, options_of(__doc__, seeds=1000, first=0, seed=int))
    counts = Counter(itertools.chain.from_iterable(came))
    print(", ".join(f"{count} {fault}" for fault, count in sorted(counts.items())))
    print(f"{len(came)} seeds, {len(failed)} failed {failed or ''}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
