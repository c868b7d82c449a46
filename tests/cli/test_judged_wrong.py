"""Runs that are completed, and that the task's own code finds wrong: the exit code, the summary, lists, pages and reports say so."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pytest

from microagents.journal.sharded import reader_of
from microagents.web.viewer import pages
from tests.cli.commands import COMPLETED, WRONG, microagents, write

TASKS = '''
from microagents import Action, AgentState, AgentTask, ChainTask, Problem, Prompt, Reply, ToolCall, tool


@tool("read_only")
def look() -> str:
    """Look."""
    return "nothing"


class Agent(AgentTask):
    tools = (look,)
    verdict: bool | None = None

    def statement(self) -> str:
        return "Look."

    def check(self, state, result, run):
        with open("checks.txt", "a") as file:
            file.write("checked\\\\n")
        return self.verdict

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:
        return Action(calls=[ToolCall("end", {"answer": "done"})])


class Number(Reply, frozen=True):
    number: int


class Chain(ChainTask[int, Number]):
    verdict: bool | None = None
    judge: bool = False

    def start(self) -> int:
        return 0

    def done(self, state: int) -> bool:
        return state == 2

    def prompt(self, state: int) -> Prompt:
        return Prompt(system="Count.", user=str(state))

    def advance(self, state: int, reply: Number) -> int:
        return state + 1

    def result(self, state: int) -> dict:
        return {"solved": self.verdict} if not self.judge else {"steps": state}

    def correct(self, state: int, reply: Number) -> bool | None:
        return self.verdict if self.judge else None

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:
        return Number(number=1)


class Question(Problem[Number]):
    verdict: bool | None = None

    def statement(self) -> str:
        return "How many?"

    def correct(self, reply: Number) -> bool | None:
        return self.verdict

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:
        others = {name: "so" for name in reply.__struct_fields__ if name != "answer"}
        return reply(answer=Number(number=1), **others)
'''
KINDS = {
    "check of an agent": ("Agent",),
    "result of a chain": ("Chain",),
    "oracle of a chain": ("Chain", "-o", "judge=true"),
    "answer to a problem": ("Question", "--strategy", "cot"),
}


def do(kind: str, verdict: str, *words: str) -> tuple[str, ...]:
    """The words of the command for a run whose work is judged so; with an empty verdict nothing is judged."""
    write("judged.py", TASKS.replace("\\\\n", "\\n"))
    name, *more = KINDS[kind]
    return (
        "run",
        f"judged.py:{name}",
        *more,
        *["-o", f"verdict={verdict}"] * bool(verdict),
        "--model",
        "sim:perfect",
        "--run-id",
        "r",
        *words,
    )


@pytest.mark.parametrize("kind", ["oracle of a chain", "answer to a problem"])
def test_a_run_that_is_judged_wrong_is_green_nowhere(kind: str) -> None:
    ran = microagents(*do(kind, "false"))
    assert (ran.code, ran.out.startswith("completed, WRONG  ")) == (WRONG, True), ran.out + ran.err
    assert "not checked" not in ran.out
    for words in (("show", "r"), ("list",), ("ctl", "r", "status"), ("list", "--live")):
        said = microagents(*words)
        assert (said.code, "completed, WRONG" in said.out) == (COMPLETED, True), words
    assert microagents("show", "r", "--live").code == WRONG
    shown = microagents("show", "r", "--json").json
    assert (shown["outcome"], shown["right"]) == ("completed", False)
    with reader_of(Path("runs"), "r") as reader:
        verdict = pages.run_facts(reader, 0)["verdict"]
    assert (verdict["kind"], verdict["text"] in microagents("list").out) == ("wrong", True)
    microagents("view", "r", "-o", "r.html")
    assert f'<p class="verdict wrong"><bdi>{escape(verdict["text"])}' in Path("r.html").read_text(encoding="utf-8")
    assert microagents(*do(kind, "false")).code == WRONG, "also where it was completed before"


@pytest.mark.parametrize(
    ("kind", "verdict", "right"),
    [
        ("check of an agent", "true", True),
        ("check of an agent", "", None),
        ("result of a chain", "true", True),
        ("oracle of a chain", "", None),
        ("answer to a problem", "true", True),
        ("answer to a problem", "", None),
    ],
)
def test_a_run_that_is_right_or_was_not_judged_is_completed(*, kind: str, verdict: str, right: bool | None) -> None:
    ran = microagents(*do(kind, verdict, "--json"))
    assert (ran.code, ran.json["right"]) == (COMPLETED, right), ran.err
    said = microagents("list").out
    assert "WRONG" not in said
    assert (right is None) == ("  completed, not checked: " in said) != ("  right: " in said)


def test_of_many_inputs_each_wrong_one_is_marked_among_all() -> None:
    Path("inputs.jsonl").write_text('{"verdict": true}\n{"verdict": false}\n{"verdict": null}\n', encoding="utf-8")
    ran = microagents(*do("result of a chain", "true", "--inputs", "inputs.jsonl"))
    assert (ran.code, ran.err.startswith("completed, WRONG  ")) == (WRONG, True), ran.err
    with reader_of(Path("runs"), "r") as reader:
        assert list(reader.inputs_overview()) == [2, 5, 2]
