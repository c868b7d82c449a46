"""Hand-offs: an agent lets another one work, under the same cap, in the same journal; and effects that commute."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from typing import Any, ClassVar

import pytest

from microagents import Prompt, Reply, Result, run_sync
from microagents.base.errors import InvalidDefinition
from microagents.replies.tool_calls import ToolCall
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import Action
from microagents.systems.agents.agent import AgentAnswer, AgentTask
from microagents.tools.tool import tool
from microagents.tools.toolbox import GivenTool
from tests.benchmarks.harness import is_killed
from tests.cli.commands import COMPLETED, microagents
from tests.systems.agents import shop
from tests.systems.agents.shop import Script, Ticket, done

EFFECTS = ["label", "refund", "mail"]


@tool("agent")
def settle(order: int) -> Ticket:
    """Let the shop settle an order."""
    return Ticket(order=order)


class Front(Script):
    """Hands orders off to the shop."""

    tools: ClassVar[tuple[GivenTool, ...]] = (settle,)
    calls: tuple[tuple[str, dict[str, Any]], ...] = (("settle", {"order": 7}), ("settle", {"order": 8}))


@tool("agent")
def front() -> Front:
    """Let the front settle two orders."""
    return Front()


class Office(Script):
    """Hands the front's work off."""

    tools: ClassVar[tuple[GivenTool, ...]] = (front,)
    calls: tuple[tuple[str, dict[str, Any]], ...] = (("front", {}),)


def act(task: AgentTask[Any], **given: Any) -> Result:
    options = {name: given.pop(name) for name in list(given) if name in Act.model_fields}
    models = given.pop("models", "sim:perfect@error=0.05,alternatives=9")
    return run_sync(task, models=models, strategy=Act(**options), run_id="r", **given)


@pytest.mark.parametrize("task", [Front(), Office()])
def test_an_agent_hands_work_off_and_the_other_acts_with_margins_of_its_own(task: AgentTask[Any]) -> None:
    result = act(task, models="sim:perfect")
    assert (result.outcome, result.value["result"]) == ("completed", {"answer": "done"})
    assert [each["what"] for each in done()] == EFFECTS * 2
    votes = {each.path: sum(n for _, n in each.votes) for each in result.decisions() if each.outcome == "decided"}
    below = "0/step/0/agent/0/" if isinstance(task, Office) else "0/"
    assert [votes[f"{below}step/1/agent/0/step/{step}"] for step in range(5)] == [1, 2, 4, 4, 3]
    shown = re.findall(r"(\w+)\(", microagents("show", "r").out)
    assert shown[-5:] == ["settle", "look_up", *EFFECTS]


@pytest.mark.parametrize("runtime", ["linked", "ray"])
def test_a_hand_off_is_decided_alike_wherever_it_runs(runtime: str) -> None:
    digests = [act(Front()).account.decisions_sha256]
    shop.WORLD.unlink()
    result = run_sync(Front(), models="sim:perfect@error=0.05,alternatives=9", runtime=runtime, run_id="other")
    assert (result.outcome, [each["what"] for each in done()]) == ("completed", EFFECTS * 2)
    assert [result.account.decisions_sha256] == digests


def test_the_cap_of_a_run_holds_over_its_hand_offs_and_a_higher_one_pays_nothing_twice() -> None:
    first = act(Front(), models="sim:perfect", max_calls=12)
    assert (first.outcome, first.account.calls) == ("stopped", 12)
    second = act(Front(), models="sim:perfect", max_calls=200)
    assert (second.outcome, [each["what"] for each in done()]) == ("completed", EFFECTS * 2)
    assert second.account.calls == 2 * (4 + 1 + 2 + 4 + 4 + 3) + 3  # none is paid twice


def test_another_agents_effect_waits_for_an_approval_and_its_rejection_is_seen_by_that_agent() -> None:
    waiting = act(Front(), approve="refund")
    assert (waiting.outcome, [each["what"] for each in done()]) == ("undecided", ["label"])
    assert "`microagents decide r 0/step/0/agent/0/step/2 approve`" in str(waiting.reason)
    assert microagents("decide", "r", "step/0/agent/0/step/2", "reject", "not this one").code == COMPLETED
    assert act(Front(), approve="refund").outcome == "undecided"
    assert microagents("decide", "r", "step/1/agent/0/step/2", "approve").code == COMPLETED
    assert act(Front(), approve="refund").outcome == "completed"
    assert [each["what"] for each in done()] == ["label", "mail", *EFFECTS]
    rows = [json.loads(line) for line in microagents("export", "r", "--actions").out.splitlines()]
    assert [(each["path"], each["person"]) for each in rows if each["tool"] == "refund"] == [
        ("0/step/0/agent/0/step/2", "rejected"),
        ("0/step/1/agent/0/step/2", "approved"),
    ]


