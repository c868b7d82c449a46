"""The composer: what it is told of the halves, and what happens where its samples cannot be read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from microagents import resume
from microagents.runs.inspection.runs import decide
from tests.systems.scripted import CUT, QUESTION, Script, four, noted_draws, solved

HALVES: Script = {
    "solve/decompose": [CUT] * 3,
    "solve/1/answer": [four("two")] * 3,
    "solve/2/answer": [four("three")] * 3,
}
AT = "0/solve/compose"


async def test_it_sees_problem_halves_answers_and_how_to_compose_them(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = noted_draws(monkeypatch)
    await solved({**HALVES, "solve/compose": [four()] * 3})
    asked = [draw for draw in drawn if draw.id.election.path == AT]
    assert sorted(draw.id.seq for draw in asked) == [0, 1, 2], "2k - 1 candidates"
    told = {
        "wanted": "composition",
        "problem": QUESTION,
        "first": CUT.first,
        "answer_to_first": {"answer": "two"},
        "second": CUT.second,
        "answer_to_second": {"answer": "three"},
        "compose": CUT.compose,
    }
    for draw in asked:
        assert msgspec.json.decode(draw.prompt.user) == told
        assert draw.temperature == 0.5


async def test_where_every_composition_is_flagged_the_problem_is_undecided_there_and_a_person_may_compose() -> None:
    result = await solved({**HALVES, "solve/compose": ["?"] * 3})
    assert (result.outcome, result.account.undecided_at) == ("undecided", (AT,))
    decide(Path("runs"), "solved", AT, '{"answer": "5"}')
    again = await resume("solved")
    assert (again.outcome, again.value["answer"]) == ("completed", {"answer": "5"})
    assert again.account.settled_at == {AT: "person"}
