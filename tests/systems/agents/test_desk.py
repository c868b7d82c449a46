"""The desk: tools of all kinds, as functions and as a real MCP server, judged by the database."""

from __future__ import annotations

import pytest

from microagents import run_sync
from microagents.systems.agents.act import Act
from microagents.tasks.desk import Desk
from tests.benchmarks.desk import rows

MODEL = "sim:perfect@error=0.03,alternatives=9"


@pytest.mark.slow
def test_votes_by_harm_close_tickets_right_where_single_calls_often_do_not_as_a_monte_carlo_says() -> None:
    """The short form of ``python -m tests.benchmarks.desk``."""
    (_, _, single, single_expected), (_, _, act, act_expected) = rows(tickets=45, trials=4, seed=0)
    assert single.agrees(single_expected)
    assert act.agrees(act_expected)
    assert not act.agrees(single_expected)
    assert single.pass_1[0] < 0.9
    assert single.pass_4[0] < 0.65
    assert act.pass_1[0] >= 0.99
    assert act.pass_4[0] >= 0.96
    assert act.calls[0] <= 2.2 * single.calls[0]


@pytest.mark.slow
def test_the_desk_closes_the_same_ticket_through_a_server_as_with_functions() -> None:
    """A real server over stdio, started by the executor."""
    values = [
        run_sync(Desk(ticket=3, server=server), models=MODEL, strategy=Act(), run_id=f"r{server}").value["correct"]
        for server in (False, True)
    ]
    assert values == [True, True]
