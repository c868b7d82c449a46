"""MCP servers in other dialects: pages, names, schemas, contents and failures of other forms are read."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from microagents import InvalidUsage, McpServer
from microagents.tools import mcp_transports
from microagents.tools.mcp_connections import McpConnections
from microagents.tools.observations import MAX_RESULT_FILES, Called, taken_files, text_of_result
from microagents.tools.toolbox import Toolbox
from tests.benchmarks import dialects
from tests.cli.commands import write
from tests.tools.hostile_server import ACT
from tests.tools.test_hostile_servers import called, listed, server


@pytest.fixture(autouse=True)
def short_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_transports, "END_SESSION_S", 0.1)


TEXT = {"type": "text", "text": "read"}
DONE = Called(outcome="done", text="read")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [TEXT, {"type": "resource", "resource": {"uri": "doc://1", "text": "Tuesday"}}]}, "read\nTuesday"),
        (
            {"content": [{"type": "resource_link", "uri": "file:///a.md", "name": "a", "mimeType": "text/markdown"}]},
            "(resource_link, a, file:///a.md, text/markdown)",
        ),
        ({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}, "(image, image/png, 3 bytes)"),
        (
            {"content": [{"type": "hologram"}, {"text": "no type"}, {"type": "text", "text": None}]},
            "(hologram)\nno type\n(text)",
        ),
        ({"content": []}, ""),
        ({"content": None, "structuredContent": {"a": "ä"}}, '{"a":"ä"}'),
        ({"content": "as such"}, "as such"),
        ({"content": [], "structuredContent": {"result": []}}, "[]"),
        (
            {"content": [{"type": "text", "text": "1.000000000000000001"}], "structuredContent": {"result": 1.0}},
            "1.000000000000000001",
        ),
        (
            {
                "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "2"}],
                "structuredContent": {"result": ["x", 2]},
            },
            '["x",2]',
        ),
        ({"content": [TEXT, TEXT], "structuredContent": {"content": "read\nread"}}, "read\nread"),
        ({"content": [], "structuredContent": {"ids": [1]}}, '{"ids":[1]}'),
        ({"toolResult": {"a": 1}}, '{"a":1}'),
    ],
)
def test_nothing_that_a_tool_says_is_lost(result: dict[str, Any], text: str) -> None:
    assert text_of_result(result, result.get("content")) == text


def test_a_picture_that_stands_in_the_structured_value_too_is_shown_as_words() -> None:
    picture = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    result = {"content": [picture], "structuredContent": {"content": [picture]}}
    assert text_of_result(result, [{"type": "text", "text": "(PNG, 3 bytes)"}]) == "(PNG, 3 bytes)"


def test_nothing_is_lost_of_300_results_of_any_blocks() -> None:
    """Through a server and an agent: ``python -m tests.benchmarks.dialects --part mcp``."""
    for seed in range(300):
        made = dialects.shown_result(seed)
        text = text_of_result(made.result, made.result.get("content"))
        assert [each for each in made.texts if each not in text] == []


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ({"content": [{"type": "hologram", "annotations": 5}]}, ("done", "(hologram)")),
        ({"structuredContent": {"ä": 1}}, ("done", '{"ä":1}')),
        ({"content": [TEXT], "structuredContent": {"code": 7}, "isError": True}, ("error", 'read\n{"code":7}')),
        ({"error": {"code": -32000, "message": "busy"}}, ("error", "busy")),
    ],
)
async def test_a_result_in_another_form_is_one(result: dict[str, Any], outcome: tuple[str, str]) -> None:
    write("result.json", json.dumps(result))
    assert await called(server(), timeout_s=30) == outcome


@pytest.mark.slow
async def test_pages_without_an_end_are_bounded_and_told() -> None:
    with capture_logs() as logs:
        tools = await listed(server("never", "endless pages"))
    assert [each.name for each in tools] == [f"act_{at}" for at in range(100)]
    assert [each["event"] for each in logs] == ["the list of tools is too long: the rest is left out"]


@pytest.mark.slow
async def test_a_tool_with_a_bad_name_is_left_out_alone_and_can_be_renamed() -> None:
    write("tools.json", json.dumps([ACT, {**ACT, "name": "files.read"}, {**ACT, "name": "a b/ä"}]))
    with capture_logs() as logs:
        assert [each.name for each in await listed(server())] == ["act"]
    assert [(each["tool"], "rename={" in each["why"]) for each in logs] == [("files.read", True), ("a b/ä", True)]
    renamed = server(rename={"files.read": "read_file"}, prefix="my_", effects={"files.read": "read_only"})
    specs = await listed(renamed)
    assert [(each.name, each.effect) for each in specs] == [("act", "destructive"), ("files.read", "read_only")]
    toolbox = Toolbox(
        [renamed], {renamed.text: [{"name": each.name, "description": "", "parameters": {}} for each in specs]}, {}
    )
    assert list(toolbox.specs) == ["my_act", "my_read_file"]
    assert toolbox.server_of["my_read_file"] == (renamed, "files.read")
    with pytest.raises(InvalidUsage, match=r"has no tool files\.write that can be taken"):
        await listed(server(rename={"files.write": "write_file"}))


async def test_a_server_that_dies_at_its_start_is_told_with_its_words_but_not_with_its_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_KEY", "s3cret")
    with (
        capture_logs() as logs,
        pytest.raises(InvalidUsage, match=r"no such file: config.toml; key \$SHOP_KEY") as raised,
    ):
        await listed(server("start", "words and death", env=("SHOP_KEY",)))
    assert "s3cret" not in f"{raised.value} {logs}"


async def test_a_command_that_cannot_be_run_is_refused_in_one_sentence() -> None:
    write("server", "x")
    await asyncio.to_thread(Path("server").chmod, 0o755)
    with pytest.raises(InvalidUsage, match=r"the tools of mcp:\./server cannot be read: OSError: .*Exec format error"):
        await listed(McpServer(server="./server"))


async def test_a_server_may_log_to_its_stdout() -> None:
    assert await called(server("start", "logs"), timeout_s=30) == ("done", "done")


async def test_a_call_to_a_server_that_died_meanwhile_is_made_once_on_a_new_one() -> None:
    connections, given = McpConnections(), server()
    write("result.json", json.dumps({"content": [TEXT]}))
    try:
        for number in range(3):
            assert await connections.call(given, "act", {}, {}, 30, acts=True) == DONE
            assert await asyncio.to_thread(Path("called.txt").read_text) == "act\n" * (number + 1)
            (connection,) = connections._open.values()
            transport = connection._transport
            assert transport is not None
            for pid in _children():
                os.kill(pid, signal.SIGKILL)
            while not transport.has_ended:  # noqa: ASYNC110 - a flag, whose holder needs no event
                await asyncio.sleep(0.01)
    finally:
        await connections.close()


def _children() -> list[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    pids = [int(pid) for each in tasks for pid in each.read_text().split()]
    return [pid for pid in pids if b"hostile_server" in Path(f"/proc/{pid}/cmdline").read_bytes()]


# -- over HTTP ---------------------------------------------------------------------------------------------------------

INFO = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "h", "version": "1"}}
Handle = Callable[[web.Request, dict[str, Any], int], Awaitable[web.StreamResponse]]


class Remote:
    """A server over HTTP with sessions, whose calls are answered by a function of the request, what it asks, and the call's number."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.sessions = 0
        self.calls = 0
        self.address = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "DELETE":
            await asyncio.sleep(30)
        if request.method != "POST":
            return web.Response(status=405)
        asked = await request.json()
        match asked["method"]:
            case "tools/call":
                self.calls += 1
                return await self._handle(request, asked, self.calls)
            case "initialize":
                self.sessions += 1
                return web.json_response(
                    {"jsonrpc": "2.0", "id": asked["id"], "result": INFO},
                    headers={"mcp-session-id": f"session-{self.sessions}"},
                )
            case "server/discover":
                return web.json_response(
                    {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": ""}}
                )
        return web.Response(status=202)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[McpServer]:
        app = web.Application()
        app.router.add_route("*", "/mcp", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield McpServer(server=f"http://127.0.0.1:{runner.addresses[0][1]}/mcp")
        finally:
            await runner.cleanup()


def done(asked: dict[str, Any], text: str = "read") -> web.Response:
    return web.json_response(
        {"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [{"type": "text", "text": text}]}}
    )


NO_SESSION = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "body"),
    [(404, {}), (400, NO_SESSION)],
)
async def test_a_session_that_ended_is_begun_anew_and_the_call_is_made_once(status: int, body: dict[str, Any]) -> None:
    async def handle(request: web.Request, asked: dict[str, Any], number: int) -> web.StreamResponse:
        if request.headers["mcp-session-id"] == "session-1" and number > 1:
            return web.json_response(body, status=status)
        return done(asked, f"call {number}")

    remote, connections = Remote(handle), McpConnections()
    async with remote.serve() as given:
        try:
            with capture_logs() as logs:
                outcomes = [await connections.call(given, "act", {}, {}, 30, acts=True) for _ in range(3)]
        finally:
            await connections.close()
    assert [each.text for each in outcomes] == ["call 1", "call 3", "call 4"]
    assert [each["event"] for each in logs] == ["an MCP server ended its session; a new one begins"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "body", "outcome", "words"),
    [
        (404, {}, "error", "did not take the call, so it was not made: HTTP 404"),
        (
            400,
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "Unknown tool"}},
            "error",
            "Unknown tool",
        ),
        (
            200,
            {"jsonrpc": "2.0", "id": 0, "error": {"code": -32000, "message": "bank is closed"}},
            "unknown",
            "bank is closed",
        ),
        (500, {"why": "bank burns"}, "unknown", 'HTTP 500: {"why": "bank burns"}'),
        (200, {"no": "message"}, "unknown", "Failed to parse JSON response"),
    ],
)
async def test_a_call_that_the_server_did_not_take_is_not_made_and_any_other_failed_one_is_unknown(
    status: int, body: dict[str, Any], outcome: str, words: str
) -> None:
    async def handle(_: web.Request, asked: dict[str, Any], __: int) -> web.StreamResponse:
        return web.json_response({**body, "id": asked["id"]} if body.get("id") == 0 else body, status=status)

    remote, connections = Remote(handle), McpConnections()
    async with remote.serve() as given:
        try:
            found = await connections.call(given, "act", {}, {}, 30, acts=True)
        finally:
            await connections.close()
    assert (found.outcome, words in found.text, remote.calls) == (outcome, True, 2 if status == 404 else 1)


