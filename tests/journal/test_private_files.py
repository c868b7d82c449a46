"""Who may read what a run keeps, and what stands in the place of a journal and is none."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from microagents import run_sync
from microagents.journal.inbox import leave_request
from microagents.journal.interventions import output_of
from microagents.journal.requests import PauseRun, request_of
from microagents.tasks.drift import Drift
from tests.cli.commands import COMPLETED, STOPPED, WRONG_USAGE, Sitting, microagents, started
from tests.journal.walks import JOURNAL, RUNS

SLOW = ("run", "drift", "--model", "sim:perfect@latency=0.05", "--run-id", "r")


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def rights() -> dict[str, int]:
    """The rights of the folder of runs, and of all in it but the file for git."""
    there = [RUNS, *sorted(each for each in RUNS.iterdir() if each.name != ".gitignore")]
    return {each.name: each.stat().st_mode & 0o777 for each in there}


@pytest.mark.slow
@pytest.mark.parametrize("umask", [0o000, 0o777], indirect=True)
def test_only_this_user_may_read_what_a_live_run_keeps(umask: int) -> None:  # noqa: ARG001 - set for the processes
    with Sitting(*SLOW, paced=True) as sitting:
        sitting.until_sent(30)
        leave_request(JOURNAL, request_of(PauseRun()))
        beside = [f"r.sqlite{ending}" for ending in ("", "-shm", "-wal", ".requests")]
        assert rights() == {"runs": 0o700, **dict.fromkeys(sorted(beside), 0o600)}


@pytest.mark.slow
@pytest.mark.parametrize("umask", [0o022], indirect=True)
def test_only_this_user_may_read_the_log_of_a_detached_run(umask: int) -> None:  # noqa: ARG001 - set for the processes
    ran = started(*SLOW[:2], "--max-calls", "9", "--run-id", "r", "--detach")
    assert ran.code in {COMPLETED, STOPPED}, "it is looked at while it is under way, or after its end"
    assert rights()["r.log"] == 0o600
    assert rights()["runs"] == 0o700
    assert (RUNS / ".gitignore").exists()


def test_an_empty_file_becomes_a_journal_that_only_this_user_may_read() -> None:
    RUNS.mkdir()
    JOURNAL.touch(0o644)
    run_sync(Drift(length=2), models="sim:perfect", run_id="r", runs_dir=RUNS)
    assert JOURNAL.stat().st_mode & 0o777 == 0o600


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


MAKE: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "socket": bind,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
}
"""What may have the name of a journal."""
HANGING = {
    "list": ("list",),
    "list --live": ("list", "--live"),
    "show": ("show", "r"),
    "view -o": ("view", "r", "-o", "out.html"),
    "export": ("export", "r"),
    "ctl": ("ctl", "r", "status"),
    "rm": ("list", "--remove", "r", "--yes"),
    "resume": ("resume", "r"),
    "run": ("run", "drift", "--run-id", "r"),
}


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("use", HANGING)
def test_what_is_no_plain_file_is_refused_at_once_in_the_place_of_a_journal(kind: str, use: str) -> None:
    RUNS.mkdir()
    MAKE[kind](JOURNAL)
    ran = microagents(*HANGING[use])
    if use.startswith("list"):
        assert (ran.code, ran.err) == (COMPLETED, "")
        assert "it is not a plain file" in ran.out
        return
    assert ran.code == WRONG_USAGE
    assert "it is not a plain file" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_a_pipe_beside_a_journal_is_refused_at_once(ending: str) -> None:
    run_sync(Drift(length=2), models="sim:perfect", run_id="r", runs_dir=RUNS)
    os.mkfifo(f"{JOURNAL}{ending}")
    assert f"it is not a plain file: 'r.sqlite{ending}'" in microagents("show", "r").err


@pytest.mark.slow
def test_a_pipe_in_the_place_of_a_log_is_refused_at_once() -> None:
    RUNS.mkdir()
    os.mkfifo(output_of(JOURNAL))
    ran = started("run", "drift", "--run-id", "r", "--detach")
    assert ran.code == WRONG_USAGE
    assert "cannot be written: it is not a plain file; nothing was started" in ran.err
