"""`microagents show RUN PATH`: one decision with its prompt, replies, flags, votes and price."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from microagents.journal.sharded import reader_of
from microagents.runs.inspection.decision import NOTHING_ASKED, inspect_decision
from tests.cli.commands import COMPLETED, PAPERS, STOPPED, WRONG_USAGE, microagents, started, write
from tests.cli.test_resuming import ASIDE
from tests.journal.walks import sql

NOISY = (
    *("drift", "-o", "length=12", "--model", "sim:perfect@error=0.4,flag=0.3,price_out=1", "-k", "2"),
    *("--run-id", "r"),
)
STALEMATE = ("drift", "--model", "sim:perfect@error=0.02,alternatives=1", "-s", "max_draws=3", "--run-id", "r")


def exported() -> list[dict[str, Any]]:
    return [json.loads(line) for line in microagents("export", "r").out.splitlines()]


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
    path = next(
        f"0/step/{at}"
        for at in range(12)
        if {None, "malformed"} <= {each["flag"] for each in shown(f"0/step/{at}")["replies"]}
    )
    ran = microagents("show", "r", path)
    assert (ran.code, ran.err) == (COMPLETED, "")
    for said in (
        *(f"{path}: system prompt", "user prompt", "Number: ", "RED FLAG malformed: ", "=> vote {"),
        *("(text not kept)", " simulated"),
    ):
        assert said in ran.out


def test_an_empty_reply_is_shown_as_empty_and_not_as_one_whose_text_is_not_kept() -> None:
    texts = ("", "number = 22", "number = 22")
    lines = [json.dumps({"path": "0/step/0", "seq": seq, "text": text}) for seq, text in enumerate(texts)]
    write("replies.jsonl", "\n".join(lines))
    drift = ("drift", "-o", "length=1", "-k", "2", "--model", "scripted:replies.jsonl")
    microagents("run", *drift, "--run-id", "r", "--keep-texts", "all")
    ran = microagents("show", "r", "0/step/0")
    assert "reply 0: RED FLAG empty" in ran.out
    assert "(text not kept)" not in ran.out


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "kept"), [("all", {True, False, None}), ("none", set())])
def test_the_journal_keeps_the_texts_that_the_user_wants(keep: str, kept: set[bool | None]) -> None:
    microagents("run", *NOISY, "--keep-texts", keep)
    replies = [reply for at in range(12) for reply in shown(f"0/step/{at}")["replies"]]
    assert {each["agrees"] for each in replies} == {True, False, None}
    assert {each["agrees"] for each in replies if each["text"] is not None} == kept
    assert not {each["agrees"] for each in replies if each["text"] is None} & kept


@pytest.mark.parametrize(
    "words", [("-s", "known_inputs=true"), ("--inputs", "items.jsonl")], ids=lambda words: words[0]
)
def test_the_prompt_is_rebuilt_in_every_mode(words: tuple[str, ...]) -> None:
    write("items.jsonl", '{"length": 3}\n{"length": 9}\n')
    microagents("run", *NOISY, *words)
    assert shown("0/step/2")["user"].startswith("Number: ")
    assert shown("1/step/8" if "--inputs" in words else "0/step/8")["note"] is None


def test_a_persons_decision_names_the_person_and_the_time() -> None:
    (path,) = microagents("run", *STALEMATE, "--json").json["undecided_at"]
    assert (shown(path)["outcome"], shown(path)["value"], len(shown(path)["replies"])) == ("undecided", None, 3)
    assert None not in [each["text"] for each in shown(path)["replies"]]
    microagents("decide", "r", path, '{"number": 5}')
    microagents("resume", "r")
    assert shown(path)["outcome"] == "person"
    assert shown(path)["value"] == {"number": 5}
    assert "@" in shown(path)["settled_by"]
    assert shown(path)["settled_at"] <= shown(path)["decided_at"]
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
        (
            TASK.replace("super().prompt(state)", "type(super().prompt(state))(user='another')"),
            "asks another question here",
        ),
        (
            TASK.replace("return super()", "1 / 0  # "),
            "Mine.prompt raised ZeroDivisionError('division by zero') at step 3",
        ),
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


TWO_MODELS = ("--model", "sim:perfect@flag=0.1", "--model", "sim:o3-mini@error=0.1")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            (
                *("multiplication", "-o", "digits=3", "-k", "2", "--model", "sim:perfect@error=0.3"),
                *("--model", "solver=sim:perfect@error=0.2"),
            ),
            marks=pytest.mark.slow,
        ),
        pytest.param((f"{PAPERS}/consistency.py:Consistency", "-o", "sections=3", *TWO_MODELS), marks=pytest.mark.slow),
        ("word-problems", "-o", "depth=3", "--strategy", "aot+tree", "-s", "k=2"),
        ("drift", "-o", "length=4", "--model", "sim:perfect@error=0.3", "--strategy", "aside.py:Aside"),
    ],
    ids=["tree", "document", "states", "own conductor"],
)
def test_every_question_of_any_strategy_is_rebuilt_by_a_replay_that_asks_nothing(words: tuple[str, ...]) -> None:
    write("aside.py", ASIDE)
    microagents("run", *words, "--run-id", "r")
    rows = exported()
    with reader_of(Path("runs"), "r") as reader:
        found = [inspect_decision(reader, row["path"]) for row in rows]
    asked = [each for each in found if each.replies]
    assert len(asked) > len(found) / 3
    assert [each.path for each in asked if each.user is None] == []
    assert {each.note for each in found if not each.replies} <= {NOTHING_ASKED}


TORN = "sim:perfect@error=0.02,hard=0.2,hard_error=0.5,alternatives=1,price_out=1"
CLIMB = ("drift", "-o", "length=30", "-k", "6", "--model", TORN, "-s", "p=.95", "-s", "false_alarms=1", "--run-id", "r")
ALL_RUNGS = (
    *("-s", f"ladder=model={TORN},lookahead,paraphrase,judge", "-s", "margin=6", "-s", "max_draws=14"),
    *("--seed", "1"),
)


@pytest.mark.parametrize(
    "words",
    [
        (*CLIMB, *ALL_RUNGS),
        pytest.param(
            ("drift", "-o", "length=30", "--strategy", "lead", "--model", TORN, "--run-id", "r"), marks=pytest.mark.slow
        ),
    ],
    ids=["all rungs", "lead"],
)
def test_every_question_on_a_ladder_is_rebuilt(words: tuple[str, ...]) -> None:
    microagents("run", *words)
    with reader_of(Path("runs"), "r") as reader:
        found = [inspect_decision(reader, row["path"]) for row in exported()]
    inferred = [each for each in found if each.path.rpartition("/")[2] in ("lookahead", "judge")]
    assert [each.path for each in found if each.user is None and each not in inferred] == []
    assert inferred != []
    for each in inferred:
        assert each.note is not None
        assert (
            "predictions of rollouts" if "lookahead" in each.path else f"the vote is at {each.path}/vote"
        ) in each.note
    of_steps = [
        each for each in found if each.value is not None and each.path.count("/") in (2, 3) and "/step/" in each.path
    ]
    assert [each.path for each in of_steps if each.correct is None] == []


@pytest.mark.slow
def test_a_person_sees_which_steps_climbed_and_what_became_of_one() -> None:
    run = microagents("run", *CLIMB, *ALL_RUNGS)
    facts = microagents("show", "r", "--json").json
    climbs = facts["climbs"]
    assert run.rows["climbed"].startswith(f"{sum(facts['climbed'].values())} step")
    assert run.rows["climbed"].endswith("microagents show r lists them")
    lines = microagents("show", "r").out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("0/step/")] == [each["path"] for each in climbs]
    samples = sum(each["samples"] for each in climbs)
    assert any(line.startswith(f"{len(climbs)} steps climbed, for {samples} samples and $") for line in lines)
    step, rung = next((each["path"], each["decided_by"]) for each in climbs if each["rungs"][0]["outcome"] == "climbed")
    for path in (step, f"{step}/model"):
        said = " ".join(microagents("show", "r", path).out.split())
        assert re.search(rf"left to the next rung; \{{.*\}} leads; decided at {step}/{rung}", said)
        assert "OUTVOTED" not in said
        assert shown(path)["decided_by"] == f"{step}/{rung}"


@pytest.mark.slow
def test_a_prediction_names_its_rollout() -> None:
    microagents("run", "drift", "-o", "length=30", "--strategy", "lead", "--model", TORN, "--run-id", "r")
    path = next(row["path"] for row in exported() if row["outcome"] == "inferred" and not row["flags"])
    at = int(path.split("/")[2])
    for reply in shown(path)["replies"]:
        rollout = shown(reply["rollout"])
        start = int(reply["rollout"].split("/")[2])
        assert rollout["replies"][0]["vote"]["steps"][at - start] == reply["vote"]
        assert rollout["user"].startswith("Number: ")
    assert "predicted by the rollout at 0/rollout/" in microagents("show", "r", path).out


def test_the_handler_of_a_once_is_not_called_by_a_replay() -> None:
    write("aside.py", ASIDE.replace("return request.round", "open('called', 'a').close(); return request.round"))
    microagents("run", "drift", "-o", "length=2", "--strategy", "aside.py:Aside", "--run-id", "r")
    Path("called").unlink()
    assert shown("0/round/1/draft")["user"] is not None
    assert shown("0/round/1/turns") | {"outcome": "once", "note": NOTHING_ASKED} == shown("0/round/1/turns")
    assert not Path("called").exists()


def test_a_question_of_which_an_earlier_answer_is_missing_is_refused() -> None:
    microagents("run", "multiplication", "-o", "digits=3", "--run-id", "r")
    with closing(sqlite3.connect("runs/r.sqlite", isolation_level=None)) as db:
        db.execute("DELETE FROM decision WHERE key = (SELECT id << 40 FROM place WHERE path = '0/solve/decompose')")
    refused = microagents("show", "r", "0/solve/1/decompose")
    assert (refused.code, "rows of input 0 are missing" in refused.err) == (WRONG_USAGE, True), refused


def test_what_cannot_be_shown_is_refused_in_one_sentence() -> None:
    microagents("run", *NOISY)
    for words in (("step",), ("0/step/1", "--verify"), ("\x1b[2J",)):
        ran = microagents("show", "r", *words)
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (WRONG_USAGE, "", 1)
        assert ran.err.strip().isprintable()


def test_the_end_of_a_path_will_do_where_one_path_ends_so() -> None:
    microagents("run", *NOISY)
    assert shown("7") == shown("step/7") == shown("0/step/7")
    assert "there is one at '0/step/0'," in microagents("show", "r", "step/99").err


def test_of_several_paths_that_end_so_the_first_is_named() -> None:
    write("in.csv", "length\n2\n2\n")
    microagents("run", "drift", "--inputs", "in.csv", "--model", "sim:perfect", "--run-id", "r")
    assert "there is one at '0/step/1'," in microagents("show", "r", "step/1").err


@pytest.mark.slow
def test_live_of_a_run_that_was_cut_off_shows_it_as_one_to_resume() -> None:
    started("run", "drift", "-o", "length=3", "--model", "sim:perfect", "--run-id", "r")
    sql("DELETE FROM run WHERE part = 'ending'")
    ran = microagents("show", "r", "--live", "--json")
    assert (ran.code, ran.json["outcome"]) == (STOPPED, "cut off")
