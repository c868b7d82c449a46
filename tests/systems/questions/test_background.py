"""The background of a problem: every question to a model shows it first, and no question holds it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from microagents import run
from microagents.systems.questions.problem import Problem
from microagents.tasks.multiplication import Multiplication
from microagents.tasks.word_problems import WordProblem
from tests.papers.relay import Relay
from tests.systems.scripted import noted_draws

PASSAGES = 'Mills\n\tOne "mill" is old, {form}.\n\nHouses\nNone is.'
ERRING = "sim:perfect@error=0.3"


def with_passages(name: str, kind: type[Problem[Any]]) -> Any:
    return type(name, (kind,), {"background": lambda _: PASSAGES, "__module__": __name__})


Story = with_passages("Story", WordProblem)
Product = with_passages("Product", Multiplication)
Chore = with_passages("Chore", Relay)


@pytest.mark.parametrize(
    ("task", "strategy"),
    [
        *((Story(depth=3), name) for name in ("maker", "cot-sc", "self-refine", "aot+tree")),
        (Product(digits=3), "recursive"),
        (Chore(length=4), "swarm"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
async def test_every_prompt_begins_with_the_background_which_no_question_repeats(
    task: Problem[Any], strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = noted_draws(monkeypatch)
    await run(task, models=ERRING, strategy=strategy, runs_dir=None)
    for each in drawn:
        constant, question = each.prompt.user_parts
        assert json.loads(f"{constant}}}") == {"background": PASSAGES}
        assert "Mills" not in question
        assert "`background`" in each.prompt.system
    assert len({each.prompt.user_parts[0] for each in drawn}) == 1
