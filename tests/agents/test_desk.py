"""The desk: tools of all kinds, as functions and as a real MCP server, judged by the database."""

from __future__ import annotations

from typing import Any

import pytest

from microagents import Result, run_sync
from microagents.strategies.act import Act
from microagents.tasks.desk import Desk

SINGLE = Act(k_read=1, k_write=1, k_destructive=1, k_end=1, max_tool_errors=100)
MODEL = "sim:perfect@error=0.03,alternatives=9"


def desk(strategy: Act, tickets: int, **given: Any) -> Result:
    return run_sync([Desk(ticket=number) for number in range(1, tickets + 1)], models=MODEL, strategy=strategy, **given)


def right(result: Result) -> float:
    return sum(bool(value and value["correct"]) for value in result.value) / len(result.value)


def test_votes_by_harm_close_tickets_right_where_single_calls_often_do_not() -> None:
    single, voted = desk(SINGLE, 60, run_id="single"), desk(Act(), 60, run_id="voted")
    assert right(voted) >= 0.98
    assert right(single) < 0.95
    assert voted.account.calls < 2.3 * single.account.calls


@pytest.mark.parametrize("strategy", [Act(), Act(read_ahead=False)])
def test_the_desk_closes_the_same_ticket_through_a_server_as_with_functions(strategy: Act) -> None:
    """A real server over stdio, started by the executor."""
    values = [
        run_sync(Desk(ticket=3, server=server), models=MODEL, strategy=strategy, run_id=f"r{server}").value["correct"]
        for server in (False, True)
    ]
    assert values == [True, True]
