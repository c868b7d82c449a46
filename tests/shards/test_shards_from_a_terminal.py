"""Runs in shards as people do them: in processes and in Ray actors, which are interrupted, asked and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from microagents.runs.inspection.runs import inspect_run
from tests.benchmarks.harness import until
from tests.benchmarks.shards import ROOT, begun, command, decisions, done, has_asked, table
from tests.shards.towns import asked

pytestmark = pytest.mark.slow


def microagents(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    given = [sys.executable, "-m", "microagents", *words, "--runs-dir", str(folder)]
    return subprocess.run(given, cwd=ROOT, check=False, capture_output=True, text=True, timeout=120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of 60 rows, and the run of one process on it."""
    table(tmp_path / "runs", 60)
    done(command(tmp_path / "runs", "one", 0))
    (tmp_path / "runs/log").unlink()
    return tmp_path / "runs"


def test_ctrl_c_saves_all_and_resume_goes_on(folder: Path) -> None:
    driver = begun(command(folder, "whole", 2, "--concurrency", "4"))
    until(partial(has_asked, folder / "log", 20, driver), "calls")
    driver.send_signal(signal.SIGINT)
    assert driver.wait(60) == 130
    left = inspect_run(folder, "whole")
    assert left.outcome == "interrupted"
    assert left.account.lost_in_flight == 0
    assert left.calls == len(asked(folder / "log"))
    resumed = microagents("resume", "whole", "--forget-unsettled", folder=folder)
    assert (resumed.returncode, "nothing of this run is unsettled" in resumed.stderr) == (0, True)
    assert decisions(folder, "whole") == decisions(folder, "one")


def test_a_run_in_shards_is_paused_and_stopped_as_one(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    table(folder, 2000)  # half a minute of work
    driver = begun(command(folder, "whole", 2, "--concurrency", "4"))
    until(partial(has_asked, folder / "log", 10, driver), "calls")
    assert microagents("ctl", "whole", "pause", folder=folder).stdout == "run whole is paused\n"
    refused = microagents("ctl", "whole", "set", "max-calls=9", folder=folder)
    assert "the shards of run whole share --max-calls" in refused.stderr
    assert microagents("ctl", "whole", "resume", folder=folder).returncode == 0
    assert microagents("ctl", "whole", "stop", folder=folder).returncode == 0
    assert driver.wait(60) == 3
    assert "ended by" in str(inspect_run(folder, "whole").reason)
    assert microagents("list", "--remove", "whole", "--yes", folder=folder).returncode == 0
    assert not (folder / "whole.shards").exists()


@pytest.mark.usefixtures("ray_here")
def test_a_shard_on_ray_that_is_killed_continues(folder: Path) -> None:
    driver = begun(command(folder, "whole", 2, "--runtime", "ray", "--concurrency", "4"))
    until(partial(has_asked, folder / "log", 30, driver), "calls")
    os.kill(int((folder / "log").read_text(encoding="utf-8").splitlines()[-1].split()[0]), signal.SIGKILL)
    assert driver.wait(120) == 0
    assert decisions(folder, "whole") == decisions(folder, "one")
