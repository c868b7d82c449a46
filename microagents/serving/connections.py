"""Connections to the endpoint that have not sent an admitted request yet: few at a time, and none for long."""

from __future__ import annotations

import asyncio

from aiohttp import web

HEADERS_S = 10.0
"""Seconds that a connection may take until its first request is admitted."""
MAX_UNADMITTED = 128
"""Connections without an admitted request; one more closes the oldest."""


class Connections:
    """Makes the protocol of each new connection, and closes those that do not send a request that is admitted.

    A connection costs an open file, so without this anybody who reaches the port could take all of them, without a token.
    """

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self._unadmitted: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}

    def __call__(self) -> web.RequestHandler:
        """Make the protocol of a new connection."""
        protocol: web.RequestHandler = self._server()
        if len(self._unadmitted) >= MAX_UNADMITTED:
            self._close(next(iter(self._unadmitted)))
        self._unadmitted[protocol] = asyncio.get_running_loop().call_later(HEADERS_S, self._close, protocol)
        return protocol

    def admit(self, request: web.Request) -> None:
        """Let the connection of a request stay open."""
        if (timer := self._unadmitted.pop(request.protocol, None)) is not None:
            timer.cancel()

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._unadmitted.values():
            timer.cancel()

    def _close(self, protocol: asyncio.BaseProtocol) -> None:
        self._unadmitted.pop(protocol).cancel()
        if isinstance(protocol, web.RequestHandler):
            protocol.force_close()
