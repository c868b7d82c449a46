"""Connections to MCP servers by the package ``mcp``: its transports carry messages, of which its client gets the answers, in a simple form.

A message is bounded in length. Messages that answer no request are dropped one by one, and a result becomes one text, which the client
checks against no schema of the server. This module needs the package ``mcp``.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from encodings import utf_8
from http import HTTPStatus
from typing import Any

import anyio
import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.message import SessionMessage

from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidUsage, NotMade
from microagents.base.foreign_text import bounded, visible
from microagents.base.logs import log
from microagents.replies.media import Media
from microagents.replies.turns import Arguments
from microagents.tools.mcp_servers import McpServer
from microagents.tools.observations import file_of, taken_files, text_of_result

for _name in ("mcp", "client"):  # of the package's loggers; else Python prints their warnings, with texts of servers
    logging.getLogger(_name).addHandler(logging.NullHandler())

MAX_MESSAGE_CHARS = 8 * 2**20
"""Length of a message of a local server, and of all events that answer one HTTP request."""
MAX_HTTP_BYTES = 2**20
"""Length of a message over HTTP."""
MAX_TOOLS = 1_000
MAX_PAGES = 100
"""Pages of the list of tools."""
UNASKED_S = 0.001
"""Wait after each message that answers no request, so that a flood of them is read slowly and stops at its own pipe."""
MAX_LOGGED = 1_000
"""Lines of a server's stderr that are logged."""
MAX_LINE_CHARS = 500
END_SESSION_S = 2.0
FAILED, FILES = "io.github.microagents/failed", "io.github.microagents/files"
"""Where the simple form of a result says whether the call failed, and has its pictures and files."""
NOT_TAKEN, SESSION_ENDED = -1_404_001, -1_404_002
"""Codes of errors that stand for answers over HTTP: the server did not take the request."""
_UNTAKEN = (NOT_TAKEN, SESSION_ENDED, mcp_types.METHOD_NOT_FOUND, mcp_types.INVALID_PARAMS, mcp_types.HEADER_MISMATCH)
_UNHEARD = (mcp_types.CONNECTION_CLOSED, mcp_types.INVALID_REQUEST, mcp_types.PARSE_ERROR)
"""Codes with which the package says that it heard no answer, or could not read it; a server may mean something else by them."""
_UNSENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
_REFUSALS = (401, 403, 404, 405, 429)
_HTTP_TIMEOUT = httpx2.Timeout(30.0, read=None)  # each call is bounded by the time-out of its tool
_STDERR_BYTES = 2**16
_ENCODING = "microagents_bounded_utf_8"


