"""Streams of OpenAI's chat completions: each choice is known once it is finished, and the whole reply is put together at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import structs

from microagents.base.errors import ModelUnavailable
from microagents.models.http.events import StreamedReply

if TYPE_CHECKING:
    from microagents.models.http.replies import ChatChoice
    from microagents.models.http.sending import Response, Sender

OPTIONS = {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}}


class Streaming:
    """Sends requests that are streamed, and gives the reply as one that is not.

    Args:
        sender: sends them.
        number: number of choices that they ask for.
        arrived: called with each finished choice but the last.
    """

    def __init__(self, sender: Sender, number: int, arrived: Callable[[ChatChoice], None]) -> None:
        self._sender = sender
        self._number = number
        self._arrived = arrived
        self.indexes: list[int] = []
        """The indexes of the choices of the reply, in their order."""

    async def post(self, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Response | ModelUnavailable:
        """Send one request. A server that does not stream is read as any other."""
        reply = StreamedReply(self._number, self._arrived)
        response = await self._sender.post(path, {**body, **OPTIONS}, headers, on_line=reply.read)
        if isinstance(response, ModelUnavailable) or not response.is_success:
            return response
        if not reply.has_events:
            self.indexes = list(range(self._number))
            return response
        self.indexes = sorted(reply.choices)
        # The end of a body whose length nobody states may be the end of a connection that broke.
        is_framed = "content-length" in response.headers or "transfer-encoding" in response.headers
        if reply.failure is None and not (reply.is_done or is_framed) and len(reply.finished) < self._number:
            return ModelUnavailable("broken", "the stream ended before its choices")
        return structs.replace(response, found=reply.whole())

    async def get(self, path: str) -> Response | ModelUnavailable:
        """Ask without a body."""
        return await self._sender.get(path)

    async def close(self) -> None:
        """Do nothing: the connections are the sender's."""
