"""Bounds for tests with damaged journals."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest


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
