"""`microagents measure` and `plan`: what they print, and how they refuse."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from microagents.cli.views.planned import command_of
from microagents.elections.laws import Proportion
from microagents.journal import commits
from microagents.journal.messages import Account, Written
from microagents.journal.store import Store
from microagents.studies.planned_runs import PlannedRun
from tests.cli.commands import COMPLETED, FAILED, STOPPED, WRONG_USAGE, microagents

pytestmark = pytest.mark.usefixtures("plans_by_few_simulated_steps")
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
OTHER = "sim:o3-mini@error=0.02,alternatives=1"
MODEL = "sim:gpt-4.1-mini@error=0.02,alternatives=1"
MEASURE = ("measure", "drift", "-o", "length=300", "--model", MODEL, "--steps", "100")


def measured() -> str:
    assert microagents(*MEASURE, "--run-id", "cal", "--json").json["models"][0]["run_id"] == "cal"
    return "cal"


def killed_after(records: int, *words: str) -> None:
    """Measure in a process that dies at the commit that reaches so many records: their number is known, that of commits is not."""
    child = os.fork()
    if not child:
        made, written = Store.commit, 0

        def fatal(store: Store, batch: Sequence[Written]) -> Account:
            nonlocal written
            written += len(batch)
            if written >= records:
                os.kill(os.getpid(), signal.SIGKILL)
            return made(store, batch)

        pytest.MonkeyPatch().setattr(Store, "commit", fatal)
        microagents(*words)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


@pytest.mark.slow
def test_a_measurement_that_was_killed_and_continued_prints_what_an_undisturbed_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits, "COMMIT_EVERY_S", 0)  # so that there are many
    words = (*MEASURE, "--model", OTHER, "--run-id", "m", "--json")
    undisturbed = microagents(*words).out
    assert microagents(*words).out == undisturbed, "answered from the journals"
    for records in (20, 1_000):
        killed_after(records, *words, "--runs-dir", f"killed-{records}")
        assert microagents(*words, "--runs-dir", f"killed-{records}").out == undisturbed


@pytest.mark.slow
def test_what_was_measured_is_said_with_one_count_of_hard_steps_and_a_verdict() -> None:
    ran = microagents(*MEASURE)
    assert (ran.code, ran.err) == (COMPLETED, "")
    assert ran.out.startswith("drift (length=300): random steps of the oracle; seed 0; intervals of 95 %\n")
    assert "verdict  votes help: `microagents plan` says how many" in ran.out
    hard = microagents(*MEASURE[:5], "sim:gpt-4.1-mini@error=0.01,hard=0.05,hard_error=0.9").out
    (count,) = set(re.findall(r"hard steps +(\d+)", hard))
    assert int(count) > 2


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_a_measurement_asks_nothing_again() -> None:
    microagents(*MEASURE)
    lines = microagents(*MEASURE).out.splitlines()
    assert re.match(r"answered from runs of [-0-9]{10} [:0-9]{5}; --run-id NAME begins another$", lines[-1])
    for words, steps in (((), 8), (("-s", "horizon=3"), 3)):
        rows = microagents(*MEASURE, "--rollouts", "2", *words).out.splitlines()
        cells = [line.split("  ")[0] for line in rows]
        ahead = [cell for cell in cells if cell == "alone" or cell.startswith("+")]
        assert ahead == ["alone", *(f"+{step}" for step in range(1, steps + 1))]


@pytest.mark.slow
def test_a_measurement_that_meets_a_limit_says_how_to_continue() -> None:
    ran = microagents(*MEASURE, "--max-calls", "100")
    assert ran.code == STOPPED
    assert ran.out.splitlines()[-1] == (
        f"--max-calls 100 is reached in {MODEL}; all samples so far are kept; the same command with a higher limit continues"
    )
    assert microagents(*MEASURE).code == COMPLETED


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_an_agent_is_measured_by_trials_and_planned_by_its_margins() -> None:
    model = ("desk", "--model", "sim:gpt-4.1-mini@error=0.05")
    found = microagents("measure", *model, "--steps", "6")
    assert found.out.startswith("desk (")
    assert re.search(r"^margins +read 1, write 2, destructive 4, end 3$", found.out, re.MULTILINE)
    larger = microagents("measure", *model, "--steps", "6", "-s", "k_write=3")
    assert re.search(r"^margins +read 1, write 3, destructive 4, end 3$", larger.out, re.MULTILINE)
    run_id = microagents("measure", *model, "--steps", "6", "--json").json["agents"][0]["run_id"]
    planned = microagents("plan", "desk", "--from", run_id)
    assert planned.out.startswith("desk: one trial; sim:")
    assert "act, k_read 1, k_write 2, k_destructive 4, k_end 3" in planned.out
    refused = microagents("run", "desk", "--from", run_id)
    assert (refused.code, len(refused.err.splitlines())) == (WRONG_USAGE, 1)
    Path("tickets.jsonl").write_text("{}\n{}\n{}\n", encoding="utf-8")
    ran = microagents("run", *model, "--inputs", "tickets.jsonl", "--run-id", "done", "--json").json
    (row,) = microagents("plan", "desk", "--from", "done", "--json").json["runs"]
    assert row["calls"] == ran["calls"] / 3


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_a_plan_ends_with_the_command_that_runs_it() -> None:
    model = "sim:perfect@error=0.02,alternatives=1"
    measure = ("measure", "drift", "-o", "length=200", "--steps", "200", "--model", model, "--run-id", "part")
    microagents(*measure)
    open_yet = microagents("plan", "drift", "-o", "length=300", "--from", "part", "--target", "0.5")
    assert open_yet.code == FAILED
    assert "may have been right in all its draws; draw each 10 times, by measure --repeat 10: " in open_yet.out
    microagents(*measure, "--repeat", "10")
    risky = microagents("plan", "drift", "-o", "length=300", "--from", "part", "--target", "0.5")
    assert risky.code == FAILED
    refused, condition, command = risky.out.splitlines()[-3:]
    assert refused == "no run reaches 0.5 for sure"
    assert (
        "is enough if none of the 300 unsampled steps errs more often than the worst sampled one (up to 5 may be hard); sample"
        in condition
    )
    assert command.startswith("or else, at that risk: microagents run drift -o length=300 --model ")
    options = ("drift", "-o", "length=100")
    run_id = microagents("measure", *options, "--model", MODEL, "--json").json["models"][0]["run_id"]
    ran = microagents("plan", *options, "--from", run_id)
    assert ran.code == COMPLETED
    last = ran.out.splitlines()[-1]
    assert last.startswith("* the cheapest that is enough for 0.95: microagents run drift -o length=100 --model ")
    plan = microagents("plan", "drift", "-o", "length=100", "--from", run_id, "--json").json
    assert last.endswith(plan["command"])
    assert sum(each["is_best"] for each in plan["runs"]) == 1
    done = microagents(*plan["command"].split()[1:], "--json").json
    assert done["outcome"] == "completed"


def test_the_command_of_a_ladder_of_lead_or_of_a_pool_begins_that_run() -> None:
    chance = Proportion(share=1, low=1, high=1)
    facts: dict[str, Any] = {"chance": chance, "calls": 1, "cost_usd": 1.0, "duration_s": None}
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


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_a_chain_that_does_not_tell_its_number_of_steps_is_planned_by_the_steps_of_its_oracle() -> None:
    mine = "from microagents.tasks.drift import Drift\n\n\nclass Mine(Drift):\n    def steps(self) -> None:\n        return None\n"
    Path("mine.py").write_text(mine, encoding="utf-8")
    options = ("mine.py", "-o", "length=60", "--model", MODEL)
    run_id = microagents("measure", *options, "--json").json["models"][0]["run_id"]
    assert "mine.py (length=70): 70 steps" in microagents("plan", "mine.py", "-o", "length=70", "--from", run_id).out
    assert microagents("run", *options, "--from", run_id, "--json").json["promise"]["calls"] >= 60


@pytest.mark.slow
@pytest.mark.usefixtures("few_simulated_steps")
def test_a_plan_can_be_simulated_and_fails_above_its_budget() -> None:
    words = ("plan", "drift", "-o", "length=20", "-k", "3", "--repeat", "5")
    ran = microagents("plan", "drift", "--from", measured(), "--max-cost", "0.0001")
    assert ran.code == FAILED
    assert ran.out.splitlines()[-1] == "no run reaches 0.95 for sure with a known cost of at most $0.0001"
    assert microagents(*words, "--from", "cal", "--json").json["simulation"]["runs"] == 5
    assert "all steps right    1.000" in microagents(*words, "--p", "0.9999").out


def test_given_rates_need_no_task() -> None:
    ran = microagents("plan", "--p", "0.99", "--steps", "1e6")
    assert (ran.code, ran.err) == (COMPLETED, "")
    assert ran.out.splitlines()[0] == "1,000,000 steps"
    assert ran.out.splitlines()[-1] == "* the least that reaches 0.95"


@pytest.mark.parametrize("old", ["calibrate", "simulate"])
def test_an_old_name_says_the_new_one(old: str) -> None:
    ran = microagents(old, "hanoi")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (WRONG_USAGE, "", 1)
    assert f"{old!r} is not a command; write microagents " in ran.err


@pytest.mark.slow
def test_without_an_oracle_only_agreement_is_told_and_what_it_cannot_tell() -> None:
    shutil.copy(EXAMPLES / "adding.py", "adding.py")
    microagents("run", "adding.py", "--model", MODEL, "--run-id", "r")
    words = ("measure", "adding.py", "--from", "r", "--model", MODEL)
    ran = microagents(*words)
    assert ran.code == COMPLETED
    assert re.search(r"^agree +1\.0000 ", ran.out, re.MULTILINE)
    assert "no oracle: whether the replies are right is not known" in ran.out
    assert "chance that all" not in ran.out
    found = microagents(*words, "--json").json
    assert found["models"][0]["p_high"] == 1.0
    assert "chances" not in found["models"][0]
    assert "there is no run 'missing'" in microagents("measure", "drift", "--from", "missing").err


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("run", "drift", "-k", "3"),
        pytest.param(("compare", "drift", "-k", "3", "--repeat", "1"), marks=pytest.mark.slow),
    ],
)
def test_a_run_from_a_measurement_asks_its_model_and_is_expected_as_measured(words: tuple[str, ...]) -> None:
    run_id = measured()
    ran = microagents(*words, "-o", "length=300", "--from", run_id, "--json")
    promise = next(
        each
        for each in microagents("plan", "drift", "-o", "length=300", "--from", run_id, "--json").json["runs"]
        if each["k"] == 3
    )
    assert ran.json["models"] == [MODEL]
    assert ran.err.startswith(f"microagents: expected cost: ${promise['cost_usd']:.2f} simulated for ")
    assert f"at least {promise['chance']['low']:.4f} " in ran.err
    refused = microagents("run", "hanoi", "--from", run_id)
    assert (refused.code, refused.out) == (WRONG_USAGE, "")
    assert "is a measurement of drift, not of hanoi; make one: microagents measure hanoi" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "drift", "--p", "0.9", "--target", "1"), "the target must be above 0 and below 1"),
        (("measure", "drift", "--inputs", "d.jsonl", "--from", "r"), "leave out --from or --inputs"),
        (("plan", "drift"), "give either a measurement, --from RUN (microagents measure TASK makes one), or rates"),
        (("plan", "--p", "0.9"), "give it: --steps N"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(words: tuple[str, ...], said: str) -> None:
    Path("d.jsonl").write_text('{"length": 1}', encoding="utf-8")
    ran = microagents(*words)
    assert ran.code == WRONG_USAGE
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
