"""Hand-offs: an agent lets another one work, under the same cap, in the same journal; and effects that commute."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest

from microagents import Prompt, Reply, Result, run_sync
from microagents.base.errors import InvalidDefinition, TaskFailed
from microagents.journal.digests import in_order
from microagents.journal.sharded import reader_of
from microagents.replies.tool_calls import ToolCall
from microagents.runs.inspection.climbs import climbs_of
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import Action
from microagents.systems.agents.agent import AgentAnswer, AgentTask
from microagents.tools.customers import ask
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


class Given(Script):
    """Names an agent where a function that hands work off to it belongs."""

    tools: ClassVar[tuple[GivenTool, ...]] = (Front,)


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (Given(), 'Front is an agent: hand work off by @tool("agent") on a function that gives one, -> Front'),
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


# -- failures of the other agent ---------------------------------------------------------------------------------------


class Stuck(Script):
    """Looks an order up, or pays it back, and then the same again and again."""

    tools: ClassVar[tuple[GivenTool, ...]] = (shop.look_up, shop.label)
    first: str = "look_up"

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        if self.first == "label" and "\nAction " not in prompt.user:
            return Action(calls=[ToolCall("label", {"order": 7, "text": "refund"})])
        return Action(calls=[ToolCall("look_up", {"order": 7})])


@tool("agent")
def get_stuck(first: str) -> Stuck:
    """Let an agent get stuck."""
    return Stuck(first=first)


class Patient(Script):
    """Hands work off to an agent that gets stuck, and acts on its own then."""

    tools: ClassVar[tuple[GivenTool, ...]] = (get_stuck, shop.refund)
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("get_stuck", {"first": "look_up"}),
        ("get_stuck", {"first": "label"}),
        ("refund", {"order": 7, "cents": 700}),
    )


def test_the_failure_of_an_agent_is_a_result_that_names_its_effects() -> None:
    result = act(Patient(), models="sim:perfect")
    assert (result.outcome, result.value["errors"]) == ("completed", 2)
    assert [each["what"] for each in done()] == ["label", "refund"]
    rows = [json.loads(line) for line in microagents("export", "r", "--actions").out.splitlines()]
    failed = [each for each in rows if each["tool"] == "get_stuck"]
    assert [each["outcome"] for each in failed] == ["error", "partly done"]
    why = "the agent failed: the agent of input 0 took the same action 4 times in a row, and 3 may be; mend its goal or its tools"
    assert failed[0]["observation"] == why
    made = '{"arguments":{"order":7,"text":"refund"},"tool":"label"} -> labelled'
    assert failed[1]["observation"] == f"{why}; it had made, and these calls stay made: {made}"


def test_a_hand_off_whose_agent_failed_behind_effects_is_not_repeated_alike_without_a_person() -> None:
    twice = Patient(calls=(("get_stuck", {"first": "label"}),) * 3)
    waiting = act(twice, models="sim:perfect")
    assert waiting.outcome == "undecided"
    assert "was made at action 1, and waits for an approval to be made once more" in str(waiting.reason)
    assert [each["what"] for each in done()] == ["label"]


class Asking(Script):
    """Asks the customer."""

    tools: ClassVar[tuple[GivenTool, ...]] = (ask,)
    calls: tuple[tuple[str, dict[str, Any]], ...] = (("ask", {"text": "Which order?"}),)


@tool("agent")
def find_out() -> Asking:
    """Let an agent find out."""
    return Asking()


class Curious(Script):
    """Hands the asking off."""

    tools: ClassVar[tuple[GivenTool, ...]] = (find_out,)
    calls: tuple[tuple[str, dict[str, Any]], ...] = (("find_out", {}),)


def test_a_failure_while_a_call_is_under_way_fails_the_input_as_its_outcome_is_unknown() -> None:
    def broken(question: object) -> str:
        raise ValueError(question)

    with pytest.raises(TaskFailed, match=r"on_ask\(\) raised ValueError"):
        act(Curious(), models="sim:perfect", on_ask=broken)


# -- ways that depend on options ---------------------------------------------------------------------------------------


@tool("agent")
def ask_other(depth: int = 1) -> Turning:
    """Let the other one do it."""
    return Turning(depth=depth - 1)


class Turning(Script):
    """Hands work off as long as its depth lasts."""

    depth: int = 1

    def given_tools(self) -> tuple[GivenTool, ...]:
        return (ask_other,) if self.depth else (shop.look_up,)


@tool("agent")
def ask_first(depth: int = 1) -> AgentTask[Any]:
    """Let any agent do it."""
    return Starting(depth=depth)


class Starting(Script):
    """Hands work off to an agent of any class, which turns out to be this one."""

    tools: ClassVar[tuple[GivenTool, ...]] = (ask_first,)
    depth: int = 0
    calls: tuple[tuple[str, dict[str, Any]], ...] = (("ask_first", {}),)


def test_a_circle_that_options_make_is_refused_by_name_before_the_first_call() -> None:
    with pytest.raises(InvalidDefinition, match="work would be handed off from Turning to Turning; at most 2"):
        act(Turning(depth=2))
    result = act(Starting())
    assert (result.outcome, result.value["errors"]) == ("completed", 1)
    votes = [each.path for each in result.decisions() if each.outcome == "decided"]
    assert votes == ["0/step/0", "0/step/1"], "the other agent asked no model"
    assert "work would be handed off from Starting to Starting" in microagents("show", "r").out


# -- ladders -----------------------------------------------------------------------------------------------------------


def test_a_climb_of_the_other_agent_is_listed_beside_those_of_the_first() -> None:
    """The first model gives any action, so that each step of both agents is left to the second one."""
    result = act(Office(), models="sim:perfect@error=0.9,alternatives=99", ladder="model=sim:perfect", max_draws=20)
    assert result.outcome == "completed"
    with reader_of(Path("runs"), "r") as reader:
        climbs = climbs_of(reader, 0)
    assert {name for each in climbs for name in [rung.name for rung in each.rungs]} == {"model"}
    paths = [each.path for each in climbs]
    assert paths == sorted(paths, key=in_order)
    assert {len(path.split("/agent/")) for path in paths} == {1, 2, 3}
    assert len(climbs) == sum(result.account.climbed.values())
