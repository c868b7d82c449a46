"""What a command imports before it does anything."""

from __future__ import annotations

import sys
from subprocess import run

import pytest

from microagents.cli import COMMANDS

FLAGS = ("--help", "--bogus")
HEAVY = ("numpy", "microagents.task", "microagents.runs.driver", "microagents.studies", "microagents.systems")
"""Modules that take most of a second to import."""


@pytest.mark.slow
def test_help_and_refusals_import_nothing_that_runs() -> None:
    words = [["--help"], ["--version"], ["bogus"], *[[name, each] for name in COMMANDS.shipped for each in FLAGS]]
    code = f"""
import sys
from microagents.cli import main
for sys.argv[1:] in {words}:
    try:
        main()
    except SystemExit:
        print(*sys.argv, [name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
print(*sys.modules, file=sys.stderr)
"""
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    *ended, imported = done.stderr.splitlines()
    assert [line for line in ended if line.startswith("-c ") and not line.endswith("[]")] == []
    assert len([line for line in ended if line.startswith("-c ")]) == len(words)
    assert "microagents.cli.command" in imported.split()
