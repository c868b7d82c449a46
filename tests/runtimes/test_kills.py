"""The promises under faults, on a few seeds; ``python -m tests.benchmarks.faults`` takes two thousand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(110)
def test_however_long_messages_take_and_whenever_the_process_is_killed_the_promises_hold() -> None:
    words = [sys.executable, "-m", "tests.benchmarks.faults", "--seeds", "2"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ", 0 failed" in ran.stdout
