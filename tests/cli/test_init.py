"""`init`: a task that runs as it is, with a test that passes, and no file overwritten."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from microagents import RowTask
from microagents.actors.registry import TASKS
from tests.cli.commands import COMPLETED, WRONG_USAGE, Ran, microagents, write


def assert_refused(ran: Ran, said: str) -> None:
    assert (ran.code, ran.out) == (WRONG_USAGE, "")
    (sentence,) = ran.err.splitlines()
    assert said in sentence


def files() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*") if path.is_file())


def test_init_writes_a_task_that_runs_at_once_without_an_error() -> None:
    assert microagents("init").code == COMPLETED
    assert files() == ["dates.py", "test_dates.py"]
    shown = microagents("run", "dates.py", "--no-journal", "--json").json
    assert (shown["outcome"], shown["errors"], shown["result"]) == ("completed", 0, {"line": 5, "day": "2026-05-03"})
    assert (
        microagents("run", "dates.py", "--no-journal", "-s", "known_inputs=true", "--json").json["result"]["wrong"] == 0
    )


def test_a_chain_that_is_done_at_its_start_completes_without_a_step() -> None:
    microagents("init")
    write("none.jsonl", '{"plan": ""}')
    alone, listed = (
        microagents("run", "dates.py", "-o", "plan=", "--json"),
        microagents("run", "dates.py", "--inputs", "none.jsonl", "--json"),
    )
    assert (alone.code, alone.json["outcome"], alone.json["steps"]) == (COMPLETED, "completed", 0), alone.err
    assert [alone.json["result"]] == listed.json["result"]


def test_init_says_what_to_run_next_and_those_commands_work() -> None:
    ran = microagents("init", "work/my-plan")
    assert "microagents run work/my_plan.py  " in ran.out
    assert "pytest work/test_my_plan.py  " in ran.out
    assert microagents("run", "work/my_plan.py", "--json").json["task"] == "MyPlan"
    assert "first The day on which the plan begins. (a date such as 2026-01-31)" in " ".join(
        microagents("run", "work/my_plan.py", "--help").out.split()
    )


@pytest.mark.parametrize("folder", ["new/", "there"])
def test_init_takes_a_folder(folder: str) -> None:
    Path("there").mkdir()
    microagents("init", folder)
    assert files() == [os.path.normpath(f"{folder}/{name}") for name in ("dates.py", "test_dates.py")]


def test_init_overwrites_nothing_and_then_writes_nothing() -> None:
    write("test_dates.py", "mine")
    assert_refused(microagents("init"), "test_dates.py exist already; nothing was written")
    assert files() == ["test_dates.py"]
    assert Path("test_dates.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("1st", "'1st' cannot name a task's file"),
        ("a b", "'a b' cannot name a task's file"),
        ("json", "'json' is the name of a module"),
        ("file/dates", "no task can be written into 'file': file exists"),
    ],
)
def test_a_name_that_will_not_do_is_refused_in_one_sentence(name: str, said: str) -> None:
    write("file", "")
    assert_refused(microagents("init", name), said)


def test_a_task_named_as_a_class_of_the_file_gets_another_class() -> None:
    microagents("init", "due")
    assert microagents("run", "due.py", "--json").json["task"] == "DueTask"


TABLE = "place,the year,class\nRome,1,2\n"
ASK = 'ask=Split {place} "now" into \\ {{json}}, {the year}\nand {class}, as it was written in the oldest of all books'
COLUMNS = "columns=name, year: int?, price: decimal, day: date, ok: bool, kind: city|village, tags: text[]?, ks: a|b[]"


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("words", "columns", "question"),
    [
        ([], ["answer"], "Where is place 1?"),
        (["-o", "ask=Is {größe (m), a.b} big?"], ["answer"], "Is größe (m), a.b 1 big?"),
        (["--inputs", "in.csv"], ["answer"], "Fill in the new columns.\n\nplace: Rome\nthe year: 1\nclass: 2"),
        (
            ["--inputs", "in.csv", "-o", ASK, "-o", COLUMNS],
            ["name", "year", "price", "day", "ok", "kind", "tags", "ks"],
            'Split Rome "now" into \\ {json}, 1\nand 2, as it was written in the oldest of all books',
        ),
        (["--inputs", "in.csv", "-o", 'ask=Is """{ place }""" in { the year }"'], ["answer"], 'Is """Rome""" in 1"'),
    ],
)
def test_init_writes_a_task_for_rows_that_runs_at_once_and_that_linters_accept(
    words: list[str], columns: list[str], question: str
) -> None:
    write("in.csv", TABLE)
    wrote = microagents("init", "my-rows", "--rows", *words)
    assert wrote.code == COMPLETED, wrote.err
    table = "in.csv" if "--inputs" in words else "my_rows.csv"
    assert f"microagents run my_rows.py --inputs {table}  " in wrote.out
    ran = microagents("run", "my_rows.py", "--inputs", table, "-o", "out.csv", "--run-id", "r")
    assert ran.code == COMPLETED, ran.err
    with Path("out.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]][-len(columns) :] == columns
    assert {row["state"] for row in rows} == {"decided"}
    given = {name: value for name, value in rows[0].items() if name not in ("state", "why", *columns)}
    assert TASKS.find("my_rows.py", RowTask)(row=given).prompt(given).user == question
    pytest.importorskip("ruff", reason="it is in the extra lint")
    for checks in (["check", "--select", "E4,E7,E9,F,I,UP,B,W,ANN"], ["format", "--check"]):
        checked = subprocess.run(
            [sys.executable, "-m", "ruff", *checks, "--isolated", "."], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--rows", "--inputs", "in.csv", "-o", "ask={plac}"],
            "'in.csv' has no column 'plac', which ask names; it has place,",
        ),
        (["--rows", "--inputs", "none.csv"], "'none.csv' cannot be read"),
        (["--rows", "--inputs", "empty.csv"], "'empty.csv' holds no row"),
        (["--rows", "-o", "columns=name name"], "'name name' in columns cannot be read"),
        (["--rows", "-o", "colums=name"], "did you mean 'columns'?"),
        (["--rows", "-o", "ask={place"], "'{place' in ask has a brace"),
        (["-o", "columns=name"], "--inputs and -o go with --rows; nothing was written"),
    ],
)
def test_a_question_or_a_table_that_will_not_do_is_refused_in_one_sentence(words: list[str], said: str) -> None:
    write("in.csv", TABLE)
    write("empty.csv", "place\n")
    assert_refused(microagents("init", "fill", *words), said)
    assert files() == ["empty.csv", "in.csv"]


@pytest.mark.slow
def test_the_test_of_a_task_for_rows_passes() -> None:
    microagents("init", "fill", "--rows", "-o", COLUMNS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_fill.py"], capture_output=True, text=True, check=False
    )
    assert "2 passed" in ran.stdout


@pytest.mark.slow
def test_the_test_passes_and_follows_a_class_that_is_renamed() -> None:
    microagents("init", "plans")
    task = Path("plans.py")
    task.write_text(task.read_text(encoding="utf-8").replace("class Plans(", "class MyPlan("), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_plans.py"], capture_output=True, text=True, check=False
    )
    assert "2 passed" in ran.stdout
