"""Control of live runs: ``python -m tests.benchmarks.control [--kills 300] [--poll TURNS]``.

``--kills``: runs are killed around requests of every verb and resumed. Each request that was left must be in the journal exactly once, none
that a journal showed may be missing after the kill, what was set must hold, and an end must end the sitting that took it and no other.
``--poll``: a run's time alone and with a process that asks for its status 50 times a second, in turns.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median

from microagents.base.errors import InvalidUsage
from microagents.journal.inbox import leave_request
from microagents.journal.reading import journal_of
from microagents.journal.requests import (
    Ask,
    EndRun,
    PauseRun,
    ResumeRun,
    SetRun,
    pause_among,
    request_of,
)
from microagents.journal.sharded import reader_of
from microagents.journal.tables import LogRow
from microagents.runs.inspection.control import status_of
from microagents.runs.plan import settings_of
from tests.benchmarks.harness import options_of, spread, until

RUN = "a"
ENDLESS = ("hanoi", "-o", "disks=20", "--model", "sim:perfect@latency=0.02", "-k", "2")
VERBS: dict[str, Callable[[int], Ask]] = {
    "pause": lambda _: PauseRun(),
    "pause --now": lambda _: PauseRun(now=True),
    "resume": lambda _: ResumeRun(),
    "set max-calls": lambda number: SetRun(max_calls=10**9 + number),
    "set concurrency": lambda number: SetRun(concurrency=1 + number % 50),
    "drain": lambda _: EndRun(after="elections"),
    "stop": lambda _: EndRun(after="calls"),
    "stop --now": lambda _: EndRun(after="nothing"),
}
KILLS_A_RUN = 30
WAIT_S = 60.0
POLLS_A_SECOND = 50


class Controlled:
    """A run in a folder, whose sittings are killed while it is controlled.

    Args:
        folder: the folder of journals.
        random: chooses moments.
    """

    def __init__(self, folder: Path, random: Random) -> None:
        self._folder = folder
        self._random = random
        self._left: dict[str, tuple[str, Ask]] = {}
        """The verbs of the requests that were left and what they ask for, by their reasons, in order."""
        self.kills: Counter[str] = Counter()
        """Kills around each verb."""
        self._ended = 0
        """Sittings that ended by themselves."""

    def kill_around(self, verb: str) -> None:
        """Leave a request in a sitting, and kill that at a random moment around it."""
        with sitting(self._folder) as process:
            self._ask_soon(verb)
            time.sleep(self._random.uniform(0, 0.5))
            shown = self._taken()
            process.kill()
            if process.wait() == -signal.SIGKILL:
                self.kills[verb] += 1
            else:
                self._ended += 1
        missing = shown - self._taken()
        assert not missing, f"requests that the journal showed are lost: {missing}"

    def _ask_soon(self, verb: str) -> None:
        time.sleep(self._random.uniform(0, 0.2))
        why = f"request {len(self._left)}"
        ask = VERBS[verb](len(self._left))
        leave_request(journal_of(self._folder, RUN), request_of(ask, why))
        self._left[why] = verb, ask

    def _taken(self) -> Counter[str]:
        return Counter(each.why for each in self._requests())

    def _requests(self) -> list[LogRow]:
        with reader_of(self._folder, RUN) as reader:
            return reader.requests()

    def check(self) -> None:
        """Let a last sitting take what is left, and compare."""
        with sitting(self._folder) as process:
            until(lambda: self._taken().keys() == self._left.keys(), "every request is taken")
            found = self._requests()
            time.sleep(0.5)
            ended = process.poll() is not None
        assert [each.why for each in found] == list(self._left), "each is taken once, in order"
        ends = [each for each in found if each.kind == "end" and each.refused is None]
        assert self._ended + ended <= len(ends), "a sitting ended without a request"
        assert all(each.refused is None for each in found if each.kind != "end")
        asked = [self._left[each.why][1] for each in found]
        expected: dict[str, object] = {}
        for ask in asked:
            if isinstance(ask, SetRun):
                expected |= ask.changed
        with reader_of(self._folder, RUN) as reader:
            settings = settings_of(reader.experiment)
        assert {name: settings.get(name) for name in expected} == expected
        pauses = [ask for ask in asked if isinstance(ask, PauseRun | ResumeRun)]
        assert (pause_among(found) is not None) == (bool(pauses) and isinstance(pauses[-1], PauseRun))


@contextmanager
def sitting(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A sitting of the run: its first one, or a later one."""
    is_new = not journal_of(folder, RUN).exists()
    command = ["run", *(words or ENDLESS), "--run-id", RUN, "--yes"] if is_new else ["resume", RUN, "--yes"]
    process = subprocess.Popen(
        [sys.executable, "-m", "microagents", *command],
        env={**os.environ, "MICROAGENTS_RUNS_DIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: process.poll() is not None or _holds_lease(folder, process.pid), "the run begins")
        yield process
    finally:
        process.kill()
        process.wait()


def _holds_lease(folder: Path, pid: int) -> bool:
    try:
        with reader_of(folder, RUN) as reader:
            holder = reader.lease().holder
            return holder is not None and holder.pid == pid
    except InvalidUsage:
        return False


def kill(kills: int, seed: int) -> Counter[str]:
    """Kill runs around all verbs in turn, and check each run; returns the kills around each verb."""
    random, total, verbs = Random(seed), Counter[str](), list(VERBS)
    number = 0
    while total.total() < kills:
        with tempfile.TemporaryDirectory() as folder:
            run = Controlled(Path(folder), random)
            while run.kills.total() < min(KILLS_A_RUN, kills - total.total()):
                run.kill_around(verbs[number % len(verbs)])
                number += 1
            run.check()
        total += run.kills
        print(f"{total.total()} kills around {number} requests: none lost, none taken twice", flush=True)
    return total


def poll(turns: int) -> None:
    """Print what a poller costs a run, in turns."""
    pairs = [(_timed_run(0), _timed_run(POLLS_A_SECOND)) for _ in range(turns)]
    for number, name in enumerate(("wall", "processor")):
        alone, polled = ([turn[side][number] for turn in pairs] for side in (0, 1))
        ratios = [with_poller / without for without, with_poller in zip(alone, polled, strict=True)]
        least = min(polled) / min(alone)
        print(
            f"{name:<10} alone {median(alone):.2f} s, polled {median(polled):.2f} s; {spread(ratios, '.3f')}, of the least {least:.3f}"
        )
    print(f"{median(turn[1][2] for turn in pairs):.0f} polls a second")


def _timed_run(polls_a_second: int) -> tuple[float, float, float]:
    """Seconds of the wall and of the run's processor, and polls a second."""
    words = ("hanoi", "-o", "disks=13", "--model", "sim:perfect")
    with tempfile.TemporaryDirectory() as folder, sitting(Path(folder), *words) as process:
        began_s, before, polls = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN), 0
        while process.poll() is None:
            if polls_a_second:
                status_of(Path(folder), RUN)
                polls += 1
                time.sleep(max(0.0, polls / polls_a_second - (time.monotonic() - began_s)))
            else:
                time.sleep(0.01)
        took_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
        return took_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, polls / took_s


def main() -> None:
    """Do what the options ask for."""
    options = options_of(__doc__, kills=0, seed=0, poll=0)
    if options.kills:
        print(dict(kill(options.kills, options.seed)))
    if options.poll:
        poll(options.poll)


if __name__ == "__main__":
    main()
