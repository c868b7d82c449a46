"""`microagents list`: the runs of a folder with date, model, cost and wrong decisions, at any width."""

from __future__ import annotations

from pathlib import Path

from microagents.cli.views.runs import _lines
from tests.cli.commands import microagents

RUNS = [
    [
        *("r", "completed", "2026-11-22 08:47", "drift", "sim:perfect", "9 calls", "$0.00 simulated"),
        "right: 3 of 3 steps, all checked by the task's own oracle",
    ],
    [
        *("multiplication-20261122-085924-c3764d2c", "cut off", "", "mine", "openai:x +2", "1 calls"),
        *("cost unknown", "completed, not checked: 0 steps"),
    ],
    ["broken", "'runs/broken.sqlite' is not a journal, or it is damaged (file is not a database)"],
]
"""Cells of two runs, and of one that cannot be read."""


def test_a_run_is_listed_with_its_date_model_price_and_wrong_decisions() -> None:
    run = microagents(
        "run", "hanoi", "-o", "disks=5", "--model", "sim:gpt-4.1-nano@hard=0.1", "--run-id", "r", "--json"
    ).json
    line = microagents("list").out
    for said in (
        *("r  completed, WRONG  20", "  hanoi  ", "sim:gpt-4.1-nano  ", " simulated  "),
        f"{run['errors']} of 31 steps WRONG, the first at ",
    ):
        assert said in line
    assert run["errors"] > 0


def test_at_80_columns_no_line_is_wider_and_nothing_is_left_out() -> None:
    lines = list(_lines(RUNS[:2], 80))
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(cell for row in RUNS[:2] for cell in row).split())
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [row[0] for row in RUNS[:2]]


def test_a_journal_that_a_full_disk_left_empty_says_how_to_begin_its_run() -> None:
    Path("runs").mkdir()
    Path("runs/r.sqlite").touch()
    for command in ("show", "resume", "export"):
        ran = microagents(command, "r")
        assert (ran.code, "begin it again with the command that began it, and --run-id r" in ran.err) == (2, True), ran
    assert microagents("run", "hanoi", "-o", "disks=2", "--model", "sim:perfect", "--run-id", "r").code == 0
