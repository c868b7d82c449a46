"""Many inputs in one run: what stands on stdout, what one failure does to the others, and how the run goes on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from microagents.cli.views.display import live_display
from microagents.journal.messages import Account
from microagents.runs import json_rows
from tests.cli.commands import (
    COMPLETED,
    FAILED,
    STOPPED,
    UNDECIDED,
    WRONG,
    WRONG_USAGE,
    Ran,
    Sitting,
    microagents,
    shopping,
    write,
)

NOISY = ("drift", "--model", "sim:perfect@error=0.4,flag=0.1,latency=0.002,sigma=1,price_out=1", "-k", "2")
"""Replies that come in another order than they were asked for, and one wrong count would lead a walk elsewhere."""
LENGTHS = (6, 1, 4, 14, 2, 1, 5, 9, 3, 4, 8, 3)
"""Inputs that end in another order than they begin in; more than ten, so that 10 does not come after 1."""

BRITTLE = """
    from pathlib import Path

    from microagents.tasks.drift import Drift, Onward, Place

    class Brittle(Drift):
        brittle: bool = False

        def advance(self, state: Place, reply: Onward) -> Place:
            if self.brittle and state.steps_done == 3 and not Path("mended").exists():
                raise ValueError("a stone")
            return super().advance(state, reply)
    """
"""Walks of which some come to a stone in the fourth step, until there is a file."""
STONES = [{"length": 5}, {"length": 6, "brittle": True}, {"length": 4}]
PERFECT = ("--model", "sim:perfect")


def items(options: Sequence[dict[str, Any]], name: str = "items.jsonl") -> str:
    return write(name, "".join(f"{json.dumps(each)}\n" for each in options))


def walks(lengths: Sequence[int] = LENGTHS) -> str:
    return items([{"length": length} for length in lengths])


def brittle(*words: str) -> Ran:
    """Three walks, of which the one in the middle fails."""
    write("brittle.py", BRITTLE)
    return microagents("run", "brittle.py:Brittle", "--inputs", items(STONES), *PERFECT, "--run-id", "stones", *words)


@cache
def undisturbed() -> dict[str, Any]:
    """What the walks come to when nothing is in their way."""
    return microagents("run", *NOISY, "--inputs", walks(), "--no-journal", "--json").json


def digests(shown: dict[str, Any]) -> tuple[str, str]:
    return shown["decisions_sha256"], shown["ballots_sha256"]


def lines(ran: Ran) -> list[Any]:
    return [json.loads(line) for line in ran.out.splitlines()]


def assert_one_sentence(ran: Ran, *said: str) -> None:
    assert (ran.code, ran.out, "Traceback" in ran.err) == (WRONG_USAGE, "", False)
    (sentence,) = ran.err.splitlines()
    for words in said:
        assert words in sentence


# -- results ---------------------------------------------------------------------------------------------------------------------------


def test_results_stand_in_the_order_of_inputs_a_line_each_and_the_summary_on_stderr() -> None:
    ran = microagents("run", *NOISY, "--inputs", walks())
    assert ran.code == WRONG
    assert [line["steps_done"] for line in lines(ran)] == list(LENGTHS)
    assert f"{len(LENGTHS)} of {len(LENGTHS)} inputs, {sum(LENGTHS)} of {sum(LENGTHS)} steps" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("--concurrency", "1", "--no-journal"),
        pytest.param(("--runtime", "linked"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_decisions_do_not_depend_on_how_many_are_open_or_on_where_roles_live(words: tuple[str, ...]) -> None:
    shown = microagents("run", *NOISY, "--inputs", walks(), *words, "--json").json
    assert (digests(shown), shown["result"]) == (digests(undisturbed()), undisturbed()["result"])


@pytest.mark.slow
def test_an_input_decides_the_same_whatever_stands_beside_it() -> None:
    second = microagents("run", *NOISY, "--inputs", walks([5, 7]), "--json").json["result"][1]
    assert second == microagents("run", *NOISY, "--inputs", walks([9, 7, 11]), "--json").json["result"][1]


def test_an_option_from_a_file_holds_for_every_line_and_is_kept_once() -> None:
    write("quoted.py", "from microagents.tasks.drift import Drift\n\nclass Quoted(Drift):\n    text: str\n")
    write("text.txt", "a word " * 500)
    ran = microagents(
        *("run", "quoted.py:Quoted", *PERFECT, "-o", "text=@text.txt", "--inputs"),
        walks([2, 3, 4]),
        "--run-id",
        "quoted",
        "--json",
    )
    assert ran.code == COMPLETED
    with closing(sqlite3.connect("runs/quoted.sqlite")) as db:
        kept = db.execute(
            "SELECT content FROM run WHERE part = 'record' UNION ALL SELECT options FROM input"
        ).fetchall()
    assert sum(text.count("a word " * 500) for (text,) in kept) == 1
    assert microagents("resume", "quoted", "--json").json["result"] == ran.json["result"]


def test_a_limit_that_many_inputs_reach_together_stops_the_run() -> None:
    words = ("--model", "sim:perfect@error=0.3,alternatives=1", "--max-calls", "60")
    ran = microagents("run", "drift", "--inputs", walks([9] * 20), *words)
    assert ran.code == STOPPED
    assert "--max-calls 60 is reached" in ran.err


def test_stdin_is_read_for_a_dash() -> None:
    ran = microagents("run", "drift", *PERFECT, "--inputs", "-", stdin='{"length": 2}\n{"length": 1}\n')
    assert [line["steps_done"] for line in lines(ran)] == [2, 1]


# -- failures --------------------------------------------------------------------------------------------------------------------------


def test_an_input_that_fails_is_named_and_stops_no_other() -> None:
    ran = brittle("--json")
    assert (ran.code, ran.json["outcome"]) == (FAILED, "failed")
    assert (ran.json["inputs"], ran.json["inputs_done"], ran.json["steps"]) == (3, 2, 13)
    assert [result and result["steps_done"] for result in ran.json["result"]] == [5, None, 4]
    ((failed),) = ran.json["failed_inputs"]
    assert (failed["input"], failed["outcome"]) == (1, "failed")
    assert "raised ValueError('a stone') at step " in failed["reason"]
    assert "of 3 inputs 1 failed, the others are completed; input 1: " in ran.json["reason"]
    assert ran.json["go_on"] == "microagents resume stones"


def test_a_failed_input_is_done_again_alone_and_from_where_it_failed() -> None:
    brittle()
    write("mended", "")
    ran, bought = shopping("resume", "stones", "--input", "1", "--json")
    assert (ran.code, ran.json["failed_inputs"]) == (COMPLETED, [])
    assert {sample.split("/step/")[0] for sample in bought.sent} == {"1"}
    assert min(int(sample.split()[0].rpartition("/")[2]) for sample in bought.sent) >= 3, (
        "three steps were decided before"
    )
    whole = microagents("run", "brittle.py:Brittle", "--inputs", "items.jsonl", *PERFECT, "--json").json
    assert (ran.json["result"], digests(ran.json)) == (whole["result"], digests(whole))
    assert microagents("show", "stones", "--verify").code == COMPLETED


def test_the_first_input_may_fail_before_its_first_question() -> None:
    write(
        "lame.py",
        BRITTLE.replace("def advance(self, state: Place, reply: Onward)", "def start(self)")
        .replace("state.steps_done == 3 and ", "")
        .replace("super().advance(state, reply)", "super().start()"),
    )
    listed = items([{"brittle": True, "length": 2}, {"length": 3}])
    words = ("run", "lame.py:Brittle", *PERFECT, "--inputs", listed, "--run-id", "lame", "--json")
    assert [result and result["steps_done"] for result in microagents(*words).json["result"]] == [None, 3]
    write("mended", "")
    assert [result["steps_done"] for result in microagents(*words).json["result"]] == [2, 3]


def test_where_one_is_undecided_that_decides_the_exit_code() -> None:
    write(
        "both.py",
        BRITTLE
        + """
        def expert(self, prompt, reply):
            return super().expert(prompt, reply)

        def difficulty(self, prompt, reply):
            return 0.5 if self.length == 9 else None
    """,
    )
    given = items([{"length": 5}, {"length": 6, "brittle": True}, {"length": 9}])
    words = (
        *("--model", "sim:perfect@alternatives=1,flag=0", "-s", "max_draws=3", "--inputs"),
        given,
        "--run-id",
        "both",
        "--json",
    )
    ran = microagents("run", "both.py:Brittle", *words)
    assert (ran.code, ran.json["outcome"]) == (UNDECIDED, "undecided")
    assert [(each["input"], each["outcome"]) for each in ran.json["failed_inputs"]] == [(1, "failed"), (2, "undecided")]
    assert ran.json["undecided_at"][0].startswith("2/step/")
    assert "of 3 inputs 1 undecided, 1 failed, the others are completed; input 1: " in ran.json["reason"]
    write("mended", "")
    ran = microagents("resume", "both", "--on-undecided", "leader", "--json")
    assert (ran.code, ran.json["failed_inputs"], ran.json["undecided_at"]) == (WRONG, [], [])
    assert microagents("show", "both", "--verify").code == COMPLETED


# -- looking on, and going on ------------------------------------------------------------------------------------------------------------


def test_show_and_list_tell_of_inputs() -> None:
    ended = brittle("--json").json
    shown = microagents("show", "stones")
    assert "2 of 3 inputs, " in shown.out
    assert "raised ValueError('a stone') at step 3 (brittle.py:" in shown.out
    assert "result" not in shown.rows
    assert microagents("show", "stones", "--json").json == ended
    assert "2 of 3 inputs, " in microagents("list").out


def test_progress_counts_inputs_and_steps(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microagents.cli.views.display.LINE_EVERY_S", 0)
    with live_display("drift") as display:
        display.show(Account(steps=3456, inputs=1000, inputs_done=11, inputs_failed=1))
    said = capfd.readouterr().err
    assert said.startswith("drift: 11 of 1,000 inputs, 3,456 steps   ")
    assert "1 without a result" in said


@pytest.mark.slow
def test_what_was_streamed_is_recorded_already() -> None:
    slow = ("drift", "--model", "sim:perfect@latency=0.01", "-k", "1", "--concurrency", "1", "--run-id", "r")
    with Sitting("run", *slow, "--inputs", walks([1, 1, 1000]), "--stream") as sitting:
        assert sitting.process.stdout is not None
        printed = [json.loads(sitting.process.stdout.readline())["result"] for _ in range(2)]
        sitting.process.kill()
    assert microagents("show", "r", "--json").json["result"] == [*printed, None]


def test_a_failed_or_undecided_input_is_streamed_with_its_reason() -> None:
    lines = {line["input"]: line for line in map(json.loads, brittle("--stream").out.splitlines())}
    assert (lines[1]["outcome"], lines[1]["result"]) == ("failed", None)
    again = microagents("resume", "stones", "--stream").out.splitlines()
    assert [json.loads(line)["input"] for line in again] == [1], "only what the resumed run does itself"
    assert "a stone" in lines[1]["reason"]
    words = ("--model", "sim:perfect@error=0.02,alternatives=1", "-s", "max_draws=3", "-s", "known_inputs=true")
    ran = microagents("run", "drift", *words, "--inputs", walks([1, 60]), "--stream")
    lines = {line["input"]: line for line in map(json.loads, ran.out.splitlines())}
    assert (ran.code, lines[0]["outcome"], lines[1]["outcome"]) == (UNDECIDED, "completed", "undecided")
    assert lines[1]["result"]["undecided"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--inputs", "items.jsonl", "--json"), "give one of them"),
        ((), "and this is one task"),
    ],
)
def test_streaming_is_refused_where_nothing_can_be_streamed(words: tuple[str, ...], said: str) -> None:
    walks()
    ran = microagents("run", "drift", "--stream", *words)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (WRONG_USAGE, "", 1)
    assert said in ran.err


@pytest.mark.slow
def test_inputs_that_were_not_asked_for_are_said_to_be_left() -> None:
    microagents("run", *NOISY, "--inputs", walks(), "--run-id", "left", "--max-calls", "20", "--concurrency", "1")
    ran = microagents("resume", "left", "--max-calls", "100000", "--input", "5", "--input", "4", "--json")
    assert (ran.code, ran.json["outcome"]) == (STOPPED, "stopped")
    assert {number for number, result in enumerate(ran.json["result"]) if result} >= {4, 5}
    assert " not done yet" in ran.json["reason"]
    assert digests(microagents("resume", "left", "--json").json) == digests(undisturbed())


# -- the same experiment -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            [5, 4, 7],
            ['input 1 of this run was started as {"length":3}, now it is {"length":4}', "line 2 of 'items.jsonl'"],
        ),
        (
            [5, 3, 7, 8],
            ['input 3 of this run was started as nothing, now it is {"length":8}', "line 4 of 'items.jsonl'"],
        ),
        ([5, 3], ['input 2 of this run was started as {"length":7}, now it is nothing']),
    ],
    ids=["another", "one more", "one less"],
)
def test_other_inputs_under_the_same_name_are_refused_by_the_first_that_differs(
    changed: list[int], said: list[str]
) -> None:
    words = ("run", "drift", *PERFECT, "--run-id", "r", "--inputs")
    microagents(*words, walks([5, 3, 7]))
    before = Path("runs/r.sqlite").read_bytes()
    assert_one_sentence(microagents(*words, walks(changed)), *said, "pass --accept-change inputs")
    assert Path("runs/r.sqlite").read_bytes() == before


def test_inputs_may_be_changed_and_added_on_purpose_but_not_taken_away() -> None:
    words = ("run", "drift", *PERFECT, "--run-id", "r", "--accept-change", "inputs", "--json", "--inputs")
    microagents("run", "drift", *PERFECT, "--run-id", "r", "--inputs", walks([5, 3]))
    ran, bought = shopping(*words, walks([5, 4, 2]))
    assert [result["steps_done"] for result in ran.json["result"]] == [5, 4, 2]
    assert {sample.split()[0] for sample in bought.sent} == {"1/step/3", "2/step/0", "2/step/1"}
    assert microagents("resume", "r", "--json").json["result"] == ran.json["result"]
    assert microagents("show", "r", "--verify").code == COMPLETED
    assert_one_sentence(
        microagents(*words, walks([5, 4])), "was started with 3 inputs, now there are 2; nothing was changed"
    )


def test_what_an_input_gave_before_it_was_changed_is_not_taken_for_what_it_gives() -> None:
    words = ("run", "drift", *PERFECT, "--concurrency", "1", "--run-id", "r", "--inputs")
    microagents(*words, walks([2, 3]))
    calls = microagents("show", "r", "--json").json["calls"]
    microagents(*words, walks([2, 9]), "--accept-change", "inputs", "--max-calls", f"{calls + 2}")
    assert [result is None for result in microagents("show", "r", "--json").json["result"]] == [False, True]
    ran = microagents("resume", "r", "--max-calls", "1000", "--json")
    assert [result["steps_done"] for result in ran.json["result"]] == [2, 9]


def test_a_list_of_inputs_is_another_run_than_one_task() -> None:
    alone, listed = ("-o", "length=3", "--run-id", "alone"), ("--inputs", walks([3]), "--run-id", "listed")
    for words in (alone, listed):
        microagents("run", "drift", *PERFECT, *words)
    for words, said in (
        ((*listed[:-1], "alone"), "one task, now it is a list of"),
        ((*alone[:-1], "listed"), "a list of inputs, now it is one"),
    ):
        assert_one_sentence(
            microagents("run", "drift", *PERFECT, *words), f"this run was started with {said}", "nothing was changed"
        )


# -- what is no input ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ["'items.jsonl' holds no input"]),
        (b'{"length": 2}\n{"length": \n', ["line 2 of 'items.jsonl' is not JSON:"]),
        (b'{"length": 2}\n[{"length": 2}]\n', ["line 2 of 'items.jsonl' is not a JSON object: '[{"]),
        (b'{"length": 2}\n\xff{}\n', ["line 2 of 'items.jsonl' is not JSON:"]),
        (b'{"length": 2}\n{"lenght": 2}\n', ["line 2 of 'items.jsonl'", "'lenght'; did you mean 'length'?"]),
        (
            b'{"length": 2}\n\n{"length": 0}\n',
            ["line 3 of 'items.jsonl': length must be an integer of at least 1, not 0"],
        ),
    ],
)
def test_what_is_no_input_is_refused_by_its_line(content: bytes, said: list[str]) -> None:
    Path("items.jsonl").write_bytes(content)
    assert_one_sentence(microagents("run", "drift", "--inputs", "items.jsonl"), *said)
    assert not Path("runs").exists()


@pytest.mark.parametrize("file", ["none.jsonl", "."])
def test_a_file_that_cannot_be_read_is_refused(file: str) -> None:
    assert_one_sentence(microagents("run", "drift", "--inputs", file), f"{file!r} cannot be read")


def test_a_line_without_an_end_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("endless.jsonl").open("wb") as file:
        file.write(b'{"length": 1}\n')
        file.truncate(4 << 30)  # a sparse file: reading it whole would take 4 GB
    ran = microagents("run", "drift", "--inputs", "endless.jsonl")
    assert_one_sentence(ran, "line 2 of 'endless.jsonl' is longer than 16 MiB; nothing was started")
    monkeypatch.setattr(json_rows, "MAX_LINE_BYTES", len(b'{"length": 1}\n'))
    Path("whole.jsonl").write_bytes(b'{"length": 1}\n{"length": 2}')
    assert microagents("run", "drift", "--inputs", "whole.jsonl", "--no-journal").code == COMPLETED
