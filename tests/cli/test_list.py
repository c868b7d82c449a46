"""`microagents list`: the runs of a folder with date, model, cost and wrong decisions, at any width."""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from microagents.cli.views import tables
from microagents.cli.views.runs import _list
from microagents.cli.views.tables import Columns
from tests.cli.commands import microagents

WORDS = "3 of 3 steps, all checked by the oracle of the task"


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


def test_at_80_columns_no_line_is_wider_and_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["r", "completed", "2026-11-22 08:47", "drift", "9 calls", f"right: {WORDS}"], ["second", "cut off", WORDS]]
    monkeypatch.setattr(tables, "columns_of_stdout", lambda _: 80)
    for drawn in (tables.table(Columns(rows, to_the_left=range(6))), _list(rows, 80)):
        lines = drawn.splitlines()
        assert max(map(len, lines)) <= 80
        words = re.findall(r"[\w'-]+", " ".join(chain.from_iterable(rows)))
        assert Counter(re.findall(r"[\w'-]+", drawn)) == Counter(words)
        heads = [line.split()[0].rstrip(":") for line in lines if not line.startswith(" ")]
        assert heads == ["r", "second"]


def test_a_table_that_is_wider_than_the_terminal_loses_its_least_columns_and_says_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [["name", "right", "calls", "cost"], ["a-strategy-of-many-words", "97.00%", "1,000", "$1.00"]]
    monkeypatch.setattr(tables, "columns_of_stdout", lambda _: 34)
    drawn = tables.table(Columns(rows, least=("calls", "cost"))).splitlines()
    assert max(map(len, drawn)) <= 34
    assert drawn[0].split() == ["name", "right", "cost"]
    assert drawn[-1] == "(too narrow for: calls)"


def test_a_journal_that_a_full_disk_left_empty_says_how_to_begin_its_run() -> None:
    Path("runs").mkdir()
    Path("runs/r.sqlite").touch()
    for command in ("show", "resume", "export"):
        ran = microagents(command, "r")
        assert (ran.code, "begin it again with the command that began it, and --run-id r" in ran.err) == (2, True), ran
    assert microagents("run", "hanoi", "-o", "disks=2", "--model", "sim:perfect", "--run-id", "r").code == 0
