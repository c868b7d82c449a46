"""`microagents show` of runs that cut problems up: the tree in the terminal, and in JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from microagents.cli.views.tree import draw_tree
from microagents.runs.words.money import Price
from microagents.systems.questions.tree import Branch, ProblemNode, TurnKind, TurnResult, fold
from tests.cli.commands import COMPLETED, OVER, STOPPED, UNDECIDED, WRONG_USAGE, Ran, microagents, write

FIVE = ("run", "multiplication", "-o", "digits=5", "--run-id", "r")
THREE_INPUTS = "\n".join(f'{{"digits": 3, "instance": {number}}}' for number in range(3))


def shown(*words: str) -> list[str]:
    """The lines of the tree, below the summary."""
    ran = microagents("show", "r", *words)
    assert ran.code == COMPLETED, ran.err
    lines = ran.out.partition("\n\n")[2].splitlines()
    assert not lines or "simulated" in " ".join(lines)
    return lines


def whole(*words: str) -> dict[str, Any]:
    ran = microagents("show", "r", "--json", *words)
    found = ran.json["solution"]
    assert isinstance(found, dict)
    return found


def nodes(of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield of
    for child in of["children"]:
        yield from nodes(child)


def refused(*words: str) -> str:
    ran = microagents("show", "r", *words)
    assert (ran.code, ran.out) == (WRONG_USAGE, "")
    (sentence,) = ran.err.splitlines()
    return sentence


def completed(*words: str) -> Ran:
    ran = microagents(*words)
    assert ran.code in OVER, ran.err
    return ran


# -- in the terminal ---------------------------------------------------------------------------------------------------


def test_the_first_line_is_the_problem_its_answer_and_how_it_came_to_it() -> None:
    answer = completed(*FIVE, "--json").json["result"]["answer"]["product"]
    first = "\n".join(shown()[:2])
    assert re.match(rf"What is \d+ \* \d+\?\n-> {answer}  decompose agreed 3 of 3, compose \S+.*  \$0\.", first), first


@pytest.mark.slow
def test_an_argmax_is_marked() -> None:
    write("wavering.py", WAVERING)
    words = ("run", "wavering.py:Wavering", "-o", "digits=6", "-s", "depth=1", "-k", "3", "--json")
    seeds = [str(seed) for seed in range(10)]
    found = {seed: completed(*words, "--run-id", seed, "--seed", seed).json["result"]["argmax"] for seed in seeds}
    assert any(found.values())
    for seed in seeds:
        marked = [" argmax" in line for line in microagents("show", seed).out.splitlines() if "  answer " in line]
        assert marked == [f"0/solve/{half}/answer/vote" in found[seed] for half in (1, 2)], seed


WAVERING = """
    from microagents.systems.questions.questions import Choice
    from microagents.tasks.multiplication import Multiplication

    class Wavering(Multiplication):
        def difficulty(self, prompt, reply):
            return 0.9 if issubclass(reply, Choice) else super().difficulty(prompt, reply)
"""


@pytest.mark.slow
def test_a_run_that_was_stopped_shows_what_is_open_and_what_has_not_begun() -> None:
    assert microagents(*FIVE, "--max-calls", "8", "--concurrency", "1").code == STOPPED
    lines = shown()
    assert any(re.search(r"decompose open after \d  \$", line) for line in lines), lines
    assert not any("->" in line for line in lines)
    assert microagents("resume", "r", "--max-calls", "1000").code == COMPLETED
    assert not any("open" in line for line in shown())


def test_an_undecided_vote_is_shown() -> None:
    how = ("--model", "sim:perfect@flag=0.5", "-s", "depth=2", "-s", "max_draws=3")
    assert microagents(*FIVE, *how).code == UNDECIDED
    assert any(re.search(r"(decompose|answer) undecided after \d  \$", line) for line in shown())
    microagents("resume", "r", "--on-undecided", "sim:perfect")
    assert any(" decided by another model" in line for line in shown())


HOSTILE = """
    from microagents import Reply
    from microagents.systems.questions.questions import Decomposition
    from microagents.systems.questions.problem import WorkedProblem

    NASTY = "\\x1b[2J\\x07\\r\\x9b31m\\u202e\\n+99 problems"

    class Said(Reply, frozen=True):
        text: str

    class Hostile(WorkedProblem[Said]):
        def statement(self):
            return f"{NASTY} whole"

        def expert_answer(self, problem):
            return Said(text=NASTY)

        def expert_decomposition(self, problem):
            if not problem.endswith("whole"):
                return Decomposition(first="", second="", compose="")
            return Decomposition(first=f"{NASTY} a", second=f"{NASTY} b", compose=NASTY)

        def expert_composition(self, asked):
            return Said(text=NASTY)
