"""Streams of OpenAI's chat completions: each choice is known once it is finished, and the whole reply is put together at the end."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import structs

from microagents.base.errors import ModelUnavailable
from microagents.models.http.refusals import words_in
from microagents.models.http.replies import UNREADABLE, ChatChoice, Said, choices_in, decode, object_in

if TYPE_CHECKING:
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
        reply = _StreamedReply(self._number, self._arrived)
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
        return structs.replace(response, content=reply.whole())

    async def get(self, path: str) -> Response | ModelUnavailable:
        """Ask without a body."""
        return await self._sender.get(path)

    async def close(self) -> None:
        """Do nothing: the connections are the sender's."""


def unstreamed(body: bytes, number: int) -> bytes:
    """Return the reply of a server as one that is not streamed: some servers stream without being asked."""
    if not body.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"data:", b"event:", b":")):
        return body
    reply = _StreamedReply(number, lambda _: None)
    for line in body.split(b"\n"):
        reply.read(line)
    return reply.whole()


class _StreamedReply:
    """A reply that is being read."""

    def __init__(self, number: int, arrived: Callable[[ChatChoice], None]) -> None:
        self.choices: dict[int, ChatChoice] = {}
        self.finished: set[int] = set()
        """Indexes of the choices whose end is told."""
        self.has_events = False
        self.is_done = False
        self.failure: bytes | None = None
        """The first event that cannot be read, or is the server's report of an error."""
        self._number = number
        self._arrived = arrived
        self._begun: list[bytes] = []
        """Lines of an event that is not whole."""
        self._more: dict[str, Any] = {}

    def read(self, line: bytes) -> None:
        """Read one line of the stream."""
        line = line.removeprefix(codecs.BOM_UTF8).strip()
        data = line.removeprefix(b"data:").strip()
        if not data:
            self._end_event()
        elif data == b"[DONE]":
            self.is_done = True
        elif data != line and not self._take(data):  # other lines are comments and names of events
            self._begun.append(data)

    def _end_event(self) -> None:
        """Read an event of several lines."""
        data = b"".join(self._begun)
        self._begun.clear()
        if data and not self._take(data):
            self.failure = self.failure or data

    def _take(self, data: bytes) -> bool:
        """Take an event; returns whether it can be read."""
        self.has_events = True
        try:
            found = decode(data)
            event = object_in(found)
            pieces = choices_in(event.get("choices"))
        except UNREADABLE:
            return False
        if (not pieces and words_in(found)) or event.get("error"):
            self.failure = self.failure or data
        self._more |= {name: event[name] for name in ("usage", "service_tier") if event.get(name)}
        for piece in pieces:
            if 0 <= piece.index < self._number and piece.index not in self.finished:
                self._add(piece)
        return True

    def _add(self, piece: ChatChoice) -> None:
        choice = self.choices.setdefault(piece.index, ChatChoice(index=piece.index, said=Said()))
        choice.said.join(piece.said)
        if piece.reason:
            choice.reason = piece.reason
            self.finished.add(piece.index)
            if len(self.finished) < self._number:
                self._arrived(choice)

    def whole(self) -> bytes:
        """Build the reply as one that is not streamed; the failure of one whose text is not there."""
        self._end_event()
        if self.failure is not None and len(self.finished) < self._number:
            return self.failure
        choices = []
        for index in sorted(self.choices):
            choice = self.choices[index]
            said = choice.said
            message = {"content": said.text, "refusal": said.refusal, "reasoning": said.reasoning}
            choices.append({"index": index, "message": message, "finish_reason": choice.reason})
        return json.dumps({"choices": choices, **self._more}).encode()
