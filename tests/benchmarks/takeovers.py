"""Takeovers of stopped, killed and living processes: ``python -m tests.benchmarks.takeovers [--takeovers 200]``; as root, on Linux.

The agent of `tests.benchmarks.effects` is stopped or killed at a point of one of its calls, amid a commit too, or lives on. Another
process then tries to remove its run and to resume it. Both have clocks that are ahead or behind, and are on one host, on one kernel
under two names, or in two containers with pids, a name and perhaps a ``/proc`` of their own. The world's own log is the judge: no
journal is removed under a process that lives and renews its lease or can be looked up, no effect is made twice, and the run comes to
one result.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal
from uuid import uuid4

import psutil
from msgspec import Struct

from microagents import InvalidUsage, MicroagentsError
from microagents.journal.messages import RecordDecision, Written
from microagents.journal.reading import Reader
from microagents.journal.record_rows import RecordRows
from microagents.runs.inspection.runs import decide, inspect_run, remove_run
from tests.benchmarks.effects import (
    FOLDER,
    POINTS,
    RUNS,
    TOOLS,
    done,
    fault_of,
    killed_at,
    sitting,
    undisturbed,
)
from tests.benchmarks.harness import options_of, until

Place = Literal["here", "renamed", "container", "container without /proc"]
PLACES: tuple[Place, ...] = ("here", "renamed", "here", "renamed", "container", "container without /proc")
AMID = "amid a commit"
CLOCKS_S = (-3600.0, -15.0, 0.0, 15.0, 3600.0)
NEW_MOUNTS, NEW_NAMES, NEW_PIDS = 0x20000, 0x4000000, 0x20000000
RECURSIVE_PRIVATE = 0x44000
HOW = "functions, local"


class Case(Struct, frozen=True, kw_only=True):
    """One takeover."""

    of_tool: str
    point: str
    then: Literal["kill", "stop", "live"]
    """What happens to the first process at the point."""
    is_continued: bool
    """Whether a stopped process that keeps its run is continued, not killed."""
    first: Place
    second: Place
    clocks_s: tuple[float, float]

    @property
    def is_known(self) -> bool:
        """Whether the second process can look the first one up."""
        return {self.first, self.second} <= {"here", "renamed"}


class Child:
    """A process at a place with a clock, which tells what came of its work."""

    def __init__(self, run: str, work: Callable[[], str], place: Place, clock_s: float) -> None:
        self._said = FOLDER / f"{run}.{uuid4().hex[:6]}.said"
        self._pid = os.fork()
        if not self._pid:
            _be(place, clock_s, lambda: self._said.write_text(work()))

    def process(self) -> psutil.Process | None:
        """Return the process that works, not those that only wait for it; None once it has ended."""
        try:
            found = psutil.Process(self._pid)
            while children := found.children():
                (found,) = children
            return None if found.status() == psutil.STATUS_ZOMBIE else found
        except psutil.NoSuchProcess:
            return None

    def send(self, number: signal.Signals) -> None:
        """Send the process that works a signal."""
        if (found := self.process()) is not None:
            found.send_signal(number)

    def until_stopped(self) -> None:
        """Wait until the process is stopped or has ended."""
        until(lambda: (found := self.process()) is None or found.status() == psutil.STATUS_STOPPED, "it stops")

    def end(self) -> str:
        """Wait for the end; returns what it told, or nothing if it was killed."""
        until(lambda: os.waitpid(self._pid, os.WNOHANG)[0] != 0, "it ends")
        return self._said.read_text() if self._said.exists() else ""


def _be(place: Place, clock_s: float, work: Callable[[], object]) -> None:
    """Go to a place, work there, and exit."""
    try:
        _enter(place)
        wall = time.time
        time.time = lambda: wall() + clock_s
        work()
    except BaseException:  # noqa: BLE001 - whatever it is, it is said and the process ends here
        traceback.print_exc()
    finally:
        os._exit(0)


def _enter(place: Place) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if place == "here":
        return
    is_container = place.startswith("container")
    assert libc.unshare(NEW_NAMES | (NEW_PIDS | NEW_MOUNTS) * is_container) == 0, os.strerror(ctypes.get_errno())
    socket.sethostname(f"elsewhere-{os.getpid()}")
    if not is_container:
        return
    for _ in range(2):  # the first process of a container cannot be stopped from inside
        if (child := os.fork()) != 0:
            os._exit(os.waitpid(child, 0)[1] != 0)
        if place == "container":
            libc.mount(b"none", b"/", None, RECURSIVE_PRIVATE, None)
            assert libc.mount(b"proc", b"/proc", b"proc", 0, None) == 0


def sit(run: str) -> str:
    """A sitting of the run: its outcome, or why it was refused or ended."""
    write = RecordRows.write

    def writing(rows: RecordRows, records: list[Written]) -> None:
        write(rows, records)
        for each in records:
            if isinstance(each, RecordDecision) and each.id.path.endswith("/making/1"):
                killed_at(run, json.loads(each.verdict.winner or b"{}")["tool"], AMID, os.getpid())

    RecordRows.write = writing  # type: ignore[method-assign,assignment]
    try:
        result = sitting(run, HOW)
    except MicroagentsError as error:
        return f"error: {error}"
    return f"{result.outcome}: {result.reason}"


def remove(run: str) -> str:
    """Try to remove the run."""
    try:
        return f"removed {remove_run(RUNS, run)}"
    except InvalidUsage as error:
        return f"error: {error}"


class Takeover:
    """One case, under way."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._run = f"takeover-{uuid4().hex[:12]}"
        self._was_unknown = False

    def check(self) -> None:
        """Do the case.

        Raises:
            AssertionError: a journal was removed, an effect was made twice or not at all, or the result is another one.
        """
        case = self._case
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "live": signal.SIGCONT}[case.then]
        fault = fault_of(self._run, case.of_tool, case.point, number)
        hold = FOLDER / f"{self._run}.hold"
        if case.then == "live":
            hold.touch()
        first = Child(self._run, lambda: sit(self._run), case.first, case.clocks_s[0])
        until(fault.with_suffix(".hit").exists, "the fault is hit")
        if case.then != "live":
            first.until_stopped()
        if case.then == "live":
            self._refused("is being run by process")
            hold.unlink()
        elif case.then == "stop" and case.is_known:
            self._refused(" is stopped: continue it (kill -CONT ")
            first.send(signal.SIGCONT if case.is_continued else signal.SIGKILL)
        elif case.then == "stop" and case.point == AMID:
            said = self._second(sit)
            assert "keeps it locked" in said, said
            first.send(signal.SIGCONT if case.is_continued else signal.SIGKILL)
        elif case.then == "stop":
            self._note(self._second(sit))
            first.send(signal.SIGCONT)
            told = first.end()
            assert "was taken over by" in told, told
        if case.then != "stop" or case.is_known or case.point == AMID:
            first.end()
        self._note(self._second(sit))
        self._settle()

    def _second(self, work: Callable[[str], str]) -> str:
        return Child(self._run, lambda: work(self._run), self._case.second, self._case.clocks_s[1]).end()

    def _refused(self, why: str) -> None:
        """Check that the run can neither be removed nor resumed."""
        for work in (remove, sit):
            said = self._second(work)
            assert why in said, said
            assert (RUNS / f"{self._run}.sqlite").exists()

    def _note(self, said: str) -> None:
        assert said.startswith(("completed", "undecided")), said
        self._was_unknown |= said.startswith("undecided")

    def _settle(self) -> None:
        """Say what became of a call that nobody can tell, as the world's log has it, and let the run come to its end."""
        case, run = self._case, self._run
        for path, call, _ in inspect_run(RUNS, run).waiting if inspect_run(RUNS, run).outcome == "undecided" else ():
            assert call.tool == case.of_tool
            decide(RUNS, run, path, 'done "it was made"' if done(run)[call.tool] else "not-done")
        said = self._second(sit)
        assert said.startswith("completed"), said
        made = done(run)
        # The bank knows an idempotent call by its key.
        made["label"] = len({json.loads(line)["key"] for line in _log(run) if '"label"' in line})
        assert made == Counter(TOOLS), made
        with Reader(RUNS / f"{run}.sqlite") as reader:
            assert reader.verify() == []
        found = inspect_run(RUNS, run)
        assert self._was_unknown or found.account.decisions_sha256 == undisturbed(HOW), "its decisions are others"
        assert self._second(remove).startswith("removed")
        for each in (*FOLDER.glob(f"{run}.*"), *RUNS.glob(f"{run}.*")):
            each.unlink()