def test_a_hand_off_waits_for_an_approval_of_its_own() -> None:
    assert act(Front(), approve="settle.order>7").outcome == "undecided"
    assert [each["what"] for each in done()] == EFFECTS
    assert microagents("decide", "r", "step/1", "approve").code == COMPLETED
    result = act(Front(), approve="settle.order>7")
    assert (result.outcome, [each["what"] for each in done()]) == ("completed", EFFECTS * 2)


def test_an_equal_hand_off_is_not_made_again() -> None:
    assert act(Front(calls=(("settle", {"order": 7}),) * 2)).outcome == "completed"
    assert [each["what"] for each in done()] == EFFECTS


@tool("agent")
def again() -> Endless:
    """Do it again."""
    return Endless()


@tool("agent")
def deeper() -> Office:
    """Hand it on to the office."""
    return Office()


@tool("agent")
def nothing() -> int:
    """Hand off to no agent."""
    return 1


class Endless(Script):
    """Hands work off to itself."""

    tools: ClassVar[tuple[GivenTool, ...]] = (again,)


class Circle(Script):
    """Hands work off to an agent that hands it off to itself."""

    tools: ClassVar[tuple[GivenTool, ...]] = (again,)


class Deep(Script):
    """Hands work off that is handed off twice more."""

    tools: ClassVar[tuple[GivenTool, ...]] = (deeper,)


class Wrong(Script):
    """Hands work off to no agent."""

    tools: ClassVar[tuple[GivenTool, ...]] = (nothing,)


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (Endless(), "work would be handed off from Endless to Endless; at most 2 hand-offs may follow each other, and"),
        (Circle(), "work would be handed off from Circle to Endless to Endless; "),
        (Deep(), "work would be handed off from Deep to Office to Front to Ticket; "),
        (Wrong(), "a hand-off of Wrong must state its agent: -> YourAgent, not <class 'int'>"),
    ],
)
def test_a_hand_off_that_cannot_end_is_refused_before_the_first_call(task: AgentTask[Any], why: str) -> None:
    with pytest.raises(InvalidDefinition, match=re.escape(why)):
        act(task)


_met = threading.Barrier(2, timeout=5)


@tool("destructive", commutes=True)
def ring(order: int) -> str:
    """Ring a customer; returns once two customers are rung."""
    shop.write("ring", order=order)
    _met.wait()
    return "rang"


class Ringing(AgentTask[AgentAnswer]):
    """Rings two customers in one action."""

    tools: ClassVar[tuple[GivenTool, ...]] = (ring,)
    orders: tuple[int, ...] = (7, 8)

    def statement(self) -> str:
        return "Ring them."

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        if "\nAction 1" in prompt.user:
            return Action(calls=[ToolCall("end", {"answer": "rang"})])
        return Action(calls=[ToolCall("ring", {"order": order}) for order in self.orders])


def test_effects_that_commute_are_made_side_by_side_each_once() -> None:
    assert act(Ringing(), models="sim:perfect").outcome == "completed"
    assert sorted(each["order"] for each in done()) == [7, 8]


def test_effects_that_commute_wait_for_their_persons_together() -> None:
    assert act(Ringing(), models="sim:perfect", approve="ring").outcome == "undecided"
    for number in (0, 1):
        assert microagents("decide", "r", f"0/step/0/call/{number}/approval", "approve").code == COMPLETED
    assert act(Ringing(), models="sim:perfect", approve="ring").outcome == "completed"
    assert sorted(each["order"] for each in done()) == [7, 8]


@pytest.mark.parametrize("orders", [(7, 7), (7, 7.0)])
def test_one_effect_twice_in_an_action_is_flagged(orders: tuple[Any, ...]) -> None:
    calls = [ToolCall("ring", {"order": order}) for order in orders]
    assert Ringing().unfit(Action(calls=calls)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("is_made", [False, True])
@pytest.mark.parametrize("number", range(1, 2 * len(EFFECTS) + 1))
def test_a_kill_in_a_hand_off_neither_loses_nor_repeats_an_effect(number: int, *, is_made: bool) -> None:
    """The process dies at one effect of the second hand-off's agent, before or after it."""
    write = shop.write

    def fatal(what: str, **more: Any) -> None:
        is_last = len(done()) + 1 == number
        if is_made or not is_last:
            write(what, **more)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)

    def mortal() -> None:
        vars(shop)["write"] = fatal
        act(Office())

    assert is_killed(mortal)
    result = act(Office())
    if result.outcome == "undecided":  # the tool that cannot be looked up
        (path,) = result.account.undecided_at
        said = ["done", "paid back"] if is_made else ["not-done"]
        assert microagents("decide", "r", path.partition("/call/")[0], *said).code == COMPLETED
        result = act(Office())
    assert result.outcome == "completed", result.reason
    assert [each["what"] for each in done()] == EFFECTS * 2
