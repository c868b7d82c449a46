"""`microagents compare`: its table, its JSON, how it ends, and how the same command goes on."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import (
    COMPLETED,
    INTERRUPTED,
    STOPPED,
    WRONG_USAGE,
    Ran,
    Sitting,
    anew,
    microagents,
    shopping,
    write,
)

SMALL = (
    *("compare", "multiplication", "-o", "digits=3", "--strategy", "single-shot", "--strategy", "recursive"),
    *("-k", "1", "-k", "2"),
)
ROW = {
    *("strategy", "k", "options", "given", "run_id", "solved", "pass_k", "f1", "completed", "repeat", "rate"),
    *("low", "high", "judged", "accuracy", "valid", "agreement", "undecided", "failed", "argmax"),
    *("calls", "calls_per_input", "tokens", "tokens_per_input", "cost_usd", "cost_per_input", "wall_s"),
    *("outcome", "reason"),
}
"""The keys of a row that scripts rely on."""


def table(ran: Ran) -> list[list[str]]:
    """The head and the rows, cell by cell: what stands between two blank lines."""
    lines = ran.out.split("\n\n")[1].splitlines()
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


def figures(shown: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What does not depend on when it was done."""
    return [
        tuple(row[key] for key in ("strategy", "k", "solved", "rate", "undecided", "failed", "argmax"))
        for row in shown["rows"]
    ]


@pytest.mark.slow
def test_a_comparison_is_a_table_with_a_row_for_each_strategy_and_k() -> None:
    ran = microagents(*SMALL, "--repeat", "10")
    assert (ran.code, ran.err) == (COMPLETED, "")
    lines = ran.out.split("\n\n")[1].splitlines()
    assert ({*map(len, lines)}, max(map(len, ran.out.splitlines())) <= 120) == ({len(lines[0])}, True)
    head, *rows = table(ran)
    assert head == [
        *("strategy", "k", "solved", "rate", "95 % interval", "undecided", "failed", "argmax", "calls", "tokens"),
        *("cost", "time"),
    ]
    assert [row[:2] for row in rows] == [["single-shot", "-"], ["recursive", "1"], ["recursive", "2"]]
    shown = microagents(*SMALL, "--repeat", "10", "--json").json
    for row, told in zip(rows, shown["rows"], strict=True):
        assert row[2:5] == [
            f"{told['solved']} of 10",
            f"{told['rate']:.1%}",
            f"{told['low']:.1%} to {told['high']:.1%}",
        ]
        assert row[5:] == [
            *(str(told[key]) for key in ("undecided", "failed", "argmax")),
            f"{told['calls_per_input']:,.1f}",
            f"{told['tokens_per_input']:,.0f}",
            f"${told['cost_per_input']:.4f}",
            f"{told['wall_s']:.1f} s",
        ]
    assert "multiplication (digits=3, by=None, instance=0): 10 inputs; sim:gpt-4.1-mini, seed 0" in ran.out
    assert "simulated: no real model was asked" in ran.out


@pytest.mark.slow
def test_as_json_a_comparison_is_one_object() -> None:
    ran = microagents(*SMALL, "--repeat", "4", "--seed", "7", "--json")
    assert (ran.code, ran.err) == (COMPLETED, "")
    shown = ran.json
    assert shown.keys() == {"outcome", "reason", "task", "options", "models", "seed", "repeat", "rows", "recorded_at"}
    assert (shown["task"], shown["models"], shown["seed"], shown["repeat"]) == (
        "multiplication",
        ["sim:gpt-4.1-mini"],
        7,
        4,
    )
    assert shown["options"] == {"digits": 3, "by": None, "instance": 0}
    assert [row.keys() for row in shown["rows"]] == [ROW] * 3
    journals = [microagents("show", row["run_id"], "--json").json for row in shown["rows"]]
    assert [each["inputs"] for each in journals] == [4, 4, 4]


def test_where_code_cannot_tell_the_table_says_so_and_shows_what_is_completed() -> None:
    words = (
        "compare",
        "tests.studies.test_compare:Riddle",
        "--strategy",
        "single-shot",
        "--model",
        "sim:perfect",
        "--repeat",
        "3",
    )
    ran = microagents(*words)
    assert "then repeat with another --run-id" in ran.out
    _, row = table(ran)
    assert row[:5] == ["single-shot", "-", "? (3 completed)", "-", "-"]
    (told,) = microagents(*words, "--json").json["rows"]
    assert (told["solved"], told["rate"], told["completed"]) == (None, None, 3)


