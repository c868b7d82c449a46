"""Bounds for tests with damaged journals."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from microagents.journal import lease


@pytest.fixture(autouse=True)
def no_abandoned_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that earlier tests gave up are not those of journals with the same names."""
    monkeypatch.setattr(lease, "_abandoned", set())


@pytest.fixture
def little_memory() -> Iterator[None]:
    """What is asked for by a damaged number must not take the machine with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**30, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
