"""Connections to MCP servers. A server that died is started, or connected to, anew at the next call."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any, Literal

import msgspec

from microagents.aio import CLOSE_S, Notifier, TaskScope, retrieve_exception, wait_to_end
from microagents.errors import InvalidUsage
from microagents.packages import missing_package
from microagents.tools.mcp_servers import McpServer
from microagents.tools.tool import ToolSpec
from microagents.user_code import described

KEY_NAME = "io.github.microagents/effect-key"
RUN_NAME = "io.github.microagents/run-input"
"""The names under which the key of an effect, and the run and input that it is for, travel in the ``_meta`` of a call."""
CONNECT_S = 30.0
"""Time in which a server must be up."""
MAX_TOOLS = 1_000
MAX_DESCRIPTION_CHARS = 2_000


class _Connection:
    """One connection, owned by a task of its own: the client must be closed in the task that opened it."""

    def __init__(self, server: McpServer, scope: TaskScope) -> None:
        self._server = server
        self.client: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.client.add_done_callback(retrieve_exception)
        self._closing = asyncio.Event()
        self._acting = 0
        """Calls under way that act: closing the connection may end their server."""
        self._may_close = Notifier()
        self._is_left = False
        self.task = scope.start(self._own())

    def close(self) -> None:
        """Let its task close it once no call that acts is under way."""
        self._closing.set()

    def leave(self) -> None:
        """Let its task close it now."""
        self._is_left = True
        self._closing.set()
        self._may_close.notify()

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep it open for a call that acts."""
        self._acting += 1
        try:
            yield
        finally:
            self._acting -= 1
            self._may_close.notify()

    async def _own(self) -> None:
        try:
            async with _client_of(self._server) as client:
                if not self.client.done():
                    self.client.set_result(client)
                await self._closing.wait()
                while self._acting and not self._is_left:
                    await self._may_close.wait()
        except BaseException as raised:
            error: BaseException = raised
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if not self.client.done():
                self.client.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            if not isinstance(error, Exception):
                raise


class McpConnections:
    """One connection to each server, made at the first call."""

    def __init__(self) -> None:
        self._scope = TaskScope()
        self._open: dict[bytes, _Connection] = {}
        self._ending: list[_Connection] = []
        """Those that were dropped, whose clients still close."""

    async def close(self) -> None:
        """Close all connections, and wait until their servers have ended, at most `CLOSE_S`."""
        for each in (*self._open.values(), *self._ending):
            each.leave()
        ending = [each.task for each in (*self._open.values(), *self._ending) if not each.task.done()]
        try:
            await wait_to_end(ending, within_s=CLOSE_S)
        finally:
            await self._scope.close()

    async def call(
        self,
        server: McpServer,
        tool: str,
        arguments: Mapping[str, Any],
        meta: Mapping[str, str],
        timeout_s: float | None,
        *,
        acts: bool,
    ) -> tuple[Literal["done", "error", "unknown"], str]:
        """Make one call, destructive if it ``acts``; returns its outcome, and what the tool returned, or why it is unknown."""
        try:
            connection = await self._connected(server)
        except Exception as error:  # noqa: BLE001 - a server may fail in any way; nothing was sent to it
            return "error", f"the server cannot be reached, so the call was not made: {described(error)}"
        try:
            async with asyncio.timeout(timeout_s):
                with connection.kept_open() if acts else nullcontext():
                    result = await connection.client.result().call_tool(
                        tool, dict(arguments), read_timeout_seconds=timeout_s, meta=dict(meta)
                    )
        except Exception as error:  # noqa: BLE001 - as above; but it may have been made
            self._drop(connection)
            return "unknown", described(error)
        failed: Literal["error", "unknown"] = "unknown" if acts and server.errors == "unknown" else "error"
        return (failed if result.is_error else "done"), _text_of(result)

    async def list_tools(self, server: McpServer) -> list[ToolSpec]:
        """List the tools of a server that its user takes.

        Raises:
            InvalidUsage: it cannot be reached, or lacks a tool that is named.
        """
        try:
            client = (await self._connected(server)).client.result()
            async with asyncio.timeout(CONNECT_S):
                listed = (await client.list_tools()).tools[:MAX_TOOLS]
        except InvalidUsage:
            raise
        except Exception as error:
            raise InvalidUsage(f"the tools of {server.text} cannot be read: {described(error)}") from error
        specs = {each.name: _spec_of(server, each) for each in listed}
        lacking = [name for name in dict.fromkeys(server.named_tools) if name not in specs]
        if lacking:
            raise InvalidUsage(f"{server.text} has no tool {', '.join(lacking)}; it has {', '.join(specs) or 'none'}")
        for name, arguments in server.prose.items():
            if unknown := [each for each in arguments if each not in specs[name].parameters.get("properties", {})]:
                raise InvalidUsage(f"prose names {', '.join(unknown)}, which the tool {name} of {server.text} lacks")
        return [specs[name] for name in server.tools or specs]

    async def _connected(self, server: McpServer) -> _Connection:
        key = msgspec.json.encode(server)  # all of it: another input may reach the same server with other headers
        connection = self._open.get(key)
        if connection is None or connection.task.done():
            connection = self._open[key] = _Connection(server, self._scope)
        try:
            async with asyncio.timeout(CONNECT_S):
                await asyncio.shield(connection.client)
        except Exception:
            self._drop(connection)
            raise
        return connection

    def _drop(self, connection: _Connection) -> None:
        """Forget a connection: a client of a server that died does not connect again."""
        connection.close()
        self._ending = [*(each for each in self._ending if not each.task.done()), connection]
        self._open = {key: each for key, each in self._open.items() if each is not connection}


