"""Requests to a live run: a person's decision takes effect at once, survives a kill, and a damaged file harms nothing."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from microagents import InvalidUsage, run_sync
from microagents.journal.reading import Reader
from microagents.journal.requests import Decide, EndRun, LiveRequest, PauseRun, leave_request, request_of
from microagents.runs.inspection.runs import inspect_run
from microagents.tasks.drift import Drift
from tests.cli.commands import COMPLETED, STOPPED, WAIT_S, WRONG, WRONG_USAGE, Sitting, microagents

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
    with Reader(JOURNAL) as reader:
        return reader._db.execute(query).fetchall()


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
    assert recorded("SELECT kind, refused FROM request") == [("decide", None)]
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
    assert recorded("SELECT * FROM request") == []
    assert microagents("resume", "r").code == WRONG
    (taken, (_, refused)) = recorded("SELECT id, refused FROM request ORDER BY rowid")
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


def lines() -> list[bytes]:
    good = json.loads(
        json.dumps(
            {"id": "0" * 32, "who": "me", "at": "now", "ask": {"type": "decide", "path": "0/step/0", "value": "{}"}}
        )
    )
    return [
        b"\0\xff\n" * 3,
        b"[" * 100_000 + b"\n",
        json.dumps({**good, "id": "../x"}).encode() + b"\n",
        json.dumps({**good, "ask": {"type": "rm"}}).encode() + b"\n",
        json.dumps({**good, "ask": {"type": "set", "max_cost_usd": 1e300}}).encode() + b"\n",
        json.dumps({**good, "why": "\ud800"}).encode() + b"\n",
        json.dumps({**good, "id": "1" * 32}).encode()
        + b"\n",  # a reply of another kind: recorded, and no election takes it
        json.dumps(good).encode(),  # no end of the line: it may still be written
    ]


@pytest.mark.parametrize("damaged", [*lines(), b"".join(lines())], ids=range(len(lines()) + 1))
def test_a_damaged_file_of_requests_harms_no_run_and_is_emptied(damaged: bytes) -> None:
    RUNS.mkdir()
    REQUESTS.write_bytes(damaged)
    REQUESTS.chmod(0o600)
    result = run_sync(Drift(length=3), models="sim:perfect", k=2, run_id="r")
    assert (result.outcome, result.account.settled_at) == ("completed", {})
    assert REQUESTS.read_bytes() == b""


LONG = Decide(path="9/nowhere", value=json.dumps("x" * 60_000))
"""A request of which 17 fill the file."""


def fill() -> None:
    """Leave more requests than the file has room for."""
    for _ in range(20):
        leave_request(JOURNAL, request_of(LONG))


@pytest.mark.slow
def test_requests_that_were_taken_leave_room_for_others_and_an_end_always_has_room() -> None:
    with Sitting("run", "drift", "-o", "length=1", "--model", STUCK, "-k", "50", "--run-id", "r") as sitting:
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
            until(lambda: REQUESTS.stat().st_size == 0)
            if isinstance(ask, PauseRun):
                assert microagents("ctl", "r", "pause").code == COMPLETED
        assert sitting.end().code == STOPPED
    kinds = [kind for (kind,) in recorded("SELECT kind FROM request ORDER BY rowid")]
    assert kinds == [*["decide"] * 17, "pause", *["decide"] * 17, "end"]


def test_of_two_processes_that_leave_a_request_at_once_one_waits_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    RUNS.mkdir()
    leave_request(JOURNAL, request_of(PauseRun()))
    with REQUESTS.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        monkeypatch.setattr("microagents.journal.requests.time.sleep", lambda _: fcntl.flock(other, fcntl.LOCK_UN))
        leave_request(JOURNAL, request_of(PauseRun()))
    assert len(REQUESTS.read_bytes().splitlines()) == 2


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "open to others"])
def test_only_a_plain_file_of_this_user_is_read(kind: str, tmp_path: Path) -> None:
    RUNS.mkdir()
    other = tmp_path / "other"
    other.write_text(
        json.dumps({"id": "1" * 32, "who": "me", "at": "now", "ask": {"type": "decide", "path": "9/x", "value": "1"}})
        + "\n"
    )
    make: dict[str, Callable[[], object]] = {
        "folder": REQUESTS.mkdir,
        "pipe": lambda: os.mkfifo(REQUESTS),
        "link": lambda: REQUESTS.symlink_to(other),
        "open to others": lambda: os.chmod(shutil.copy(other, REQUESTS), 0o622),  # noqa: PTH101 - a `Path` gives None
    }
    make[kind]()
    assert run_sync(Drift(length=3), models="sim:perfect", k=2, run_id="r").outcome == "completed"
    assert recorded("SELECT * FROM request") == []


def test_each_decision_has_the_time_of_its_commit() -> None:
    result = run_sync(Drift(length=5), models="sim:perfect", k=2, run_id="r")
    times = [each.decided_at for each in result.decisions()]
    assert times == sorted(each for each in times if each is not None)
    assert result.created_at is not None
    assert all(result.created_at[:16] <= str(each) for each in times)
    assert [str(each)[:23] for each in times] == [
        str(at)[:23] for (at,) in recorded("SELECT at FROM decisions ORDER BY path")
    ]


def test_a_request_is_one_line_of_checked_fields() -> None:
    request = request_of(Decide(path="0/step/0", value="{}"), why="it is late")
    assert isinstance(request, LiveRequest)
    assert (len(request.id), request.why) == (32, "it is late")
