"""`microagents ctl`: a live run is paused, ended and adjusted by another process, and its journal remembers who asked for what."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from microagents.journal.inbox import leave_request
from microagents.journal.requests import EndRun, PauseRun, request_of
from tests.benchmarks.control import VERBS, kill
from tests.cli.commands import WAIT_S, Ran, Sitting, microagents, started

RUN = ("run", "hanoi", "-o", "disks=16", "--model", "sim:perfect@latency=0.02", "--run-id", "a")


def status() -> dict[str, Any]:
    ran = microagents("ctl", "a", "status", "--json")
    assert ran.code == 0, ran
    found: dict[str, Any] = json.loads(ran.out)
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def done(ran: Ran, said: str) -> None:
    assert (ran.code, said in ran.out) == (0, True), ran


def stands_still() -> bool:
    found = status()
    return bool(found["paused"] and not found["in_flight"])


def goes_on() -> bool:
    before = status()["steps"]
    wait_until(lambda: status()["steps"] > before)
    return True


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "a.sqlite"


def begun(*words: str) -> Sitting:
    sitting = Sitting(*words)
    wait_until(
        lambda: (
            microagents("ctl", "a", "status").code == 0 and status()["outcome"] == "running" and status()["calls"] > 0
        )
    )
    return sitting


@pytest.mark.slow
@pytest.mark.usefixtures("journal")
def test_a_pause_holds_after_a_kill_until_the_run_is_told_to_resume() -> None:
    with begun(*RUN) as sitting:
        done(microagents("ctl", "a", "pause", "--reason", "the provider's\n bill"), "run a is paused")
        wait_until(stands_still)
        done(microagents("ctl", "a", "pause"), "run a is paused")  # again
        sitting.end(signal.SIGKILL)
    steps = status()["steps"]
    assert "go on with it: microagents resume a" in microagents("ctl", "a", "resume").err
    with Sitting("resume", "a") as sitting:
        wait_until(lambda: bool(status()["outcome"] == "running"))
        time.sleep(0.4)
        assert (status()["paused"], status()["steps"]) == (True, steps)
        done(microagents("ctl", "a", "resume"), "run a goes on")
        assert goes_on()
        done(microagents("ctl", "a", "stop", "--reason", "enough"), "run a ends")
        assert sitting.end().code == 3
    found = status()
    assert [each["kind"] for each in found["requests"]] == ["pause", "pause", "resume", "end"]
    assert found["reason"].startswith("ended by ")
    assert "(enough); all decisions so far are kept" in found["reason"]
    shown = " ".join(microagents("show", "a").out.split())
    assert ": the provider's bill asked of the run: " in shown


@pytest.mark.slow
@pytest.mark.usefixtures("journal")
def test_limits_of_a_live_run_are_changed_for_it_and_for_later_sittings() -> None:
    with begun(*RUN) as sitting:
        done(microagents("ctl", "a", "pause"), "run a is paused")
        wait_until(stands_still)  # so that no call comes between the count and the limit
        used = status()["calls"]
        said = microagents("ctl", "a", "set", "max-calls=1").err
        assert "max-calls=1 is below the" in said
        assert [each["kind"] for each in status()["requests"]] == ["pause"]
        done(
            microagents("ctl", "a", "set", f"max-calls={used + 150}", "concurrency=2"),
            f"run a is changed: concurrency from no limit to 2, max-calls from no limit to {used + 150}",
        )
        done(microagents("ctl", "a", "resume"), "run a goes on")
        assert sitting.end().code == 3
    found = status()
    assert found["reason"].startswith(f"--max-calls {used + 150} is reached")
    assert used < found["calls"] <= used + 150
    with begun("resume", "a", "--max-calls", "100000") as sitting:
        assert goes_on()
        done(microagents("ctl", "a", "set", "max-time=0.1"), "run a is changed")
        assert sitting.end().code == 3
    assert status()["reason"].startswith("--max-time 0.1 is reached")


@pytest.mark.slow
@pytest.mark.usefixtures("journal")
def test_a_pause_now_cancels_the_calls_in_flight_which_are_sent_again_after_it() -> None:
    model = "sim:perfect@latency=600,sigma=0,votes_per_request=4"
    with Sitting(*RUN[:-4], "--model", model, "--run-id", "a", "--max-time", "600"):
        wait_until(lambda: microagents("ctl", "a", "status").code == 0 and status()["in_flight"] > 0)
        in_flight = status()["in_flight"]
        done(microagents("ctl", "a", "pause", "--now"), "run a is paused")
        wait_until(lambda: status()["in_flight"] == 0)
        assert stands_still()
        assert status()["unanswered"] == in_flight
        done(microagents("ctl", "a", "resume"), "run a goes on")
        wait_until(lambda: status()["in_flight"] > 0)
        assert "paused" in microagents("ctl", "a", "pause").out
        listed = microagents("list", "--live")
        assert (listed.code, listed.out.split()[:2]) == (0, ["a", "paused"])


@pytest.mark.slow
@pytest.mark.usefixtures("journal")
@pytest.mark.parametrize("verb", [("drain",), pytest.param(("stop", "--now"), marks=pytest.mark.slow)])
def test_a_run_is_ended_from_outside_and_can_go_on(verb: tuple[str, ...]) -> None:
    with begun(*RUN) as sitting:
        done(microagents("ctl", "a", *verb), "run a ends")
        assert sitting.end().code == 3
    found = status()
    assert (found["outcome"], found["go_on"]) == ("stopped", "microagents resume a")
    if verb == ("drain",):
        assert "undecided" not in microagents("show", "a").out


@pytest.mark.slow
def test_what_was_asked_of_a_sitting_that_has_ended_ends_no_later_one(journal: Path) -> None:
    with begun(*RUN) as sitting:
        sitting.end(signal.SIGKILL)
    leave_request(journal, request_of(EndRun(after="calls")))
    leave_request(journal, request_of(PauseRun()))
    with Sitting("resume", "a"):
        wait_until(lambda: bool(status()["paused"]))
        assert [(each["kind"], each["refused"]) for each in status()["requests"]] == [
            ("end", "the sitting that it was meant for had ended"),
            ("pause", None),
        ]


@pytest.mark.usefixtures("journal")
def test_wrong_words_get_one_sentence() -> None:
    assert microagents("run", "hanoi", "-o", "disks=2", "--model", "sim:perfect", "--run-id", "a").code == 0
    cases: list[tuple[tuple[str, ...], str]] = [
        (("pase",), "no verb called 'pase'; did you mean 'pause'?"),
        (("resume", "--now"), "--now goes with pause and stop, not with resume"),
        (("set",), "give NAME=VALUE"),
        (("set", "max-calls"), "'max-calls' is not of the form NAME=VALUE"),
        (("set", "max-cals=3"), "no setting of a live run called 'max-cals'; did you mean 'max-calls'"),
        (("set", "keep-texts=all"), "begin it again with `resume` for another"),
        (("pause",), "run a is not under way, so nothing was changed"),
        (("status",), ""),
    ]
    for words, said in cases:
        ran = microagents("ctl", "a", *words)
        assert (ran.code, said in ran.err) == (2 if said else 0, True), ran


@pytest.mark.slow
@pytest.mark.usefixtures("journal")
def test_a_detached_run_goes_on_by_itself_and_is_watched_to_its_end() -> None:
    ran = started(*RUN, "--detach")
    assert ran.code == 0, ran
    begun_run = json.loads(ran.out)
    assert begun_run.keys() == {"run_id", "pid", "journal", "log"}
    assert status()["outcome"] == "running"
    done(microagents("ctl", "a", "set", "max-time=1"), "run a is changed")
    watched = microagents("show", "a", "--live", "--json")
    assert (watched.code, json.loads(watched.out)["outcome"]) == (3, "stopped")
    assert "see it: microagents show a --live, and all runs: microagents list --live" in ran.err
    again = started("resume", "a", "--max-time", "600", "--detach")
    assert (again.code, json.loads(again.out)["pid"] != begun_run["pid"]) == (0, True)
    done(microagents("ctl", "a", "stop"), "run a ends")
    assert microagents("show", "a", "--live").code == 3
    assert microagents("list", "--remove", "a", "--yes").code == 0
    assert [each.name for each in Path("runs").iterdir()] == [".gitignore"]


def test_a_detached_run_that_cannot_begin_says_why() -> None:
    ran = microagents("run", "hanoi", "-o", "disks=zz", "--detach")
    assert (ran.code, "disks must be an integer" in ran.err, ran.out) == (2, True, "")
    ran = microagents("run", "hanoi", "--no-journal", "--detach")
    assert (ran.code, "--detach needs a journal" in ran.err) == (2, True)


@pytest.mark.slow
def test_kills_around_every_verb_lose_no_request_and_repeat_none() -> None:
    assert set(kill(len(VERBS), seed=1)) <= set(VERBS)