def _client_of(server: McpServer) -> Any:
    """Make the client of a server.

    Raises:
        InvalidUsage: the package is not installed, or a variable of the environment is missing.
    """
    try:
        from mcp import Client, StdioServerParameters, stdio_client  # noqa: PLC0415 - an optional package
    except ImportError:
        raise missing_package("an MCP server", "mcp") from None
    if server.is_remote:
        return Client(_over_http(server))
    missing = [name for name in server.env if name not in os.environ]
    if missing:
        raise InvalidUsage(f"set {', '.join(missing)} in the environment of the executor; {server.text} needs it")
    command, *arguments = server.command
    if shutil.which(command) is None:
        raise InvalidUsage(
            f"{server.text} cannot be started: there is no command {command!r}; install it, or name it with its path"
        )
    started = StdioServerParameters(
        command=command, args=arguments, env={name: os.environ[name] for name in server.env}
    )
    # Its own default is the sys.stderr of the moment of its import, which a notebook or a test may have replaced.
    return Client(stdio_client(started, errlog=sys.__stderr__ or sys.stderr))


@asynccontextmanager
async def _over_http(server: McpServer) -> AsyncGenerator[Any]:
    """Reach a server at an address, with its headers. Redirects are followed within its own origin only (by the client of ``mcp``)."""
    import httpx2  # noqa: PLC0415 - it comes with the package mcp
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - as above

    # Every call is bounded by the time-out of its tool, which may be longer than any bound of the client.
    timeout = httpx2.Timeout(CONNECT_S, read=None)
    async with (
        httpx2.AsyncClient(headers=server.headers_from(os.environ), timeout=timeout) as http,
        streamable_http_client(server.server, http_client=http) as streams,
    ):
        yield streams


def _spec_of(server: McpServer, listed: Any) -> ToolSpec:
    hints = listed.annotations
    effect = server.effects.get(listed.name)
    if effect is None and server.trusted and hints is not None:
        effect = "read_only" if hints.read_only_hint else "idempotent" if hints.idempotent_hint else None
    return ToolSpec(
        name=listed.name,
        description=(listed.description or "")[:MAX_DESCRIPTION_CHARS],
        parameters=listed.input_schema,
        effect=effect or "destructive",
        repeatable=listed.name in server.repeatable,
    )


def _text_of(result: Any) -> str:
    """Write what a tool returned: the value that it gave as such, or else its texts."""
    value = result.structured_content
    if value is None:
        return "\n".join(each.text if each.type == "text" else f"({each.type}, not shown)" for each in result.content)
    only = (
        value["result"] if isinstance(value, dict) and value.keys() == {"result"} else value
    )  # servers put a bare value under this name
    return only if isinstance(only, str) else msgspec.json.encode(only).decode()