"""


def test_what_problems_and_answers_hold_does_not_reach_the_terminal_raw() -> None:
    write("hostile.py", HOSTILE)
    completed("run", "hostile.py:Hostile", "--model", "sim:perfect", "--run-id", "r")
    ran = microagents("show", "r")
    assert all(each.isprintable() or each == "\n" for each in ran.out)
    assert "+99 problems" in ran.out
    assert not re.search(r"^\W*\+99", ran.out.partition("\n\n")[2], re.MULTILINE), "a line that is no problem's own"
    nasty = "\x1b[2J\x07\r\x9b31m\u202e\n+99 problems"
    found = whole()
    assert (found["problem"], found["answer"]) == (f"{nasty} whole", {"text": nasty})


# -- as JSON -----------------------------------------------------------------------------------------------------------


def test_json_has_the_whole_tree() -> None:
    run = completed(*FIVE, "--json").json
    found = whole()
    assert found["answer"] == run["result"]["answer"]
    assert sum(each["calls"] for each in nodes(found)) == run["calls"]
    assert sum(each["cost_usd"] for each in nodes(found)) == pytest.approx(run["cost_usd"])
    assert all(each["folded"] is None for each in nodes(found))


@pytest.mark.slow
def test_json_keeps_long_numbers() -> None:
    answer = completed("run", "multiplication", "-o", "digits=30", "-o", "by=1", "--run-id", "r", "--json").json[
        "result"
    ]["answer"]
    assert whole()["answer"] == answer
    assert f'"product":{answer["product"]}' in microagents("show", "r", "--json").out


# -- of many inputs, and where there is no tree ------------------------------------------------------------------------


@pytest.mark.slow
def test_of_many_inputs_one_is_named() -> None:
    Path("items.jsonl").write_text(THREE_INPUTS, encoding="utf-8")
    results = [
        json.loads(line)
        for line in completed("run", "multiplication", "--inputs", "items.jsonl", "--run-id", "r").out.splitlines()
    ]
    ran = microagents("show", "r")
    assert ran.code == COMPLETED
    assert ran.out.splitlines()[-1] == "it has 3 inputs; name one to see the work on it: show r --input N"
    assert "solution" not in microagents("show", "r", "--json").json
    assert [whole("--input", str(number))["answer"] for number in range(3)] == [each["answer"] for each in results]
    assert str(results[1]["answer"]["product"]) in shown("--input", "1")[1]
    assert "there is no input 3 in run r: it has inputs 0 to 2" in refused("--input", "3")


def test_runs_of_another_strategy_have_no_tree() -> None:
    completed("run", "multiplication", "--strategy", "single-shot", "--run-id", "r")
    assert "run r used the strategy single-shot, whose decisions are its whole record" in refused("--input", "0")
    assert shown() == []
    assert "solution" not in microagents("show", "r", "--json").json


@pytest.mark.slow
def test_a_task_that_cannot_be_imported_any_more_costs_only_the_tree() -> None:
    write("wavering.py", WAVERING)
    completed("run", "wavering.py:Wavering", "--run-id", "r")
    Path("wavering.py").write_text("raise RuntimeError('gone\\naway')", encoding="utf-8")
    del sys.modules["wavering"]
    ran = microagents("show", "r")
    assert (ran.code, ran.rows["completed, WRONG"][:8]) == (COMPLETED, "Wavering")
    assert "cannot be imported: RuntimeError: gone away" in ran.out.splitlines()[-1]
    ran = microagents("show", "r", "--json")
    assert "cannot be imported" in ran.err
    assert "solution" not in ran.json
    assert "cannot be imported" in refused("--input", "0")


def test_what_is_undecided_is_counted_where_it_is_folded() -> None:
    undecided = TurnResult(turn=TurnKind.ANSWER, outcome="undecided")
    leaf = ProblemNode(at="", problem="p", depth=2, turns=(undecided,), answer=None, calls=3, cost_usd=0.0)
    half = ProblemNode(at="", problem="p", depth=1, turns=(), answer=None, calls=3, cost_usd=0.0, children=(leaf, leaf))
    whole = ProblemNode(
        at="", problem="p", depth=0, turns=(), answer=None, calls=3, cost_usd=0.0, children=(half, leaf)
    )
    assert "+4 problems, 3 of them undecided" in draw_tree(fold(whole, 0), Price())
    assert "+2 problems, 2 of them undecided" in draw_tree(fold(whole, 1), Price())


# -- states ----------------------------------------------------------------------------------------------------------------------------

STORY = ("run", "word-problems", "-o", "depth=2", "--model", "sim:perfect", "--run-id", "r")


BRANCH = "decompose agreed 1 of 1, contract agreed 1 of 1, graph agreed 1 of 1, answer agreed 1 of 1"


def test_each_branch_of_a_state_stands_on_lines_of_its_own_and_the_chosen_one_is_marked() -> None:
    completed(*STORY, "--strategy", "aot+tree")
    lines = shown()
    assert "  answer agreed 1 of 1  $0.00" in lines[1]
    heads = [line.lstrip("├└│─ ") for line in lines]
    assert [line.partition("]")[0] for line in heads if line.startswith("[") and " Fay has" in line] == [
        *("[1, chosen", "[2, same as 1", "[3, same as 1"),
    ]
    assert [line for line in heads if "nothing to contract" in line] == [
        *("[1, nothing to contract, chosen]", "[2, nothing to contract]", "[3, nothing to contract]"),
    ]
    assert " ".join(heads).count(BRANCH) == 3
    tree = whole()
    assert tree["branch"] is None
    assert [(child["branch"]["number"], child["branch"]["same_as"]) for child in tree["children"]] == [
        (1, None),
        (2, 1),
        (3, 1),
    ]
    chosen = tree["children"][0]
    assert chosen["branch"] == {"number": 1, "same_as": None, "ending": None, "answer": None, "chosen": True}
    assert [(chosen["at"], turn["turn"]) for turn in chosen["turns"]] == [
        ("solve/1", turn) for turn in ("decompose", "contract", "graph", "answer")
    ]


@pytest.mark.parametrize(
    ("branch", "text"),
    [
        (Branch(number=2, ending="transitions", answer=Raw(b'{"total":3}'), chosen=False), "[2] p"),
        (
            Branch(number=2, ending="not picked", answer=Raw(b'{"total":4}'), chosen=True),
            "[2, judge picked 4, chosen] p",
        ),
        (
            Branch(number=2, ending="not picked", answer=Raw(b'{"text":"%s"}' % (b"x" * 90))),
            f'[2, judge picked "{"x" * 16}...] p',
        ),
    ],
)
def test_a_branch_says_what_became_of_it(branch: Branch, text: str) -> None:
    leaf = ProblemNode(
        at="", problem="p", depth=0, turns=(), answer=Raw(b'{"total":3}'), calls=0, cost_usd=0.0, branch=branch
    )
    assert draw_tree(leaf, Price()) == f"{text}\n-> 3  nothing recorded  $0.00"
