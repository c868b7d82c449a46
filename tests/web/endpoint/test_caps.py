"""Caps: never above, no request locked out while reservations may settle, and the server goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from microagents.base.errors import InvalidUsage
from microagents.web.endpoint.callers import CostLimit, read_callers
from microagents.web.endpoint.caps import Caps
from microagents.web.endpoint.ledger import Ledger
from microagents.web.endpoint.policy import Policy
from microagents.web.endpoint.server import Endpoint, serving
from microagents.web.endpoint.wires import Withheld
from tests.cli.commands import write
from tests.doubles.acting import acting
from tests.web.endpoint.test_forwarding import ASKED, READ, TOOLS, posted, saying, voted

DEAR = ",price_in=1000,price_out=1000"
"""A tenth of a cent a token."""
DAILY = CostLimit(1.0, each_day=True)
SAMPLE_USD = 0.11
"""Of a prompt of 100 tokens and a reply of 10."""
SHORT = {**ASKED, "max_tokens": 10, "max_completion_tokens": 10}


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
async def test_a_request_that_can_never_fit_gets_402_at_once_in_the_form_of_its_wire(path: str) -> None:
    async with voted(saying("x"), option=DEAR, limit=CostLimit(0.5)) as (double, served):
        status, reply, headers = await posted(served, path, {**SHORT, "input": "x"})
        assert (await posted(served, path, {**SHORT, "input": "x"}))[0] == 402  # the server goes on
    assert (status, headers["x-should-retry"]) == (402, "false")
    assert "and $0.5000 are left of the cap of $0.5;" in reply["error"]["message"]
    assert reply["error"]["type"] == "billing_error"
    assert double.requests == []


@pytest.mark.parametrize(("path", "part", "tokens"), [
    ("chat/completions", {"type": "image_url", "image_url": {"url": "https://models.example/a.png"}}, 25_000),
    ("responses", {"type": "input_file", "file_id": "f"}, 1_050_000),
    ("messages", {"type": "image", "source": {"type": "url", "url": "https://models.example/a.png"}}, 4_784),
])  # fmt: skip
async def test_a_picture_reserves_the_most_that_its_provider_counts(
    path: str, part: dict[str, Any], tokens: int
) -> None:
    content = [{"role": "user", "content": [part]}]
    asked = {"model": "m", "max_tokens": 1, "max_output_tokens": 1, "messages": content, "input": content}
    async with acting(saying("x")) as double:
        price = ",price_in=1,price_out=1"
        models = [f"openai:gpt-6-luna@base_url={double.url}/v1{price}"]
        models.append(f"anthropic:claude-haiku-5-5@base_url={double.url}{price}")
        for limit_usd, expected in ((tokens / 1e6, 402), (tokens / 1e6 + 0.1, 200)):
            async with serving(Endpoint(models=models, limit=CostLimit(limit_usd), ceiling=1)) as served:
                assert (await posted(served, path, asked))[0] == expected


async def test_reservations_wait_for_each_other_and_the_cap_is_never_passed() -> None:
    async with voted(saying("x"), option=DEAR, limit=CostLimit(4.0)) as (double, served):
        found = await asyncio.gather(
            *[posted(served, "chat/completions", {**SHORT, "user": str(n)}) for n in range(20)]
        )
        spent_usd = SAMPLE_USD * len(double.requests)
        statuses = [status for status, _, _ in found]
        assert set(statuses) == {200, 402}
        assert 4.0 - 0.8 < spent_usd <= 4.0  # what is left is less than a sample may cost
        assert double.most_in_flight <= 6
        assert served.caps.cost_usd == pytest.approx(spent_usd)


async def test_an_election_that_the_cap_ends_is_answered_by_its_leader() -> None:
    async with voted(saying([READ]), option=DEAR, limit=CostLimit(0.85)) as (double, served):
        status, reply, headers = await posted(served, "chat/completions", SHORT)
    assert status == 200
    assert len(double.requests) == 2
    assert (headers["x-microagents-elected"], headers["x-microagents-votes"]) == ("false", "2 of 2")
    assert reply["id"].endswith("-not-elected")


async def test_a_reply_without_a_usage_counts_at_its_most() -> None:
    body = json.dumps({"id": "c", "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}).encode()
    async with voted(saying(body), option=DEAR, limit=CostLimit(3.0), k=1) as (double, served):
        statuses = [(await posted(served, "chat/completions", SHORT))[0] for _ in range(6)]
    assert statuses == [200] * len(double.requests) + [402] * (6 - len(double.requests))
    assert 3 <= len(double.requests) <= 4


async def test_a_failure_that_is_not_billed_costs_nothing() -> None:
    async with voted(saying(400), option=DEAR, limit=CostLimit(1.0), k=1) as (double, served):
        statuses = [(await posted(served, "chat/completions", SHORT))[0] for _ in range(6)]
    assert statuses == [400] * 6
    assert len(double.requests) >= 6


async def test_the_ceiling_of_the_operator_bounds_what_is_asked_and_reserved() -> None:
    many = {**ASKED, "max_completion_tokens": 64_000}
    async with voted(saying("x"), option=DEAR, limit=CostLimit(5.0), ceiling=20) as (double, served):
        assert (await posted(served, "chat/completions", many))[0] == 200
        assert (await posted(served, "chat/completions", ASKED))[0] == 200
    assert {each.json["max_completion_tokens"] for each in double.requests} == {20}


async def test_a_model_without_a_price_takes_no_cap() -> None:
    with pytest.raises(InvalidUsage, match=r"the price of 'openai:gpt.*' is unknown, so no cap can be kept"):
        async with voted(saying("x"), limit=CostLimit(5.0)):
            pass


async def test_each_caller_has_its_own_cap_and_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_ANN", "ann-token")
    monkeypatch.setenv("TOKEN_OF_BOB", "bob-token")
    write("own.toml", "[tools.read]\neffect = 'read_only'\n")
    write(
        "tokens.toml",
        "[ann]\ntoken_env = 'TOKEN_OF_ANN'\nmax_cost = '0.7/day'\npolicy = 'own.toml'\n[bob]\ntoken_env = 'TOKEN_OF_BOB'\n",
    )
    callers = read_callers("tokens.toml", Policy())
    async with voted(saying([READ]), option=DEAR, callers=callers) as (double, served):

        async def asked(token: str) -> tuple[int, int]:
            before = len(double.requests)
            status, _, _ = await posted(served, "chat/completions", SHORT, {"authorization": f"Bearer {token}"})
            return status, len(double.requests) - before

        assert await asked("ann-token") == (200, 1)
        assert await asked("bob-token") == (200, 3)
        assert await asked("ann-token") == (402, 0)
        assert await asked("bob-token") == (200, 3)
        assert await asked("eve-token") == (401, 0)


async def test_the_cap_of_a_day_holds_over_restarts_and_a_kill_spends_what_was_reserved(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    async with (first := Caps({"": DAILY}, ledger)).reserved("", 0.3) as done:
        done.spent = 100_000_000
    async with first.reserved("", 0.4):
        ledger.close()  # it is killed amid the second
        second = Caps({"": DAILY}, again := Ledger(tmp_path))
        with pytest.raises(Withheld, match=r"\$0.5000 are left of the cap of \$1/day"):
            await second.reserved("", 0.51).__aenter__()
        async with second.reserved("", 0.5) as reserved:
            assert reserved.spent == 500_000_000
        again.close()
        first._ledger = Ledger(None)


async def test_the_cap_of_a_day_begins_anew_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    caps = Caps({"": DAILY, "ann": CostLimit(1.5)}, Ledger(None))
    async with caps.reserved("ann", 1.0):
        pass
    with pytest.raises(Withheld, match=r"\$0.0000 are left of the cap of \$1/day"):
        await caps.reserved("ann", 0.1).__aenter__()
    monkeypatch.setattr("microagents.web.endpoint.caps.today", lambda: "2100-01-01")
    async with caps.reserved("ann", 0.4):
        pass
    with pytest.raises(Withheld, match=r"left of the cap of \$1.5;"):
        await caps.reserved("ann", 0.2).__aenter__()


async def test_a_second_server_in_one_folder_is_refused_so_that_the_cap_of_a_day_holds(tmp_path: Path) -> None:
    options: dict[str, Any] = {"option": DEAR, "limit": CostLimit(1.0, each_day=True), "runs_dir": tmp_path}
    async with voted(saying("x"), **options):
        with pytest.raises(InvalidUsage, match=r"another server keeps them there.*, --runs-dir DIR$"):
            async with voted(saying("x"), **options, run_id="second"):
                pass
    async with voted(saying("x"), **options, run_id="third"):  # once the first has ended
        pass


async def test_a_client_that_leaves_while_it_waits_for_room_holds_nothing() -> None:
    caps = Caps({"": CostLimit(1.0)}, Ledger(None))
    async with caps.reserved("", 0.9) as held:
        waiting = asyncio.create_task(caps.reserved("", 0.9).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        held.spent = 0
    async with caps.reserved("", 1.0) as all_of_it:
        assert all_of_it.spent == 1_000_000_000


async def test_samples_get_room_in_their_order_and_one_that_has_none_left_is_refused() -> None:
    caps = Caps({"": CostLimit(1.0)}, Ledger(None))
    refused, order = 0, []

    async def ask(name: str, usd: float, spent: int) -> None:
        nonlocal refused
        try:
            async with caps.reserved("", usd) as reserved:
                order.append(name)
                await asyncio.sleep(0)
                reserved.spent = spent
        except Withheld:
            refused += 1

    await asyncio.gather(ask("a", 0.6, 500_000_000), ask("b", 0.5, 100_000_000), ask("c", 0.5, 0), ask("d", 0.4, 0))
    assert (order, refused) == (["a", "b", "d"], 1)


@pytest.mark.parametrize("text", ["", "0", "-1", "five", "5/week", "1e400", "nan"])
def test_a_limit_is_a_number_of_dollars_perhaps_by_day(text: str) -> None:
    with pytest.raises(InvalidUsage, match="such as 5 or 20/day"):
        CostLimit.parse(text)
    assert (CostLimit.parse("5"), CostLimit.parse("20/day")) == (CostLimit(5.0), CostLimit(20.0, each_day=True))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "name no caller"),
        ("[a]\n", "missing required field `token_env`"),
        ("[a]\ntoken_env = 'NONE'", "has no token"),
    ],
)
def test_wrong_tokens_are_refused_in_one_sentence(text: str, said: str) -> None:
    write("tokens.toml", text)
    with pytest.raises(InvalidUsage, match=said):
        read_callers("tokens.toml", Policy())


async def test_a_sample_that_one_cap_has_no_room_for_costs_nothing_of_another() -> None:
    caps = Caps({"": CostLimit(0.5), "ann": CostLimit(1.0)}, Ledger(None))
    with pytest.raises(Withheld, match=r"left of the cap of \$0.5;"):
        await caps.reserved("ann", 0.9).__aenter__()
    async with caps.reserved("ann", 0.5) as reserved:
        assert reserved.spent == 500_000_000


UNBOUNDED: list[tuple[str, str, dict[str, Any]]] = [
    ("web_search_options", "chat/completions", {"web_search_options": {}}),
    ("plugins", "chat/completions", {"plugins": [{"id": "web"}]}),
    ("service_tier", "chat/completions", {"service_tier": "priority"}),
    ("a tool without a type", "chat/completions", {"tools": [{"google_search": {}}]}),
    ("prompt", "responses", {"prompt": {"id": "pmpt_1"}}),
    ("file_search", "responses", {"tools": [{"type": "function", "name": "f"}, {"type": "file_search"}]}),
    ("mcp", "responses", {"tools": [{"type": "mcp", "server_url": "https://models.example"}]}),
    ("shell", "responses", {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}),
    ("mcp_servers", "messages", {"mcp_servers": [{"type": "url"}]}),
    ("web_fetch_20250910", "messages", {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}),
    ("speed", "messages", {"speed": "fast"}),
    ("container", "messages", {"container": {"skills": [{"type": "anthropic", "skill_id": "pptx"}]}}),
    ("tool_addition", "messages", {"messages": [{"role": "system", "content": [{"type": "tool_addition"}]}]}),
]


@pytest.mark.parametrize(("name", "path", "field"), UNBOUNDED)
async def test_a_request_whose_cost_no_body_bounds_is_refused_under_a_cap_by_name(
    name: str, path: str, field: dict[str, Any]
) -> None:
    body = {**SHORT, "input": "x", "max_output_tokens": 10, **field}
    async with voted(saying("x"), option=DEAR, limit=CostLimit(5.0)) as (double, served):
        status, reply, _ = await posted(served, path, body)
        assert (status, double.requests) == (400, [])
        assert f"{name} is not served under a cap" in reply["error"]["message"]
        assert reply["error"]["type"] == "invalid_request_error"
    async with voted(saying("x"), option=DEAR) as (double, served):
        assert (await posted(served, path, body))[0] == 200


async def test_what_coding_agents_send_is_served_whole_under_a_cap() -> None:
    codex = [
        {"type": "web_search"},
        {"type": "namespace", "name": "n"},
        {"type": "shell", "environment": {"type": "local"}},
    ]
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    cleared = {"edits": [{"type": "compact_20260112"}]}
    fields: dict[str, dict[str, Any]] = {
        "chat/completions": {"tools": TOOLS, "service_tier": "auto", "web_search_options": None},
        "responses": {"tools": codex, "input": "x", "max_output_tokens": 10},
        "messages": {"tools": [{"name": "f", "input_schema": {}}, search], "context_management": cleared},
    }
    async with voted(saying("x"), option=DEAR, limit=CostLimit(50.0)) as (double, served):
        for path, more in fields.items():
            assert (await posted(served, path, {**SHORT, **more}))[0] == 200
            assert json.loads(double.requests[-1].body).items() >= more.items()
