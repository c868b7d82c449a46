"""Locks of attempts at one run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HOLDER = """
import sys
from pathlib import Path
from microagents.shards.file_locks import locked

held = Path(sys.argv[1], "held")
for _ in range(500):
    with locked(Path(sys.argv[1], "run.lock")):
        held.mkdir()  # fails if another process holds the lock
        held.rmdir()
"""


@pytest.mark.slow
def test_a_lock_that_its_holders_remove_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    holders = [subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)]) for _ in range(4)]
    assert [each.wait(60) for each in holders] == [0] * 4
    assert list(tmp_path.iterdir()) == []
