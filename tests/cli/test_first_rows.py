"""The question before an expensive run on rows: the first of them are done and shown, and belong to the run."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from microagents.cli import watching
from microagents.runs.driver.forecast import Forecast
from tests.cli.commands import COMPLETED, INTERRUPTED, Ran, microagents, write

PLACES = Path(__file__).parents[2] / "docs/examples/places.py"
ROWS = "place,name\n" + "".join(
    f'"{name}, it",{name.title()}\n' for name in ("rome", "bari", "pisa", "lodi", "asti", "como")
)


@pytest.fixture
def asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal, and a model whose calls are paid."""
    monkeypatch.setattr(watching, "has_terminal", lambda: True)
    monkeypatch.setattr(watching, "ASKED_FROM_USD", 0.0)
    monkeypatch.setattr(Forecast, "is_billed", property(lambda _: True))


def measured() -> str:
    """The name of a measurement, by which a simulated model has an expected cost."""
    write("places.py", PLACES.read_text())
    write("in.csv", ROWS)
    measure = ("measure", "places.py", "--inputs", "in.csv", "--gold", "name", "--run-id", "m", "--yes")
    assert microagents(*measure, "--model", "sim:gpt-4.1-mini@error=0").code == COMPLETED
    return "m"


def run(*words: str, stdin: str) -> Ran:
    inputs = ("--inputs", "in.csv", "--gold", "name", "--output", "out.csv", "--run-id", "r")
    return microagents("run", "places.py", *inputs, "--from", measured(), *words, stdin=stdin)


def written() -> list[str]:
    with Path("out.csv").open(encoding="utf-8-sig", newline="") as file:
        return [row["state"] for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.usefixtures("asks")
def test_the_first_rows_are_shown_before_the_others_are_begun_and_belong_to_the_run() -> None:
    ran = run(stdin="5\ny\n")
    assert ran.code == COMPLETED, ran.err
    lines = [line.split() for line in ran.err.splitlines()]
    head = lines.index(["input", "prompt", "state", "name", "country", "right"])
    assert [line[0] for line in lines[head + 1 : head + 6]] == ["0", "1", "2", "3", "4"]
    assert lines[head + 1] == ["0", "rome,", "it", "decided", '"Rome"', '"IT"', "yes"]
    assert "as measured so far" in ran.err
    assert "6 of 6 inputs, 6 of 6 steps" in ran.err
    assert "18 calls" in ran.err
    assert written() == ["decided"] * 6


@pytest.mark.slow
@pytest.mark.usefixtures("asks")
def test_after_no_the_first_rows_are_kept_for_a_resume() -> None:
    ran = run("--stream", stdin="5\nn\n")
    assert sorted(json.loads(line)["input"] for line in ran.out.splitlines()) == [0, 1, 2, 3, 4]
    assert (ran.code, written()) == (INTERRUPTED, ["decided"] * 5 + ["not done"])
    assert "these rows are kept; all others: microagents resume r" in ran.err
    assert microagents("resume", "r", "--yes").code == COMPLETED
    assert written() == ["decided"] * 6


@pytest.mark.slow
@pytest.mark.usefixtures("asks")
def test_no_leaves_nothing_behind_and_yes_or_no_terminal_asks_for_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (run(stdin="n\n").code, Path("runs/r.sqlite").exists()) == (INTERRUPTED, False)
    monkeypatch.setattr(watching, "has_terminal", lambda: False)
    ran = run(stdin="")
    assert (ran.code, "Begin?" in ran.err, "6 of 6 inputs" in ran.err) == (COMPLETED, False, True)
