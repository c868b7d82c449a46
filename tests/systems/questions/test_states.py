"""States of a question with several transitions each: what became of every branch, read from a journal."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from microagents import Result, run
from microagents.journal.reading import Reader
from microagents.runs.inspection.runs import solution_of
from microagents.runtimes.virtual import run_virtual
from microagents.systems.questions import ProblemNode
from microagents.systems.questions.aot import Aot, AotTree
from microagents.systems.questions.questions import Contraction
from microagents.systems.questions.tree import Branch
from microagents.tasks.ask import Ask
from microagents.tasks.word_problems import WordProblem
from tests.systems.questions.test_aot import GRAPH, LAST, NEXT, QUESTION, Forest, ForestOfTrees, chain, transition, way
from tests.systems.questions.test_tree import nodes
from tests.systems.scripted import Script, four, label, scripted

MODEL = "sim:perfect@alternatives=2,tokens=1,flag=0.1"


def drawn(run_id: str = "r") -> ProblemNode:
    with Reader(Path(f"runs/{run_id}.sqlite")) as reader:
        found = solution_of(reader, 0)
    assert isinstance(found, ProblemNode)
    return found


def branches(of: ProblemNode) -> dict[str, Branch]:
    return {node.at: node.branch for node in nodes(of) if node.branch is not None}


def calls(of: ProblemNode) -> int:
    return of.calls + of.below.calls


class Pairs(Aot):
    """Two transitions from every state."""

    branches = 2


async def searched(script: Script, kind: type[Aot] = AotTree, **options: Any) -> Result:
    strategy = kind(**{"transitions": 1, **options})
    return await run(Ask(text=QUESTION), models=scripted("script.jsonl", script), strategy=strategy, run_id="r")


# -- branches --------------------------------------------------------------------------------------------------------------------------


async def test_the_branch_whose_chain_gave_the_answer_is_chosen_though_its_own_question_was_not_picked() -> None:
    script: dict[str, Any] = {
        "solve/answer": [way("5")],
        **transition(
            "solve/1", NEXT, followed="4", solved="7", judged=label(four("4"), four("7"), four("4"), four("5"))
        ),
        **transition("solve/2", LAST, followed="5", solved="5"),
        **transition(
            "solve/3", "Of 4, how many?", followed="4", solved="4", judged=label(four("4"), four("4"), four("5"))
        ),
    }
    result = await searched(script)
    assert (result.value["answer"]["answer"], result.value["question"]) == ("4", QUESTION)
    found = branches(drawn())
    assert [found[f"solve/{number}"].ending for number in (1, 2, 3)] == ["not picked", "transitions", "transitions"]
    assert [found[f"solve/{number}"].chosen for number in (1, 2, 3)] == [True, False, False]
    assert found["solve/1"].answer == Raw(msgspec.json.encode(four("4")))


async def test_a_branch_to_the_question_of_an_earlier_one_says_so() -> None:
    script: dict[str, Any] = {
        "solve/answer": [way("4")],
        **transition("solve/1", LAST, followed="5", solved="5", judged=label(four("5"), four("5"), four("4"))),
        **transition("solve/2", NEXT, followed="4", solved="4"),
        **transition("solve/3", NEXT, followed="4", solved="4"),
        **{f"solve/{number}/{below}/decompose": [chain(1)] for number in (1, 2) for below in (1, 2, 3)},
    }
    result = await searched(script, transitions=2)
    assert result.value["answer"]["answer"] == "5", "three chains beside three, and ties go to the first"
    found = branches(drawn())
    assert [found[f"solve/{number}"].same_as for number in (1, 2, 3)] == [None, None, 2]
    assert [found[f"solve/{number}"].chosen for number in (1, 2, 3)] == [True, False, False]


@pytest.mark.parametrize(
    ("replies", "ending"),
    [
        ({"decompose": ["?"] * 2}, "no subquestions"),
        ({"decompose": [chain(1)]}, "nothing to contract"),
        ({"decompose": [GRAPH], "graph": [way("4")], "contract": [Contraction(question=QUESTION)]}, "no contraction"),
    ],
)
async def test_a_branch_that_led_to_no_question_says_why(replies: dict[str, Any], ending: str) -> None:
    script = {"solve/answer": [way("4")]} | {
        f"solve/{number}/{turn}": each for number in (1, 2) for turn, each in replies.items()
    }
    result = await searched(script, Pairs, max_draws=2)
    assert result.value["endings"] == [ending] * 2
    assert calls(drawn()) == result.calls
    answer = Raw(msgspec.json.encode(four("4")))
    assert [node.branch for node in drawn().children] == [
        Branch(number=1, ending=result.value["endings"][0], answer=answer, chosen=True),
        Branch(number=2, ending=result.value["endings"][1], answer=answer, chosen=False),
    ]


# -- runs ------------------------------------------------------------------------------------------------------------------------------

SEARCHES = [
    Forest(),
    ForestOfTrees(k=2),
    AotTree(transitions="adaptive"),
]


@pytest.mark.parametrize("strategy", SEARCHES, ids=str)
async def test_the_branches_are_the_chains_of_the_result(strategy: Aot) -> None:
    result = await run(WordProblem(depth=4, instance=0), models=MODEL, strategy=strategy, run_id="r")
    tree = drawn()
    found, questions = branches(tree), {node.at: node.problem for node in nodes(tree)}
    chosen = [at for at, branch in found.items() if branch.chosen]
    assert all(inner.startswith(f"{outer}/") for outer, inner in itertools.pairwise(chosen)), "one way from the whole"
    last = chosen[-1]
    assert calls(tree) == result.calls
    if strategy.branches == 1:
        assert result.value["question"] in [question for at, question in questions.items() if at.startswith(last)]
        return
    assert sorted(branch.ending for branch in found.values() if branch.ending) == sorted(result.value["endings"])
    state = last if found[last].ending == "transitions" else last.rpartition("/")[0]
    assert questions[state] == result.value["question"]
    assert msgspec.json.decode(found[last].answer or b"") == result.value["answer"]


@pytest.mark.slow
def test_what_is_drawn_does_not_depend_on_time() -> None:
    found = set()
    for seed in range(4):
        how: dict[str, Any] = {"models": f"{MODEL},latency=1", "strategy": ForestOfTrees(), "run_id": f"r{seed}"}
        run_virtual(run(WordProblem(depth=3), **how), seed=seed)
        found.add(msgspec.json.encode(drawn(f"r{seed}")))
    assert len(found) == 1
