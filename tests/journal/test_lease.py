"""Who may write a journal: one process at a time, and nobody who was taken for dead."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from microagents import InvalidUsage, Usage, run
from microagents.base.errors import TakenOver
from microagents.journal import transactions
from microagents.journal import writer as writer_module
from microagents.journal.lease import STALE_AFTER_S, Holder, Lease
from microagents.journal.messages import RecordCalls
from microagents.journal.reading import Reader
from microagents.runs.inspection.runs import inspect_run
from microagents.tasks.drift import Drift
from tests.cli.commands import FAILED, WRONG, WRONG_USAGE, Sitting, microagents
from tests.journal.walks import (
    JOURNAL,
    PATIENTLY,
    RUNS,
    digests,
    dumped,
    go_on,
    on_disk,
    opened,
    problems,
    sentence,
    sql,
    undisturbed,
    walk,
)

LATE_S = STALE_AFTER_S + 1


def lease() -> Lease:
    with Reader(JOURNAL) as reader:
        return reader.lease()


def let_age(age_s: float) -> None:
    """Write down that the holder was last heard of so long ago."""
    sql("UPDATE lease SET renewed_at = ?", time.time() - age_s)


def hold(holder: Holder | None, age_s: float = 0.0) -> None:
    """Let the journal be held by somebody."""
    sql("UPDATE lease SET holder = ?", None if holder is None else msgspec.json.encode(holder).decode())
    let_age(age_s)


def holder(**changes: Any) -> Holder:
    """This process, but for what is changed."""
    here = Holder.here()
    return Holder(**{name: changes.get(name, getattr(here, name)) for name in Holder.__struct_fields__})


@contextmanager
def running() -> Iterator[Sitting]:
    """The run in a process of its own, with some of it done; it stands still while nobody reads what it buys."""
    with Sitting(*PATIENTLY, "--json", hastily=True) as sitting:
        sitting.until_sent(300)
        yield sitting


def stop(sitting: Sitting) -> None:
    """Stop a process, but not in the middle of a commit: then whoever takes over has to wait for the end of it."""
    while True:
        sitting.send(signal.SIGSTOP)
        os.waitid(os.P_PID, sitting.process.pid, os.WSTOPPED)
        with closing(sqlite3.connect(JOURNAL, timeout=0, isolation_level=None)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                sitting.send(signal.SIGCONT)
            else:
                db.execute("ROLLBACK")
                return


# -- two processes -----------------------------------------------------------------------------------------------------


def test_a_second_process_is_refused_with_one_sentence_and_the_first_goes_on() -> None:
    with running() as first:
        for attempt in (walk, go_on):
            with pytest.raises(InvalidUsage) as raised:
                attempt()
            for words in (
                f"run r is being run by process {first.process.pid} on ",
                " s ago",
                "nothing was changed",
                "microagents show r",
            ):
                assert words in sentence(raised.value)
        for command in (PATIENTLY, ("resume", "r")):
            ran = microagents(*command)
            assert (ran.code, f"process {first.process.pid}" in ran.reason) == (WRONG_USAGE, True)
        assert inspect_run(RUNS, "r").outcome == "running"
        ended = first.end()
    assert (ended.code, ended.json["outcome"]) == (WRONG, "completed")
    assert (ended.json["decisions_sha256"], ended.json["ballots_sha256"]) == undisturbed()
    assert (problems(), lease().epoch) == ([], 1)


async def test_a_second_run_in_the_same_process_is_refused_too() -> None:
    heard, enough = asyncio.Event(), asyncio.Event()
    options: dict[str, Any] = {"models": "sim:perfect@latency=600", "run_id": "r"}
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(run(Drift(length=2), **options, on_progress=lambda _: heard.set(), terminate=enough))
        await heard.wait()
        with pytest.raises(InvalidUsage, match=f"is being run by process {os.getpid()} on ") as raised:
            await run(Drift(length=2), **options)
        sentence(raised.value)
        enough.set()
    assert (first.result().outcome, problems()) == ("interrupted", [])


def test_a_process_that_was_killed_is_succeeded_at_once() -> None:
    with running() as first:
        first.send(signal.SIGKILL)
        os.waitid(
            os.P_PID, first.process.pid, os.WEXITED | os.WNOWAIT
        )  # it has ended, and nobody has asked how: a zombie
        left = lease()
        assert left.holder is not None
        assert (left.holder.pid, left.holder.is_gone, left.age_s < STALE_AFTER_S) == (first.process.pid, True, True)
        assert inspect_run(RUNS, "r").outcome == "cut off"
        assert 0 < inspect_run(RUNS, "r").account.decided < 300
        assert problems() == []
        result = go_on()
    assert (result.outcome, digests(result.account), problems()) == ("completed", undisturbed(), [])
    assert (lease().epoch, lease().holder) == (2, None)


def test_a_process_that_was_stopped_for_long_is_succeeded_and_writes_nothing_when_it_comes_back() -> None:
    with running() as first:
        stop(first)
        with pytest.raises(InvalidUsage, match=f"process {first.process.pid} on .*, last active [0-9]+ s ago"):
            go_on()
        let_age(LATE_S)
        second = go_on()
        assert (second.outcome, digests(second.account)) == ("completed", undisturbed())
        before = dumped()
        first.send(signal.SIGCONT)
        ended = first.end()
    assert (ended.code, ended.out) == (FAILED, "")
    assert ended.reason.startswith("run r was taken over by ")
    assert dumped() == before
    assert (problems(), lease().epoch) == ([], 2)
    assert digests(walk().account) == undisturbed()


@pytest.mark.slow
def test_a_process_that_was_stopped_while_another_goes_on_is_told_who() -> None:
    with running() as first:
        stop(first)
        let_age(LATE_S)
        with running() as second:
            first.send(signal.SIGCONT)
            ended = first.end()
            assert (ended.code, f"was taken over by process {second.process.pid} on " in ended.reason) == (FAILED, True)
            assert second.end().json["decisions_sha256"] == undisturbed()[0]
    assert problems() == []


# -- one store after another -------------------------------------------------------------------------------------------


def a_call() -> RecordCalls:
    return RecordCalls(source="Solver/0", sent=1, billed=1, usage=Usage(cost_usd=0.0))


HELD = {
    "this very process": (holder(), 0.0, False),
    "this process, though it has been slow": (holder(), LATE_S, True),
    "a process that ended": (holder(pid=2**22 + 7), 0.0, True),
    "an earlier process of this number": (holder(started="1"), 0.0, True),
    "this machine before it was started again": (holder(boot="0"), 0.0, False),
    "this machine before it was started again, long ago": (holder(boot="0"), LATE_S, True),
    "another host, just now": (holder(host="elsewhere"), 0.0, False),
    "another host, a moment ago": (holder(host="elsewhere"), STALE_AFTER_S - 5, False),
    "another host, long ago": (holder(host="elsewhere"), LATE_S, True),
    "another host with a process that is gone here": (holder(host="elsewhere", pid=2**22 + 7), 0.0, False),
    "another container, just now": (holder(pid_namespace="pid:[1]"), 0.0, False),
    "another container, long ago": (holder(pid_namespace="pid:[1]"), LATE_S, True),
    "another host whose clock runs ahead": (holder(host="elsewhere"), -3600.0, False),
    "nobody": (None, 0.0, True),
}


@pytest.mark.parametrize("who", HELD)
def test_a_lease_may_be_taken_from(who: str) -> None:
    held_by, age_s, may = HELD[who]
    opened().close()
    hold(held_by, age_s)
    assert lease().may_be_taken is may
    before = on_disk()
    if may:
        opened().close()
        assert lease().epoch == 2
    else:
        with pytest.raises(InvalidUsage, match="is being run by process") as raised:
            opened()
        sentence(raised.value)
        assert on_disk() == before


@pytest.mark.xfail(
    strict=True,
    reason="a lease that could not be given back is held by the process for as long as it lives, up to 10 s",
)
def test_a_process_that_could_not_give_its_lease_back_may_go_on() -> None:
    there = opened()
    there._db.execute("PRAGMA query_only = 1")  # a full disk, as SQLite says it
    there.close()
    opened().close()


def test_a_system_that_does_not_tell_its_processes_apart_waits_until_the_lease_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = holder(pid=2**22 + 7, boot="")
    monkeypatch.setattr(Holder, "here", classmethod(lambda _: gone))
    assert not Lease(epoch=1, holder=gone, renewed_at=time.time()).may_be_taken
    assert Lease(epoch=1, holder=gone, renewed_at=time.time() - LATE_S).may_be_taken


def test_a_store_that_was_taken_over_writes_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened()
    first.commit([a_call()])
    hold(holder(host="elsewhere"), LATE_S)
    second = opened()
    second.commit([a_call()])
    before = dumped()
    for attempt in (lambda: first.commit([a_call()]), first.renew, lambda: first.end("completed", None, "", b"{}")):
        with monkeypatch.context() as soon:
            soon.setattr(transactions, "RENEW_EVERY_S", 0.0)
            with pytest.raises(TakenOver, match=f"run r was taken over by process {os.getpid()} on ") as raised:
                attempt()
        sentence(raised.value)
    first.close()
    assert dumped() == before
    second.commit([a_call()])
    second.close()
    with Reader(JOURNAL) as reader:
        assert (reader.account().calls, reader.lease().epoch, reader.lease().holder) == (3, 2, None)


def test_a_new_store_that_was_taken_over_does_not_take_the_journal_away() -> None:
    first = opened()
    hold(holder(host="elsewhere"), LATE_S)
    second = opened()
    second.commit([a_call()])
    first.close(forget=True)  # as a run does that failed before its first step
    second.close()
    assert JOURNAL.exists()
    with Reader(JOURNAL) as reader:
        assert reader.account().calls == 1


def test_a_lease_is_renewed_by_commits_and_where_there_are_none_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "RENEW_EVERY_S", 600.0)
    there = opened()
    let_age(5.0)
    there.commit([a_call()])
    there.renew()
    assert lease().age_s >= 5.0, "not more often than need be"
    monkeypatch.setattr(transactions, "RENEW_EVERY_S", 0.0)
    there.renew()
    assert lease().age_s < 5.0
    let_age(5.0)
    there.commit([a_call()])
    assert lease().age_s < 5.0
    there.close()


async def test_a_run_that_waits_for_its_model_renews_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "RENEW_EVERY_S", 0.0)
    monkeypatch.setattr(writer_module, "RENEW_EVERY_S", 0.02)
    renewed: list[float] = []
    enough = asyncio.Event()

    def look_on(account: Any) -> None:
        assert not account.calls, "nothing was answered, so nothing is committed"
        renewed.append(lease().renewed_at)
        if len(renewed) == 3:
            enough.set()

    await run(Drift(length=1), models="sim:perfect@latency=600", run_id="r", on_progress=look_on, terminate=enough)
    assert renewed[0] < renewed[1] < renewed[2]


def test_a_run_that_ended_in_order_holds_nothing() -> None:
    walk(max_calls=100)
    assert (lease().holder, lease().epoch) == (None, 1)
    go_on(max_calls=200)
    assert (lease().holder, lease().epoch) == (None, 2)


def test_who_cannot_begin_gives_the_lease_back() -> None:
    walk(max_calls=100)
    with pytest.raises(InvalidUsage):
        go_on(on_undecided="sim:perfekt")
    assert lease().holder is None
    assert digests(go_on(max_calls=None).account) == undisturbed()


# -- processes ---------------------------------------------------------------------------------------------------------


def test_this_process_is_not_gone() -> None:
    assert not Holder.here().is_gone
    assert Holder.here() == Holder.here()


def test_a_process_is_told_from_a_later_one_of_its_number() -> None:
    assert Holder.here().started.isdecimal()
    assert holder(started=str(int(Holder.here().started) + 1)).is_gone


@pytest.mark.parametrize("name", ["plain", "with blank", "a) R 1 2 (b"])
def test_a_process_is_known_by_its_start_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    program = tmp_path / name
    program.symlink_to(Path(sys.executable).resolve())
    with subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        started = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        there = holder(pid=process.pid, started=started)
        gone = [there.is_gone]
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        gone.append(there.is_gone)
    assert [*gone, there.is_gone] == [False, True, True], "a zombie has ended"
