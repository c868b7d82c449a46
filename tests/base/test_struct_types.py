"""Threads that meet the same classes first."""

from __future__ import annotations

import sys
from subprocess import run

import pytest

RUNS = """
import sys
from threading import Barrier, Thread
from microagents import run_sync
from microagents.tasks.hanoi import Hanoi

sys.setswitchinterval(1e-6)
together = Barrier(6)

def one():
    together.wait()
    print(run_sync(Hanoi(disks=4), models="sim:perfect", k=2, runs_dir=None).outcome)

threads = [Thread(target=one) for _ in range(6)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


@pytest.mark.slow
def test_the_first_runs_of_a_program_may_begin_in_several_threads_at_once() -> None:
    for _ in range(4):
        ran = run([sys.executable, "-c", RUNS], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout.count("completed")) == (0, 6), ran.stderr