def test_inputs_that_fail_are_counted_and_the_first_is_named() -> None:
    write(
        "brittle.py",
        """
        from microagents.tasks.multiplication import Multiplication

        class Brittle(Multiplication):
            def statement(self):
                if self.instance == 2:
                    raise ValueError("a stone")
                return super().statement()
        """,
    )
    ran = microagents(
        "compare", "brittle.py:Brittle", "-o", "digits=1", "--strategy", "single-shot", "--repeat", "4", "--run-id", "b"
    )
    assert ran.code == COMPLETED
    assert table(ran)[1][6] == "1"
    assert "b-single-shot: of 4 inputs 1 failed, the others are completed; input 2: " in ran.out
    assert "a stone" in ran.out
    assert "or repeat with another --run-id to do all inputs anew\n" in ran.out


@pytest.mark.slow
def test_another_prompt_is_refused_with_the_remedies_that_the_command_has() -> None:
    worded = """
        from microagents import Prompt
        from microagents.tasks.drift import Drift

        class Worded(Drift):
            def prompt(self, state):
                asked = super().prompt(state)
                return Prompt(system=asked.system + "%s", user=asked.user)
        """
    words = (
        *("compare", "worded.py", "--repeat", "2"),
        *("-o", "length=2", "--model", "sim:perfect", "--run-id", "w"),
    )
    write("worded.py", worded % "One.")
    assert microagents(*words).code == COMPLETED
    write("worded.py", worded % "Another.")
    ran = anew(*words)
    assert (ran.code, ran.out) == (WRONG_USAGE, "")
    assert "give another --run-id" in ran.err
    assert "prompt" in ran.err
    assert "--accept-change" not in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-k", "0"], ["strategy 'recursive': k must be"]),
        (["-s", "depth"], ["-s 'depth' is not of the form NAME=VALUE"]),
        (["-o", "digit=3"], ["'digit'; did you mean 'digits'"]),
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(words: list[str], said: list[str]) -> None:
    ran = microagents("compare", "multiplication", *words)
    assert (ran.code, ran.out) == (WRONG_USAGE, "")
    (sentence,) = ran.err.splitlines()
    assert all(part in sentence for part in said)
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_limit_ends_with_3_and_names_the_row_and_the_same_command_with_more_goes_on() -> None:
    words = (*SMALL, "--repeat", "5", "--concurrency", "1")
    ran = microagents(*words, "--max-calls", "40")
    assert ran.code == STOPPED
    assert [row[0] for row in table(ran)[1:]] == ["single-shot", "recursive"]
    assert (
        "--max-calls 40 is reached in recursive k=1 (row 2 of 3); all decisions so far are kept; the same command with a higher limit"
        in ran.out
    )
    ran = microagents(*words, "--max-calls", "100000", "--json")
    assert (ran.code, ran.json["outcome"]) == (COMPLETED, "completed")


