"""The discriminator: how ballots are cast among candidates, when a vote is over, and what is taken where nobody comes to k votes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from microagents import resume, run
from microagents.base.errors import InvalidUsage, ModelUnavailable
from microagents.journal.sharded import reader_of
from microagents.runs.inspection.decision import InspectedDecision, inspect_decision
from microagents.runs.inspection.runs import decide
from microagents.tasks.multiplication import Multiplication
from tests.systems.scripted import CUT, Script, four, label, noted_draws, rows, solved


@pytest.mark.parametrize(
    ("word", "ballots", "answer"), [("ABA", "BB", "B"), ("ABB", "ABA", "A")], ids=["equal ones", "the kth ballot"]
)
async def test_equal_candidates_do_not_split_a_vote_which_ends_with_the_kth_ballot_for_one(
    word: str, ballots: str, answer: str
) -> None:
    votes = [label(four(each), four("A"), four("B")) for each in ballots]
    result = await solved({"solve/answer": [four(each) for each in word], "solve/answer/vote": votes}, depth=0)
    assert (result.value["answer"], result.value["argmax"]) == ({"answer": answer}, [])
    assert result.calls == 3 + len(ballots)
    assert rows()["solve/answer/vote"][0] == "decided"


async def test_where_nobody_comes_to_k_votes_the_one_with_most_is_taken_and_marked() -> None:
    candidates = four("A"), four("B"), four("C"), four("D"), four("E")
    ballots = [label(candidates[place], *candidates) for place in (4, 1, 2, 1, 3)]
    result = await solved({"solve/answer": candidates, "solve/answer/vote": ballots}, depth=0, k=3)
    assert result.outcome == "completed"
    assert result.value == {"answer": {"answer": "B"}, "correct": None, "argmax": ["0/solve/answer/vote"]}
    assert rows()["solve/answer/vote"] == ("argmax", {"choice": label(candidates[1], *candidates).choice})


async def test_a_tie_is_broken_in_the_same_way_when_the_run_is_taken_up_again() -> None:
    a, b, c = four("A"), four("B"), four("C")
    votes = [label(each, a, b, c) for each in (a, c, b, c, b)]
    script: Script = {
        "solve/decompose": [CUT] * 5,
        "solve/1/answer": [a, b, c, b, c],
        "solve/1/answer/vote": votes,
        "solve/2/answer": [four("2")] * 5,
    }
    with pytest.raises(ModelUnavailable, match="has no reply"):
        await solved(script, k=3)
    result = await solved({**script, "solve/compose": [four()] * 5}, k=3)
    assert result.value["argmax"] == ["0/solve/1/answer/vote"]
    assert rows()["solve/1/answer/vote"] == ("argmax", {"choice": label(b, a, b, c).choice})


def _shown(path: str) -> InspectedDecision:
    with reader_of(Path("runs"), "solved") as reader:
        return inspect_decision(reader, path)


async def test_a_person_can_only_decide_for_a_candidate() -> None:
    a, b = four("A"), four("B")
    await solved({"solve/answer": [a, b, b], "solve/answer/vote": ["?"] * 7}, depth=0, strategy={"max_draws": 7})
    with pytest.raises(
        InvalidUsage, match=r"names none of the candidates at '0/solve/answer/vote'; they are [A-Z2-7]{4}, [A-Z2-7]{4}"
    ):
        decide(Path("runs"), "solved", "0/solve/answer/vote", '{"choice": "ZZZZ"}')
    shown = await asyncio.to_thread(_shown, "0/solve/answer/vote")
    assert [shown.behind(vote)["answer"] for vote, votes in shown.tally if votes == 0] == ["A", "B"]
    decide(Path("runs"), "solved", "0/solve/answer/vote", f"choice={label(b, a, b).choice}")
    result = await resume("solved")
    assert (result.value["answer"], result.account.settled_at) == ({"answer": "B"}, {"0/solve/answer/vote": "person"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "cuts", "answers"),
    [
        (["cuts"], "cuts", ""),
        (["discriminator", "answers"], "discriminator", "answers"),
    ],
)
async def test_votes_on_cuts_and_on_answers_may_have_models_of_their_own(
    given: list[str], cuts: str, answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = noted_draws(monkeypatch)
    spec = {
        role: f"sim:perfect@error=0.3,latency={number}e-9"
        for number, role in enumerate(["", "discriminator", "cuts", "answers"], 1)
    }
    models = {role: spec[role] for role in ["", *given]}
    await run(
        [Multiplication(digits=4, instance=number) for number in range(8)],
        models=models,
        strategy="recursive",
        runs_dir=None,
    )
    asked: dict[str, set[str]] = {}
    for each in drawn:
        path = each.id.election.path
        asked.setdefault(path.split("/")[-2] if path.endswith("/vote") else "others", set()).add(each.model)
    assert asked["decompose"] == {spec[cuts]}
    assert asked["answer"] | asked["compose"] == {spec[answers]}
    assert asked["others"] == {spec[""]}
