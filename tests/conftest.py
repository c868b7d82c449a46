"""What all tests share: a working folder of their own, since runs leave journals, and logs that go nowhere else afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog


@pytest.fixture(autouse=True)
def ray_where_it_is_needed(request: pytest.FixtureRequest) -> None:
    if hasattr(request.node, "callspec") and request.node.callspec.params.get("runtime") == "ray":
        request.getfixturevalue("ray_here")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    structlog.reset_defaults()  # a command's logger holds the stderr that it was given


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    """A Ray that all tests of this process share; runtimes use one that is there."""
    from microagents.runtimes.ray.cluster import Cluster, connect, disconnect  # noqa: PLC0415 - Ray takes a second

    connect(Cluster())
    yield
    disconnect()
