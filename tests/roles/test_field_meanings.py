"""Votes on rows by meaning: texts that mean the same are one value of their field, and other values must be equal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from microagents import Call, Prompt, Reply, Result, RowTask, run
from microagents.journal.reading import Reader
from microagents.replies.reply_forms import write
from microagents.roles.matcher import Match, ToMatch
from microagents.systems import Maker


class Capital(Reply, frozen=True):
    """A capital."""

    said: str
    year: int


class Capitals(RowTask[Capital]):
    """The capital of a country."""

    format = "json"

    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(user=row["of"])


SAID = ("Paris.", "It is Paris.", "Lyon.", "The capital is Paris.", "Paris, of course.", "Paris!")
YEARS = (987, 1, 987, 987, 987, 987)


async def filled(runs_dir: Path | None, asked: list[dict[str, Any]], **options: Any) -> Result:
    async def answer(call: Call) -> str:
        await asyncio.sleep(0.001 * (7 * call.id.seq % 5))  # replies arrive in another order than they are launched
        seq = call.id.seq % len(SAID)
        return write(Capital(said=SAID[seq], year=YEARS[seq]), "json")

    async def match(call: Call) -> str:
        replies = msgspec.json.decode(call.prompt.user, type=ToMatch).replies
        one, other = [msgspec.json.decode(each) for each in replies]
        asked.extend([one, other])
        return write(Match(same=("Paris" in one["said"]) == ("Paris" in other["said"])), "json")

    return await run(
        Capitals.rows([{"of": "France"}]),
        models={"": answer, "matcher": match},
        strategy=Maker(k=3, votes="semantic"),
        runs_dir=runs_dir,
        run_id="r",
        **options,
    )


async def test_texts_are_compared_by_field_and_other_values_exactly() -> None:
    asked: list[dict[str, Any]] = []
    result = await filled(None, asked)
    assert result.outcome == "completed"
    assert result.value == [{"said": "Paris.", "year": 987}]
    assert (result.account.fields, result.account.outvoted_fields) == (2, 2)
    assert asked
    assert all([*each] == ["said"] for each in asked)


@pytest.mark.slow
async def test_a_resumed_vote_by_meaning_decides_as_an_undisturbed_one(tmp_path: Path) -> None:
    whole = await filled(tmp_path / "whole", [])
    stopped = await filled(tmp_path / "stopped", [], max_calls=5)
    assert stopped.outcome == "stopped"
    resumed = await filled(tmp_path / "stopped", [], max_calls=None)
    assert resumed.value == whole.value
    assert resumed.account.ballots_sha256 == whole.account.ballots_sha256
    with Reader(tmp_path / "stopped" / "r.sqlite") as reader:
        assert reader.verify() == []
