"""MCP servers that misbehave in every way: the loop goes on, each wait ends, and nothing of theirs reaches the terminal."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from microagents import InvalidUsage
from microagents.tools import mcp_connections, mcp_transports
from microagents.tools.mcp_connections import McpConnections
from microagents.tools.mcp_servers import McpServer
from microagents.tools.observations import Called
from microagents.tools.tool import ToolSpec
from tests.cli.commands import INTERRUPTED, STOPPED, WAIT_S, microagents, write
from tests.forking import Forked
from tests.tools.hostile_server import ACT, WAYS

SCRIPT = Path(__file__).with_name("hostile_server.py")
MAX_STALL_S = 20.0
"""The machine of a test is busy. What is tested here held the loop for minutes."""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("PROCESS_TERMINATION_TIMEOUT", "FORCE_KILL_TIMEOUT"):
        monkeypatch.setattr(f"mcp.client.stdio.{each}", 0.1)


def server(when: str = "never", what: str = "nothing", **given: Any) -> McpServer:
    return McpServer(server=f"{sys.executable} -S {SCRIPT} {when} '{what}'", **given)


async def used(use: Callable[[McpConnections], Awaitable[Any]]) -> Any:
    """Use connections, close them, and check that the loop went on all the time."""
    stalls = [0.0]

    async def tick() -> None:
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(0.01)
            stalls.append(time.monotonic() - before_s)

    ticking, connections = asyncio.ensure_future(tick()), McpConnections()
    try:
        return await use(connections)
    finally:
        await connections.close()
        ticking.cancel()
        assert max(stalls) < MAX_STALL_S


async def called(of: McpServer, timeout_s: float = 0.5) -> tuple[str, str]:
    found: Called = await used(lambda connections: connections.call(of, "act", {}, {}, timeout_s, acts=False))
    return found.outcome, found.text


async def listed(of: McpServer) -> list[ToolSpec]:
    tools: list[ToolSpec] = await used(lambda connections: connections.list_tools(of))
    return tools


@pytest.mark.slow
@pytest.mark.parametrize("what", WAYS)
async def test_a_server_that_misbehaves_at_start_is_refused_in_time(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_connections, "CONNECT_S", 0.5)
    with pytest.raises(InvalidUsage, match="cannot be read: ") as raised:
        await listed(server("start", what))
    assert (str(raised.value).isprintable(), len(str(raised.value)) < 3_000) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize("what", WAYS)
async def test_a_server_that_misbehaves_in_a_call_leaves_an_unknown_outcome(what: str) -> None:
    outcome, why = await called(server("call", what))
    assert (outcome, bool(why)) == ("unknown", True)


@pytest.mark.slow
@pytest.mark.parametrize(("what", "begins"), [("many values", '{"a":[[],[]')])
async def test_a_result_of_any_size_is_read(what: str, begins: str) -> None:
    outcome, text = await called(server("call", what), timeout_s=30)
    assert (outcome, text[: len(begins)]) == ("done", begins)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["deep", "endless line"])
async def test_an_answer_that_cannot_be_read_is_named_as_such(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_transports, "MAX_MESSAGE_CHARS", 100_000)
    outcome, why = await called(server("call", what))
    assert (outcome, "lines that are no messages of at most 100,000 characters" in why) == ("unknown", True)


async def test_a_result_is_not_checked_against_a_schema_of_the_server() -> None:
    schema = {"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}, "b": {"$ref": "http://127.0.0.1:1/"}}}
    write("tools.json", json.dumps([{**ACT, "outputSchema": schema}]))
    assert await called(server("call", "own schema"), timeout_s=30) == ("done", '{"a":"' + "a" * 40 + '!"}')


def tool(name: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "description": "x\u202e\U000e0041" * 1_000, "inputSchema": {"type": "object", **schema}}


@pytest.mark.slow
async def test_tools_that_cannot_be_taken_are_left_out_with_a_sentence_each() -> None:
    hostile = [
        tool("act"),
        tool("\u0430ct"),  # a Cyrillic letter that looks like the Latin one
        tool("a" * 65),
        tool("act\x1b[2J"),
        tool("act"),
        tool("outside", **{"$ref": "http://169.254.169.254/"}),
        tool("long", description="x" * 300_000),
        {"name": "without_object", "inputSchema": {"type": "string"}},
        {"name": "never", "inputSchema": False},
        {"description": "no name"},
        "no tool",
    ]
    write("tools.json", json.dumps(hostile))
    with capture_logs() as logs:
        (taken,) = await listed(server())
    assert (taken.name, taken.description.isascii(), len(taken.description)) == ("act", True, 2_000)
    told = {each["tool"]: each["why"] for each in logs if "left out" in each["event"]}
    assert list(told) == [
        *("\u0430ct", "a" * 65, "act\\u001b[2J", "act", "outside", "long"),
        *("without_object", "never", "(without a readable name)"),
    ]
    assert "its schema has 300," in told["long"]
    assert "McpServer(..., rename={'\u0430ct': ...})" in told["\u0430ct"]
    with pytest.raises(InvalidUsage, match="no tool outside that can be taken: its schema refers to 'http://169"):
        await listed(server(tools=("outside",)))


async def test_tools_that_would_fill_every_prompt_are_refused() -> None:
    write(
        "tools.json", json.dumps([{**ACT, "name": f"act{number}", "description": "x" * 2_000} for number in range(150)])
    )
    with pytest.raises(InvalidUsage, match=r"the 150 tools of .* have \d+,\d+ characters, .* name the tools that are"):
        await listed(server())
    assert len(await listed(server(tools=("act1", "act2")))) == 2


@pytest.mark.slow
async def test_what_a_server_writes_to_its_stderr_is_logged_and_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with capture_logs() as logs:
        await called(server("call", "stderr"))
    lines = [each["line"] for each in logs if "stderr" in each["event"]]
    assert (lines[0][:20], all(line.isprintable() for line in lines)) == ("\\u001b]0;owned\\u0007", True)
    assert (max(map(len, lines)) <= 500, len(lines) <= 1_000, capfd.readouterr()) == (True, True, ("", ""))


@pytest.mark.slow
async def test_no_process_of_a_server_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_connections, "CONNECT_S", 0.5)
    write("started.sh", "sleep 600 & echo $! $$ > pids.txt; trap '' TERM; wait")
    with pytest.raises(InvalidUsage):
        await listed(McpServer(server="sh started.sh"))
    assert _running("pids.txt") == []


def _running(pids: str) -> list[str]:
    return [pid for pid in Path(pids).read_text().split() if Path(f"/proc/{pid}").exists()]


# -- over HTTP ---------------------------------------------------------------------------------------------------------


def _message(request: dict[str, Any], **parts: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], **parts}).encode()


async def _stream(
    request: web.Request, of: bytes, kind: str, pause_s: float = 0.0, encoding: str = "identity"
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": kind, "content-encoding": encoding})
    await response.prepare(request)
    try:
        while True:
            await response.write(of)
            await asyncio.sleep(pause_s)
    except ConnectionError:
        return response


EVENT = b'event: message\ndata: {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}\n\n'
HTTP_WAYS: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
    "silence": lambda _: asyncio.sleep(30, web.Response()),
    "drip": lambda request: _stream(request, b" ", "application/json", 0.02),
    "endless body": lambda request: _stream(request, b" " * 65_536, "application/json"),
    "endless event": lambda request: _stream(request, b"data: " + b"x" * 65_536, "text/event-stream"),
    "events": lambda request: _stream(request, EVENT * 20, "text/event-stream"),
    "bomb": lambda request: _stream(request, zlib.compress(b" " * 10_000_000), "application/json", encoding="deflate"),
    "rubbish": lambda _: asyncio.sleep(0, web.Response(text="rubbish", content_type="application/json")),
    "redirect": lambda _: asyncio.sleep(0, web.HTTPFound("http://169.254.169.254/")),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", HTTP_WAYS)
async def test_a_remote_server_that_misbehaves_in_a_call_leaves_an_unknown_outcome(what: str) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        asked = await request.json()
        match asked["method"]:
            case "tools/call":
                return await HTTP_WAYS[what](request)
            case "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "serverInfo": {"name": "h", "version": "1"},
                }
                return web.Response(body=_message(asked, result=result), content_type="application/json")
            case "server/discover":
                body = _message(asked, error={"code": -32601, "message": "no"})
                return web.Response(body=body, content_type="application/json")
        return web.Response(status=202)

    app = web.Application()
    app.router.add_route("*", "/mcp", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        outcome, why = await called(McpServer(server=f"http://127.0.0.1:{port}/mcp"))
    finally:
        await runner.cleanup()
    assert (outcome, bool(why)) == ("unknown", True)


# -- as a user ---------------------------------------------------------------------------------------------------------

SERVED = f"""
    import sys
    from microagents import Action, AgentTask, ToolCall
    from microagents.tools.mcp_servers import McpServer

    class Served(AgentTask):
        when: str = "never"
        what: str = "nothing"

        def given_tools(self):
            command = f"{{sys.executable}} -S {SCRIPT} {{self.when}} '{{self.what}}'"
            return (McpServer(server=command, effects={{"act": "read_only"}}),)

        def statement(self):
            return "Act."

        def expert(self, prompt, reply):
            return Action(calls=[ToolCall("act", {{}})])
    """


def _run(when: str, what: str) -> Forked:
    words = ["run", write("served.py", SERVED), "-o", f"when={when}", "-o", f"what={what}", "--run-id", "r"]
    return Forked(*words, "--model", "sim:perfect")


def _until(condition: Callable[[], object]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["silence"])
def test_a_run_whose_server_misbehaves_is_running_and_can_be_stopped(what: str) -> None:
    with _run("call", what) as process:
        try:
            _until(Path("reached.txt").exists)
            assert microagents("show", "r", "--json").json["outcome"] == "running"
            assert microagents("ctl", "r", "stop", "--now").code == 0
            assert process.wait(WAIT_S) == STOPPED
        finally:
            process.kill()


@pytest.mark.slow
def test_ctrl_c_ends_the_wait_for_a_server_that_does_not_answer() -> None:
    started = "open('reached.txt', 'w').close(); import time; time.sleep(600)"
    write("silent.py", started)
    write("served.py", SERVED.replace(f"{SCRIPT} {{self.when}}", "silent.py {self.when}"))
    with Forked("run", "served.py", "--model", "sim:perfect") as process:
        try:
            _until(Path("reached.txt").exists)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert (process.returncode, "nothing was started" in err, Path("runs").exists()) == (INTERRUPTED, True, False)


@pytest.mark.slow
def test_two_ctrl_c_leave_a_run_whose_loop_is_held_and_running_until_then() -> None:
    held = """
        from pathlib import Path
        from microagents.tasks.drift import Drift

        class Held(Drift):
            def advance(self, state, reply):
                Path("reached.txt").touch()
                while True:
                    pass
        """
    words = ["run", write("held.py", held), "--run-id", "r"]
    with Forked(*words) as process:
        try:
            _until(Path("reached.txt").exists)
            assert microagents("show", "r", "--json").json["outcome"] == "running"
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)  # two signals at once may be one
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == INTERRUPTED
        finally:
            process.kill()
