"""Who may write a journal: one process at a time."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from microagents import InvalidUsage, run_sync
from microagents.journal.lease import STALE_AFTER_S, Holder, Lease
from microagents.journal.reading import Reader
from microagents.tasks.drift import Drift

MODEL = "sim:perfect@error=0.4,flag=0.1,latency=0.02"
JOURNAL = Path("runs/r.sqlite")
WAIT_S = 60
TASK = Drift(length=60)


def walk() -> Any:
    return run_sync(TASK, models=MODEL, k=1, run_id="r")


@contextmanager
def running() -> Iterator[subprocess.Popen[str]]:
    """The run in a process of its own, with some of it done."""
    words = [sys.executable, "-m", "microagents", "run", "drift", "-o", "length=60", "--model", MODEL, "-k", "1", "--run-id", "r", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until_something_is_decided()
            yield process
        finally:
            process.kill()


def wait_until_something_is_decided() -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if JOURNAL.exists() and JOURNAL.stat().st_size:
            try:
                with Reader(JOURNAL) as reader:
                    if reader.account().decided >= 3:
                        return
            except InvalidUsage:  # it is being made
                pass
    raise AssertionError("nothing was decided")


def lease(**changes: Any) -> None:
    """Write another lease into the journal."""
    with sqlite3.connect(JOURNAL, timeout=WAIT_S) as db:
        for column, value in changes.items():
            db.execute(f"UPDATE lease SET {column} = ?", (value,))
    db.close()


def test_a_second_process_is_refused_and_the_first_goes_on() -> None:
    with running() as first:
        with pytest.raises(InvalidUsage, match=f"is being run by process {first.pid} on .*; nothing was changed") as raised:
            walk()
        assert "\n" not in str(raised.value)
        out, _ = first.communicate(timeout=WAIT_S)
    assert json.loads(out)["outcome"] == "completed"


def test_a_process_that_was_killed_is_succeeded_at_once() -> None:
    with running() as first:
        first.kill()
        first.wait()
        assert walk().outcome == "completed"


def test_a_process_that_was_stopped_and_comes_back_writes_nothing_any_more() -> None:
    with running() as first:
        os.kill(first.pid, signal.SIGSTOP)
        lease(renewed_at=time.time() - STALE_AFTER_S - 1)  # as if it had been stopped for longer
        second = walk()
        kept = [dict(reader.decisions()) for reader in [Reader(JOURNAL)]]
        os.kill(first.pid, signal.SIGCONT)
        out, err = first.communicate(timeout=WAIT_S)
    assert (first.returncode, out) == (1, "")
    assert f"was taken over by process {os.getpid()}" in err or "was taken over by another process" in err
    assert len(err.splitlines()) == 1
    with Reader(JOURNAL) as reader:
        assert [dict(reader.decisions())] == kept
        assert reader.verify() == []
        assert reader.account().decisions_sha256 == second.account.decisions_sha256


def holder(**changes: Any) -> Holder:
    here = Holder.here()
    return Holder(**{name: changes.get(name, getattr(here, name)) for name in Holder.__struct_fields__})


HELD = {
    "this very process": (holder(), 0.0, False),
    "a process that ended": (holder(pid=2**22 + 7), 0.0, True),
    "an earlier process of this number": (holder(started="1"), 0.0, True),
    "this machine before it was started again": (holder(boot="0"), 0.0, False),
    "another host, just now": (holder(host="elsewhere"), 0.0, False),
    "another host, long ago": (holder(host="elsewhere"), STALE_AFTER_S + 1, True),
    "another container, long ago": (holder(pid_namespace="pid:[1]"), STALE_AFTER_S + 1, True),
    "another host whose clock runs ahead": (holder(host="elsewhere"), -3600.0, False),
    "nobody": (None, 0.0, True),
}


@pytest.mark.parametrize("who", HELD)
def test_a_lease_may_be_taken_from(who: str) -> None:
    held_by, age_s, may = HELD[who]
    assert Lease(epoch=1, holder=held_by, renewed_at=time.time() - age_s).may_be_taken is may


def test_a_zombie_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        started = stat.read_text().rpartition(")")[2].split()[19]
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            pass
        assert holder(pid=process.pid, started=started).is_gone