async def test_a_server_that_does_not_end_its_session_holds_nobody() -> None:
    async def handle(_: web.Request, asked: dict[str, Any], __: int) -> web.StreamResponse:
        return done(asked)

    connections = McpConnections()
    async with Remote(handle).serve() as given:
        await connections.call(given, "act", {}, {}, 30, acts=True)
        (connection,) = connections._open.values()
        await connections.close()
    assert (connection.task.done(), connection.task.cancelled()) == (True, False)


async def test_a_server_that_is_gone_has_not_taken_the_call() -> None:
    async def handle(_: web.Request, asked: dict[str, Any], __: int) -> web.StreamResponse:
        return done(asked)

    connections = McpConnections()
    try:
        async with Remote(handle).serve() as given:
            assert await connections.call(given, "act", {}, {}, 30, acts=True) == DONE
        found = await connections.call(given, "act", {}, {}, 30, acts=True)
    finally:
        await connections.close()
    assert (found.outcome, "so it was not made: ConnectError" in found.text) == ("error", True)


async def test_a_call_that_fails_ends_no_other_that_acts() -> None:
    """The package's transport ends with the first request whose connection breaks."""
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def handle(request: web.Request, asked: dict[str, Any], number: int) -> web.StreamResponse:
        if number == 1:
            has_begun.set()
            await may_end.wait()
            return done(asked)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    connections = McpConnections()
    async with Remote(handle).serve() as given:
        try:
            first = asyncio.ensure_future(connections.call(given, "act", {}, {}, 30, acts=True))
            await has_begun.wait()
            found = await connections.call(given, "act", {}, {}, 30, acts=True)
            may_end.set()
            assert (found.outcome, "Error: " in found.text, await first) == ("unknown", True, DONE)
        finally:
            await connections.close()


def test_a_result_has_so_many_files_at_most_and_data_that_are_no_picture_stay_as_they_are() -> None:
    gif = {"type": "image", "data": "data:image/gif;base64,R0lG\nODlh", "mimeType": "image/png"}
    sound = {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}
    parts, files = taken_files([gif] * (MAX_RESULT_FILES + 1) + [sound, "text", {"type": "image"}])
    assert len(files) == MAX_RESULT_FILES
    assert [part["text"] for part in parts[-5:-3]] == [
        "(GIF, 6 bytes)",
        f"(image/png, left out: a result has at most {MAX_RESULT_FILES})",
    ]
    assert parts[-3:] == [sound, "text", {"type": "image"}]
