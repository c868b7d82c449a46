"""Listening for requests on a port of this machine, with bounds on connections and on the stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address
from typing import Any

from aiohttp import web

from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidUsage
from microagents.base.logs import log
from microagents.models.http.open_files import connections_allowed

MAX_WAITING = 8192
"""Connections that wait in the queue of the kernel until there is room."""
MAX_UNADMITTED = 512
"""Connections without an admitted request. Each may hold a megabyte of headers, so further ones wait."""
HEADERS_S = 10.0
"""Seconds that a connection may take until its first request is admitted."""
PRESSED_HEADERS_S = 5.0
"""The same for the oldest of `MAX_UNADMITTED`, which makes room."""
LINGER_S = 1.0
"""Seconds in which what is left of a refused request is read, so that its sender can read the refusal."""
IDLE_S = 20.0
"""Seconds that a connection may stay open between two requests: longer than clients keep one (aiohttp 15 s, httpx 5 s)."""
SHUTDOWN_S = 1.0
"""Seconds that open requests may take to end after the server was stopped."""
ACCEPT_AGAIN_S = 1.0
"""Seconds after which a connection is accepted that could not be, such as for want of open files."""
RETRY_AFTER = "retry-after"


def ended_by_signal() -> asyncio.Event:
    """Return an event that Ctrl-C, or a signal to terminate, sets from now on: a server ends with it."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return ended


@asynccontextmanager
async def listening(application: web.Application, host: str, port: int) -> AsyncIterator[str]:
    """Listen as long as the block; gives the address.

    No connection is lost in a burst: one without room waits in the queue of the kernel until another one ends. The handlers of the
    application `admit` requests. A connection without one is closed soon, so that no stranger can take all open files without a token.

    Raises:
        InvalidUsage: the port is taken, the host is not of this machine, or the process may open too few files.
    """
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        assert runner.server is not None
        room = _Room(connections_allowed() // 2)  # the other half is left to the connections of a model
        accepting = await stack.enter_async_context(TaskScope())
        try:
            sockets = await _bound(host, port)
        except (OSError, OverflowError) as error:
            raise InvalidUsage(f"nothing can be served on {host} port {port}: {error}") from None
        for each in sockets:
            stack.callback(each.close)
            accepting.start(_accept(each, runner.server, room))
        stack.push_async_callback(accepting.close)  # before the sockets are closed
        yield f"http://{f'[{host}]' if ':' in host else host}:{sockets[0].getsockname()[1]}"


def admit(request: web.Request) -> None:
    """Let the connection of a request stay open."""
    if isinstance(request.protocol, _Connection):
        request.protocol.admit()


def busy(reason: str, wait_s: float) -> web.HTTPServiceUnavailable:
    """Build the refusal of a request that is to be sent again after some seconds."""
    return web.HTTPServiceUnavailable(reason=reason, headers={RETRY_AFTER: f"{wait_s:g}"})


def wait_of(error: web.HTTPException) -> dict[str, str]:
    """Return the headers of an error that say when to send the request again, for the response in its place."""
    if RETRY_AFTER not in error.headers:
        return {}
    return {RETRY_AFTER: error.headers[RETRY_AFTER]}


def host_of(request: web.Request) -> str:
    """The host that a request names, without its port; empty for one that names none."""
    try:
        return request.url.host or ""
    except ValueError:  # such as a port that is not a number
        return ""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Room:
    """Room for a number of connections in all, and for fewer without an admitted request."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        self._unadmitted: dict[_Connection, float] = {}
        self._changed = asyncio.Event()

    def enter(self, connection: _Connection) -> None:
        self._open += 1
        self._unadmitted[connection] = asyncio.get_running_loop().time()

    def admit(self, connection: _Connection) -> None:
        self._unadmitted.pop(connection, None)
        self._changed.set()

    def leave(self, connection: _Connection) -> None:
        self._open -= 1
        self.admit(connection)

    async def wait(self) -> None:
        """Wait until there is room for one more connection."""
        while self._open >= self._most or len(self._unadmitted) >= MAX_UNADMITTED:
            oldest, since_s = next(iter(self._unadmitted.items()), (None, 0.0))
            self._changed.clear()
            try:
                async with asyncio.timeout_at(since_s + PRESSED_HEADERS_S if oldest else None):
                    await self._changed.wait()
            except TimeoutError:
                assert oldest is not None
                oldest.force_close()
                self.admit(oldest)  # it is counted no longer, though it leaves in the next turn of the loop


class _Connection(web.RequestHandler):
    """A connection that is closed unless a request of it is admitted in time."""

    def __init__(self, server: web.Server, room: _Room) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server, loop=loop, logger=_LOGGER, access_log=_LOGGER, keepalive_timeout=IDLE_S, lingering_time=LINGER_S
        )
        self._room = room
        self._timer = loop.call_later(HEADERS_S, self.force_close)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._room.enter(self)

    def admit(self) -> None:
        self._timer.cancel()
        self._room.admit(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._timer.cancel()
        self._room.leave(self)


async def _bound(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at all addresses of a host, at one port; `OSError` if there is none, or its port is taken."""
    loop, found = asyncio.get_running_loop(), list[socket.socket]()
    addresses: list[tuple[Any, ...]] = await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    try:
        for family, *_, address in dict.fromkeys(addresses):
            taken = found[0].getsockname()[1] if found else port
            found.append(socket.create_server((address[0], taken), family=family, backlog=MAX_WAITING))
            found[-1].settimeout(0)  # for the event loop
    except BaseException:
        for each in found:
            each.close()
        raise
    return found


async def _accept(listener: socket.socket, server: web.Server, room: _Room) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await room.wait()
        try:
            accepted, _ = await loop.sock_accept(listener)
            await loop.connect_accepted_socket(lambda: _Connection(server, room), accepted)
        except OSError as error:
            log().warning("a connection was not accepted", error=str(error))
            await asyncio.sleep(ACCEPT_AGAIN_S)


class _KindsOfFailures(logging.Handler):
    """Logs of a failed request only its kind: the server's own log would print malformed headers with their tokens."""

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        log().warning("a request failed", kind=record.levelname if kind is None else kind.__name__)


_LOGGER = logging.Logger("microagents.web.listening", logging.WARNING)  # noqa: LOG001 - it belongs to no tree of loggers
_LOGGER.addHandler(_KindsOfFailures())
