"""`microagents calibrate`, `plan` and `simulate`: what they print, and how they refuse."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from microagents.cli.commands.plan import command_of
from microagents.studies.analysis import Proportion
from microagents.studies.bills import Bill
from microagents.studies.planning import PlannedRun
from tests.cli.commands import COMPLETED, FAILED, WRONG_USAGE, microagents

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
MODEL = "sim:gpt-4.1-mini@error=0.02,alternatives=1"
CALIBRATE = ("calibrate", "drift", "-o", "length=300", "--model", MODEL, "--steps", "200")


def calibrated() -> str:
    run_id = microagents(*CALIBRATE, "--json").json["models"][0]["run_id"]
    assert isinstance(run_id, str)
    return run_id


def test_three_chances_stand_side_by_side_and_the_last_line_is_the_verdict() -> None:
    ran = microagents(*CALIBRATE)
    assert (ran.code, ran.err) == (COMPLETED, "")
    head = next(line for line in ran.out.splitlines() if "if independent" in line)
    assert head.split("  ")[0] == "k"
    assert ("as measured" in head, "held out" in head) == (True, True)
    assert "verdict: votes help: k = " in ran.out
    assert (
        "as measured: if no step is harder than those seen: 200 steps with 0 hard ones leave up to 4 hard ones in 300 (95 %)"
        in ran.out
    )


def test_a_plan_ends_with_the_command_that_runs_it() -> None:
    run_id = calibrated()
    ran = microagents("plan", "drift", "-o", "length=100", "--from", run_id)
    assert ran.code == COMPLETED
    last = ran.out.splitlines()[-1]
    assert last.startswith(
        "* the cheapest whose lower bound reaches 0.95: microagents run drift -o length=100 --model "
    )
    plan = microagents("plan", "drift", "-o", "length=100", "--from", run_id, "--json").json
    assert last.endswith(plan["command"])
    assert sum(each["is_best"] for each in plan["runs"]) == 1
    done = microagents(*plan["command"].split()[1:], "--json").json
    assert done["outcome"] == "completed"


def test_the_command_of_a_ladder_of_lead_or_of_a_pool_begins_that_run() -> None:
    chance = Proportion(share=1, low=1, high=1)
    facts: dict[str, Any] = {"chance": chance, "calls": 1, "cost_usd": Bill(low=1, mid=1, high=1), "duration_s": None}
    other = MODEL.replace("0.02", "0.03")
    rows = [
        PlannedRun(models=(MODEL,), strategy="lead", k=None, **facts),
        PlannedRun(models=(MODEL,), strategy="maker", k=2, options={"ladder": "lookahead,judge", "p": "0.98"}, **facts),
        PlannedRun(models=(MODEL, other), strategy="maker", k=2, **facts),
    ]
    for row in rows:
        words = shlex.split(command_of("drift", "maker", ["length=4"], row, 8))
        done = microagents(*words[1:], "--json").json
        assert (done["outcome"], done["strategy"], done["k"]) == ("completed", row.strategy, row.k)
        assert done["models"] == list(row.models)


def test_a_chain_that_does_not_tell_its_number_of_steps_is_planned_by_the_steps_of_its_oracle() -> None:
    mine = "from microagents.tasks.drift import Drift\n\n\nclass Mine(Drift):\n    def steps(self) -> None:\n        return None\n"
    Path("mine.py").write_text(mine, encoding="utf-8")
    options = ("mine.py", "-o", "length=60", "--model", MODEL)
    run_id = microagents("calibrate", *options, "--json").json["models"][0]["run_id"]
    assert "mine.py (length=70): 70 steps" in microagents("plan", "mine.py", "-o", "length=70", "--from", run_id).out
    assert microagents("run", *options, "--from", run_id, "--json").json["promise"]["calls"] >= 60


def test_a_plan_above_the_budget_fails() -> None:
    ran = microagents("plan", "drift", "--from", calibrated(), "--budget", "0.0001")
    assert ran.code == FAILED
    assert ran.out.splitlines()[-1].startswith("no run reaches 0.95")


def test_a_calibration_can_be_simulated() -> None:
    found = microagents(
        "simulate", "drift", "-o", "length=20", "--from", calibrated(), "-k", "3", "--runs", "5", "--json"
    ).json
    assert found["runs"] == 5
    assert (
        "all steps right"
        in microagents("simulate", "drift", "-o", "length=20", "--model", "sim:perfect", "--runs", "2").out
    )


def test_an_estimate_from_a_calibration_tells_both_chances() -> None:
    run_id = calibrated()
    found = microagents("estimate", "--from", run_id, "-k", "3", "--json").json
    plan = microagents("plan", "drift", "-o", "length=300", "--from", run_id, "--json").json["runs"]
    assert found["measured"] == next(each["chance"] for each in plan if each["k"] == 3)
    assert found["measured"]["share"] < found["p_success"]
    assert "by the errors as they differ" in microagents("estimate", "--from", run_id, "-k", "3").out


def test_without_an_oracle_only_agreement_is_told_and_what_it_cannot_tell() -> None:
    shutil.copy(EXAMPLES / "adding.py", "adding.py")
    microagents("run", "adding.py", "--model", MODEL, "--run-id", "r")
    words = ("calibrate", "adding.py", "--states", "r", "--model", MODEL)
    ran = microagents(*words)
    assert ran.code == COMPLETED
    assert "two draws agree = 1.0000" in ran.out
    assert "no oracle: whether the replies are right is not known" in ran.out
    assert "chance that all" not in ran.out
    found = microagents(*words, "--json").json
    assert found["models"][0]["p_high"] == 1.0
    assert "chances" not in found["models"][0]
    refused = microagents("calibrate", "drift", "--states", "missing.jsonl")
    assert refused.err == "microagents: 'missing.jsonl' cannot be read: no such file or directory\n"


@pytest.mark.parametrize("words", [("run", "drift", "-k", "3"), ("compare", "drift", "-k", "3", "--repeat", "1")])
def test_a_run_from_a_calibration_asks_its_model_and_is_expected_as_calibrated(words: tuple[str, ...]) -> None:
    run_id = calibrated()
    ran = microagents(*words, "-o", "length=300", "--from", run_id, "--json")
    promise = next(
        each
        for each in microagents("plan", "drift", "-o", "length=300", "--from", run_id, "--json").json["runs"]
        if each["k"] == 3
    )
    assert ran.json["models"] == [MODEL]
    assert ran.err.startswith(f"microagents: expected cost: ${promise['cost_usd']['mid']:.2f} simulated for ")
    assert f" {promise['chance']['share']:.4f} " in ran.err
    refused = microagents("run", "hanoi", "--from", run_id)
    assert (refused.code, refused.out) == (WRONG_USAGE, "")
    assert "is a calibration of drift, not of hanoi; make one: microagents calibrate hanoi" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("calibrate", "drift", "--target", "1"), "the target must be above 0 and below 1"),
        (("calibrate", "multiplication"), "is not a chain of steps"),
        (("calibrate", "drift", "--inputs", "d.jsonl", "--states", "r"), "leave out --states or --inputs"),
        (("plan", "drift", "--from", "none"), "there is no run 'none'"),
        (("plan", "multiplication", "--from", "none"), "has neither steps() nor an oracle"),
        (("simulate", "drift"), "give either a simulated model"),
        (("simulate", "drift", "--model", "openai:gpt-6-luna"), "is not a simulated model"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(words: tuple[str, ...], said: str) -> None:
    Path("d.jsonl").write_text('{"length": 1}', encoding="utf-8")
    ran = microagents(*words)
    assert ran.code == WRONG_USAGE
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
