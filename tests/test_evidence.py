"""The page of evidence: its quick parts lie in their intervals, and a figure outside ends the program with 1."""

from __future__ import annotations

import pytest
from msgspec import structs

from microagents.replies.parsing import parse
from microagents.replies.rollouts import rollout_of
from microagents.tasks.checkers import Checkers, CheckersStep
from tests import evidence
from tests.benchmarks.tiny import RIGHT, calls


@pytest.mark.slow
def test_the_quick_figures_lie_in_their_intervals_and_stand_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert evidence.main(["recorded", "certain", "--check"]) == 0
    page = evidence.PAGE.read_text(encoding="utf-8")
    for line in capsys.readouterr().out.splitlines():
        assert line.split(" | ")[0] in page


def test_a_figure_that_has_left_its_interval_ends_the_program_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = evidence.of_trials("votes", 30, 60, (0.9,), "no calls")
    assert (figure.holds, evidence.of_trials("votes", 54, 60, (0.9,), "no calls").holds) == (False, True)
    for found, code in ((figure, 1), (structs.replace(figure, ours=0.9), 0)):
        monkeypatch.setitem(evidence.PARTS, "votes", [found].__iter__)
        assert evidence.main(["votes", "--check"]) == code


def test_what_a_rung_leaves_is_for_the_next_one() -> None:
    steps: list[evidence.Shares] = [{RIGHT: 0.9, "wrong": 0.1}] * 10
    sure: list[evidence.Shares] = [{RIGHT: 1.0}] * 10
    wrong: list[evidence.Shares] = [{"wrong": 1.0}] * 10
    assert evidence.voted(([steps], evidence.ahead(1)))[0] == pytest.approx(0.9**10, rel=0.25)
    assert evidence.voted(([steps], evidence.unanimous(8)), ([sure], evidence.ahead(3, 3)))[0] == pytest.approx(1)
    assert evidence.voted(([steps], evidence.unanimous(8)), ([wrong], evidence.ahead(1)))[0] < 0.1
    climbs = evidence.improbable(evidence.ahead(3), 0.99, 0.1)
    assert (
        evidence.voted(([steps], climbs), ([sure], evidence.ahead(1)))[0]
        > evidence.voted(([steps], evidence.ahead(3)))[0]
    )


async def test_a_model_of_single_steps_gives_a_rollout_by_a_call_for_each_of_its_steps() -> None:
    task, kind = Checkers(n=2), rollout_of(CheckersStep, 3)
    model = evidence.InSingleSteps("checkers", task)
    (call,) = calls([task.rollout_prompt(task.start(), 3)])
    sample = await model.complete(structs.replace(call, reply=kind))
    rollout, state = parse(sample.text, kind), task.start()
    for reply in rollout.steps:
        assert task.correct(state, reply)
        state = task.advance(state, reply)
    assert (model.calls, state.moves) == (3, 3)
    await model.close()
