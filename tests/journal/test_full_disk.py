"""A disk that is full, or cannot be written: the run stops with one sentence, and goes on once it can."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microagents import Stopped, run_sync
from microagents.tasks.drift import Drift

WORDS = ("drift", "-o", "length=3000", "--model", "sim:perfect@error=0.4,flag=0.1", "-k", "1", "--run-id", "r", "--json")
TASK = Drift(length=3000)
STOPPED = 3
WAIT_S = 60


def command(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "microagents", *words], capture_output=True, text=True, timeout=WAIT_S, check=False, **options
    )


def assert_stopped(ran: subprocess.CompletedProcess[str]) -> None:
    assert (ran.returncode, ran.stderr) == (STOPPED, "")
    shown = json.loads(ran.stdout)
    assert shown["outcome"] == "stopped"
    assert "cannot be written" in shown["reason"]
    assert "microagents resume r" in shown["reason"]
    assert shown["decided"] < 3000


def assert_goes_on(*words: str) -> None:
    ran = command("resume", "r", *words, "--json")
    assert (ran.returncode, ran.stderr) == (0, "")
    shown, right = json.loads(ran.stdout), run_sync(TASK, models="sim:perfect@error=0.4,flag=0.1", k=1, runs_dir=None).account
    assert (shown["decisions_sha256"], shown["ballots_sha256"]) == (right.decisions_sha256, right.ballots_sha256)
    assert command("show", "r", *words[:2], "--verify").returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 400 KB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", disk], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a disk cannot be mounted here: {mounted.stderr}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_stops_the_run_and_more_room_lets_it_go_on(small_disk: Path) -> None:
    runs = str(small_disk / "runs")
    assert_stopped(command("run", *WORDS, "--runs-dir", runs))
    subprocess.run(["mount", "-o", "remount,size=20m", small_disk], check=True)
    assert_goes_on("--runs-dir", runs)


def test_a_disk_that_becomes_read_only_stops_the_run(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=20m", small_disk], check=True)
    runs = str(small_disk / "runs")
    assert command("run", *WORDS, "--runs-dir", runs, "--max-calls", "300").returncode == STOPPED
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    ran = command("resume", "r", "--runs-dir", runs, "--max-calls", "100000", "--json")
    assert ran.returncode == STOPPED
    (sentence,) = ran.stderr.splitlines()
    assert "cannot be written" in sentence
    assert command("show", "r", "--runs-dir", runs).returncode == 0, "it can still be looked at"
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert_goes_on("--runs-dir", runs, "--max-calls", "100000")


def test_a_limit_of_the_size_of_files_stops_the_run() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    assert_stopped(command("run", *WORDS, preexec_fn=limit))
    assert_goes_on()


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Stopped, match=r"cannot be made.*nothing was started.*--runs-dir"):
        run_sync(TASK, models="sim:perfect", runs_dir=tmp_path / "file" / "runs")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root has rights to give up, and needs setpriv")
def test_a_folder_without_permission_is_said_in_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir(mode=0o555)
    words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-m", "microagents", "run", *WORDS]
    ran = subprocess.run([*words, "--runs-dir", str(folder)], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ran.returncode == STOPPED
    (sentence,) = ran.stderr.splitlines()
    assert "cannot be made" in sentence or "cannot be written" in sentence
