"""`run --reuse RUN`: replies that an earlier run has paid for are the first samples of the same questions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

from microagents import InvalidUsage
from microagents.runs.driver.reuse import _served
from microagents.studies.measure import measure
from tests.benchmarks.equal_rows import has_ended
from tests.benchmarks.fields import judged_task_of
from tests.benchmarks.harness import until
from tests.cli.commands import COMPLETED, STOPPED, WRONG_USAGE, Ran, microagents, started, write
from tests.cli.test_filled_tables import JUDGED


@pytest.fixture(autouse=True)
def _earlier() -> None:
    """Run `a` has paid for two votes on each of six rows, or more."""
    write("judged.py", JUDGED.replace("0.85", "0.95"))
    table("in.csv", range(6))
    assert fill("in.csv", "a", "-k", "2").code == COMPLETED


def table(name: str, numbers: range) -> None:
    write(name, "n\n" + "".join(f"{number}\n" for number in numbers))


def fill(inputs: str, run: str, *words: str, task: str = "judged.py:Fill") -> Ran:
    return microagents(
        *("run", task, "--inputs", inputs, "--model", "judged.py:Errs", "--run-id", run, "--json", *words)
    )


def test_rows_that_were_asked_before_cost_nothing_and_decide_alike() -> None:
    again = fill("in.csv", "b", "-k", "2", "--reuse", "a")
    first = microagents("show", "a", "--json").json
    assert again.code == COMPLETED, again.err
    assert (again.json["calls"], again.json["reused"]) == (0, first["calls"])
    assert again.json["decisions_sha256"] == first["decisions_sha256"]
    assert again.json["ballots_sha256"] == first["ballots_sha256"]
    assert "reused" in microagents("show", "b").rows


def test_new_rows_and_a_longer_vote_are_paid_for_and_the_order_of_rows_may_differ() -> None:
    table("more.csv", range(7, -1, -1))
    more = fill("more.csv", "b", "-k", "3", "--reuse", "a").json
    alone = fill("more.csv", "c", "-k", "3").json
    assert more["votes"] == more["calls"] + more["reused"]
    assert more["reused"] >= 12
    assert alone["reused"] == 0
    assert more["inputs_done"] == 8


def test_a_run_that_was_stopped_keeps_the_samples_though_the_earlier_run_is_gone() -> None:
    table("more.csv", range(9))
    whole = fill("more.csv", "b", "-k", "4", "--reuse", "a").json
    stopped = fill("more.csv", "c", "-k", "4", "--reuse", "a", "--max-calls", "7")
    assert stopped.code == STOPPED
    Path("runs/a.sqlite").unlink()
    resumed = microagents("resume", "c", "--max-calls", "inf", "--json").json
    for name in ("calls", "reused", "decisions_sha256", "ballots_sha256"):
        assert resumed[name] == whole[name], name
    assert "verified: every row was read" in microagents("show", "c", "--verify").out


SLOW = """
    import asyncio, json, os
    from random import Random

    from microagents import Model, Sample


    class Slow(Model):
        async def complete(self, call):
            word = call.prompt.user.partition("\\n")[0].partition(" ")[2]
            with open("asked", "a") as log:
                log.write(f"{word}\\n")
            await asyncio.sleep(0.05)
            is_wrong = Random(f"{word}/{call.id.seq}").random() < 0.2
            return Sample(text=json.dumps({"answer": "wrong" if is_wrong else word.lower()}))
"""


@pytest.mark.slow
def test_a_reusing_run_that_is_killed_again_and_again_decides_as_undisturbed_and_buys_no_reused_sample() -> None:
    write("slow.py", dedent(SLOW))
    old, new = [f"OLD{number}" for number in range(40)], [f"NEW{number}" for number in range(80)]
    write("old.csv", "\n".join(["word", *old]))
    write("all.csv", "\n".join(["word", *new[:40], *reversed(old), *new[40:]]))
    words = ("run", "rows", "-o", "ask=Say {word}", "-o", "columns=answer", "--model", "slow.py:Slow", "-k", "3")
    assert started(*words, "--inputs", "old.csv", "--run-id", "paid").code == COMPLETED
    reusing = (*words, "--inputs", "all.csv", "--reuse", "paid", "--concurrency", "8", "--json")
    whole = started(*reusing, "--run-id", "whole").json
    Path("asked").unlink()
    for rows in (1, 30, 60, 90):
        killed = [sys.executable, "-m", "microagents", *reusing, "--run-id", "killed"]
        with subprocess.Popen(killed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            until(partial(has_ended, Path("runs/killed.sqlite"), rows), f"{rows} rows")
            process.kill()
    found = started(*reusing, "--run-id", "killed").json
    for name in ("inputs_done", "reused", "decisions_sha256", "ballots_sha256"):
        assert found[name] == whole[name], name
    assert whole["reused"] >= 3 * len(old)
    assert not set(Path("asked").read_text().split()) & {*old}, "a reused sample is never bought"


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--reuse", "gone"), "there is no run 'gone' in"),
        (("--reuse", "a", "--format", "lines"), "has no reply to a question of this run: none has the same prompt"),
        (("--reuse", "a", "--max-output-tokens", "99"), "has no reply to a question of this run"),
        (("--reuse", "a", "--no-journal"), "--reuse is for the rows of a table, by votes of maker, with a journal"),
    ],
)
def test_a_run_with_nothing_to_reuse_is_refused_in_one_sentence(words: tuple[str, ...], said: str) -> None:
    refused = fill("in.csv", "b", *words)
    assert refused.code == WRONG_USAGE
    assert said in refused.err
    assert len(refused.err.splitlines()) == 1
    assert not Path("runs/b.sqlite").exists()


def test_replies_of_a_run_that_this_user_did_not_begin_cast_no_votes() -> None:
    Path("theirs").mkdir()
    Path("runs/a.sqlite").rename("theirs/a.sqlite")
    refused = fill("in.csv", "b", "--reuse", "a", "--runs-dir", "theirs")
    assert refused.code == WRONG_USAGE
    assert "you did not begin run 'a' here, and its replies would be votes" in refused.err


def test_the_address_of_a_model_is_no_part_of_a_question_and_a_measurement_reuses_nothing() -> None:
    assert _served("openai:m@base_url=http://x,effort=low,timeout_s=3") == _served("openai:m@effort=low")
    assert _served("openai:m@effort=low") != _served("openai:m@effort=high")
    rows = judged_task_of(2).rows([{"number": 1}])
    with pytest.raises(InvalidUsage, match="a measurement draws its own samples; leave out reuse"):
        asyncio.run(measure(rows, "sim:perfect", reuse="a"))
