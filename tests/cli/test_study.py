"""`microagents study`: its tables, its JSON, its pictures, and how it ends."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.cli.commands import COMPLETED, STOPPED, WRONG_USAGE, Ran, microagents, texts_of

HARD = "sim:gpt-4.1-mini@error=0.05,hard=0.1,hard_error=0.8"
OTHER = "sim:o3-mini@error=0.05,hard=0.1,hard_error=0.8"
DRIFT = ("drift", "-o", "length=30", "--samples", "20", "--model", HARD)
KINDS = {
    "errors": "errors",
    "lookahead": "lookahead",
    "parts": "parts",
    "distance": "distances",
    "flags": "flags",
}
"""The key of the findings of each kind."""


def study(kind: str, *words: str) -> Ran:
    task, *more = DRIFT
    two = ("--model", OTHER) if kind == "distance" else ()
    return microagents("study", task, kind, *more, *two, *words)


def test_the_hardest_steps_are_listed_with_their_rates_and_intervals() -> None:
    ran = study("errors")
    assert (ran.code, ran.err) == (COMPLETED, "")
    lines = ran.out.splitlines()
    assert lines[0] == "drift (length=30): 20 samples of each step; seed 0"
    assert lines[2].startswith(f"{HARD}: 30 steps, 600 calls")
    head = next(number for number, line in enumerate(lines) if "95 % interval" in line)
    found = study("errors", "--json").json["models"][0]["errors"]
    worst = max(found["steps"], key=lambda each: each["wrong"] / each["valid"])
    step, wrong, _, valid, rate, low, _, high = lines[head + 1].split()
    assert (step, wrong, valid) == (str(worst["step"]), str(worst["wrong"]), str(worst["valid"]))
    assert [rate, low, high] == [f"{worst['rate'][name]:.1%}" for name in ("share", "low", "high")]
    assert lines[-1] == "simulated: no real model was asked"
    errors = study("errors", "--json").json["models"][0]["errors"]
    assert f"at the other {errors['ordinary']} steps: p = {errors['p']['share']:.4f} (" in ran.out


def test_each_position_of_a_rollout_has_a_row() -> None:
    ran = study("lookahead", "--horizon", "3")
    first_cells = [line.split("  ")[0] for line in ran.out.splitlines()]
    assert [cell for cell in first_cells if cell == "alone" or cell.startswith("+")] == ["alone", "+1", "+2", "+3"]


def test_readings_are_rows_and_what_to_flag_is_said() -> None:
    lines = study("flags").out.splitlines()
    assert [line.split()[0] for line in lines[4:6]] == ["lenient", "strict"]
    assert lines[-3].startswith("advice: ")
    refused = study("flags", "--svg", "flags.svg")
    assert refused.code == WRONG_USAGE
    assert "no picture" in refused.err


def test_distances_are_a_matrix_and_fields_are_rows() -> None:
    matrix = [line.split() for line in study("distance").out.splitlines() if line.startswith(("1 sim:", "2 sim:"))]
    assert [row[1] for row in matrix] == [HARD, OTHER]
    assert matrix[0][4] == matrix[1][3]
    assert "whole reply" in study("parts").out


@pytest.mark.parametrize("kind", KINDS)
def test_as_json_a_study_is_one_object(kind: str) -> None:
    found = study(kind, "--json").json
    assert found.keys() == {
        "outcome",
        "reason",
        "kind",
        "task",
        "options",
        "seed",
        "samples",
        "horizon",
        "models",
        "distances",
        "recorded_at",
    }
    assert (found["kind"], found["task"], found["options"], found["outcome"]) == (
        kind,
        "drift",
        {"length": 30},
        "completed",
    )
    findings = found if kind == "distance" else found["models"][0]
    assert findings[KINDS[kind]]


def test_a_study_that_asks_nothing_says_when_its_samples_were_drawn() -> None:
    assert "answered from" not in study("errors").out
    assert re.search(
        r"^answered from runs of [-0-9]{10} [:0-9]{5}; --run-id NAME begins another$", study("parts").out, re.MULTILINE
    )
    assert study("parts", "--json").json["recorded_at"]
    assert study("parts", "--json", "--run-id", "other").json["recorded_at"] is None


def test_a_study_that_meets_a_limit_says_how_to_continue() -> None:
    ran = study("errors", "--max-calls", "100")
    assert ran.code == STOPPED
    assert ran.out.splitlines()[-1] == (
        f"--max-calls 100 is reached in {HARD}; all samples so far are kept; the same command with a higher limit continues"
    )
    assert study("errors").code == COMPLETED


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("errors", ["Error rates of single steps", "steps (log scale)", "error rate of a step", "above one half"]),
        (
            "lookahead",
            [
                "steps by accuracy",
                "accuracy of a step",
                "position in the rollout",
                "alone",
                "+1",
                "+4",
                "first step right",
            ],
        ),
        ("parts", ["whole reply", "single", "majority", "share right", "first wrong field", "number"]),
        ("distance", ["total variation distance", "1: sim:gpt-4.1-mini", "2: sim:o3-mini", "two halves"]),
    ],
)
def test_a_picture_is_svg_with_labels_and_the_same_study_gives_the_same_bytes(kind: str, labels: list[str]) -> None:
    pytest.importorskip("matplotlib")
    horizon = ("--horizon", "4") if kind == "lookahead" else ()
    assert [study(kind, *horizon, "--svg", name).code for name in ("a.svg", "b.svg")] == [COMPLETED] * 2
    texts = texts_of("a.svg")
    assert "drift (length=30): 30 steps, 20 samples of each, seed 0" in texts
    assert [label for label in labels if label not in texts] == []
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()


@pytest.mark.parametrize(
    ("file", "said"),
    [("nowhere/a.svg", "cannot be written"), (".", "cannot be written"), ("a.png", "must end in .svg")],
)
def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_asked(file: str, said: str) -> None:
    pytest.importorskip("matplotlib")
    ran = study("errors", "--svg", file)
    assert (ran.code, ran.out) == (WRONG_USAGE, "")
    assert said in ran.err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("errors", "drift"), "TASK comes first, then KIND: microagents study drift errors"),
        (("drift", "errrors"), "did you mean 'errors'"),
    ],
)
def test_a_study_that_cannot_be_is_refused_in_one_sentence(words: tuple[str, ...], said: str) -> None:
    ran = microagents("study", *words)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (WRONG_USAGE, "", 1)
    assert said in ran.err


def test_one_of_a_thing_is_not_several() -> None:
    ran = microagents(
        "study", "drift", "errors", "-o", "length=1", "--samples", "1", "--model", "sim:perfect@error=0.99,flag=0"
    )
    assert "1 sample of each step" in ran.out
    assert "1 step, 1 call, " in ran.out
    assert "\n1 step errs in more than half" in ran.out


def test_a_picture_without_matplotlib_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as Python marks a module that cannot be imported
    ran = study("errors", "--svg", "a.svg")
    assert ran.code == WRONG_USAGE
    assert ran.err == (
        "microagents: --svg needs a package that is not installed, matplotlib; install it: pip install matplotlib\n"
    )
    assert study("errors").code == COMPLETED, "no other part needs it"


def test_help_tells_of_the_task_and_of_no_strategy() -> None:
    out = microagents("study", "drift", "errors", "--help").out
    assert "Options of the task drift" in out
    assert "strategy" not in out
