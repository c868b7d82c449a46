"""What users state of the tools of MCP servers and of functions: prefixes, headers, time-outs and margins."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import uvicorn
from mcp.server.mcpserver import Context, MCPServer

from microagents import InvalidUsage, McpServer, Prompt, Reply, run, run_sync
from microagents.base.errors import InvalidDefinition
from microagents.replies.tool_calls import ToolCall
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import Action
from microagents.systems.agents.agent import AgentTask
from microagents.tools.mcp_connections import McpConnections
from microagents.tools.tool import tool
from microagents.tools.toolbox import GivenTool, Toolbox

SECRET = "s3cret-of-the-shop"


class Doing(AgentTask):
    """Makes given calls, one after the other."""

    calls: tuple[tuple[str, dict[str, Any]], ...]

    def statement(self) -> str:
        return "Do what is to be done."

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        planned = [*self.calls, ("end", {"answer": "done"})]
        return Action(calls=[ToolCall(*planned[prompt.user.count("\nAction ")])])


def journal() -> bytes:
    return b"".join(each.read_bytes() for each in Path("runs").glob("r.*"))


def listed(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "description": "", "parameters": {"properties": {"to": {}}}} for name in names]


def test_the_error_on_two_tools_of_one_name_gives_advice_that_can_be_followed() -> None:
    one, two = McpServer(server="a"), McpServer(server="b")
    tools = {each.text: listed("send") for each in (one, two)}
    with pytest.raises(InvalidDefinition, match=r"two tools are called send; .*McpServer\(\.\.\., prefix='other_'\)"):
        Toolbox([one, two], tools, {})
    prefixed = McpServer(server="b", prefix="other_", timeouts={"send": 9}, margins={"send": 7})
    specs = Toolbox([one, prefixed], {**tools, prefixed.text: listed("send")}, {}).specs
    assert {name: (each.timeout_s, each.margin) for name, each in specs.items()} == {
        "send": (None, None),
        "other_send": (9, 7),
    }
    with pytest.raises(InvalidDefinition, match="mcp:a stands twice"):
        Toolbox([one, McpServer(server="a", tools=("send",))], tools, {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prefix": "no spaces"}, "a prefix has letters"),
        ({"headers": {"X-Key": "$KEY"}}, "is a command, which takes no headers"),
        ({"timeouts": {"send": 0}}, "the time-out of the tool send of mail must be a number of seconds above 0, not 0"),
        ({"timeouts": {"send": "5"}}, "not '5'"),
        ({"margins": {"send": 0}}, "the margin of the tool send of mail must be a number of votes from 1 on, not 0"),
        ({"margins": {"send": True}}, "not True"),
        ({"prose": {"send": "body"}}, r"prose=\{'send': \['body'\]\}"),
    ],
)
def test_a_statement_on_a_server_that_means_nothing_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidUsage, InvalidDefinition), match=message):
        McpServer(server="mail", **given)


@pytest.mark.parametrize("given", [{"timeout_s": -1}, {"timeout_s": float("inf")}, {"margin": 0}, {"margin": 1.5}])
def test_so_is_one_on_a_function(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinition, match="of the tool journal must be a number"):
        tool("destructive", **given)(journal)


@tool("destructive", timeout_s=0.05, margin=2)
async def hang() -> str:
    """Take too long."""
    await asyncio.sleep(30)
    return "late"


def test_a_tool_has_a_time_out_and_a_margin_of_its_own() -> None:
    class Hanging(Doing):
        tools: ClassVar[tuple[GivenTool, ...]] = (hang,)

    result = run_sync(Hanging(calls=(("hang", {}),)), models="sim:perfect", strategy=Act(), max_wait_effects_s=0.0)
    assert (result.outcome, result.calls) == ("undecided", 2)
    assert "no result within 0.05 s" in str(result.reason)


@pytest.fixture
def address() -> Iterator[str]:
    """A server over HTTP whose tool returns a header of the request."""
    server = MCPServer("shop")

    @server.tool(name="key", description="Return the key.")
    def key(context: Context[Any, Any]) -> str:
        return (context.headers or {}).get("x-key", "none")[::-1]

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="critical"))
        thread = threading.Thread(target=serving.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        serving.should_exit = True
        thread.join(60)


@pytest.mark.slow
async def test_a_misspelt_tool_or_argument_of_a_server_is_refused_when_it_is_read(address: str) -> None:
    misspelt: list[dict[str, Any]] = [
        {"timeouts": {"kee": 1}}, {"margins": {"kee": 1}}, {"prose": {"kee": ["to"]}}, {"prose": {"key": ["too"]}},
        {"effects": {"kee": "read_only"}}, {"tools": ("kee",)},
    ]  # fmt: skip
    connections = McpConnections()
    try:
        for each in misspelt:
            with pytest.raises(
                InvalidUsage, match=r"has no tool kee that can be taken; it has key|prose names too, which the tool key"
            ):
                await connections.list_tools(McpServer(server=address, **each))
    finally:
        await connections.close()


class Remote(Doing):
    """A task whose server is given."""

    server: str
    header: str = "Bearer $SHOP_KEY"

    def given_tools(self) -> tuple[GivenTool, ...]:
        return (McpServer(server=self.server, headers={"X-Key": self.header}, effects={"key": "read_only"}),)


async def test_a_remote_server_gets_headers_with_variables_that_stand_in_no_journal_and_no_log(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_KEY", SECRET)
    result = await run(Remote(server=address, calls=(("key", {}),)), models="sim:perfect", run_id="r")
    assert result.outcome == "completed"
    kept = journal()
    assert f"Bearer {SECRET}"[::-1].encode() in kept  # what the tool returned
    assert SECRET.encode() not in kept
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("$NO_SUCH", "set NO_SUCH in the environment of the executor; the header X-Key of mcp:https://shop.example needs it"),
        (f"{SECRET}$", "the header X-Key of mcp:https://shop.example has a \\$ that names no variable"),
        (f"{SECRET}\nX-Other: 1", "the header 'X-Key' of mcp:https://shop.example must be printable ASCII"),
    ],
)  # fmt: skip
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(header: str, message: str) -> None:
    server = McpServer(server="https://shop.example", headers={"X-Key": header})
    with pytest.raises(InvalidUsage, match=message) as refused:
        server.headers_from({})
    assert SECRET not in f"{refused.value} {server!r}"
