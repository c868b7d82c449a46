"""Actions that differ only in free text are one vote by meaning; those that differ in anything else never are."""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar, Literal

import pytest

from microagents import Prompt, Reply, Result, run_sync
from microagents.agents.actions import END, Action
from microagents.agents.agent import AgentTask
from microagents.replies.tool_calls import ToolCall
from microagents.strategies.act import Act
from microagents.tools.tool import tool

TEXT = "Your money is on its way."
SAME, OPPOSITE = "sim:perfect", "sim:perfect@error=1,alternatives=1"
"""Matchers: one that is right, one that takes different replies for the same."""


@tool("destructive")
def refund(order: int, text: str, currency: str) -> str:
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


def test_wordings_of_one_text_count_as_one_vote_and_exactly_as_two() -> None:
    by_meaning, exactly = (acted(votes, text=TEXT.replace(" ", "  ")) for votes in ("semantic", "exact"))
    assert by_meaning.outcome == exactly.outcome == "completed"
    assert {sum(tally) for tally in first_tallies(by_meaning)} == {4}
    assert by_meaning.account.decided > exactly.account.decided  # wordings were compared
    assert all(abs(tally[0] - sum(tally[1:])) == 4 for tally in first_tallies(exactly))
    assert sum(map(sum, first_tallies(exactly))) > 2 * 8 * 4


@pytest.mark.parametrize("other", [{"order": 8}, {"currency": "USD"}, {"order": 8, "text": "On its way, it is."}])
def test_a_matcher_that_errs_joins_no_two_actions_that_differ_in_a_number_or_a_name(other: dict[str, Any]) -> None:
    result = acted("semantic", OPPOSITE, **other)
    assert all(abs(tally[0] - sum(tally[1:])) == 4 for tally in first_tallies(result))
    assert max(map(len, first_tallies(result))) == 2
    assert result.account.decided == 2 * 8  # no comparison was asked for
