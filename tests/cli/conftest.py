"""What all tests of commands share: they start as after a login."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import forget_files_in


@pytest.fixture(autouse=True)
def as_after_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No settings and no keys in the environment; afterwards nothing of a user's files stays imported."""
    for name in os.environ:
        if name.startswith(("MICROAGENTS_", "OPENAI_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield
    forget_files_in(tmp_path)
