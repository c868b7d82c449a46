"""Requests to a live run: a person's decision takes effect at once, survives a kill, and a damaged file harms nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from microagents import InvalidUsage, run_sync
from microagents.journal.inbox import TABLE, leave_request
from microagents.journal.messages import RecordProgress
from microagents.journal.reading import Reader
from microagents.journal.requests import Decide, EndRun, PauseRun, request_of
from microagents.runs.inspection.runs import inspect_run
from microagents.tasks.drift import Drift
from tests.cli.commands import COMPLETED, STOPPED, WAIT_S, WRONG, WRONG_USAGE, Sitting, microagents
from tests.journal.test_store import store as opened

RUNS, JOURNAL, REQUESTS = Path("runs"), Path("runs/r.sqlite"), Path("runs/r.sqlite.requests")
STUCK = "sim:perfect@error=0.5,alternatives=1,latency=0.2"
"""A model that never leads by twenty votes."""


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not _now(holds):
        assert time.monotonic() < end_s
        time.sleep(0.05)


def _now(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except InvalidUsage:  # the run is making its journal
        return False


def recorded(query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(JOURNAL)) as db:  # the views are for the programs of people
        return db.execute(query).fetchall()


def is_open() -> bool:
    if not JOURNAL.exists():
        return False
    with Reader(JOURNAL) as reader:
        return bool(reader.open_elections("0/step/0"))


@pytest.mark.slow
def test_a_person_decides_an_open_election_of_a_live_run_which_goes_on_from_it() -> None:
    with Sitting(
        "run", "drift", "-o", "length=1", "--model", STUCK, "-k", "20", "-s", "max_draws=100000", "--run-id", "r"
    ) as sitting:
        until(is_open)
        wrong = microagents("decide", "r", "0/step/0", '{"nonsense": 1}')
        assert (wrong.code, REQUESTS.exists()) == (WRONG_USAGE, False)
        decided = microagents("decide", "r", "0/step/0", '{"number": 5}')
        assert (decided.code, decided.err) == (COMPLETED, "")
        assert sitting.end().code == WRONG
    assert inspect_run(RUNS, "r").account.settled_at == {"0/step/0": "person"}
    assert recorded("SELECT kind, refused FROM log") == [("decide", None)]
    assert REQUESTS.stat().st_mode & 0o777 == 0o600
    assert microagents("list", "--remove", "r", "--yes").code == COMPLETED
    assert not REQUESTS.exists()


@pytest.mark.slow
def test_a_request_that_a_killed_run_did_not_read_takes_effect_once_it_is_resumed() -> None:
    with Sitting(
        "run", "drift", "-o", "length=1", "--model", STUCK, "-k", "20", "-s", "max_draws=100000", "--run-id", "r"
    ) as sitting:
        until(is_open)
        os.kill(sitting.process.pid, signal.SIGSTOP)  # so that it cannot read the request before it is killed
        request = request_of(Decide(path="0/step/0", value='{"number":5}'))
        leave_request(JOURNAL, request)
        leave_request(JOURNAL, request)
        leave_request(JOURNAL, request_of(Decide(path="0/step/0", value='{"number":6}')))
        os.kill(sitting.process.pid, signal.SIGKILL)
        sitting.process.wait(WAIT_S)
    assert recorded("SELECT * FROM log") == []
    assert microagents("resume", "r").code == WRONG
    (taken, (_, refused)) = recorded("SELECT id, refused FROM log ORDER BY rowid")
    assert (taken, "has decided '0/step/0' already" in str(refused)) == ((request.id, None), True)
    assert inspect_run(RUNS, "r").account.settled_at == {"0/step/0": "person"}
    assert recorded("SELECT value FROM decisions WHERE path = '0/step/0'") == [('{"number":5}',)]


@pytest.mark.slow
def test_an_input_that_ended_undecided_is_taken_up_again_while_the_others_are_done() -> None:
    Path("inputs.jsonl").write_text('{"length": 1}\n{"length": 40}\n')
    slow = STUCK.replace("latency=0.2", "latency=2")  # the second input is still at work when the request comes
    words = (
        "--inputs",
        "inputs.jsonl",
        "--model",
        slow,
        *("--concurrency", "1", "-k", "2", "-s", "max_draws=2", "--run-id", "r"),
    )

    def is_undecided() -> bool:
        if not JOURNAL.exists():
            return False
        with Reader(JOURNAL) as reader:
            return bool(reader.undecided())

    with Sitting("run", "drift", *words, "--seed", "1") as sitting:
        until(is_undecided)
        with Reader(JOURNAL) as reader:
            path = next(iter(reader.undecided()))
        leave_request(JOURNAL, request_of(Decide(path=path, value='{"number":5}')))
        sitting.end()
    assert inspect_run(RUNS, "r").account.settled_at == {path: "person"}


GOOD = {"id": "0" * 32, "who": "me", "at": "now", "ask": {"type": "decide", "path": "0/step/0", "value": "{}"}}
BAD_ROWS: list[object] = [
    b"\0\xff",
    b"[" * 50_000,
    b"x" * 100_000,
    7,
    "text",
    json.dumps({**GOOD, "id": "../x"}).encode(),
    json.dumps({**GOOD, "ask": {"type": "rm"}}).encode(),
    json.dumps({**GOOD, "ask": {"type": "set", "max_cost_usd": 1e300}}).encode(),
    json.dumps({**GOOD, "why": "\ud800"}).encode(),
    json.dumps({**GOOD, "id": "1" * 32}).encode(),  # a reply of another kind: recorded, and no election takes it
]


def left() -> int:
    """Number of requests that the run has not deleted yet."""
    with closing(sqlite3.connect(REQUESTS, timeout=WAIT_S)) as db:
        (found,) = db.execute("SELECT count(*) FROM asked").fetchone()
    return int(found)


def test_bad_rows_among_the_requests_harm_no_run_and_are_deleted() -> None:
    RUNS.mkdir()
    leave_request(JOURNAL, request_of(Decide(path="9/nowhere", value="{}")))
    with closing(sqlite3.connect(REQUESTS)) as db, db:
        db.executemany("INSERT INTO asked (request) VALUES (?)", [(row,) for row in BAD_ROWS])
    result = run_sync(Drift(length=3), models="sim:perfect", k=2, run_id="r")
    assert (result.outcome, result.account.settled_at) == ("completed", {})
    assert (recorded("SELECT count(*) FROM log"), left()) == ([(2,)], 0)


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE asked (number INTEGER PRIMARY KEY, request BLOB NOT NULL, more TEXT)",
        "CREATE VIEW asked AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT x AS number, x AS request FROM n",
        f"{TABLE}; CREATE TRIGGER more AFTER INSERT ON asked BEGIN DELETE FROM asked; END",
        "",
    ],
    ids=["columns", "endless", "trigger", "no database"],
)
def test_a_file_that_is_no_database_of_requests_is_left_alone_and_named_to_who_asks(made: str) -> None:
    RUNS.mkdir()
    with closing(sqlite3.connect(REQUESTS)) as db:
        db.executescript(made)
    if not made:
        REQUESTS.write_bytes(b"no database" * 100)
    REQUESTS.chmod(0o600)
    before = REQUESTS.read_bytes()
    assert run_sync(Drift(length=3), models="sim:perfect", k=2, run_id="r").outcome == "completed"
    with pytest.raises(
        InvalidUsage, match=r"the request cannot be written to 'runs/r.sqlite.requests': .* nothing was changed"
    ):
        leave_request(JOURNAL, request_of(PauseRun()))
    assert REQUESTS.read_bytes() == before


LONG = Decide(path="9/nowhere", value=json.dumps("x" * 60_000))
"""A request of which 17 fill the database."""


def fill() -> None:
    """Leave more requests than there is room for."""
    for _ in range(20):
        leave_request(JOURNAL, request_of(LONG))


@pytest.mark.slow
def test_requests_that_were_taken_leave_room_for_others_and_an_end_always_has_room() -> None:
    with Sitting(
        "run", "drift", "-o", "length=1", "--model", STUCK, "-k", "50", "-s", "max_draws=100000", "--run-id", "r"
    ) as sitting:
        until(is_open)
        for ask in (PauseRun(), EndRun(after="nothing")):
            os.kill(sitting.process.pid, signal.SIGSTOP)  # it takes nothing meanwhile
            with pytest.raises(
                InvalidUsage, match="has not taken the many requests that are in it; nothing was changed"
            ):
                fill()
            if isinstance(ask, EndRun):
                leave_request(JOURNAL, request_of(ask))
            os.kill(sitting.process.pid, signal.SIGCONT)
            until(lambda: left() == 0)
            if isinstance(ask, PauseRun):
                assert microagents("ctl", "r", "pause").code == COMPLETED
        assert sitting.end().code == STOPPED
    kinds = [kind for (kind,) in recorded("SELECT kind FROM log ORDER BY rowid")]
    assert kinds == [*["decide"] * 17, "pause", *["decide"] * 17, "end"]


def test_while_an_asker_holds_its_lock_the_run_commits_and_takes_the_requests_after_it() -> None:
    with opened() as store:
        leave_request(JOURNAL, request_of(PauseRun()))
        with closing(sqlite3.connect(REQUESTS, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            began_s = time.monotonic()
            store.commit([RecordProgress(input=0, done=1, total=2)])
            assert store.inbox.new() == []
            assert time.monotonic() - began_s < WAIT_S / 2, "SQLite's own wait for a lock"
            other.execute("ROLLBACK")
        (taken,) = store.inbox.new()
        assert taken.ask == PauseRun()


def test_a_request_that_was_taken_is_not_taken_again_although_its_row_could_not_be_deleted() -> None:
    with opened() as store:
        leave_request(JOURNAL, request_of(PauseRun()))
        (taken,) = store.inbox.new()
        store.take_request(taken, is_left=False)
        with closing(sqlite3.connect(REQUESTS, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            store.inbox.clear()
            other.execute("ROLLBACK")
        assert (left(), store.inbox.new()) == (1, [])
    with opened() as again:
        assert (again.inbox.new(), left()) == ([], 0)


def test_a_request_is_on_the_disk_before_it_counts_as_left(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Traced(sqlite3.Connection):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            self.set_trace_callback(told.append)

    RUNS.mkdir()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **options: connect(*given, **options, factory=Traced))
    leave_request(JOURNAL, request_of(PauseRun()))
    synced, inserted = [
        next(at for at, each in enumerate(told) if words in each) for words in ("synchronous = EXTRA", "INSERT")
    ]
    assert synced < inserted < told.index("COMMIT")


def test_of_two_processes_that_leave_a_request_at_once_one_waits_for_the_other() -> None:
    RUNS.mkdir()
    leave_request(JOURNAL, request_of(PauseRun()))
    with closing(sqlite3.connect(REQUESTS, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(leave_request, JOURNAL, request_of(PauseRun()))
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
            other.execute("COMMIT")
            waiting.result(timeout=WAIT_S)
    assert left() == 2


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "open to others"])
def test_only_a_plain_file_of_this_user_is_read(kind: str, tmp_path: Path) -> None:
    RUNS.mkdir()
    leave_request(JOURNAL, request_of(Decide(path="9/x", value="1")))
    other = REQUESTS.rename(tmp_path / "other")
    make: dict[str, Callable[[], object]] = {
        "folder": REQUESTS.mkdir,
        "pipe": lambda: os.mkfifo(REQUESTS),
        "link": lambda: REQUESTS.symlink_to(other),
        "open to others": lambda: os.chmod(shutil.copy(other, REQUESTS), 0o622),  # noqa: PTH101 - a `Path` gives None
    }
    make[kind]()
    assert run_sync(Drift(length=3), models="sim:perfect", k=2, run_id="r").outcome == "completed"
    assert recorded("SELECT * FROM log") == []


ASKERS, ASKED = 2, 500
ASKING = """
import sys
from pathlib import Path
from microagents.journal.inbox import leave_request
from microagents.journal.requests import Decide, request_of
for number in range(int(sys.argv[2])):
    request = request_of(Decide(path=f"9/{sys.argv[1]}/{number}", value="1"))
    leave_request(Path("runs/r.sqlite"), request)
    print(request.id, flush=True)
