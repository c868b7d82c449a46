"""SeqCV on problems: the text is the reasoning, and what it ends with is the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from microagents import Result, resume, run
from microagents.journal.sharded import reader_of
from microagents.runs.inspection.runs import solution_of
from microagents.runtimes.virtual import run_virtual
from microagents.systems.documents.notes import DocumentRecord
from microagents.systems.documents.reasoned_text import objective_of
from microagents.systems.documents.seqcv import SeqCV
from microagents.tasks.ask import Ask
from microagents.tasks.word_problems import WordProblem
from tests.systems.documents.authors import segment, yes
from tests.systems.questions.test_aot import digests, way
from tests.systems.scripted import Script, scripted

MODELS = tuple(f"sim:perfect@alternatives={number},tokens=1,flag=0.1" for number in (3, 4, 5))
SLOW = tuple(f"{model},latency={place}" for place, model in enumerate(MODELS, 1))
THREE = SeqCV(same_model=True, rounds=2)
STEP, END = "There were 6 limbs.\n", 'So 2 are lost.\n{"answer": "4"}'


async def reasoned(**options: Any) -> Result:
    given: dict[str, Any] = {"models": MODELS, "strategy": SeqCV(), "run_id": "r"}
    return await run(WordProblem(depth=3), **(given | options))


def recorded() -> DocumentRecord:
    with reader_of(Path("runs"), "r") as reader:
        found = solution_of(reader, 0)
    assert isinstance(found, DocumentRecord)
    return found


def one_round(number: int, text: str, status: Literal["ongoing", "complete"]) -> dict[str, Any]:
    """All agents write the same segment, and approve of all."""
    at = f"write/round/{number}"
    drafts = {f"{at}/draft/{agent}": [segment(text, status)] for agent in range(3)}
    return drafts | {f"{at}/check/{author}/{agent}": [yes()] for author in range(3) for agent in range(3)}


async def written(script: Script) -> Result:
    model = scripted("script.jsonl", script)
    return await run(Ask(text="How many limbs are left?"), models=model, strategy=THREE, run_id="r")


async def test_the_answer_is_what_the_verified_text_ends_with_and_nobody_else_is_asked() -> None:
    result = await written({**one_round(1, STEP, "ongoing"), **one_round(2, END, "complete")})
    assert (result.outcome, result.value["answer"], result.calls) == ("completed", {"answer": "4"}, 24)
    assert recorded().text == f"{STEP}{END}\n"


async def test_of_reasoning_that_comes_to_no_end_the_answer_is_asked_and_it_is_marked() -> None:
    script: Script = {**one_round(1, STEP, "ongoing"), **one_round(2, STEP, "ongoing"), "answer": [way("5")]}
    result = await written(script)
    assert (result.value["answer"], result.value["incomplete"]) == ({"answer": "5"}, ["write"])


def test_authors_judges_and_splitters_see_the_problem_and_the_form_of_its_answer() -> None:
    objective = objective_of(Ask(text="How many limbs are left?"))
    assert objective.startswith("How many limbs are left?\n\n")
    assert objective.endswith('{"answer": "<text>"}')


@pytest.mark.slow
def test_reasoning_is_the_same_whatever_the_order_of_events() -> None:
    found = {
        digests(run_virtual(reasoned(models=SLOW, runs_dir=None, runtime=("local", "linked")[seed % 2]), seed=seed))
        for seed in range(3)
    }
    assert len(found) == 1


@pytest.mark.slow
async def test_a_run_that_is_stopped_again_and_again_ends_as_an_undisturbed_one() -> None:
    right = await reasoned(runs_dir=None)
    result = await reasoned(max_calls=10)
    while result.outcome == "stopped":
        result = await resume("r", max_calls=result.calls + 10)
    assert (result.value, digests(result)) == (right.value, digests(right))
    assert msgspec.json.decode(recorded().text.splitlines()[-1]) == right.value["answer"]


@pytest.mark.slow
async def test_where_judges_disagree_the_first_step_is_split_off() -> None:
    tasks = [WordProblem(depth=5, instance=instance) for instance in range(10)]
    result = await run(tasks, models=MODELS, strategy=SeqCV(), runs_dir=None)
    assert max(value["subtasks"] for value in result.value) > 1
    assert sum(value["correct"] for value in result.value) >= 8
