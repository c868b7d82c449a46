"""Connections to MCP servers. A server that died is started, or connected to, anew at the next call."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from microagents.base.aio import Notifier, TaskScope, retrieve_exception, wait_to_end
from microagents.base.errors import InvalidUsage, NotMade
from microagents.base.foreign_text import bounded, visible
from microagents.base.logs import log
from microagents.base.packages import missing_package
from microagents.base.user_code import described
from microagents.replies.turns import Arguments
from microagents.tools.json_schemas import BadSchema, SchemaCheck
from microagents.tools.mcp_servers import McpServer
from microagents.tools.observations import Called
from microagents.tools.threads import in_thread
from microagents.tools.tool import MAX_DESCRIPTION_CHARS, ToolSpec

if TYPE_CHECKING:
    from microagents.tools.mcp_transports import Transport

KEY_NAME = "io.github.microagents/effect-key"
RUN_NAME = "io.github.microagents/run-input"
"""The names under which the key of an effect, and the run and input that it is for, travel in the ``_meta`` of a call."""
CONNECT_S = 30.0
"""Time in which a server must be up and list its tools."""
END_S = 8.0
"""Time in which a server may end in order."""
MAX_TOOLS_CHARS = 200_000
"""Length of the tools of a server, with which every prompt begins."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of tools that all providers take. Letters of other scripts can look like these."""


class _ServerConnection:
    """One connection, owned by a task of its own: the client must be closed in the task that opened it."""

    def __init__(self, server: McpServer, scope: TaskScope) -> None:
        self._server = server
        self.opened: asyncio.Future[Transport] = asyncio.get_running_loop().create_future()
        self.opened.add_done_callback(retrieve_exception)
        self._transport: Transport | None = None
        self._closing = asyncio.Event()
        self._acting = 0
        """Calls under way that act: closing the connection may end their server."""
        self._may_close = Notifier()
        self._is_left = False
        self.task = scope.start(self._own())

    def close(self) -> None:
        """Let its task close it once no call that acts is under way, also while the server does not answer."""
        self._closing.set()
        if not self.opened.done():
            self.task.cancel()

    def leave(self) -> None:
        """Let its task close it now."""
        self._is_left = True
        self.close()
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

    @property
    def is_over(self) -> bool:
        """Whether no call on it can be answered."""
        has_ended = self.opened.done() and self._transport is not None and self._transport.has_ended
        return has_ended or self.task.done()

    def why(self, error: Exception, timeout_s: float | None) -> str:
        """Say why nothing was heard of the server."""
        said = described(error)
        if timeout_s is not None and isinstance(error, TimeoutError):
            said = f"no answer within {timeout_s:g} s"
        if self._transport is None:
            return said
        return f"{said}{self._transport.remarks}"

    async def _own(self) -> None:
        try:
            # In a thread: the import of the package takes a second.
            self._transport = transport = await in_thread(partial(_transport_to, self._server))
            async with transport.connected():
                if not self.opened.done():
                    self.opened.set_result(transport)
                await self._closing.wait()
                while self._acting and not self._is_left:
                    await self._may_close.wait()
        except BaseException as raised:
            error: BaseException = raised
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if not self.opened.done():
                self.opened.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            if not isinstance(error, Exception):
                raise


