"""A disk that is full, or cannot be written: the run stops with one sentence, and goes on once it can."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from microagents import Stopped
from tests.cli.commands import COMPLETED, OVER, STOPPED, WRONG, Ran, Sitting, installed, microagents, started
from tests.journal.walks import (
    LENGTH,
    PATIENTLY,
    WALK,
    digests,
    go_on,
    on_disk,
    problems,
    sentence,
    sql,
    undisturbed,
    walk,
)

UNMADE_KB = 4
"""Room in which a journal is not even made."""
TOO_LITTLE_KB = 120
"""Room in which one is begun: what is written stands in the log first, and in the file later."""
UNMADE_BYTES = 2_000
TOO_FEW_BYTES = 100_000
"""The same of a single file: at its end the log is as large as the file."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of our own; its size is set by `resized`."""
    found = tmp_path / "disk"
    found.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=20m", "none", found], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("a disk cannot be mounted here: there is no mount")
    if mounted.returncode:
        pytest.skip(f"a disk cannot be mounted here: {mounted.stderr.strip()}")
    yield found
    subprocess.run(["umount", found], check=True)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True)


def fill(disk: Path, *, spare_kb: int) -> None:
    """Leave so much room on a disk, and no more."""
    remount(disk, f"size={sum(path.stat().st_blocks for path in disk.rglob('*')) // 2 + spare_kb}k")


def assert_stopped(ran: Ran) -> None:
    """It stopped in order, with one sentence that says why and how to go on."""
    assert ran.code == STOPPED
    assert "cannot be written" in ran.reason or "cannot be made" in ran.reason
    if ran.out:
        assert ran.json["outcome"] == "stopped"
        assert ran.json["decided"] < LENGTH
        assert "resume run r" in ran.reason


def assert_goes_on(runs: Path) -> None:
    """With the words that the sentence gave, from what was kept, to the end of the undisturbed run."""
    journal = runs / "r.sqlite"
    assert problems(journal) == []
    kept = dict(sql("SELECT key, value FROM decision", journal=journal))
    ran = microagents("resume", "r", "--runs-dir", str(runs), "--json")
    assert (ran.code, ran.err) == (WRONG, "")
    assert (ran.json["decisions_sha256"], ran.json["ballots_sha256"]) == undisturbed()
    assert problems(journal) == []
    assert kept.items() <= dict(sql("SELECT key, value FROM decision", journal=journal)).items()
    assert set(on_disk(runs)) == {"r.sqlite", ".gitignore"}


@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_more_room_lets_it_go_on(disk: Path) -> None:
    remount(disk, f"size={TOO_LITTLE_KB}k")
    assert_stopped(started(*WALK, "--runs-dir", str(disk / "runs"), "--json"))
    shown = started(*WALK, "--runs-dir", str(disk / "runs"))
    assert (shown.code, "Traceback" in shown.err) == (STOPPED, False)
    remount(disk, "size=20m")
    assert_goes_on(disk / "runs")


@pytest.mark.slow
def test_a_disk_that_is_filled_between_two_sittings(disk: Path) -> None:
    runs = disk / "runs"
    walk(runs_dir=runs, max_calls=500)
    fill(disk, spare_kb=60)
    for _ in range(2):
        assert_stopped(started("resume", "r", "--runs-dir", str(runs), "--max-calls", "100000", "--json"))
    remount(disk, "size=20m")
    assert problems(runs / "r.sqlite") == []
    assert digests(go_on(runs_dir=runs, max_calls=None).account) == undisturbed()
    assert problems(runs / "r.sqlite") == []


@pytest.mark.slow
def test_what_a_killed_process_left_on_a_full_disk_can_be_looked_at_and_is_not_called_damaged(disk: Path) -> None:
    runs = disk / "runs"
    with Sitting(*PATIENTLY, "--runs-dir", str(runs), hastily=True) as sitting:
        sitting.until_sent(300)
        sitting.end(signal.SIGKILL)
    (runs / "r.sqlite-shm").unlink()
    fill(disk, spare_kb=0)
    shown = microagents("show", "r", "--runs-dir", str(runs), "--verify", "--json")
    assert (shown.code, shown.json["outcome"], shown.json["verified"]) == (COMPLETED, "cut off", True)
    said = microagents("resume", "r", "--runs-dir", str(runs), "--json").reason
    assert "damaged" not in said
    assert "begin another run" not in said


def test_what_is_on_a_full_disk_can_be_looked_at(disk: Path) -> None:
    runs = disk / "runs"
    remount(disk, "size=200k")
    stopped = microagents(*WALK, "--runs-dir", str(runs), "--json")
    shown = microagents("show", "r", "--runs-dir", str(runs), "--verify", "--json")
    assert (shown.code, shown.json["verified"]) == (0, True)
    assert (shown.json["decided"], shown.json["calls"]) == (stopped.json["decided"], stopped.json["calls"])


