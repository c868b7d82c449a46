"""Journals on a disk with faults, on a few seeds; ``python -m tests.benchmarks.disk`` takes any others."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from microagents.journal import store
from microagents.journal.statements import set_durability
from tests.benchmarks.disk import Case, check, undisturbed
from tests.journal.faulty_disk import FaultyDisk, Plan


def check_all(seeds: range) -> None:
    for seed in seeds:
        check(seed)


@pytest.mark.parametrize(
    "seeds",
    [range(3), pytest.param(range(3, 10), marks=pytest.mark.slow)],
    ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}",
)
def test_whatever_the_disk_does_the_run_goes_on_or_ends_in_a_sentence_and_a_resume_decides_as_undisturbed(
    seeds: range,
) -> None:
    check_all(seeds)


@pytest.mark.slow
def test_a_journal_that_does_not_wait_for_the_disk_is_found_out() -> None:
    with (
        patch.object(store, "set_durability", lambda db, **_: set_durability(db, full=False, is_shared=False)),
        pytest.raises(AssertionError, match=r"lost|were sent"),
    ):
        check_all(range(40))


@pytest.mark.parametrize(
    ("disk", "durability", "synchronous"),
    [("network", "normal", 2), ("network", "full", 2), ("local", "normal", 1), ("local", "full", 2)],
)
def test_a_rollback_journal_waits_for_the_disk_whatever_the_durability(
    disk: str, durability: str, synchronous: int
) -> None:
    """Where it did not, a power cut left a file with rows of two commits in one of 250 trials."""
    found = []

    def spied(db: sqlite3.Connection, **given: bool) -> None:
        set_durability(db, **given)
        found.append(db.execute("PRAGMA synchronous").fetchone()[0])

    case = Case(task=0, durability=durability, is_network=disk == "network", seed=0)
    with patch.object(store, "set_durability", spied):
        undisturbed.__wrapped__(case)
    assert found == [synchronous]


@pytest.mark.parametrize(("synchronous", "lost"), [("FULL", 0), ("OFF", 20)])
def test_a_power_cut_leaves_what_was_synced(tmp_path: Path, synchronous: str, lost: int) -> None:
    found = 0
    for seed in range(20):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        disk = FaultyDisk(folder, Random(seed), Plan(fault="power cut", at=30 + seed))
        acknowledged = 0
        with disk.in_use(), closing(sqlite3.connect(folder / "a.sqlite", isolation_level=None)) as db:
            try:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute(f"PRAGMA synchronous = {synchronous}")
                db.execute("CREATE TABLE t (n)")
                for number in range(100):
                    db.execute("INSERT INTO t VALUES (?)", (number,))
                    acknowledged = number + 1
            except sqlite3.Error:
                assert disk.has_ended
        disk.restart()
        try:
            with closing(sqlite3.connect(folder / "a.sqlite")) as db:
                found += db.execute("SELECT count(*) FROM t").fetchone()[0] < acknowledged
        except sqlite3.Error:  # no table is left, or no database
            found += 1
    assert found == lost