class McpConnections:
    """One connection to each server, made at the first call."""

    def __init__(self) -> None:
        self._scope = TaskScope()
        self._open: dict[bytes, _ServerConnection] = {}
        self._ending: list[_ServerConnection] = []
        """Dropped connections, whose clients still close."""

    async def close(self) -> None:
        """Close all connections, and wait until their servers have ended, at most `END_S`."""
        for each in (*self._open.values(), *self._ending):
            each.leave()
        ending = [each.task for each in (*self._open.values(), *self._ending) if not each.task.done()]
        try:
            await wait_to_end(ending, within_s=END_S)
        finally:
            await self._scope.close()

    async def call(
        self,
        server: McpServer,
        tool: str,
        arguments: Arguments,
        meta: Mapping[str, str],
        timeout_s: float | None,
        *,
        acts: bool,
    ) -> Called:
        """Make one call, destructive if it ``acts``."""
        for is_last in (False, True):
            try:
                connection = await self._connected(server)
            except Exception as error:  # noqa: BLE001 - a server may fail in any way; nothing was sent to it
                said = f"the server cannot be reached, so the call was not made: {error}"
                return Called(outcome="error", text=said)
            try:
                async with asyncio.timeout(timeout_s):
                    with connection.kept_open() if acts else nullcontext():
                        has_failed, text, files = await connection.opened.result().call(tool, arguments, meta)
            except NotMade as error:
                if is_last or not connection.is_over:
                    said = f"the server did not take the call, so it was not made: {error}"
                    return Called(outcome="error", text=said)
                log().warning("an MCP server ended its session; a new one begins", server=server.text, why=str(error))
                continue
            except Exception as error:  # noqa: BLE001 - as above; but it may have been made
                self._drop(connection)
                return Called(outcome="unknown", text=connection.why(error, timeout_s))
            outcome: Literal["done", "error", "unknown"] = "done"
            if has_failed:
                outcome = "unknown" if acts and server.errors == "unknown" else "error"
            return Called(outcome=outcome, text=text, files=files)
        raise AssertionError

    async def list_tools(self, server: McpServer) -> list[ToolSpec]:
        """List the tools of a server that its user takes.

        Raises:
            InvalidUsage: it cannot be reached, or lacks a tool that is named.
        """
        try:
            connection = await self._connected(server)
        except InvalidUsage:
            raise
        except Exception as error:
            raise InvalidUsage(f"the tools of {server.text} cannot be read: {error}") from error
        try:
            async with asyncio.timeout(CONNECT_S):
                listed = await connection.opened.result().list_tools()
        except Exception as error:
            raise InvalidUsage(
                f"the tools of {server.text} cannot be read: {connection.why(error, CONNECT_S)}"
            ) from error
        # In a thread: the patterns in their schemas are compiled.
        specs, refused = await in_thread(partial(_usable, server, listed))
        for name, why in refused.items():
            log().warning("a tool of an MCP server is left out", server=server.text, tool=name, why=why)
        for name in dict.fromkeys(server.named_tools):
            if name not in specs:
                why = f": {refused[name]}" if name in refused else f"; it has {', '.join(specs) or 'none'}"
                raise InvalidUsage(f"{server.text} has no tool {name} that can be taken{why}")
        for name, arguments in server.prose.items():
            known = specs[name].parameters.get("properties", {})
            unknown = [each for each in arguments if each not in known]
            if unknown:
                raise InvalidUsage(f"prose names {', '.join(unknown)}, which the tool {name} of {server.text} lacks")
        taken = [specs[name] for name in server.tools or specs]
        length = len(msgspec.json.encode(taken))
        if length > MAX_TOOLS_CHARS:
            raise InvalidUsage(
                f"the {len(taken)} tools of {server.text} have {length:,} characters, with which every prompt would begin; at most "
                f"{MAX_TOOLS_CHARS:,} are taken; name the tools that are needed, as in {server.text}#{taken[0].name}"
            )
        return taken

    async def _connected(self, server: McpServer) -> _ServerConnection:
        key = msgspec.json.encode(server)  # all of it: another input may reach the same server with other headers
        connection = self._open.get(key)
        if connection is not None and connection.is_over:
            self._drop(connection)
            connection = None
        if connection is None:
            connection = self._open[key] = _ServerConnection(server, self._scope)
        try:
            async with asyncio.timeout(CONNECT_S):
                await asyncio.shield(connection.opened)
        except Exception as error:
            why = connection.why(error, CONNECT_S)
            self._drop(connection)
            if isinstance(error, InvalidUsage):
                raise
            raise ConnectionError(why) from error
        return connection

    def _drop(self, connection: _ServerConnection) -> None:
        """Forget a connection: a client of a server that died does not connect again."""
        connection.close()
        self._ending = [*(each for each in self._ending if not each.task.done()), connection]
        self._open = {key: each for key, each in self._open.items() if each is not connection}


def _transport_to(server: McpServer) -> Transport:
    """Make the transport to a server; `InvalidUsage` if the package, or the command of the server, is not installed."""
    try:
        from microagents.tools.mcp_transports import Transport  # noqa: PLC0415 - it needs an optional package
    except ImportError:
        raise missing_package("an MCP server", "mcp") from None
    if not server.is_remote and shutil.which(server.command[0]) is None:
        raise InvalidUsage(
            f"{server.text} cannot be started: no such command: {server.command[0]!r}; install it, or name it with its path"
        )
    return Transport(server)


def _usable(server: McpServer, listed: Sequence[Any]) -> tuple[dict[str, ToolSpec], dict[str, str]]:
    """Return the tools of a server that can be taken, and why the others are left out, each by its name."""
    specs: dict[str, ToolSpec] = {}
    refused: dict[str, str] = {}
    for tool in listed:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str):
            refused["(without a readable name)"] = f"it is {tool!r:.100}"
            continue
        shown = bounded(name, 80)
        if name in specs:
            refused[shown] = "another tool of the server has its name"
        elif NAME.fullmatch(server.shown(name)) is None:
            refused[shown] = (
                "models take names of 1 to 64 letters (a to z, A to Z), digits, '_' or '-'; give it one: "
                f"McpServer(..., rename={{{shown!r}: ...}})"
            )
        else:
            try:
                specs[name] = _spec_of(server, tool)
            except BadSchema as error:
                refused[shown] = visible(str(error))
    return specs, refused


def _spec_of(server: McpServer, tool: Mapping[str, Any]) -> ToolSpec:
    """Read a tool of a server; `BadSchema` if no object fits its schema, or it cannot be checked."""
    name, description, schema = tool["name"], tool.get("description"), tool.get("inputSchema")
    if schema is None or schema is True:
        schema = {}
    types = schema.get("type", "object") if isinstance(schema, dict) else []
    if "object" not in (types if isinstance(types, list) else [types]):
        raise BadSchema(f"its schema is not one of an object: {schema!r:.100}")
    parameters = {"properties": {}, **schema, "type": "object"}
    SchemaCheck(parameters)
    effect = server.effects.get(name)
    hints = tool.get("annotations")
    if effect is None and server.trusted and isinstance(hints, dict):
        if hints.get("readOnlyHint") is True:
            effect = "read_only"
        elif hints.get("idempotentHint") is True:
            effect = "idempotent"
    return ToolSpec(
        name=name,
        description=visible(description if isinstance(description, str) else "")[:MAX_DESCRIPTION_CHARS],
        parameters=parameters,
        effect=effect or "destructive",
        repeatable=name in server.repeatable,
    )
