"""Journals that are none, are damaged, or belong to something else: one sentence, and not a byte is changed."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pytest

from microagents import InvalidUsage, MicroagentsError, Prompt, Result, resume, run, run_sync
from microagents.errors import JournalMismatch
from microagents.journal.reading import Reader
from microagents.tasks.drift import Drift
from microagents.tasks.hanoi import Hanoi

MODEL = "sim:perfect@error=0.4,flag=0.1"
JOURNAL = Path("runs/r.sqlite")


def walk(**options: Any) -> Result:
    given = {"models": MODEL, "k": 1, "run_id": "r", **options}
    return run_sync(given.pop("task", Drift(length=120)), **given)


def assert_refused(*words: str, **options: Any) -> None:
    before = JOURNAL.read_bytes()
    with pytest.raises(InvalidUsage) as raised:
        walk(**options)
    assert "\n" not in str(raised.value)
    for word in words:
        assert word in str(raised.value)
    assert JOURNAL.read_bytes() == before


def write(content: bytes) -> None:
    JOURNAL.parent.mkdir(exist_ok=True)
    JOURNAL.write_bytes(content)


@pytest.mark.parametrize("content", [b"no journal", b"x" * 5000, b"SQLite format 3\0" + b"\0" * 200])
def test_a_file_that_is_no_database_is_refused(content: bytes) -> None:
    write(content)
    assert_refused("r.sqlite", "left as it is")


def test_a_database_of_somebody_else_is_refused() -> None:
    JOURNAL.parent.mkdir()
    with sqlite3.connect(JOURNAL) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    assert_refused("no journal of a run")


def test_an_empty_file_is_a_run_that_has_not_begun() -> None:
    write(b"")
    assert walk().outcome == "completed"


def test_a_newer_version_is_refused() -> None:
    walk()
    with sqlite3.connect(JOURNAL) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    assert_refused("version 99", "version 1")


def test_a_journal_that_is_cut_short_anywhere_is_refused() -> None:
    right = walk()
    whole = JOURNAL.read_bytes()
    for part in range(50):
        JOURNAL.write_bytes(whole[: len(whole) * part // 50])
        if not JOURNAL.stat().st_size:
            continue
        assert_refused("r.sqlite")
    JOURNAL.write_bytes(whole)
    assert walk().account == right.account


def test_a_log_that_is_cut_short_anywhere_gives_a_shorter_run_that_is_the_same_experiment() -> None:
    right = walk()
    JOURNAL.unlink()
    main, log = killed_midway()
    for part in range(51):
        JOURNAL.write_bytes(main)
        Path(f"{JOURNAL}-wal").write_bytes(log[: len(log) * part // 50])
        Path(f"{JOURNAL}-shm").unlink(missing_ok=True)
        try:
            again = walk()
        except InvalidUsage:
            continue
        assert (again.account.decisions_sha256, again.account.ballots_sha256) == (
            right.account.decisions_sha256,
            right.account.ballots_sha256,
        )
        with Reader(JOURNAL) as reader:
            assert reader.verify() == []


def killed_midway() -> tuple[bytes, bytes]:
    """The file and the log of a run, copied while it goes on: as a kill would leave them."""
    copied: list[tuple[bytes, bytes]] = []

    async def midway() -> None:
        stop = asyncio.Event()

        def copy(account: Any) -> None:
            log = Path(f"{JOURNAL}-wal")
            if account.steps > 60 and not copied and log.exists():
                copied.append((JOURNAL.read_bytes(), log.read_bytes()))
                stop.set()

        await run(Drift(length=120), models=f"{MODEL},latency=0.005", k=1, run_id="r", on_progress=copy, terminate=stop)

    asyncio.run(midway())
    JOURNAL.unlink()
    return copied[0]


def test_a_damaged_byte_never_gives_another_experiment() -> None:
    right = walk()
    whole, random = JOURNAL.read_bytes(), Random(0)
    for _ in range(50):
        damaged = bytearray(whole)
        damaged[random.randrange(len(whole))] ^= 1 << random.randrange(8)
        JOURNAL.write_bytes(damaged)
        try:
            again = walk()
            with Reader(JOURNAL) as reader:
                problems = reader.verify()
        except MicroagentsError:
            continue
        else:
            assert problems or again.account.decisions_sha256 == right.account.decisions_sha256


class Other(Drift):
    """The same work under another name."""


CHANGES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "task": ({"task": Other(length=120)}, "task", "drift:Drift", "Other"),
    "kind of task": ({"task": Hanoi(disks=3)}, "task", "drift:Drift", "hanoi:Hanoi"),
    "option": ({"task": Drift(length=121)}, "task.length", "120", "121"),
    "k": ({"k": 2}, "strategy.k", "1", "2"),
    "model": ({"models": "sim:perfect"}, "model", MODEL, "sim:perfect"),
    "seed": ({"seed": 7}, "seed", "0", "7"),
    "known inputs": ({"known_inputs": True}, "known_inputs", "false", "true"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_journal_of_another_experiment_is_refused_by_field_with_both_values(change: str) -> None:
    options, field, before, after = CHANGES[change]
    walk()
    assert_refused(f"{field}=", before, after, f"--accept-change {field}", **options)


def test_another_prompt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    walk()
    monkeypatch.setattr(Drift, "prompt", lambda *_: Prompt(user="Anything else?"))
    assert_refused("prompt=", "--accept-change prompt")


def test_a_change_that_is_accepted_is_written_down_and_what_is_decided_stays() -> None:
    walk(max_calls=60)
    with Reader(JOURNAL) as reader:
        before = dict(reader.decisions())
    result = walk(k=2, accept_changes=["strategy.k"])
    assert result.outcome == "completed"
    with Reader(JOURNAL) as reader:
        assert [change[1:] for change in reader.changes()] == [("strategy.k", "1", "2")]
        assert before.items() <= dict(reader.decisions()).items()
        assert reader.verify() == []
    assert walk(k=2).account == result.account


def test_a_field_may_be_named_by_its_last_part() -> None:
    walk(max_calls=60)
    assert walk(k=2, accept_changes=["k"]).outcome == "completed"


@pytest.mark.parametrize("name", ["../r", "a/b", "/etc/passwd", ".hidden", "", "a\\b", "a\0b"])
def test_a_run_id_is_no_path(name: str) -> None:
    with pytest.raises(InvalidUsage):
        walk(run_id=name)
    with pytest.raises(InvalidUsage):
        asyncio.run(resume(name))
    assert not Path("runs").exists()


def test_journal_mismatch_is_a_usage_error() -> None:
    assert issubclass(JournalMismatch, InvalidUsage)