"""


@pytest.mark.slow
def test_of_requests_of_two_askers_that_are_killed_as_the_run_is_none_is_lost_or_taken_twice() -> None:
    random = Random(5)
    words = ("-o", "length=1", "--model", STUCK, "-k", "50", "-s", "max_draws=100000", "--run-id", "r")
    asked: list[str] = []
    begin: tuple[str, ...] = ("run", "drift", *words)
    for _ in range(4):
        with Sitting(*begin) as sitting:
            until(is_open)
            askers = [
                subprocess.Popen(
                    [sys.executable, "-c", ASKING, str(each), str(ASKED)], stdout=subprocess.PIPE, text=True
                )
                for each in range(ASKERS)
            ]
            for each in askers:
                assert each.stdout is not None
                asked.append(each.stdout.readline().strip())
            time.sleep(random.uniform(0.0, 0.5))
            for process in random.sample([sitting.process, *askers], 1 + ASKERS):
                process.kill()
                time.sleep(random.uniform(0.0, 0.05))
            for each in askers:
                asked += (each.communicate()[0]).split()
            sitting.process.wait(WAIT_S)
        begin = ("resume", "r")
    with Sitting(*begin) as sitting:
        until(lambda: left() == 0)
        leave_request(JOURNAL, request_of(EndRun(after="nothing")))
        sitting.end()
    taken = [each for (each,) in recorded("SELECT id FROM log WHERE kind = 'decide'")]
    assert len(asked) > 20
    assert (set(asked) - set(taken), len(taken) - len(set(taken))) == (set(), 0)
    with closing(sqlite3.connect(REQUESTS)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
