"""What a command imports before it does anything."""

from __future__ import annotations

import sys
from subprocess import run

import pytest

from microagents.cli import COMMANDS

HEAVY = ("numpy", "microagents.task", "microagents.runs.driver", "microagents.studies", "microagents.systems")
"""Modules that take most of a second to import."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        *[["--help"], ["--version"], ["bogus"], ["run", "hanoi", "--bogus"]],
        *[pytest.param([name, "--help"], marks=pytest.mark.slow) for name in COMMANDS.shipped],
        *[pytest.param([name, "--bogus"], marks=pytest.mark.slow) for name in COMMANDS.shipped],
    ],
    ids=" ".join,
)
def test_help_and_refusals_import_nothing_that_runs(words: list[str]) -> None:
    code = f"import sys; sys.argv[1:] = {words}\nfrom microagents.cli import main\ntry:\n    main()\nfinally:\n    print(*sys.modules)"
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    imported = done.stderr.splitlines()[-1].split()
    assert "microagents.cli.command" in imported
    assert [name for name in HEAVY if name in imported] == []
