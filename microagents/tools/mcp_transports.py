"""Connections to MCP servers below the SDK's client: what a server sends is bounded, and only answers to our requests reach the client.

The SDK reads lines of any length, parses values of any number, starts a task for each notification, and checks results against schemas of
the server. Here no byte of a server takes more than a bounded time on the event loop. This module needs the package ``mcp``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, Self

import httpx2
import mcp_types
import msgspec
from mcp import Client
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from msgspec import UNSET, Raw, Struct, UnsetType

from microagents.base.aio import TaskScope, finish
from microagents.base.errors import InvalidUsage
from microagents.base.foreign_text import bounded, visible
from microagents.base.logs import log
from microagents.tools.json_schemas import MAX_SCHEMA_CHARS
from microagents.tools.mcp_servers import McpServer
from microagents.tools.tool import MAX_DESCRIPTION_CHARS

logging.getLogger("mcp").addHandler(logging.NullHandler())  # else Python prints its warnings, with texts of servers

MAX_MESSAGE_BYTES = 8 * 2**20
"""Length of a message of a stdio server, and of all events that answer one HTTP request."""
MAX_HTTP_BYTES = 2**20
"""Length of a message over HTTP, which the SDK parses as a whole."""
MAX_TOOLS = 1_000
MAX_CONTENTS = 1_000
MAX_PART_BYTES = 20_000
"""Length of any other part of an answer. A longer one is left out."""
UNASKED_S = 0.005
"""Wait after each message that answers no request, so that a flood of them is read slowly and stops at its own pipe."""
ENDINGS: tuple[tuple[signal.Signals | None, float], ...] = ((None, 2.0), (signal.SIGTERM, 1.0), (signal.SIGKILL, 2.0))
"""Signals to a server that is to end, the first only at the end of its input, each with the seconds until the next."""
MAX_LOGGED = 1_000
"""Lines of a server's stderr that are logged."""
MAX_LINE_CHARS = 500
_STDERR_BYTES = 2**16
_HTTP_TIMEOUT = httpx2.Timeout(30.0, read=None)  # each call is bounded by the time-out of its tool
_decode = msgspec.json.decode


class _Message(Struct):
    """A message of a server, whose parts are not parsed yet."""

    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Error(Struct):
    """An answer that is an error."""

    code: int
    message: str = ""
    data: Raw = Raw(b"null")


class _Content(Struct):
    """A part of the content of a result."""

    type: str
    text: str = ""


class _Tool(Struct, rename="camel"):
    """A tool, without the parts that are not used."""

    name: str
    input_schema: Raw
    description: str | None = None
    annotations: dict[str, Any] | None = None


