"""Servers that people install, as they come from the registries: ``.ci/mcp-servers`` installs them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from microagents import McpServer
from microagents.tools.json_schemas import SchemaCheck
from microagents.tools.mcp_connections import McpConnections
from tests.cli.commands import write

pytestmark = pytest.mark.slow

NODE = Path(__file__).parents[2] / "build/mcp/node_modules/.bin"
PNG = bytes.fromhex("89504e470d0a1a0a") + bytes(8)
Call = tuple[str, dict[str, Any], str, str]
"""A tool, its arguments, the outcome, and a part of the text."""


async def tried(server: McpServer, *calls: Call) -> None:
    """List the tools of a server, and make calls whose arguments its schemas take."""
    connections = McpConnections()
    try:
        schemas = {each.name: each.parameters for each in await connections.list_tools(server)}
        for tool, arguments, expected, part in calls:
            assert SchemaCheck(schemas[tool]).fits(arguments)
            assert not SchemaCheck(schemas[tool]).fits([arguments])
            found = await connections.call(server, tool, arguments, {}, 60, acts=False)
            assert (found.outcome, part) == (expected, part if part in found.text else found.text)
    finally:
        await connections.close()


def of_python(module: str, *arguments: str) -> str:
    if find_spec(module) is None:
        pytest.skip(f"{module.replace('_', '-')} is not installed: .ci/mcp-servers")
    return " ".join((sys.executable, "-m", module, *arguments))


def of_node(name: str, *arguments: str) -> str:
    if not (NODE / name).exists():
        pytest.skip(f"{name} is not installed: .ci/mcp-servers")
    return " ".join((str(NODE / name), *arguments))


async def test_files(tmp_path: Path) -> None:
    write("a.txt", "Tuesday, ä")
    await asyncio.to_thread(Path("p.png").write_bytes, PNG)
    here = str(Path.cwd())
    await tried(
        McpServer(server=of_node("mcp-server-filesystem", here)),
        ("read_text_file", {"path": f"{here}/a.txt"}, "done", "Tuesday, ä"),
        ("read_media_file", {"path": f"{here}/p.png"}, "done", "(PNG, 16 bytes)"),
        ("write_file", {"path": f"{here}/b.txt", "content": "x"}, "done", "Successfully wrote"),
        ("read_text_file", {"path": f"{tmp_path.parent}/no"}, "error", "denied"),
    )


async def test_everything() -> None:
    await tried(
        McpServer(server=of_node("mcp-server-everything")),
        ("echo", {"message": "hi"}, "done", "Echo: hi"),
        ("get-tiny-image", {}, "done", "(PNG, "),
        ("get-resource-reference", {"resourceId": 1}, "done", "This is a plaintext resource"),
        ("get-resource-links", {"count": 1}, "done", "demo://resource/dynamic/"),
        ("get-structured-content", {"location": "New York"}, "done", '{"temperature":33,'),
        ("trigger-long-running-operation", {"duration": 1, "steps": 2}, "done", "completed"),
    )


async def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_FILE_PATH", str(Path.cwd() / "memory.jsonl"))
    entity = {"name": "a", "entityType": "t", "observations": ["o"]}
    await tried(
        McpServer(server=of_node("mcp-server-memory"), env=("MEMORY_FILE_PATH",)),
        ("create_entities", {"entities": [entity]}, "done", '"name":"a"'),
        ("search_nodes", {"query": "a"}, "done", '"observations":["o"]'),
    )


async def test_notion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an account, so each call fails."""
    monkeypatch.setenv("NOTION_TOKEN", "ntn_none")
    parent = {"page_id": "0f4b3b1e-1234-4234-8234-123456789012"}
    page = {"parent": parent, "properties": {"title": [{"text": {"content": "x"}}]}}
    await tried(
        McpServer(server=of_node("notion-mcp-server"), env=("NOTION_TOKEN",)), ("API-post-page", page, "error", "")
    )


async def test_git() -> None:
    server = McpServer(server=of_python("mcp_server_git"))
    write("a.txt", "a")
    here = str(Path.cwd())
    for words in ("init -q", "add .", "-c user.name=n -c user.email=n@example.com commit -qm first"):
        process = await asyncio.create_subprocess_exec("git", *words.split())
        assert await process.wait() == 0
    await tried(
        server,
        ("git_log", {"repo_path": here}, "done", "Message: first"),
        ("git_branch", {"repo_path": here, "branch_type": "local"}, "done", "* "),
        ("git_show", {"repo_path": here, "revision": "none"}, "error", "none"),
    )


async def test_time() -> None:
    await tried(
        McpServer(server=of_python("mcp_server_time")),
        ("get_current_time", {"timezone": "UTC"}, "done", '"timezone":"UTC"'),
        ("get_current_time", {"timezone": "Nowhere"}, "error", "Nowhere"),
    )


async def test_fetch() -> None:
    server = McpServer(server=of_python("mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"))
    async with _page("<html><body><p>The meeting is on Tuesday.</p></body></html>") as address:
        await tried(
            server,
            ("fetch", {"url": address}, "done", "The meeting is on Tuesday."),
            ("fetch", {"url": f"{address}none"}, "error", "404"),
        )


@asynccontextmanager
async def _page(text: str) -> AsyncIterator[str]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()
