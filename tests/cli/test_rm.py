"""`microagents list --remove`: a run's journal is removed, and nothing else."""

from __future__ import annotations

import os
import pty
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.commands import COMPLETED, WAIT_S, WRONG_USAGE, Ran, Sitting, microagents
from tests.forking import Forked

SLOW = ("drift", "--model", "sim:perfect@latency=60")


def files() -> set[str]:
    return {path.name for path in Path("runs").iterdir()} - {".gitignore"}


@pytest.fixture(autouse=True)
def a_run_and_its_neighbours() -> None:
    microagents("run", "drift", "-o", "length=2", "--run-id", "r")
    for name in ("r.sqlite-wal.txt", "r.sqlite.bak", "r.csv", "rr.sqlite"):
        Path("runs", name).touch()


NEIGHBOURS = {"r.sqlite-wal.txt", "r.sqlite.bak", "r.csv", "rr.sqlite"}


def assert_kept(ran: Ran, said: str) -> None:
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (WRONG_USAGE, "", 1)
    assert said in ran.err
    assert "r.sqlite" in files()


def test_the_journal_is_removed_with_what_sqlite_keeps_beside_it_and_nothing_else() -> None:
    Path("runs/r.sqlite-shm").touch()
    ran = microagents("list", "--remove", "r", "--yes")
    assert (ran.code, ran.err) == (COMPLETED, "")
    assert ran.out.startswith("removed runs/r.sqlite")
    assert files() == NEIGHBOURS
    assert "there is no run 'r'" in microagents("list", "--remove", "r", "--yes").err


def test_without_a_terminal_and_without_yes_it_is_kept() -> None:
    assert_kept(microagents("list", "--remove", "r"), "add --yes")


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "is_removed"), [("y", True), ("", False)])
def test_on_a_terminal_it_asks(answer: str, is_removed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    person, terminal = pty.openpty()
    try:
        os.write(person, f"{answer}\n".encode())
        with Forked("list", "--remove", "r", stdin=terminal) as process:
            _, said = process.communicate(timeout=WAIT_S)
    finally:
        os.close(person)
        os.close(terminal)
    assert "Remove run r (completed, drift: 2 of 2 steps, 6 calls)?" in said
    assert ("r.sqlite" not in files()) == is_removed
    assert process.returncode == (COMPLETED if is_removed else WRONG_USAGE)


def test_an_empty_journal_which_a_kill_left_before_the_first_record_is_removed() -> None:
    for name, made in (("empty", ""), ("early", "PRAGMA journal_mode = WAL")):
        with closing(sqlite3.connect(f"runs/{name}.sqlite")) as db:
            db.execute(made)
        assert f"run {name} was kept" in microagents("list", "--remove", name).err
        assert microagents("list", "--remove", name, "--yes").out.startswith(f"removed runs/{name}.sqlite")
    assert files() == {"r.sqlite", *NEIGHBOURS}


@pytest.mark.slow
def test_a_run_that_is_running_is_kept() -> None:
    with Sitting("run", *SLOW, "--run-id", "slow", "--json") as sitting:
        sitting.until_sent(1)
        assert_kept(microagents("list", "--remove", "slow", "--yes"), "run slow is being run by process ")
    assert "slow.sqlite" in files()
