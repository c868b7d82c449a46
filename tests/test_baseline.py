"""Systems decide as the baseline says, and no address of a class has a part in it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from msgspec import structs

from microagents.elections.election import ElectionId, Question
from microagents.work import durable
from tests.baseline import SYSTEMS, baseline, recorded


def test_the_baseline_has_all_systems() -> None:
    assert sorted(baseline()) == sorted(SYSTEMS)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_decides_as_before_also_where_files_have_moved(name: str) -> None:
    """Digests of questions have the addresses of classes in them: with others, as after a move, decisions and ballots are the same."""
    id_at, digest = Question.id_at, durable._digest

    def moved(self: Question, path: str) -> ElectionId:
        return id_at(structs.replace(self, reply=f"elsewhere.{self.reply}"), path)

    def moved_request(asked: bytes) -> bytes:
        return digest(b"elsewhere." + asked)

    patches: Any = (patch.object(Question, "id_at", moved), patch.object(durable, "_digest", moved_request))
    with patches[0], patches[1]:
        assert recorded(name) == baseline()[name]
