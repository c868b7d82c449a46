"""Votes are on what acts, not on wording: declared prose casts no vote, or votes by meaning; every other argument counts."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Annotated, Any, ClassVar, Literal

import pytest
from msgspec import Meta, Struct

from microagents import Call, McpServer, Prompt, Prose, Reply, Result, Unvoted, run, run_sync
from microagents.replies.reply_fields import unvoted_in
from microagents.replies.tool_calls import ToolCall
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import END, Action
from microagents.systems.agents.agent import AgentTask
from microagents.tools.tool import FunctionTool, ToolSpec, tool
from microagents.tools.toolbox import Toolbox
from tests.systems.agents.shop import done, write

TEXT = "Your money is on its way."
SAME, OPPOSITE = "sim:perfect", "sim:perfect@error=1,alternatives=1"
"""Matchers: one that is right, one that takes different replies for the same."""
WORDINGS = 54


@tool("destructive")
def ask_customer(order_id: str, text: Prose) -> str:
    """Write to the customer of an order."""
    write("ask", order_id=order_id, text=text)
    return "sent"


@tool("destructive")
def ask_undeclared(order_id: str, text: str, more: Prose) -> str:
    """Write to the customer of an order."""
    return ask_customer(order_id, f"{text} {more}")


class Asking(AgentTask):
    """Asks a customer, and ends with an answer, both in ever other words."""

    tools: ClassVar[Any] = (ask_customer, ask_undeclared)
    statement = lambda _: "Ask the customer of order A 7."  # noqa: E731


def asking(tool: str = "ask_customer", orders: int = 1) -> Any:
    """A model that words each sample in its own way, and whose first replies arrive last."""

    async def reply(call: Call) -> str:
        seq = call.id.seq
        await asyncio.sleep(0.01 * max(0, 5 - seq))
        wording = f"Wording {seq % WORDINGS}, please."
        asked: Any = {"tool": tool, "arguments": {"order_id": f"A {7 + seq % orders}", "text": wording}}
        if tool == "ask_undeclared":
            asked["arguments"]["more"] = wording
        ended = {"tool": END, "arguments": {"answer": wording}}
        return f"calls = [{json.dumps(ended if 'Action 1' in call.prompt.user else asked)}]"

    return reply


async def careless(call: Call) -> str:  # noqa: ARG001 - it has one answer
    """A matcher that takes everything for the same."""
    return "same = true"


async def test_54_wordings_decide_in_k_calls_and_the_first_launched_one_is_taken() -> None:
    result = await run(Asking(), models=asking(), run_id="r")
    assert (result.outcome, result.calls) == ("completed", 4 + 3)  # the leads of a destructive action and of the end
    assert result.value["result"] == {"answer": "Wording 0, please."}
    assert [each["text"] for each in done()] == ["Wording 0, please."]
    again = await run(Asking(), models=asking(), run_id="r")
    assert (again.calls, again.account.decisions_sha256) == (7, result.account.decisions_sha256)


async def test_an_undeclared_text_counts_and_an_undecided_election_names_both_remedies() -> None:
    result = await run(Asking(), models=asking("ask_undeclared"), strategy=Act(max_draws=20), runs_dir=None)
    assert (result.outcome, done()) == ("undecided", [])
    said = (
        "20 of 20 votes differ only in the text text of ask_undeclared; if it is prose, whose wording does not matter, declare it "
        "(`text: Prose`, or McpServer(prose=...)), and it casts no vote; with -s votes=semantic a declared text votes by its meaning"
    )
    assert said in str(result.reason)


@pytest.mark.parametrize("votes", ["exact", "semantic"])
async def test_another_order_id_never_leaves_the_vote_in_any_wording(votes: Literal["exact", "semantic"]) -> None:
    models = {"": asking(orders=2), "matcher": careless}
    strategy = Act(max_draws=20, votes=votes)
    result = await run(Asking(), models=models if votes == "semantic" else models[""], strategy=strategy)
    assert (result.outcome, done()) == ("undecided", [])
    assert str(result.reason).count('10 x {"calls"') == 2, result.reason


class Closed(Struct, frozen=True):
    """A result with a field of each kind."""

    outcome: str
    why: Prose
    more: Prose | None = None
    notes: Annotated[list[str], Unvoted] = []
    title: Annotated[Prose, Meta(max_length=5)] = ""


def test_prose_is_declared_in_functions_results_and_servers_without_a_change_of_schema() -> None:
    @tool("destructive")
    def send(to: str, body: Prose, subject: Prose | None = None, notes: Annotated[list[str], Unvoted] = []) -> str:  # noqa: B006
        """Send a mail."""
        return f"{to} {body} {subject} {notes}"

    spec = FunctionTool(send).spec
    assert spec.prose == ("body", "subject", "notes")
    assert spec.parameters["properties"]["body"] == {"title": "Body", "type": "string"}
    assert unvoted_in(Closed) == ("why", "more", "notes", "title")
    listed = ToolSpec(name="send", description="", parameters={"properties": {"to": {}, "body": {}}})
    server = McpServer(server="mail", prose={"send": ["body"]}, prefix="my_")
    toolbox = Toolbox([server], {server.text: [{**vars_of(listed)}]}, {})
    assert toolbox.specs["my_send"].prose == ("body",)


def vars_of(spec: ToolSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__struct_fields__}


@tool("destructive")
def refund(order: int, text: Prose, currency: str) -> str:
    """Pay money back, and write to the customer."""
    return f"{order} {text} {currency}"


class Mailing(AgentTask):
    """One refund with a text, which the simulated model words in ways of its own."""

    tools: ClassVar[Any] = (refund,)
    other: dict[str, Any]
    """The arguments of the other action that it gives."""

    def statement(self) -> str:
        return "Pay back order 7."

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        if "Action 1" in prompt.user:
            return Action(calls=[ToolCall(END, {"answer": "done"})])
        return Action(calls=[ToolCall("refund", {"order": 7, "text": TEXT, "currency": "EUR"})])

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:  # noqa: ARG002 - it errs in one way
        assert isinstance(right, Action)
        (call,) = right.calls
        return right if call.tool == END else Action(calls=[ToolCall(call.tool, {**call.arguments, **self.other})])


def acted(votes: Literal["exact", "semantic"], matcher: str = SAME, **other: Any) -> Result:
    models = {"": "sim:perfect@error=0.4,alternatives=1,flag=0", "matcher": matcher}
    strategy = Act(votes=votes, max_draws=1_000)
    return run_sync([Mailing(other=other)] * 8, models=models if votes == "semantic" else models[""], strategy=strategy)


def first_tallies(result: Result) -> list[tuple[int, ...]]:
    """The votes of the first action of each input, by candidate."""
    return [tuple(count for _, count in each.votes) for each in result.decisions() if each.path.endswith("/step/0")]


@pytest.mark.slow
def test_with_a_matcher_declared_prose_votes_by_meaning_and_without_one_not_at_all() -> None:
    same, exact = (acted(votes, text=TEXT.replace(" ", "  ")) for votes in ("semantic", "exact"))
    assert {sum(tally) for tally in first_tallies(same)} == {sum(tally) for tally in first_tallies(exact)} == {4}
    assert (same.account.decided > 2 * 8, exact.account.decided) == (True, 2 * 8)  # wordings were compared
    other = first_tallies(acted("semantic", text="We pay nothing back."))
    assert all(abs(tally[0] - sum(tally[1:])) == 4 for tally in other)
    assert max(map(len, other)) == 2


@pytest.mark.parametrize("other", [{"currency": "US dollars"}, {"order": 8, "text": "On its way, it is."}])
def test_a_matcher_that_errs_joins_no_actions_that_differ_beyond_prose(other: dict[str, Any]) -> None:
    result = acted("semantic", OPPOSITE, **other)
    assert all(abs(tally[0] - sum(tally[1:])) == 4 for tally in first_tallies(result))
    assert max(map(len, first_tallies(result))) == 2
    assert result.account.decided == 2 * 8  # no comparison was asked for
