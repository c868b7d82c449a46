"""Each command, and each program among the tests, explains itself with ``--help`` and does nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from microagents.cli import COMMANDS
from tests.cli.commands import WAIT_S, microagents

ROOT = Path(__file__).parents[1]
PROGRAMS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "tests").rglob("*.py"))
    if "\nif __name__ == " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("command", ["", *COMMANDS.addresses])
def test_every_command_explains_itself(command: str) -> None:
    ran = microagents(*command.split(), "--help")
    assert (ran.code, ran.err, ran.out.strip().startswith("Usage: ")) == (0, "", True)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_explains_itself(program: str, tmp_path: Path) -> None:
    pytest.importorskip("ray" if ".ray." in program else "playwright" if "pictures" in program else "pytest")
    ran = subprocess.run(
        [sys.executable, "-m", program, "--help"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (ran.returncode, ran.stdout.partition(" ")[0]) == (0, "usage:"), ran.stderr
    assert list(tmp_path.iterdir()) == []
