"""`microagents show RUN PATH`: one decision with its prompt, replies, flags, votes and price."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import COMPLETED, WRONG_USAGE, microagents, write

NOISY = ("drift", "-o", "length=12", "--model", "sim:perfect@error=0.4,flag=0.3,price_out=1", "-k", "2", "--run-id", "r")
STALEMATE = ("drift", "--model", "sim:perfect@error=0.02,alternatives=1", "-s", "max_draws=3", "--run-id", "r")
EXPERT = "sim:perfect@tokens=9"


def shown(path: str) -> dict[str, Any]:
    return microagents("show", "r", path, "--json").json


def test_every_step_is_shown_with_the_prompt_it_was_asked_and_all_its_samples_and_costs() -> None:
    run = microagents("run", *NOISY, "--json").json
    steps = [shown(f"0/step/{number}") for number in range(12)]
    number = 1
    for step in steps:
        assert (step["user"], step["outcome"], step["note"]) == (f"Number: {number}", "decided", None)
        number = step["value"]["number"]
        votes = {each["number"]: count for each, count in step["tally"]}
        assert votes[number] == sum(reply["agrees"] is True for reply in step["replies"])
    replies = [reply for step in steps for reply in step["replies"]]
    assert sum(reply["flag"] is None for reply in replies) == run["valid"]
    assert sum(reply["flag"] is not None for reply in replies) == sum(run["flagged"].values())
    assert sum(step["correct"] is False for step in steps) == run["errors"]
    assert 0 < sum(step["cost_usd"] for step in steps) <= run["cost_usd"]
    for reply in replies:  # the text of a reply that agrees is not kept, and only that
        assert (reply["text"] is None) == (reply["agrees"] is True)
        assert (reply["why"] is not None) == (reply["flag"] == "malformed")


def test_a_person_sees_prompt_replies_flags_votes_and_a_simulated_price() -> None:
    microagents("run", *NOISY)
    path = next(f"0/step/{at}" for at in range(12) if {None, "malformed"} <= {each["flag"] for each in shown(f"0/step/{at}")["replies"]})
    ran = microagents("show", "r", path)
    assert (ran.code, ran.err) == (COMPLETED, "")
    for said in (f"{path}: system prompt", "user prompt", "Number: ", "RED FLAG malformed: ", "=> vote {", "(text not kept)", " simulated"):
        assert said in ran.out


@pytest.mark.parametrize("words", [("--known-inputs",), ("--no-speculate",), ("--inputs", "items.jsonl")], ids=lambda words: words[0])
def test_the_prompt_is_rebuilt_in_every_mode(words: tuple[str, ...]) -> None:
    write("items.jsonl", '{"length": 3}\n{"length": 9}\n')
    microagents("run", *NOISY, *words)
    assert shown("0/step/2")["user"].startswith("Number: ")
    assert shown("1/step/8" if "--inputs" in words else "0/step/8")["note"] is None


def test_the_step_that_another_model_decided_is_shown_with_its_model() -> None:
    path = microagents("run", *STALEMATE, "--on-undecided", EXPERT, "--json").json["settled_at"].popitem()[0]
    assert (shown(path)["models"], shown(path)["settled_by"], shown(path)["note"]) == ([EXPERT], EXPERT, None)
    assert shown(path)["user"] == shown(path.removesuffix("/undecided"))["user"]
    assert shown(path.removesuffix("/undecided"))["outcome"] == "undecided"


def test_an_election_that_is_open_is_shown_with_the_samples_and_their_prices_so_far() -> None:
    microagents("run", "drift", "--model", "sim:perfect@price_out=1", "--max-calls", "4", "--no-speculate", "--run-id", "r")
    found = shown("0/step/1")
    assert (found["outcome"], found["value"], found["user"], found["ended_at"] is None) == ("open", None, "Number: 22", False)
    (reply,) = found["replies"]
    assert (reply["agrees"], reply["text"], reply["cost_usd"]) == (None, None, found["cost_usd"])
    assert " simulated" in microagents("show", "r", "0/step/1").out


def test_a_persons_decision_names_the_person_and_the_time() -> None:
    (path,) = microagents("run", *STALEMATE, "--json").json["undecided_at"]
    assert (shown(path)["outcome"], shown(path)["value"], len(shown(path)["replies"])) == ("undecided", None, 3)
    microagents("decide", "r", path, '{"number": 5}')
    microagents("resume", "r")
    assert shown(path)["outcome"] == "person"
    assert shown(path)["value"] == {"number": 5}
    assert "@" in shown(path)["settled_by"]
    assert shown(path)["settled_at"] >= shown(path)["began_at"]
    assert 'decided for {"number":5}' in microagents("show", "r", path).out


TASK = """
    from microagents.tasks.drift import Drift

    class Mine(Drift):
        def prompt(self, state):
            return super().prompt(state)
    """


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (TASK.replace("super().prompt(state)", "type(super().prompt(state))(user='another')"), "asks another question here"),
        (TASK.replace("return super()", "1 / 0  # "), "the task raised ZeroDivisionError"),
        (None, "is not there"),
    ],
)
def test_a_prompt_that_cannot_be_rebuilt_is_said_and_the_rest_is_shown(code: str | None, said: str) -> None:
    write("mine.py", TASK)
    microagents("run", "mine.py:Mine", *NOISY[1:])
    del sys.modules["mine"]
    Path("mine.py").unlink()
    if code is not None:
        write("mine.py", code)
    found = shown("0/step/3")
    assert (found["user"], found["system"], found["outcome"]) == (None, None, "decided")
    assert said in found["note"]
    assert len(found["replies"]) >= 2
    assert said in " ".join(microagents("show", "r", "0/step/3").out.split())


def test_the_turn_of_a_tree_is_shown_without_its_prompt() -> None:
    microagents("run", "multiplication", "-o", "digits=3", "--run-id", "r")
    found = shown("0/solve/decompose")
    assert (
        found["note"] == "the prompt is not in the journal, and cannot be rebuilt: only steps of chains can be asked again from the journal"
    )
    assert len(found["replies"]) == 3


@pytest.mark.parametrize("words", [("0/step/99",), ("step",), ("0/step/1", "--verify"), ("0/step/1", "--depth", "1"), ("\x1b[2J",)])
def test_what_cannot_be_shown_is_refused_in_one_sentence(words: tuple[str, ...]) -> None:
    microagents("run", *NOISY)
    ran = microagents("show", "r", *words)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (WRONG_USAGE, "", 1)
    assert ran.err.strip().isprintable()


def test_what_a_task_prints_does_not_get_into_the_json() -> None:
    write("loud.py", TASK.replace("class Mine", "print('loud')\n\n    class Mine"))
    microagents("run", "loud.py:Mine", *NOISY[1:])
    assert shown("0/step/0")["outcome"] == "decided"