@pytest.mark.slow
def test_a_disk_too_full_for_a_journal_stops_the_run_and_it_can_be_begun_again(disk: Path) -> None:
    remount(disk, f"size={UNMADE_KB}k")
    runs = disk / "runs"
    assert_stopped(microagents(*WALK, "--runs-dir", str(runs), "--json"))
    remount(disk, "size=20m")
    ran = microagents(*WALK, "--runs-dir", str(runs), "--json")
    assert (ran.code, ran.err) == (WRONG, "")
    assert (ran.json["decisions_sha256"], ran.json["ballots_sha256"]) == undisturbed()


def test_where_no_journal_was_made_nobody_is_sent_to_resume_it(disk: Path) -> None:
    remount(disk, f"size={UNMADE_KB}k")
    runs = disk / "runs"
    said = microagents(*WALK, "--runs-dir", str(runs), "--json").reason
    remount(disk, "size=20m")
    resumed = microagents("resume", "r", "--runs-dir", str(runs), "--json")
    assert ("resume run r" in said) == (resumed.code in OVER)


def limited(bytes_: int, *words: str) -> Ran:
    """The command in a process whose files may not grow beyond so many bytes."""
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes_}, {bytes_})); from microagents.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, timeout=60)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.slow
def test_a_limit_of_the_size_of_files_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "XDG_STATE_HOME", str(Path("state").absolute())
    )  # the limit is also that of the list of journals
    assert_stopped(limited(TOO_FEW_BYTES, *WALK, "--json"))
    assert_goes_on(Path("runs"))


@pytest.mark.slow
def test_a_limit_too_small_for_a_journal_stops_the_run_and_it_can_be_begun_again() -> None:
    assert_stopped(limited(UNMADE_BYTES, *WALK, "--json"))
    assert (digests(walk().account), problems()) == (undisturbed(), [])


@pytest.mark.slow
def test_a_disk_that_becomes_read_only_stops_the_run(disk: Path) -> None:
    runs = disk / "runs"
    walk(runs_dir=runs, max_calls=500)
    remount(disk, "ro")
    before = on_disk(runs)
    assert_stopped(microagents("resume", "r", "--runs-dir", str(runs), "--max-calls", "100000", "--json"))
    assert microagents("show", "r", "--runs-dir", str(runs), "--verify").code == 0, "it can still be looked at"
    assert on_disk(runs) == before
    remount(disk, "rw")
    assert digests(go_on(runs_dir=runs, max_calls=None).account) == undisturbed()


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Stopped, match=r"cannot be made.*nothing was started.*--runs-dir") as raised:
        walk(runs_dir=tmp_path / "file" / "runs")
    sentence(raised.value)


# -- without permission ------------------------------------------------------------------------------------------------


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[str], Path]]:
    """The words by which a command is run without rights of its own, and a folder that it owns; the folders of tests are closed to it."""
    words = [] if os.geteuid() else ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if words and shutil.which("setpriv") is None:
        pytest.skip("only root has rights to give up, and needs setpriv for it")
    folder, state = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    try:
        if words:
            os.chown(folder, 65534, 65534)
            os.chown(state, 65534, 65534)
        tried = installed("--help", before=words, cwd=folder)
        if tried.code:
            pytest.skip(f"who has no rights cannot run this Python: {tried.err.strip()[-200:]}")
        yield words, folder
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
        shutil.rmtree(state)


@pytest.mark.slow
def test_a_folder_without_permission_is_said_in_one_sentence(nobody: tuple[list[str], Path]) -> None:
    words, folder = nobody
    folder.chmod(0o555)
    for runs in (folder, folder / "runs"):
        ran = installed(*WALK, "--runs-dir", str(runs), "--json", before=words, cwd=folder)
        assert_stopped(ran)
        assert "nothing was started" in ran.reason
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_a_run_whose_folder_lost_its_permission_goes_on_once_it_has_it_again(nobody: tuple[list[str], Path]) -> None:
    words, folder = nobody
    runs = folder / "runs"
    begun = installed(*WALK, "--max-calls", "500", "--runs-dir", str(runs), "--json", before=words, cwd=folder)
    assert (begun.code, "--max-calls 500 is reached" in begun.reason) == (STOPPED, True)
    before = on_disk(runs)
    for path in runs.iterdir():
        path.chmod(0o444)
    runs.chmod(0o555)
    going_on = ("resume", "r", "--runs-dir", str(runs), "--max-calls", "100000", "--json")
    assert_stopped(installed(*going_on, before=words, cwd=folder))
    assert installed("show", "r", "--runs-dir", str(runs), before=words, cwd=folder).code == 0
    assert on_disk(runs) == before
    runs.chmod(0o755)
    for path in runs.iterdir():
        path.chmod(0o644)
    ran = installed(*going_on, before=words, cwd=folder)
    assert (ran.code, ran.json["decisions_sha256"]) == (WRONG, undisturbed()[0])
