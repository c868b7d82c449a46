"""`plan --inputs`: votes on the rows of a table, on the terminal."""

from __future__ import annotations

import pytest

from tests.cli.commands import COMPLETED, FAILED, WRONG_USAGE, microagents, write
from tests.cli.test_filled_tables import JUDGED


@pytest.mark.slow
def test_a_plan_of_a_file_gives_chance_calls_and_cost_and_the_command_for_the_file() -> None:
    write("judged.py", JUDGED)
    write("in.csv", "n\n" + "".join(f"{number}\n" for number in [*range(12), *range(4)]))
    asked = ["judged.py:Fill", "--inputs", "in.csv"]
    measured = microagents("measure", *asked, "--model", "judged.py:Errs", "--run-id", "m", "--pilot", "6")
    assert measured.code == COMPLETED, measured.err
    assert "on 6 rows at k = 3: " in measured.out
    plan = microagents("plan", *asked, "--from", "m")
    assert plan.code == FAILED, plan.err
    assert plan.out.startswith("in.csv: 16 rows, 12 asked: equal rows are asked once; 6 fields a row; judged.py:Errs\n")
    assert "  law  " in plan.out
    assert "6 rows held" in plan.out
    assert "the law holds if fields err independently" in plan.out
    *_, held = microagents("plan", *asked, "--from", "m", "--json").json["votes"]
    assert held["votes"]["rows"] == 6
    assert held["calls"] == pytest.approx(12 * held["votes"]["calls"][0])


@pytest.mark.parametrize("word", ["--gold", "--gold=name", "gold=name"])
def test_a_plan_says_that_gold_columns_belong_to_its_measurement(word: str) -> None:
    refused = microagents("plan", "rows", "--inputs", "in.csv", "--from", "m", word, *["name"] * (word == "--gold"))
    assert refused.code == WRONG_USAGE
    assert "a plan goes by those of its measurement" in refused.err
    assert "-o gold" not in refused.err


def test_a_plan_of_a_file_takes_no_options_of_steps() -> None:
    write("in.csv", "place\nRome\n")
    refused = microagents("plan", "rows", "--inputs", "in.csv", "--from", "m", "--steps", "4")
    assert refused.code == WRONG_USAGE
    assert "--steps goes without --inputs only; leave it out" in refused.err


def test_a_plan_by_rates_passes_over_the_model_of_the_environment() -> None:
    planned = microagents("plan", "--p", "0.9", "--steps", "10", env={"MICROAGENTS_MODEL": "judged.py:Errs"})
    assert planned.code == COMPLETED, planned.err
