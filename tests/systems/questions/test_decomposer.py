"""The decomposer: which ways to cut a problem it proposes, and which it leaves out because they lead nowhere."""

from __future__ import annotations

import pytest

from microagents.replies.reply_forms import json_form
from microagents.systems.questions.questions import ATOMIC, Decomposition, ToDecompose, asked_in
from microagents.tasks.ask import Answer
from tests.systems.scripted import CUT, QUESTION, four, label, noted_draws, solved


async def test_it_sees_the_problem_and_the_form_of_an_answer_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = noted_draws(monkeypatch)
    await solved({"solve/decompose": [ATOMIC] * 5, "solve/answer": [four()] * 5}, k=3)
    asked = [draw for draw in drawn if draw.id.election.path == "0/solve/decompose"]
    assert sorted(draw.id.seq for draw in asked) == [0, 1, 2, 3, 4], "2k - 1 candidates"
    for draw in asked:
        assert asked_in(draw.prompt) == ToDecompose(problem=QUESTION)
        assert json_form(Answer) in draw.prompt.system
        assert draw.temperature == 0.5


async def test_do_not_decompose_is_a_candidate_and_if_it_wins_the_problem_is_answered_directly() -> None:
    result = await solved(
        {
            "solve/decompose": [CUT, ATOMIC, CUT],
            "solve/decompose/vote": [label(ATOMIC, CUT, ATOMIC)] * 2,
            "solve/answer": [four()] * 3,
        }
    )
    assert (result.value["answer"], result.account.steps) == ({"answer": "4"}, 1)


async def test_a_problem_that_leads_back_to_one_above_it_is_not_cut_that_way() -> None:
    back = Decomposition(first="How many toes?", second=QUESTION, compose="Take the second.")
    result = await solved(
        {
            "solve/decompose": [CUT] * 3,
            "solve/1/decompose": [back] * 3,
            "solve/1/answer": [four("2")] * 3,
            "solve/2/decompose": [back, ATOMIC, ATOMIC],
            "solve/2/answer": [four("2")] * 3,
            "solve/compose": [four()] * 3,
        },
        depth=64,
    )
    assert result.value["answer"] == {"answer": "4"}


async def test_a_cut_that_stays_the_only_one_not_to_loop_is_marked() -> None:
    looping = Decomposition(first=QUESTION, second="?", compose="!")
    halves = {"solve/1/answer": [four("2")] * 3, "solve/2/answer": [four("2")] * 3, "solve/compose": [four()] * 3}
    result = await solved({"solve/decompose": [looping, CUT, looping], "solve/decompose/redraw": [looping], **halves})
    assert (result.account.steps, result.account.settled_at) == (3, {"0/solve/decompose": "single"})