class Transport:
    """The streams of one server, for the SDK's client."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._stack = AsyncExitStack()
        self._pending: set[str] = set()
        """Ids of requests without an answer."""
        self._rubbish = 0
        self._end = ""
        """Why its messages are read no more; empty before, and if it ended by itself."""
        self._said: deque[str] = deque(maxlen=3)
        """Last lines of its stderr."""
        self.refused: dict[str, str] = {}
        """Tools that cannot be read, each with the reason."""

    @property
    def remarks(self) -> str:
        """What else is known of a failure, to follow its text."""
        rubbish = f"it wrote {self._rubbish:,} lines that are no messages" if self._rubbish else ""
        said = f"its stderr ends with {' / '.join(self._said)!r}" if self._said else ""
        return "".join(f"; {each}" for each in (self._end, rubbish, said) if each)

    def client(self) -> Client:
        """Return the SDK's client of the server, which opens and closes these streams."""
        return Client(self, cache=None)

    async def __aenter__(self) -> tuple[Any, Any]:
        opening = self._over_http() if self._server.is_remote else self._over_stdio()
        return await self._stack.enter_async_context(opening)

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def _over_stdio(self) -> AsyncIterator[tuple[Any, Any]]:
        missing = [name for name in self._server.env if name not in os.environ]
        if missing:
            raise InvalidUsage(
                f"set {', '.join(missing)} in the environment of the executor; {self._server.text} needs it"
            )
        env = get_default_environment() | {name: os.environ[name] for name in self._server.env}
        async with _process(self._server.command, env) as process, TaskScope() as scope:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            scope.start(self._log(process.stderr))
            requests = _Requests(partial(_write_line, process.stdin), self._pending)
            yield _Answers(self._answers(self._lines(process.stdout), requests)), requests

    @asynccontextmanager
    async def _over_http(self) -> AsyncIterator[tuple[Any, Any]]:
        client = httpx2.AsyncClient(
            timeout=_HTTP_TIMEOUT,
            headers={**self._server.headers_from(os.environ), "accept-encoding": "identity"},
            event_hooks={"request": [_refuse_to_listen], "response": [_bound]},
        )
        connecting = streamable_http_client(self._server.server, http_client=client, max_sse_event_size=MAX_HTTP_BYTES)
        async with client, connecting as (received, sent):
            requests = _Requests(sent.send, self._pending)
            yield _Answers(self._answers(_events(received), requests)), requests

    async def _lines(self, stream: asyncio.StreamReader) -> AsyncIterator[_Message]:
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # the reader's limit
                self._end = f"it sent a line of more than {MAX_MESSAGE_BYTES:,} bytes"
                return
            if not line:
                return
            try:
                message = _decode(line, type=_Message)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                self._rubbish += 1
                await asyncio.sleep(UNASKED_S)
            else:
                yield message

    async def _answers(self, messages: AsyncIterator[_Message], requests: _Requests) -> AsyncIterator[SessionMessage]:
        """Give the answers to requests of ours, refuse the server's requests, and drop the rest."""
        async for message in messages:
            if message.method is UNSET and str(message.id) in self._pending:
                self._pending.discard(str(message.id))
                yield SessionMessage(self._answer(message))
                await asyncio.sleep(0)  # more may be there already
                continue
            if message.method is not UNSET and isinstance(message.id, int | str):
                await requests.refuse(message.id, message.method)
            await asyncio.sleep(UNASKED_S)

    def _answer(self, message: _Message) -> mcp_types.JSONRPCResponse | mcp_types.JSONRPCError:
        assert isinstance(message.id, int | str)
        try:
            if message.result is not UNSET:
                return mcp_types.JSONRPCResponse(jsonrpc="2.0", id=message.id, result=self._result(message.result))
            error = _decode(message.error or b"null", type=_Error)
            data = _decode(error.data) if len(bytes(error.data)) <= MAX_PART_BYTES else None
            given = mcp_types.ErrorData(code=error.code, message=bounded(error.message, MAX_LINE_CHARS), data=data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            given = mcp_types.ErrorData(code=mcp_types.PARSE_ERROR, message="its answer cannot be read")
        return mcp_types.JSONRPCError(jsonrpc="2.0", id=message.id, error=given)

    def _result(self, data: Raw) -> dict[str, Any]:
        """Read a result: what a call returned as one text, and of tools what is used."""
        parts = _decode(data, type=dict[str, Raw])
        contents, structured = parts.pop("content", None), parts.pop("structuredContent", None)
        tools = parts.pop("tools", None)
        read: dict[str, Any] = {
            name: _decode(each) for name, each in parts.items() if len(bytes(each)) <= MAX_PART_BYTES
        }
        if contents is not None or structured is not None:
            read["content"] = [{"type": "text", "text": _text_of(contents, structured)}]
        if tools is not None:
            listed = _decode(tools, type=list[Raw])[:MAX_TOOLS]
            read["tools"] = [each for each in map(self._tool, listed) if each is not None]
        return read

    def _tool(self, data: Raw) -> dict[str, Any] | None:
        """Read a tool; None for one that is refused. Its schema of results is left out: the SDK would check results against it."""
        try:
            tool = _decode(data, type=_Tool)
            length = len(bytes(tool.input_schema))
            if length > MAX_SCHEMA_CHARS:
                self.refused[tool.name] = (
                    f"its schema has {length:,} characters; at most {MAX_SCHEMA_CHARS:,} are taken"
                )
                return None
            schema = _decode(tool.input_schema, type=dict[str, Any])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.refused["(without a readable name)"] = str(error)
            return None
        described = None if tool.description is None else tool.description[:MAX_DESCRIPTION_CHARS]
        read = {"name": tool.name, "description": described, "inputSchema": schema, "annotations": tool.annotations}
        return {name: each for name, each in read.items() if each is not None}

    async def _log(self, stream: asyncio.StreamReader) -> None:
        """Log the first lines of its stderr, and read the others, so that it does not wait for us."""
        logged = 0
        while chunk := await stream.read(_STDERR_BYTES):
            for line in chunk.decode("utf-8", "replace").splitlines()[:MAX_LOGGED]:
                shown = visible(line[:MAX_LINE_CHARS])[:MAX_LINE_CHARS]
                self._said.append(shown)
                logged += 1
                if logged <= MAX_LOGGED:
                    log().info("an MCP server writes to its stderr", server=self._server.text, line=shown)
            await asyncio.sleep(UNASKED_S)


class _Stream:
    """What the client does with streams besides reading and writing them."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Do nothing: the transport closes what it has opened."""


class _Answers(_Stream):
    """The answers of a server."""

    def __init__(self, answers: AsyncIterator[SessionMessage]) -> None:
        self._answers = answers

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        return await anext(self._answers)


class _Requests(_Stream):
    """The messages to a server; notes which requests wait for an answer."""

    def __init__(self, send: Any, pending: set[str]) -> None:
        self._send = send
        self._pending = pending

    async def send(self, item: SessionMessage) -> None:
        """Send a message."""
        if isinstance(item.message, mcp_types.JSONRPCRequest):
            self._pending.add(str(item.message.id))
        await self._send(item)

    async def refuse(self, request: int | str, method: str) -> None:
        """Answer a request of the server, which may only ask whether we are there."""
        if method == "ping":
            answer: Any = mcp_types.JSONRPCResponse(jsonrpc="2.0", id=request, result={})
        else:
            error = mcp_types.ErrorData(code=mcp_types.METHOD_NOT_FOUND, message="not offered")
            answer = mcp_types.JSONRPCError(jsonrpc="2.0", id=request, error=error)
        await self._send(SessionMessage(answer))


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response, which ends with an error beyond its bound."""

    def __init__(self, body: Any, most: int) -> None:
        self._body = body
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for each in self._body:
            self._left -= len(each)
            if self._left < 0:
                raise httpx2.StreamError("the answer is too long, or compressed")
            yield each

    async def aclose(self) -> None:
        """Close the body."""
        await self._body.aclose()


async def _bound(response: httpx2.Response) -> None:
    """Bound the body of a response. A compressed one, which was not asked for, may have any length."""
    is_plain = response.headers.get("content-encoding", "identity") == "identity"
    has_events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    most = MAX_MESSAGE_BYTES if has_events else MAX_HTTP_BYTES
    response.stream = _Bounded(response.stream, most if is_plain else 0)


async def _refuse_to_listen(request: httpx2.Request) -> None:
    """Open no stream for messages that nobody asked for; one that continues after a break is opened."""
    if request.method == "GET" and "last-event-id" not in request.headers:
        raise httpx2.TransportError("not opened")


async def _events(received: AsyncIterator[Any]) -> AsyncIterator[_Message]:
    async for item in received:
        if isinstance(item, SessionMessage):
            data = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            yield _decode(data, type=_Message)


async def _write_line(stream: asyncio.StreamWriter, item: SessionMessage) -> None:
    stream.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
    await stream.drain()


@asynccontextmanager
async def _process(command: list[str], env: dict[str, str]) -> AsyncIterator[Process]:
    """Run a command in a process group of its own, which ends with the body."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        partial(SubprocessStreamProtocol, limit=MAX_MESSAGE_BYTES, loop=loop),
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=env,
        start_new_session=True,
    )
    process = Process(transport, protocol, loop)

    async def end() -> None:
        assert process.stdin is not None
        process.stdin.close()
        try:
            for sign, wait_s in ENDINGS:
                if sign is not None:
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(process.pid, sign)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await process.wait()
                        return
        finally:
            transport.close()

    try:
        yield process
    finally:
        await finish(end)


def _text_of(contents: Raw | None, structured: Raw | None) -> str:
    """Write what a tool returned: the value that it gave as such, or else its texts."""
    if structured is None or bytes(structured) == b"null":
        given = [] if contents is None else _decode(contents, type=list[_Content])[:MAX_CONTENTS]
        return "\n".join(each.text if each.type == "text" else f"({each.type:.60}, not shown)" for each in given)
    value = bytes(structured)
    with suppress(msgspec.ValidationError):  # servers put a bare value under this name
        parts = _decode(value, type=dict[str, Raw])
        value = bytes(parts["result"]) if parts.keys() == {"result"} else value
    text = msgspec.json.format(value, indent=-1).decode()
    return _decode(text, type=str) if text.startswith('"') else text
