"""Who may write a journal: one process at a time, and nobody who was taken for dead."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from microagents import InvalidUsage, run
from microagents.base import processes
from microagents.base.errors import TakenOver
from microagents.base.processes import ProcessIdentity
from microagents.journal import inbox, live_files, opening, transactions
from microagents.journal import lease as lease_module
from microagents.journal import writer as writer_module
from microagents.journal.ending import RunEnding
from microagents.journal.lease import SILENT_S, Lease
from microagents.journal.messages import RecordCalls
from microagents.journal.reading import Reader
from microagents.journal.requests import PauseRun, request_of
from microagents.runs.inspection.runs import inspect_run
from microagents.tasks.drift import Drift
from tests.cli.commands import COMPLETED, FAILED, WRONG, WRONG_USAGE, Sitting, microagents
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

ELSEWHERE = "another kernel"
HERE = ProcessIdentity.here()


def lease() -> Lease:
    with Reader(JOURNAL) as reader:
        return reader.lease()


def hold(holder: ProcessIdentity | None) -> None:
    """Let the journal be held by somebody."""
    written = "null" if holder is None else msgspec.json.encode(holder).decode()
    sql("UPDATE run SET content = json_set(content, '$.holder', json(?)) WHERE part = 'lease'", written)


def holder(**changes: Any) -> ProcessIdentity:
    """This process, but for what is changed."""
    return msgspec.structs.replace(HERE, **changes)


class Watch:
    """The monotonic clock of this process, which goes on while it sleeps; something may happen meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.meanwhile: Callable[[], object] = lambda: None
        monkeypatch.setattr(lease_module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(opening, "time", SimpleNamespace(sleep=self.sleep))
        monkeypatch.setattr(lease_module, "_sights", {})

    def sleep(self, for_s: float) -> None:
        self.now_s += for_s
        self.meanwhile()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def renew() -> None:
    """Renew the lease as a process on another host does."""
    sql("UPDATE run SET content = json_set(content, '$.renewals', 1 + (content ->> '$.renewals')) WHERE part = 'lease'")


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


@pytest.mark.slow
def test_a_second_process_is_refused_with_one_sentence_and_the_first_goes_on() -> None:
    with running() as first:
        for attempt in (walk, go_on):
            with pytest.raises(InvalidUsage) as raised:
                attempt()
            for words in (
                f"run r is being run by process {first.process.pid} on ",
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


@pytest.mark.slow
def test_a_process_that_was_killed_is_succeeded_at_once() -> None:
    with running() as first:
        first.send(signal.SIGKILL)
        os.waitid(
            os.P_PID, first.process.pid, os.WEXITED | os.WNOWAIT
        )  # it has ended, and nobody has asked how: a zombie
        left = lease()
        assert left.holder is not None
        assert (left.holder.pid, left.holder.state(), left.is_free) == (first.process.pid, "dead", True)
        assert inspect_run(RUNS, "r").outcome == "cut off"
        assert 0 < inspect_run(RUNS, "r").account.decided < 300
        assert problems() == []
        result = go_on()
    assert (result.outcome, digests(result.account), problems()) == ("completed", undisturbed(), [])
    assert (lease().epoch, lease().holder) == (2, None)


@pytest.mark.slow
def test_a_stopped_process_of_this_machine_keeps_its_run_however_long_it_is_stopped(watch: Watch) -> None:
    with running() as first:
        stop(first)
        watch.sleep(3600)
        advice = (
            f"process {first.process.pid} is stopped: continue it (kill -CONT {first.process.pid}) or end it (kill -9 "
        )
        for command in (("resume", "r"), ("list", "--remove", "r", "--yes"), ("resume", "r", "--forget-unsettled")):
            ran = microagents(*command)
            assert (ran.code, "nothing was changed" in ran.reason, advice in ran.reason) == (WRONG_USAGE, True, True)
        assert advice in (inspect_run(RUNS, "r").reason or "")
        first.send(signal.SIGCONT)
        ended = first.end()
    assert (ended.code, ended.json["decisions_sha256"]) == (WRONG, undisturbed()[0])
    assert (problems(), lease().epoch) == ([], 1)


@contextmanager
def taken_elsewhere(sitting: Sitting, watch: Watch) -> Iterator[None]:
    """Let a stopped process seem to be on another host, and be silent for long."""
    stop(sitting)
    hold(holder(host="elsewhere", table=ELSEWHERE, pid=sitting.process.pid))
    lease().state()
    watch.sleep(SILENT_S)
    yield


@pytest.mark.slow
def test_a_silent_process_of_another_host_is_succeeded_and_writes_nothing_when_it_comes_back(watch: Watch) -> None:
    with running() as first, taken_elsewhere(first, watch):
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


def test_a_process_that_is_succeeded_right_after_a_commit_says_so_and_saves_no_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take, commits = live_files.JournalFiles.take_commit, 0

    def taken_after(files: live_files.JournalFiles) -> None:
        nonlocal commits
        take(files)
        commits += 1
        if commits == 5:
            sql(
                "UPDATE run SET content = json_set(content, '$.epoch', 1 + (content ->> '$.epoch')) WHERE part = 'lease'"
            )
            sql("DELETE FROM sample")

    monkeypatch.setattr(live_files.JournalFiles, "take_commit", taken_after)
    with pytest.raises(TakenOver):
        walk()
    assert [each.name for each in RUNS.iterdir() if each.is_dir()] == []


@pytest.mark.slow
def test_a_process_that_was_stopped_while_another_goes_on_is_told_who() -> None:
    with running() as first:
        stop(first)
        hold(None)
        with running() as second:
            first.send(signal.SIGCONT)
            ended = first.end()
            assert (ended.code, f"was taken over by process {second.process.pid} on " in ended.reason) == (FAILED, True)
            assert second.end().json["decisions_sha256"] == undisturbed()[0]
    assert problems() == []


LOCKS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
input()
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_process_that_keeps_the_journal_locked_is_named_with_what_to_do(
    is_stopped: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a process does that is stopped amid a commit, and cannot be looked up."""
    walk(max_calls=100)
    monkeypatch.setattr(opening, "BUSY_S", 0.01)
    words = [sys.executable, "-c", LOCKS, str(JOURNAL)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        if is_stopped:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        try:
            for command in (("resume", "r"), ("list", "--remove", "r", "--yes"), ("resume", "r", "--forget-unsettled")):
                said = microagents(*command).reason
                assert f"process {process.pid} on {HERE.host} keeps it locked; " in said
                assert (f"(kill -CONT {process.pid})" in said, "database is locked" in said) == (is_stopped, False)
        finally:
            process.kill()
    assert digests(go_on(max_calls=None).account) == undisturbed()


@pytest.mark.parametrize("can_tell", [True, False])
def test_who_keeps_a_journal_locked_may_be_known_only_by_the_lease(
    can_tell: bool,  # noqa: FBT001 - a parameter of the test
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened().close()
    hold(holder(host="elsewhere", table=ELSEWHERE, pid=77) if can_tell else None)
    with closing(sqlite3.connect(JOURNAL, isolation_level=None)) as db, closing(opening.connect(JOURNAL)) as other:
        other.execute("PRAGMA busy_timeout = 0")
        db.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(processes, "_locking", lambda _: iter(()))
        with pytest.raises(sqlite3.OperationalError) as raised:
            other.execute("BEGIN IMMEDIATE")
        named = "process 77 on elsewhere" if can_tell else "another process"
        assert opening.error_text(JOURNAL, raised.value).startswith(f"{named} keeps it locked")


# -- one store after another -------------------------------------------------------------------------------------------


def a_call() -> RecordCalls:
    return RecordCalls(source="Solver/0", calls=1)


GONE = 2**22 + 7
HELD = {
    "this very process": (holder(), False),
    "a process that ended": (holder(pid=GONE), True),
    "an earlier process of this number": (holder(started="1"), True),
    "this machine under another name": (holder(host="renamed"), False),
    "a process that ended on this machine under another name": (holder(host="renamed", pid=GONE), True),
    "nobody": (None, True),
}
ELSE = {
    "this machine before it was started again": holder(table=HERE.table.replace(HERE.table.split()[0], "boot", 1)),
    "another host": holder(host="elsewhere", table=ELSEWHERE),
    "another host with a process that is gone here": holder(table=ELSEWHERE, pid=GONE),
    "another container": holder(table=HERE.table.replace("pid:[", "pid:[1")),
    "a container with another clock": holder(table=HERE.table.replace("time:[", "time:[1")),
    "a system that does not tell its processes apart": holder(table=""),
}


@pytest.mark.parametrize("who", HELD)
def test_who_is_known_to_be_dead_has_lost_the_lease_at_once_and_who_lives_keeps_it(who: str, watch: Watch) -> None:
    held_by, may = HELD[who]
    opened().close()
    hold(held_by)
    watch.sleep(3600)
    assert lease().state() == ("free" if may else "held")
    before = on_disk()
    if may:
        opened().close()
        assert lease().epoch == 2
    else:
        with pytest.raises(InvalidUsage, match="is being run by process") as raised:
            opened()
        sentence(raised.value)
        assert on_disk() == before


@pytest.mark.parametrize("who", ELSE)
def test_who_cannot_be_looked_up_is_watched_until_it_was_silent_for_long(who: str, watch: Watch) -> None:
    opened().close()
    hold(ELSE[who])
    assert lease().state() == "unclear"
    opened().close()
    assert (lease().epoch, watch.now_s) == (2, SILENT_S)


@pytest.mark.parametrize("who", ELSE)
def test_who_renews_the_lease_while_it_is_watched_keeps_it(who: str, watch: Watch) -> None:
    opened().close()
    hold(ELSE[who])
    watch.meanwhile = renew
    with pytest.raises(InvalidUsage, match="is being run by process") as raised:
        opened()
    sentence(raised.value)
    assert watch.now_s < SILENT_S
    assert (lease().state(), lease().epoch) == ("held", 1)


def test_a_renewal_long_before_the_last_look_does_not_show_that_the_holder_lives(watch: Watch) -> None:
    opened().close()
    hold(holder(table=ELSEWHERE))
    assert lease().state() == "unclear"
    renew()
    watch.sleep(3600)
    assert lease().state() == "unclear"
    watch.sleep(SILENT_S)
    assert lease().state() == "free"


@pytest.mark.slow
def test_who_watches_a_lease_says_so_once(watch: Watch) -> None:
    walk(max_calls=100)
    hold(holder(host="elsewhere", table=ELSEWHERE, pid=77))
    watch.meanwhile = renew
    for command in (("resume", "r"), ("list", "--remove", "r", "--yes")):
        watch.sleep(3600)
        ran = microagents(*command)
        told = "run r is held by process 77 on elsewhere, which cannot be looked up from here; watching for up to 10 s"
        assert (ran.code, ran.err.count(told)) == (WRONG_USAGE, 1)
    watch.sleep(3600)
    watch.meanwhile = lambda: None
    assert "stopped at its limit" in microagents("list").out
    assert microagents("list", "--remove", "r", "--yes").code == COMPLETED


def test_a_copy_whose_holder_nobody_knows_can_be_read_where_nothing_can_be_written(
    watch: Watch,  # noqa: ARG001 - it is not waited for
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened().close()
    hold(holder(table=ELSEWHERE))
    open_as = opening._open

    def without_index(path: Path, file: Path, options: str) -> sqlite3.Connection:
        if options == "mode=ro":
            raise InvalidUsage("SQLite makes no index of the log there")
        return open_as(path, file, options)

    monkeypatch.setattr(opening, "_open", without_index)
    assert lease().state() == "unclear"
    hold(holder())
    with pytest.raises(InvalidUsage, match="no index"):
        lease()


def test_who_keeps_the_requests_locked_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    opened().close()
    monkeypatch.setattr(inbox, "LOCK_S", 0.0)
    inbox.leave_request(JOURNAL, request_of(PauseRun()))
    code = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('BEGIN IMMEDIATE'); print(flush=True); input()"
    words = [sys.executable, "-c", code, str(inbox.requests_of(JOURNAL))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(InvalidUsage, match=f"process {process.pid} on .* keeps it locked; wait until it is done"):
            inbox.leave_request(JOURNAL, request_of(PauseRun()))
        process.kill()


@pytest.mark.parametrize("clock_s", [-3600.0, 3600.0])
def test_no_wall_clock_is_read_to_judge_a_lease(clock_s: float, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    opened().close()
    hold(holder(table=ELSEWHERE))
    monkeypatch.setattr(time, "time", lambda: clock_s)
    assert lease().state() == "unclear"
    watch.sleep(SILENT_S - 1)
    assert lease().state() == "unclear"


def test_a_store_that_was_taken_over_writes_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened()
    first.commit([a_call()])
    hold(None)
    second = opened()
    second.commit([a_call()])
    before = dumped()
    ending = RunEnding(outcome="completed", result="{}")
    for attempt in (lambda: first.commit([a_call()]), first.renew, lambda: first.end(ending)):
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
    hold(None)
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
    there.commit([a_call()])
    there.renew()
    renewals = [lease().renewals]
    monkeypatch.setattr(transactions, "RENEW_EVERY_S", 0.0)
    there.renew()
    renewals.append(lease().renewals)
    there.commit([a_call()])
    renewals.append(lease().renewals)
    assert renewals == [1, 2, 3], "not more often than need be"
    there.close()


@pytest.mark.slow
async def test_a_run_that_waits_for_its_model_renews_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "RENEW_EVERY_S", 0.0)
    monkeypatch.setattr(writer_module, "RENEW_EVERY_S", 0.02)
    renewed: list[int] = []
    enough = asyncio.Event()

    def look_on(account: Any) -> None:
        assert not account.calls, "nothing was answered, so nothing is committed"
        renewed.append(lease().renewals)
        if len(renewed) == 3:
            enough.set()

    await run(Drift(length=1), models="sim:perfect@latency=600", run_id="r", on_progress=look_on, terminate=enough)
    assert renewed[0] < renewed[1] < renewed[2]


@pytest.mark.slow
def test_a_run_that_ended_in_order_holds_nothing() -> None:
    walk(max_calls=100)
    assert (lease().holder, lease().epoch) == (None, 1)
    go_on(max_calls=200)
    assert (lease().holder, lease().epoch) == (None, 2)


@pytest.mark.slow
def test_who_cannot_begin_gives_the_lease_back() -> None:
    walk(max_calls=100)
    with pytest.raises(InvalidUsage):
        go_on(on_undecided="sim:perfekt")
    assert lease().holder is None
    assert digests(go_on(max_calls=None).account) == undisturbed()
