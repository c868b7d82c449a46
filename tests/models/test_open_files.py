"""The limit of open files: raised as far as it may be, and refused where it is too low."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from microagents.base.errors import InvalidUsage
from microagents.models.http.open_files import MOST, RESERVED, connections_allowed


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_is_raised_as_far_as_the_hard_one_and_the_number_of_connections_allow() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(300, hard), hard))
    allowed = connections_allowed()
    assert allowed == min(MOST, hard - RESERVED)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == allowed + RESERVED


def test_too_low_a_limit_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    with pytest.raises(InvalidUsage, match=r"may open 256 files.*ulimit -n 4096"):
        connections_allowed()
