"""Trees and forests of thoughts, turn by turn: which thoughts go on, and whose answer is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from microagents import Result, Strategy, run
from microagents.base.errors import InvalidUsage
from microagents.journal.reading import Reader
from microagents.runs.inspection.runs import solution_of
from microagents.runs.strategies import strategy_of
from microagents.runtimes.virtual import run_virtual
from microagents.systems import ForestOfThoughts, TreeOfThoughts
from microagents.systems.questions.questions import Thought, Thoughts
from microagents.systems.questions.tree import ProblemNode
from microagents.tasks.ask import Ask
from microagents.tasks.word_problems import WordProblem
from tests.systems.questions.test_aot import QUESTION, digests, way
from tests.systems.scripted import Script, four, label, scripted

MODEL = "sim:perfect@alternatives=1,tokens=1,flag=0.1"
FIRST, SECOND = "There are 2 legs.", "There are 4 arms."


def ways(*thoughts: str) -> list[Thoughts]:
    return [Thoughts(thoughts=(each,)) for each in thoughts]


def drawn(at: str, *thoughts: str) -> dict[str, Any]:
    return {f"{at}/{number}/think": [Thought(thought=each)] for number, each in enumerate(thoughts, 1)}


def concluded(at: str, *answers: str) -> dict[str, Any]:
    return {f"{at}/answer": [way(each) for each in answers]}


async def grown(script: Script, strategy: Strategy | None = None, **options: Any) -> str:
    strategy = strategy or TreeOfThoughts(**options)
    result = await run(Ask(text=QUESTION), models=scripted("script.jsonl", script), strategy=strategy, run_id="grown")
    assert result.outcome == "completed", result.reason
    return str(result.value["answer"]["answer"])


def tree(run_id: str = "grown") -> ProblemNode:
    with Reader(Path(f"runs/{run_id}.sqlite")) as reader:
        found = solution_of(reader, 0)
    assert isinstance(found, ProblemNode)
    return found


def branches(node: ProblemNode) -> list[tuple[str, str | None, int | None, bool | None]]:
    return [
        (each.problem, each.branch.ending, each.branch.same_as, each.branch.chosen)
        for each in node.children
        if each.branch is not None
    ]


async def test_the_thought_that_a_vote_keeps_goes_on_and_equal_ones_are_one() -> None:
    (first, second) = ways(FIRST, SECOND)
    script: Script = {
        **drawn("solve", FIRST, SECOND, SECOND),
        "solve/level/1/1/prune/vote": [label(second, first, second)],
        **concluded("solve/2", "4", "4", "4"),
    }
    assert await grown(script, steps=1) == "4"
    found = tree()
    assert branches(found) == [(FIRST, "pruned", None, False), (SECOND, None, None, True), (SECOND, None, 2, False)]
    assert [turn.turn for turn in found.turns] == ["prune"]


async def test_where_no_thought_is_valid_the_ways_so_far_give_the_answer() -> None:
    blank = Thought(thought=" ")
    script: Script = {
        **{f"solve/{number}/think": [blank] * 3 for number in (1, 2, 3)},
        **concluded("solve", "4", "4", "4"),
    }
    assert await grown(script, max_draws=3) == "4"


class ForestOfThree(ForestOfThoughts):
    """Three trees."""

    trees = 3


@pytest.mark.parametrize(
    ("answers", "expert", "taken"),
    [(("5", "4", "4"), None, "4"), (("5", "4", "7"), "7", "7")],
    ids=["majority", "expert"],
)
async def test_a_forest_takes_the_answer_of_most_trees_and_else_asks_an_expert(
    answers: tuple[str, ...], expert: str | None, taken: str
) -> None:
    script: dict[str, Any] = {}
    for number, answer in enumerate(answers, 1):
        script |= concluded(f"solve/tree/{number}", *[answer] * 3)
    if expert is not None:
        script["solve/judge/vote"] = [label(four(expert), *map(four, answers))]
    assert await grown(script, ForestOfThree(steps=0)) == taken
    found = tree()
    assert [child.at for child in found.children] == [f"solve/tree/{number}" for number in (1, 2, 3)]
    assert [chosen for *_, chosen in branches(found)].count(True) == 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [TreeOfThoughts(steps=2, k=2), ForestOfThree(steps=2)], ids=["tree", "forest"])
def test_decisions_and_what_is_drawn_do_not_depend_on_time_nor_on_where_roles_run(strategy: Strategy) -> None:
    found = set()
    for seed in range(4):
        runtime, named = ("local", "linked")[seed % 2], f"r{seed}"
        result = run_virtual(
            run(WordProblem(depth=3), models=f"{MODEL},latency=1", strategy=strategy, run_id=named, runtime=runtime),
            seed=seed,
        )
        found.add((*digests(result), msgspec.json.encode(tree(named))))
    assert len(found) == 1


@pytest.mark.usefixtures("ray_here")
async def test_decisions_on_ray_are_those_of_one_process() -> None:
    how: dict[str, Any] = {"models": MODEL, "strategy": ForestOfThree(steps=2), "runs_dir": None}
    here, there = [await run(WordProblem(depth=3), **how, runtime=each) for each in ("local", "ray")]
    assert digests(here) == digests(there)


async def solved_of(strategy: str) -> int:
    tasks = [WordProblem(depth=5, instance=instance) for instance in range(40)]
    result: Result = await run(tasks, models="sim:perfect@alternatives=1,tokens=1", strategy=strategy, runs_dir=None)
    return sum(value["correct"] for value in result.value)


@pytest.mark.slow
async def test_a_tree_solves_what_one_answer_does_not_and_a_forest_more() -> None:
    """At depth 5 one answer is right with probability .4, which makes 26 or more of 40 right once in 500 times."""
    one, single, forest = [await solved_of(each) for each in ("cot", "tot", "fot")]
    assert one <= 25 < single <= forest


def test_a_vote_that_may_take_more_ballots_than_the_cap_is_refused_in_one_sentence() -> None:
    with pytest.raises(InvalidUsage, match="a vote at k = 11 may take 21 ballots, but max_draws = 20"):
        strategy_of("tot", Ask(text="?"), {"k": 11})