@pytest.mark.slow
def test_ctrl_c_saves_with_130_and_the_same_command_goes_on_to_the_same_figures() -> None:
    words = (*SMALL, "--repeat", "6", "--model", "sim:gpt-4.1-mini@latency=0.005")
    whole = microagents(*words, "--json", "--runs-dir", "whole").json
    first, second, third = (row["calls"] for row in whole["rows"])
    with Sitting(*words, paced=True) as sitting:
        sitting.until_sent(first + second + third // 2)
        ran = sitting.end(signal.SIGINT)
    assert ran.code == INTERRUPTED
    assert [row[:2] for row in table(ran)[1:]] == [["single-shot", "-"], ["recursive", "1"], ["recursive", "2"]]
    assert table(ran)[3][3:5] == ["-", "-"]
    assert (
        "interrupted in recursive k=2 (row 3 of 3); all decisions so far are kept; the same command continues"
        in ran.out
    )
    again, bought = shopping(*words, "--json")
    assert (again.code, figures(again.json)) == (COMPLETED, figures(whole))
    assert 0 < len(bought.sent) < third


@pytest.mark.slow
def test_progress_names_the_row_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microagents.cli.views.display.LINE_EVERY_S", 0)
    monkeypatch.setattr("microagents.runs.driver.conducting.PROGRESS_EVERY_S", 0.001)
    ran = microagents(*SMALL, "--repeat", "5", "--model", "sim:gpt-4.1-mini@latency=0.01", "--json")
    named = [line.partition(": ")[0] for line in ran.err.splitlines()]
    assert list(dict.fromkeys(named)) == [
        "single-shot (row 1 of 3)",
        "recursive k=1 (row 2 of 3)",
        "recursive k=2 (row 3 of 3)",
    ]


@pytest.mark.slow
def test_with_a_file_of_inputs_every_row_does_these_and_the_same_command_finds_them() -> None:
    write("items.jsonl", '{"a": 123, "b": 45}\n\n{"a": 7, "b": 8}\n{"digits": 3}\n')
    words = ("compare", "multiplication", "--inputs", "items.jsonl", "-k", "2", "--model", "sim:perfect", "--json")
    strategies = [word for name in ("maker", "single-shot") for word in ("--strategy", name)]
    ran, bought = shopping(*words, *strategies)
    assert ran.code == COMPLETED
    assert (ran.json["repeat"], ran.json["options"]) == (3, {"by": None, "instance": 0})
    assert {row["strategy"]: row["completed"] for row in ran.json["rows"]} == dict.fromkeys(strategies[1::2], 3)
    assert bought.sent
    again, bought = shopping(*words, *strategies)
    assert (figures(again.json), bought.sent) == (figures(ran.json), [])
    write("items.jsonl", '{"a": 123, "b": 46}\n')
    other = microagents(*words, "--strategy", "maker")
    assert {row["run_id"] for row in other.json["rows"]}.isdisjoint({row["run_id"] for row in ran.json["rows"]})


BASELINES = [word for name in ("self-consistency", "iterative-restart", "single-shot") for word in ("--strategy", name)]


def test_a_chain_is_compared_with_its_baselines_in_one_table() -> None:
    words = ("compare", "hanoi", "-o", "disks=3", "--repeat", "2", "--model", "sim:perfect")
    ran = microagents(*words, "--strategy", "maker", *BASELINES, "-s", "samples=5")
    assert [row[0] for row in table(ran)[1:]] == ["maker", "self-consistency", "iterative-restart", "single-shot"]
    assert [row[8] for row in table(ran)[1:]] == ["21.0", "35.0", "1.0", "1.0"]


# -- options of one row, and pictures --------------------------------------------------------------------------------------------------

STORIES = ("compare", "word-problems", "--model", "sim:perfect@alternatives=1", "--repeat", "3")
CHAINS = [word for each in ("aot@transitions=0", "aot@transitions=1", "cot") for word in ("--strategy", each)]


@pytest.mark.slow
def test_a_row_may_have_options_of_its_own() -> None:
    ran = microagents(*STORIES, *CHAINS, "--strategy", "aot@transitions=1,k=2", "-k", "1", "--json")
    rows = ran.json["rows"]
    assert [(row["strategy"], row["given"], row["k"]) for row in rows] == [
        ("aot", "transitions=0", 1),
        ("aot", "transitions=1", 1),
        ("cot", "", None),
        ("aot", "transitions=1,k=2", 2),
    ]
    assert rows[0]["tokens"] < rows[1]["tokens"] < rows[3]["tokens"]
    names = [row[0] for row in table(microagents(*STORIES, *CHAINS))[1:]]
    assert names == ["aot@transitions=0", "aot@transitions=1", "cot"]


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ("aot@transitions=1,k", "options behind a name must be NAME=VALUE, with commas between them"),
        ("aot@transitions=-1", "transitions is a number from 0 to 100, or `adaptive`, not '-1'"),
        ("aot@nothing=1", "named 'nothing'"),
    ],
)
def test_options_of_a_row_that_will_not_do_are_refused(named: str, sentence: str) -> None:
    ran = microagents(*STORIES, "--strategy", named)
    assert (ran.code, ran.err.count("\n")) == (WRONG_USAGE, 1)
    assert sentence in ran.err


def test_the_mean_f1_of_questions_with_words_is_told_below_the_table() -> None:
    write("said.jsonl", '{"path": "0/answer", "seq": 0, "text": "{\\"answer\\": \\"the old water mill\\"}"}')
    write("lines.jsonl", '{"question": "Where?", "context": "Mills are old.", "answer": "the old mill"}')
    ran = microagents(
        "compare", "multi-hop", "--inputs", "lines.jsonl", "--model", "scripted:said.jsonl", "--strategy", "single-shot"
    )
    assert ran.code == COMPLETED
    assert "single-shot  mean F1 of the answers 0.800" in ran.out
