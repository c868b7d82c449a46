"""The command that a run proposes to continue it works, however the run ended; and a person's decision is a state of its own."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from microagents.journal.messages import RunOutcome
from microagents.journal.requests import this_user
from tests.cli.commands import COMPLETED, Sitting, forget_files_in, microagents, started, write

DRIFT = ("run", "drift", "-o", "length=12", "--run-id", "r", "--model")
SLOW = (*DRIFT, "sim:perfect@latency=0.02", "-o", "length=60")
PAID = "sim:gpt-4.1-nano@flag=0"
STALEMATE = ("run", "drift", "--model", "sim:perfect@error=0.4,alternatives=1", "-k", "9", "-s", "max_draws=13")
DESK = ("run", "desk", "-s", "approve=send_mail", "--model", "sim:perfect", "--run-id", "r")
FAILING = """
    from pathlib import Path
    from microagents.tasks.drift import Drift

    class Fails(Drift):
        def advance(self, state, reply):
            if not Path("mended").exists() and state.number > 3:
                raise RuntimeError("broken")
            return super().advance(state, reply)

    async def refuses(call):
        from microagents import ModelUnavailable
        if "/step/3" in call.id.election.path:
            raise ModelUnavailable("refused", "content policy", 400)
        return "number = " + str(int(call.id.election.path.rpartition("/")[2]) + 1)
"""


def facts() -> dict[str, Any]:
    return microagents("show", "r", "--json").json


def ended(*words: str) -> Callable[[], None]:
    return lambda: void(microagents(*words))


def void(_: object) -> None:
    pass


def stopped_by(number: signal.Signals) -> None:
    with Sitting(*SLOW, paced=True) as sitting:
        sitting.until_sent(20)
        sitting.end(number)


def failed() -> None:
    write("own.py", FAILING)
    microagents("run", "own.py:Fails", "-o", "length=12", "--model", "sim:perfect", "--run-id", "r")
    Path("mended").touch()
    forget_files_in(Path.cwd())


def refused() -> None:
    write("own.py", FAILING)
    microagents(*DRIFT, "own.py:refuses")


def paused() -> None:
    with Sitting(*SLOW, paced=True) as sitting:
        sitting.until_sent(20)
        microagents("ctl", "r", "pause")
        microagents("ctl", "r", "stop")
        sitting.end()


def twice_limited() -> None:
    microagents(*DRIFT, "sim:perfect", "--max-calls", "11")
    microagents("resume", "r", "--max-calls", "5")


def running() -> None:
    started(*DRIFT, "sim:perfect@latency=0.2", "--detach")


ENDINGS: dict[str, tuple[RunOutcome, Callable[[], None]]] = {
    "calls": ("stopped", ended(*DRIFT, "sim:perfect", "--max-calls", "5")),
    "calls below those made": ("stopped", twice_limited),
    "tokens": ("stopped", ended(*DRIFT, "sim:perfect", "--max-tokens", "700")),
    "cost": ("stopped", ended(*DRIFT, PAID, "--max-cost", "0.0002")),
    "below the next call": ("stopped", ended(*DRIFT, PAID, "--max-cost", "0.000001")),
    "paused": ("stopped", paused),
    "vote": ("undecided", ended(*STALEMATE, "--run-id", "r")),
    "approval": ("undecided", ended(*DESK)),
    "refused": ("refused", refused),
    "failed": ("failed", failed),
    "interrupted": ("interrupted", lambda: stopped_by(signal.SIGINT)),
    "killed": ("cut off", lambda: stopped_by(signal.SIGKILL)),
    "completed": ("completed", ended(*DRIFT, "sim:perfect")),
    "running": ("running", running),
}


def follow(command: str, said: str) -> None:
    """Give the proposed commands as a shell does; what is asked gets an answer."""
    for each in command.split(" && "):
        name, *words = shlex.split(each)
        assert name == "microagents"
        if "--detach" in words:
            assert started(*words).code == COMPLETED
        else:
            microagents(*words, stdin=said)


def test_every_ending_is_continued_by_a_test() -> None:
    assert {outcome for outcome, _ in ENDINGS.values()} == set(get_args(RunOutcome))


@pytest.mark.timeout(60)
@pytest.mark.slow_after(4)
@pytest.mark.parametrize("name", ENDINGS)
def test_the_proposed_command_continues_the_run(name: str) -> None:
    outcome, end = ENDINGS[name]
    end()
    before = facts()
    assert before["outcome"] == outcome
    if outcome in ("completed", "running"):
        assert before["go_on"] is None
        void(outcome == "running" and microagents("ctl", "r", "stop"))
        return
    follow(before["go_on"], "approve\n" if name == "approval" else '{"number": 4}\n')
    if outcome in ("undecided", "refused"):
        decided = facts()
        assert (decided["go_on"], decided["outcome"]) == ("microagents resume r", outcome)
        follow(decided["go_on"], "")
    if name == "paused":
        assert microagents("show", "r", "--live").code == COMPLETED
    after = facts()
    assert after["outcome"] == "completed" or after["steps"] > before["steps"], after["reason"]


def test_a_decision_is_a_state_by_whom_and_when_until_the_run_goes_on() -> None:
    microagents(*DESK)
    assert microagents("show", "r").rows["go on"] == "microagents decide r"
    said = microagents("decide", "r", "0/step/6", "approve").out
    assert said.endswith("go on: microagents resume r\n")
    (person,) = facts()["by_persons"].values()
    assert (person["who"], json.loads(person["value"])["approved"]) == (this_user(), True)
    shown = microagents("show", "r")
    assert shown.out.startswith("decided ")
    assert "waits" not in shown.out.partition("goal:")[0]
    for each in (shown, microagents("list"), microagents("show", "r", "0/step/6/call/0/approval")):
        assert f"decided by {this_user()} at " in each.out
        assert "not yet resumed" in each.out
    again = microagents("decide", "r", "0/step/6", "reject", "too", "dear").out
    assert f'it replaces {{"approved":true,"text":""}}, decided by {this_user()} at ' in again
    microagents("resume", "r")
    assert "not yet resumed" not in microagents("show", "r").out
