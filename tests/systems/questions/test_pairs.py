"""Two strategies with a plus between them: what the first hands over, what the second makes of it, and whose options are whose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from microagents import Result, Strategy, resume, run
from microagents.actors.registry import STRATEGIES, reference_to
from microagents.base.errors import InvalidUsage
from microagents.journal.reading import Reader
from microagents.runs.inspection.runs import solution_of
from microagents.runs.strategies import strategy_of
from microagents.runtimes.virtual import run_virtual
from microagents.studies.compare import compare
from microagents.systems.questions.pairs import Pair
from microagents.systems.questions.problem import restated, text_of
from microagents.systems.questions.questions import Contraction
from microagents.systems.questions.tree import ProblemNode
from microagents.tasks.ask import Ask
from microagents.tasks.word_problems import WordProblem
from tests.systems.questions.test_aot import GRAPH, NEXT, QUESTION, way
from tests.systems.scripted import Script, four, scripted

MODEL = "sim:perfect@alternatives=1,tokens=1,flag=0.1"
TASK = WordProblem(depth=3)
BEFORE: Script = {
    "before/answer": [way("4")],
    "before/1/decompose": [GRAPH],
    "before/1/contract": [Contraction(question=NEXT)],
    "before/1/graph": [way("4")],
    "before/1/answer": [way("4")],
}


async def paired(script: dict[str, Any], strategy: str, **options: Any) -> Result:
    model = scripted("script.jsonl", {**BEFORE, **script})
    named = strategy_of(strategy, Ask(text=QUESTION), {"aot.transitions": 1, **options})
    return await run(Ask(text=QUESTION), models=model, strategy=named, run_id="paired")


async def test_the_second_strategy_solves_what_the_first_one_makes() -> None:
    result = await paired({"solve/answer": [four("7")]}, "aot+recursive", depth=0, **{"recursive.k": 1})
    assert (result.outcome, result.value["answer"]) == ("completed", {"answer": "7"})
    with Reader(Path("runs/paired.sqlite")) as reader:
        tree = solution_of(reader, 0)
    assert isinstance(tree, ProblemNode)
    assert [child.problem for child in tree.children] == [QUESTION, NEXT]
    assert tree.children[0].children[0].problem == NEXT


@pytest.mark.parametrize(
    "second",
    ["maker", "cot", "self-refine", "tot"],
)
async def test_any_strategy_for_problems_may_stand_behind_the_plus(second: str) -> None:
    name = f"aot+{second}"
    result = await run(TASK, models=MODEL.replace("flag=0.1", "flag=0"), strategy=name, run_id="any")
    assert result.outcome == "completed"
    again = await resume("any")
    assert (again.value, again.calls, again.strategy) == (result.value, result.calls, name)


@pytest.mark.slow
def test_decisions_of_a_pair_do_not_depend_on_time() -> None:
    found = set()
    for seed, runtime in enumerate(["local", "linked"] * 3):
        result = run_virtual(
            run(TASK, models=f"{MODEL},latency=1", strategy="aot+recursive", runs_dir=None, runtime=runtime), seed=seed
        )
        found.add((result.account.decisions_sha256, result.account.ballots_sha256, result.calls))
    assert len(found) == 1


def test_a_pair_is_found_again_by_its_name() -> None:
    kind = STRATEGIES.find("aot+recursive", Strategy)
    assert STRATEGIES.find(reference_to(kind), Strategy) is kind


def test_options_without_a_name_before_them_go_to_the_one_strategy_that_has_them() -> None:
    pair = strategy_of("aot+recursive", TASK, {"transitions": "adaptive", "width": "4", "recursive.k": "3"})
    assert isinstance(pair, Pair)
    assert [part.model_dump(exclude_defaults=True) for part in pair.parts] == [
        {"transitions": "adaptive"},
        {"width": 4, "k": 3},
    ]


def test_an_option_of_all_strategies_is_one_of_the_pair_and_goes_to_both() -> None:
    pair = strategy_of("aot+recursive", TASK, {"votes": "semantic"})
    assert isinstance(pair, Pair)
    assert [part.votes for part in pair.parts] == ["semantic", "semantic"]


@pytest.mark.parametrize(
    ("strategy", "options", "sentence"),
    [
        ("aot+recursive", {"k": 2}, "k is an option of both strategies; write aot.k or recursive.k"),
        ("aot+recursive", {"transitions": -1}, "aot: transitions is a number from 0 to 100, or `adaptive`, not '-1'"),
        ("aot+recursive", {"recursive.k": 0}, "recursive.k must be greater than or equal to 1, not 0"),
        ("aot+recursive", {"recursive.transitions": 1}, "named 'recursive.transitions'"),
        ("recursive+aot", {}, "recursive makes no problem that aot could solve"),
        ("aot+sequential", {}, "sequential solves no problems, so it cannot solve what aot makes"),
        ("aot+aot", {}, "'aot\\+aot' names one strategy twice"),
        ("aot+nothing", {}, "there is no strategy 'nothing'"),
        ("aot+", {}, r"'aot\+' needs the name of a strategy on both sides of the plus, such as aot\+recursive"),
        ("+aot", {}, r"'\+aot' needs the name of a strategy on both sides of the plus, such as aot\+recursive"),
    ],
)
def test_bad_pairs_and_options_are_refused_in_a_sentence(strategy: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidUsage, match=sentence):
        strategy_of(strategy, TASK, options)


@pytest.mark.slow
async def test_pairs_are_compared_with_their_parts() -> None:
    names = ["aot", "recursive", "aot+recursive"]
    comparison = await compare(TASK, models=MODEL, strategies=names, repeat=3, options={"transitions": 1, "depth": 1})
    assert [row.strategy for row in comparison.rows] == names
    assert all(row.outcome == "completed" for row in comparison.rows)


def test_a_restated_problem_asks_otherwise_and_judges_as_before() -> None:
    made = restated(TASK, "How many?")
    assert text_of(made) == "How many?"
    right = TASK.expert_answer(TASK.statement())
    assert (made.correct(right), isinstance(made, WordProblem)) == (True, True)