def _log(run: str) -> list[str]:
    return (FOLDER / f"{run}.log").read_text().splitlines()


def case_of(number: int) -> Case:
    """The case of a number."""
    draw = random.Random(number)
    then: Any = draw.choice(("kill", "stop", "stop", "live"))
    return Case(
        of_tool=draw.choice(TOOLS),
        point="during the call" if then == "live" else draw.choice((*POINTS, AMID)),
        then=then,
        is_continued=draw.random() < 0.5,
        first=draw.choice(PLACES),
        second=draw.choice(PLACES),
        clocks_s=(draw.choice(CLOCKS_S), draw.choice(CLOCKS_S)),
    )


def _do(numbers: range) -> None:
    """Do the cases of these numbers in a process of its own."""
    for number in numbers:
        case = case_of(number)
        try:
            Takeover(case).check()
        except AssertionError as error:
            print(f"number {number}, {case}: {error}", flush=True)
            os._exit(1)
    os._exit(0)


def main(takeovers: int, at_once: int) -> None:
    """Do so many takeovers."""
    began_s = time.monotonic()
    FOLDER.mkdir(exist_ok=True)
    undisturbed(HOW)
    workers = []
    for worker in range(at_once):
        if not (pid := os.fork()):
            _do(range(worker, takeovers, at_once))
        workers.append(pid)
    failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in workers)
    counts = Counter(case_of(number).then for number in range(takeovers))
    known = sum(case_of(number).is_known for number in range(takeovers))
    print(
        f"{takeovers} takeovers ({dict(counts)}; {known} where the process can be looked up), {time.monotonic() - began_s:.0f} s"
    )
    if failed:
        sys.exit(1)
    print("no journal was removed under a living run, every effect was made once, every run came to one result")


if __name__ == "__main__":
    arguments = options_of(__doc__.partition("\n")[0], takeovers=200, at_once=6, only=int)
    if arguments.only is not None:
        Takeover(case_of(arguments.only)).check()
    else:
        main(arguments.takeovers, arguments.at_once)