class Transport:
    """The connection to one server."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._client: Any = None
        self._rubbish = 0
        self._said: deque[str] = deque(maxlen=3)
        """Last lines of its stderr."""
        self._listed: list[Any] = []
        """Tools as the server lists them."""
        self.has_ended = False
        """Whether no answer can come any more, so that another connection is needed."""

    @property
    def remarks(self) -> str:
        """Remarks on a failure, to follow its text."""
        remarks = []
        if self._rubbish:
            remarks.append(
                f"it wrote {self._rubbish:,} lines that are no messages of at most {MAX_MESSAGE_CHARS:,} characters"
            )
        if self._said:
            remarks.append(f"its stderr ends with {' / '.join(self._said)!r}")
        return "".join(f"; {each}" for each in remarks)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Connect to the server, and disconnect at the end of the block, in the same task."""
        async with Client(self._streams(), cache=None) as self._client:
            yield

    async def list_tools(self) -> list[Any]:
        """Return the tools on all pages, as the server lists them."""
        self._listed.clear()
        cursor = None
        for _ in range(MAX_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            cursor = page.next_cursor
            if not cursor or len(self._listed) > MAX_TOOLS:
                break
        if cursor or len(self._listed) > MAX_TOOLS:
            log().warning(
                "the list of tools is too long: the rest is left out", server=self._server.text, most=MAX_TOOLS
            )
        return self._listed[:MAX_TOOLS]

    async def call(
        self, tool: str, arguments: Arguments, meta: Mapping[str, str]
    ) -> tuple[bool, str, tuple[Media, ...]]:
        """Call a tool; returns whether it failed, its result, and the pictures and files in it.

        Raises:
            NotMade: the server did not take the call.
            ConnectionError: no answer came, or none that can be read.
        """
        try:
            result = await self._client.call_tool(tool, dict(arguments), meta=dict(meta))
        except MCPError as error:
            why = bounded(error.message, MAX_LINE_CHARS)
            self.has_ended |= error.code == SESSION_ENDED
            if error.code in _UNTAKEN:
                raise NotMade(why) from error
            if error.code in _UNHEARD and (self.has_ended or self._server.is_remote):
                raise ConnectionError(why) from error
            return True, why, ()
        assert isinstance(result.content[0], mcp_types.TextContent)
        facts = result.meta or {}
        return facts[FAILED], result.content[0].text, tuple(map(file_of, facts[FILES]))

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[tuple[Any, Any]]:
        opening = self._over_http() if self._server.is_remote else self._over_stdio()
        given, answers = anyio.create_memory_object_stream[SessionMessage](0)
        async with given, answers, opening as (received, sent), TaskScope() as scope:
            scope.start(self._simplify(received, given))
            yield answers, sent

    @asynccontextmanager
    async def _over_stdio(self) -> AsyncIterator[tuple[Any, Any]]:
        missing = [name for name in self._server.env if name not in os.environ]
        if missing:
            raise InvalidUsage(
                f"set {', '.join(missing)} in the environment of the executor; {self._server.text} needs it"
            )
        command, *arguments = self._server.command
        env = {name: os.environ[name] for name in self._server.env}
        parameters = StdioServerParameters(
            command=command, args=arguments, env=env, encoding=_ENCODING, encoding_error_handler="replace"
        )
        async with AsyncExitStack() as stack:
            scope = await stack.enter_async_context(TaskScope())
            reading, writing = os.pipe()
            with os.fdopen(writing, "w") as errlog:
                scope.start(self._log(await _reader(reading, stack), env))
                streams = await stack.enter_async_context(stdio_client(parameters, errlog))
            yield streams

    @asynccontextmanager
    async def _over_http(self) -> AsyncIterator[tuple[Any, Any]]:
        headers = {**self._server.headers_from(os.environ), "accept-encoding": "identity"}
        async with _HttpClient(timeout=_HTTP_TIMEOUT, headers=headers) as client:
            connecting = streamable_http_client(
                self._server.server, http_client=client, max_sse_event_size=MAX_HTTP_BYTES
            )
            async with connecting as streams:
                yield streams

    async def _simplify(self, received: Any, given: Any) -> None:
        """Give the answers in a simple form, and the server's requests, which the client refuses; drop the rest."""
        async with given:
            try:
                async for each in received:
                    message = each.message if isinstance(each, SessionMessage) else None
                    if message is None:
                        self._rubbish += 1
                    elif isinstance(message, mcp_types.JSONRPCResponse):
                        message.result = self._simple(message.result)
                    if message is not None and not isinstance(message, mcp_types.JSONRPCNotification):
                        await given.send(each)
                    if not isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
                        await asyncio.sleep(UNASKED_S)
            finally:
                self.has_ended = True

    def _simple(self, result: dict[str, Any]) -> dict[str, Any]:
        """Reduce a result to the parts that are used, so that no part in another form makes the client refuse all of it."""
        if isinstance(result.get("tools"), list):
            self._listed += result["tools"]
            return {**result, "tools": []}
        if (
            result.keys() & {"protocolVersion", "supportedVersions"}
            or result.get("resultType", "complete") != "complete"
        ):
            return result
        contents, files = result.get("content"), list[str]()
        if isinstance(contents, list):
            contents, files = taken_files(contents)
        # All are errors for the client, which would else list the tools, and check the result against the server's schema.
        return {
            "resultType": "complete",
            "isError": True,
            "content": [{"type": "text", "text": text_of_result(result, contents)}],
            "_meta": {FAILED: result.get("isError") is True, FILES: files},
        }

    async def _log(self, stream: asyncio.StreamReader, env: Mapping[str, str]) -> None:
        """Log the first lines of its stderr, and read the others, so that it does not wait for us."""
        logged = 0
        while chunk := await stream.read(_STDERR_BYTES):
            text = chunk.decode("utf-8", "replace")
            for name, value in env.items():
                text = text.replace(value, f"${name}") if value else text
            for line in text.splitlines()[:MAX_LOGGED]:
                shown = visible(line[:MAX_LINE_CHARS])[:MAX_LINE_CHARS]
                self._said.append(shown)
                logged += 1
                if logged <= MAX_LOGGED:
                    log().info("an MCP server writes to its stderr", server=self._server.text, line=shown)
            await asyncio.sleep(UNASKED_S)


class _HttpClient(httpx2.AsyncClient):
    """Bounds the messages of a server. A failure becomes an answer, so that it ends one request and not all on the connection."""

    async def send(self, request: httpx2.Request, **given: Any) -> httpx2.Response:
        """Send a request. A stream for messages that answer none is not opened; one that continues after a break is."""
        if request.method == "GET" and "last-event-id" not in request.headers:
            return _answer(request, NOT_TAKEN, "not opened")
        if request.method == "DELETE":  # the end of a session, which nobody waits for
            request.extensions["timeout"] = httpx2.Timeout(END_SESSION_S).as_dict()
        try:
            response = await super().send(request, **given)
        except httpx2.TransportError as error:
            code = NOT_TAKEN if isinstance(error, _UNSENT) else mcp_types.CONNECTION_CLOSED
            return _answer(request, code, f"{type(error).__name__}: {error}")
        response.stream = _Bounded(response)
        if response.status_code < HTTPStatus.BAD_REQUEST:
            return response
        try:
            body = await response.aread()
        except httpx2.StreamError:
            body = b""
        words = f"HTTP {response.status_code}: {bounded(body.decode('utf-8', 'replace'), MAX_LINE_CHARS)}"
        # After a restart, servers made after the example of the TypeScript SDK say 400, "No valid session ID".
        is_lost = response.status_code == HTTPStatus.NOT_FOUND
        if response.status_code == HTTPStatus.BAD_REQUEST:
            is_lost = b"session" in body.lower()
        if is_lost and MCP_SESSION_ID in request.headers:
            return _answer(request, SESSION_ENDED, words)
        if response.status_code in _REFUSALS:
            return _answer(request, NOT_TAKEN, words)
        if b'"jsonrpc"' in body:
            return response
        return _answer(request, mcp_types.CONNECTION_CLOSED, words)


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response, which ends with an error beyond its bound. A compressed one, which was not asked for, may have any length."""

    def __init__(self, response: httpx2.Response) -> None:
        self._body: Any = response.stream
        has_events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        is_plain = response.headers.get("content-encoding", "identity") == "identity"
        most = MAX_MESSAGE_CHARS if has_events else MAX_HTTP_BYTES
        self._left = most if is_plain else 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for each in self._body:
                self._left -= len(each)
                if self._left < 0:
                    raise httpx2.StreamError("the answer is too long, or compressed")
                yield each
        except httpx2.TransportError as error:
            raise httpx2.StreamError(f"{type(error).__name__}: {error}") from error

    async def aclose(self) -> None:
        """Close the body."""
        await self._body.aclose()


class _BoundedLines(utf_8.IncrementalDecoder):
    """Decoder that breaks a line beyond the bound: the package's transport keeps a line in memory until it ends."""

    _chars = 0

    def decode(self, data: Any, final: bool = False) -> str:  # noqa: FBT001, FBT002 - as in the class above
        """Decode the next part."""
        text = super().decode(data, final)
        _, line_break, rest = text.rpartition("\n")
        self._chars = len(rest) if line_break else self._chars + len(rest)
        if self._chars <= MAX_MESSAGE_CHARS:
            return text
        self._chars = 0
        return f"{text}\n"


def _codec(name: str) -> codecs.CodecInfo | None:
    if name != _ENCODING:
        return None
    plain = codecs.lookup("utf-8")
    return codecs.CodecInfo(plain.encode, plain.decode, incrementaldecoder=_BoundedLines, name=name)


codecs.register(_codec)


async def _reader(reading: int, stack: AsyncExitStack) -> asyncio.StreamReader:
    """Read from the end of a pipe, until the stack is left."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(reading, "rb"))
    stack.callback(transport.close)
    return reader


def _answer(request: httpx2.Request, code: int, message: str) -> httpx2.Response:
    """Return an answer to a request that is an error."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(HTTPStatus.BAD_REQUEST, json=error, request=request)
