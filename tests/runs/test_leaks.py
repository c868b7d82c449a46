"""A short soak, and whether it sees leaks; for ten minutes and hours there is ``python -m tests.benchmarks.soak``."""

from __future__ import annotations

import gc
import sys
from collections import Counter

import pytest

from microagents import Prompt, run_sync
from microagents.roles.limits.held_leases import HeldLease
from microagents.roles.running_election import RunningElection
from microagents.work.durable import Work
from tests.benchmarks.soak import soak
from tests.shards.towns import Towns

AGAIN = """
import tempfile, threading, time
kept = []
def leak():
    while True:
        {}
        time.sleep(0.02)
threading.Thread(target=leak, daemon=True).start()
"""
LEAKS = {
    "run": "kept.append(b'x' * 1_000_000)",
    "view": "kept.append(open('/dev/null'))",
    "double": "tempfile.NamedTemporaryFile(delete=False).write(bytes(100_000))",
}


def test_what_an_input_has_used_is_freed_without_the_garbage_collector() -> None:
    rows = Towns.rows([{"town": f"town {number}", "id": str(number)} for number in range(30)])
    before = Counter(map(type, gc.get_objects()))
    gc.disable()
    try:
        run_sync(rows, models="sim:perfect", k=1, runs_dir=None, max_calls=100)
        after = Counter(map(type, gc.get_objects()))
    finally:
        gc.enable()
    assert [after[each] - before[each] for each in (RunningElection, Work, HeldLease)] == [0, 0, 0]


def test_a_question_of_texts_alone_keeps_no_reference_to_itself() -> None:
    asked = Prompt(user="Which town is Bern?")
    before = sys.getrefcount(asked)
    assert asked.flat is asked
    assert sys.getrefcount(asked) == before


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_a_viewer_and_a_server_that_work_side_by_side_leak_nothing() -> None:
    soaked = soak(6)
    assert soaked.leaks == [], [str(each) for each in soaked.readings]
    assert set(soaked.done) == {"steps", "view 200", "double 200"}, "a request failed"
    assert min(soaked.done.values()) > 20, soaked.done


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_soak_finds_a_leak_of_memory_of_open_files_and_of_files() -> None:
    soaked = soak(8, {name: AGAIN.format(leak) for name, leak in LEAKS.items()})
    assert soaked.leaks == ["run: memory", "view: open files", "runs: other files", "runs: number of files"]
