"""Agents: actions are elected by the harm they can do, and effects are made at most once."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from microagents import Result, run, run_sync
from microagents.base.errors import InvalidUsage, TaskFailed
from microagents.elections.rules import AheadByHarm, Tally
from microagents.replies.tool_calls import ToolCall
from microagents.runs.inspection.runs import decide, inspect_run
from microagents.runs.result import WaitingCall
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import Action
from tests.benchmarks.harness import is_killed
from tests.cli.commands import COMPLETED, microagents
from tests.systems.agents import shop
from tests.systems.agents.shop import Ticket, done

MODEL = "sim:perfect@error=0.1,alternatives=9"
EFFECTS = ["label", "refund", "mail"]


def effects() -> list[str]:
    return [each["what"] for each in done()]


def act(run_id: str = "r", **given: Any) -> Result:
    options = {name: given.pop(name) for name in list(given) if name in Act.model_fields}
    return run_sync(Ticket(), models=given.pop("models", MODEL), strategy=Act(**options), run_id=run_id, **given)


def vote(*tools: str, n: int = 0) -> str:
    return str(Action(calls=[ToolCall(tool, {"n": n}) for tool in tools]).vote())


@pytest.mark.parametrize(
    ("votes", "needed"),
    [
        ([], 1),
        ([vote("read")], 0),
        ([vote("pay")], 2),  # a read would be one ahead with two votes
        ([vote("pay")] * 3, 1),
        ([vote("pay")] * 4, 0),
        ([vote("pay")] * 4 + [vote("pay", n=2)], 1),
        ([vote("pay"), vote("read")], 1),
        ([vote("read", "pay")], 2),
    ],
)
def test_the_margin_is_that_of_the_greatest_harm_of_the_leading_action(votes: list[str], needed: int) -> None:
    tally = Tally(AheadByHarm(margins={"read": 1, "pay": 4}, otherwise=4))
    for each in votes:
        tally.count(each)
    assert tally.votes_needed == needed


def test_an_agent_reaches_its_goal_and_pays_more_votes_where_harm_is_possible() -> None:
    result = act(models="sim:perfect")
    assert (result.outcome, effects()) == ("completed", EFFECTS)
    assert result.value == {"result": {"answer": "done"}, "actions": 4, "errors": 0, "correct": True}
    votes = {
        each.path: sum(number for _, number in each.votes) for each in result.decisions() if each.outcome == "decided"
    }
    assert votes == {"0/step/0": 1, "0/step/1": 2, "0/step/2": 4, "0/step/3": 4, "0/step/4": 3}


@pytest.mark.parametrize("runtime", ["local", "linked", "ray"])
def test_the_decisions_are_the_same_wherever_it_runs(runtime: str) -> None:
    digests = set()
    given: list[dict[str, Any]] = [{}, {}, {"runtime": runtime}]
    for number, each in enumerate(given):
        result = act(f"r{number}", **each)
        assert result.outcome == "completed"
        digests.add((result.account.decisions_sha256, result.account.ballots_sha256))
    assert len(digests) == 1
    assert effects() == EFFECTS * 3


@pytest.mark.parametrize(
    ("said", "made"), [('{"approved": true}', EFFECTS), ('{"approved": false, "text": "ask first"}', ["label", "mail"])]
)
def test_an_action_waits_for_an_approval_and_a_rejection_is_an_observation(said: str, made: list[str]) -> None:
    waiting = act(approve="refund")
    assert (waiting.outcome, effects()) == ("undecided", ["label"])
    assert "0/step/2/call/0/approval" in str(waiting.reason)
    assert microagents("decide", "r", "0/step/2/call/0/approval", said).code == COMPLETED
    assert act(approve="refund").value["correct"] is (made == EFFECTS)
    assert effects() == made


@pytest.mark.slow
async def test_an_approval_reaches_a_run_that_is_under_way() -> None:
    """The other input is still at work, so the run has not ended, and takes the one up again that waits."""
    given: Any = {
        "models": "sim:perfect@latency=0.1,sigma=0",
        "strategy": Act(approve="refund.cents>750"),
        "run_id": "r",
    }
    running = asyncio.ensure_future(run([Ticket(), Ticket(order=8)], **given))
    waiting: list[WaitingCall] = []
    while not waiting:
        assert not running.done(), running.result().reason
        await asyncio.sleep(0.02)
        with suppress(InvalidUsage):  # it has no journal yet
            waiting = await asyncio.to_thread(lambda: list(inspect_run(Path("runs"), "r").waiting))
    await asyncio.to_thread(decide, Path("runs"), "r", waiting[0].path, "approve")
    result = await running
    assert (result.outcome, sorted(effects())) == ("completed", sorted(EFFECTS * 2))


@pytest.mark.slow
def test_an_effect_that_only_the_third_look_up_finds_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    write = shop.write

    def mortal() -> None:
        def fatal(what: str, **more: Any) -> None:
            write(what, **more)
            if what == "mail":
                os.kill(os.getpid(), signal.SIGKILL)

        vars(shop)["write"] = fatal
        act()

    assert is_killed(mortal)
    asked: list[None] = []

    def found_late() -> list[dict[str, Any]]:
        asked.append(None)
        return [] if len(asked) < 3 else done()

    with monkeypatch.context() as late:
        late.setitem(vars(shop), "done", found_late)
        assert act().outcome == "completed"
    assert effects() == EFFECTS


def test_an_agent_that_goes_on_for_ever_is_stopped() -> None:
    with pytest.raises(TaskFailed, match="-s max_steps=3"):
        act(max_steps=3, models="sim:perfect")
