"""The expected cost on the command line: one line on stderr, and above a dollar a question on a terminal."""

from __future__ import annotations

import os
import pty
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.commands import INTERRUPTED, STOPPED, WAIT_S, microagents
from tests.forking import Forked

QUESTION = "Begin?"


def words(usd: float, *more: str) -> tuple[str, ...]:
    """A run on a server that refuses connections, expected to cost about this: 91.8 calls of 300 tokens."""
    model = f"openai:m@base_url=http://127.0.0.1:9/v1,price_in=0,price_out={usd * 1e6 / 91.8 / 300:g}"
    return ("run", "drift", "-o", "length=30", "--model", model, "--max-outage", "0", "--run-id", "r", *more)


class Asked(NamedTuple):
    """A command at a terminal that has ended."""

    code: int
    said: str


def at_terminal(answer: str, *given: str) -> Asked:
    """The command with a terminal for all streams; the answer is typed once it asks."""
    ours, theirs = pty.openpty()
    with Forked(*given, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said, answered = "", 0
        with suppress(OSError):  # the other end is closed
            while heard := os.read(ours, 4096).decode(errors="replace"):
                said += heard
                if QUESTION in said and not answered:
                    answered = os.write(ours, answer.encode())
        os.close(ours)
        return Asked(process.wait(WAIT_S), said)


@pytest.mark.slow
def test_a_run_above_a_dollar_asks_on_a_terminal_and_no_leaves_nothing_behind() -> None:
    asked = at_terminal("n\n", *words(1.1))
    assert (asked.code, Path("runs").exists()) == (INTERRUPTED, False)
    assert "expected cost: $1." in asked.said
    assert "nothing was started" in asked.said
    assert "Traceback" not in asked.said


@pytest.mark.slow
@pytest.mark.parametrize(("asks", "given"), [(True, words(1.1)), (False, words(1.1, "--yes"))])
def test_a_run_begins_after_yes_or_with_it(*, asks: bool, given: tuple[str, ...]) -> None:
    asked = at_terminal("y\n", *given)
    assert (asked.code, Path("runs/r.sqlite").exists()) == (STOPPED, True)
    assert (QUESTION in asked.said) == asks


def test_without_a_terminal_the_expected_cost_is_one_line_and_the_run_begins() -> None:
    ran = microagents(*words(50), "--json")
    assert (ran.code, ran.json["outcome"]) == (STOPPED, "stopped")
    (line,) = [line for line in ran.err.splitlines() if "expected" in line]
    assert line.startswith("microagents: expected cost: $50.")
    assert line.endswith("300 out each")


def test_no_cost_is_expected_while_the_limit_that_stopped_the_run_is_the_same() -> None:
    spec = "openai:m@base_url=http://127.0.0.1:9/v1,price_in=1,price_out=1"
    begun = (
        *("run", "drift", "-o", "length=30", "--model"),
        spec,
        *("--max-outage", "0", "--run-id", "r", "--max-cost", "0.000001"),
    )
    ran = microagents(*begun)
    assert "expected cost" in ran.err
    assert ran.rows["go on"] == "microagents resume r --max-cost 0.005752", "twice the next call"
    assert "expected cost" not in microagents("resume", "r").err
    assert "expected cost" in microagents("resume", "r", "--max-cost", "0.000002").err


def test_a_simulated_run_tells_no_expected_cost() -> None:
    assert microagents("run", "drift", "-o", "length=3").err == ""
