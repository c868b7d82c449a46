"""Listening for requests on a port of this machine, with bounds on connections and on the stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address

from aiohttp import web

from microagents.errors import InvalidUsage
from microagents.logs import log
from microagents.serving.connections import Connections

MAX_WAITING = 8192
"""Connections that wait to be accepted."""
LINGER_S = 1.0
"""Seconds in which what is left of a refused request is read, so that its sender can read the refusal."""
IDLE_S = 300.0
"""Seconds that a connection may stay open between two requests."""
SHUTDOWN_S = 1.0
"""Seconds that open requests may take to end after the server was stopped."""


class Listener:
    """Takes connections to an application, whose handlers say which requests are admitted."""

    def __init__(self) -> None:
        self._connections: Connections | None = None

    def admit(self, request: web.Request) -> None:
        """Let the connection of a request stay open."""
        if self._connections is not None:
            self._connections.admit(request)

    @asynccontextmanager
    async def listening(self, application: web.Application, host: str, port: int) -> AsyncIterator[str]:
        """Listen as long as the block; gives the address.

        Raises:
            InvalidUsage: the port is taken, or the host is not of this machine.
        """
        of_server = logging.Logger("microagents.serving")  # noqa: LOG001 - it belongs to no tree of loggers
        of_server.addHandler(_KindsOfFailures())
        runner = web.AppRunner(
            application,
            access_log=None,
            logger=of_server,
            handler_cancellation=True,
            shutdown_timeout=SHUTDOWN_S,
            keepalive_timeout=IDLE_S,
            lingering_time=LINGER_S,
        )
        async with AsyncExitStack() as stack:
            stack.push_async_callback(runner.cleanup)
            await runner.setup()
            assert runner.server is not None
            self._connections = Connections(runner.server)
            stack.callback(self._connections.close)
            try:
                listening = await asyncio.get_running_loop().create_server(
                    self._connections, host, port, backlog=MAX_WAITING
                )
            except (OSError, OverflowError) as error:
                raise InvalidUsage(f"nothing can be served on {host} port {port}: {error}") from None
            stack.callback(listening.close)
            yield f"http://{f'[{host}]' if ':' in host else host}:{listening.sockets[0].getsockname()[1]}"


class _KindsOfFailures(logging.Handler):
    """Logs of a failed request its kind alone: the server's own log would print malformed headers with their tokens."""

    def emit(self, record: logging.LogRecord) -> None:
        kind = record.exc_info[0] if record.exc_info else None
        log().warning("a request failed", kind=record.levelname if kind is None else kind.__name__)


def host_of(request: web.Request) -> str:
    """The host that a request names, without its port; empty for one that names none."""
    try:
        return request.url.host or ""
    except ValueError:  # such as a port that is no number
        return ""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
