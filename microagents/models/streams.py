"""Streams of OpenAI's chat completions: each choice is known once it is finished, and the whole reply is put together at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct, structs

from microagents.base.errors import ModelUnavailable

if TYPE_CHECKING:
    from microagents.models.http.sending import Response, Sender

OPTIONS = {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}}


class Streaming:
    """Sends requests that are streamed, and gives the reply as one that is not.

    Args:
        sender: sends them.
        number: number of choices that they ask for.
        arrived: called with the index, the text and the finish reason of each finished choice but the last.
    """

    def __init__(self, sender: Sender, number: int, arrived: Callable[[int, str, str], None]) -> None:
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
        if response.content.lstrip()[:1] == b"{":
            self.indexes = list(range(self._number))
            return response
        self.indexes = sorted(reply.finished)
        if reply.failure is not None:
            return structs.replace(response, status_code=502, content=reply.failure)
        if not reply.is_done or len(reply.finished) < len(reply.choices):
            return ModelUnavailable("broken", "the stream ended before its choices")
        return structs.replace(response, content=reply.whole())

    async def get(self, path: str) -> Response | ModelUnavailable:
        """Ask without a body."""
        return await self._sender.get(path)

    async def close(self) -> None:
        """Do nothing: the connections are the sender's."""


class _Delta(Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class _ChunkPart(Struct):
    index: int = 0
    delta: _Delta = _Delta()
    finish_reason: str | None = None


class _Chunk(Struct):
    choices: list[_ChunkPart] = []
    usage: Raw = Raw(b"null")
    service_tier: Raw = Raw(b"null")
    error: Raw = Raw(b"null")


_decode = msgspec.json.Decoder(_Chunk).decode


class _StreamedReply:
    """A reply that is being read."""

    def __init__(self, number: int, arrived: Callable[[int, str, str], None]) -> None:
        self.choices: dict[int, dict[str, list[str]]] = {}
        """The pieces of each choice, by the field that they belong to."""
        self.finished: dict[int, str] = {}
        """The finish reason of each choice that has one."""
        self.is_done = False
        self.failure: bytes | None = None
        """The error that the server reports in the stream."""
        self._number = number
        self._arrived = arrived
        self._more: dict[str, Raw] = {}

    def read(self, line: bytes) -> None:
        """Read one line of the stream; one that is not readable is a failure."""
        data = line.removeprefix(b"data:").strip()
        if data == line.strip():  # a comment, the name of an event, or the end of one
            return
        if data == b"[DONE]":
            self.is_done = True
            return
        try:
            chunk = _decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self.failure = b"{}"
            return
        if bytes(chunk.error) != b"null":
            self.failure = data
        for name, value in (("usage", chunk.usage), ("service_tier", chunk.service_tier)):
            if bytes(value) != b"null":
                self._more[name] = Raw(bytes(value))
        for part in chunk.choices:
            if 0 <= part.index < self._number and part.index not in self.finished:
                self._add(part)

    def _add(self, part: _ChunkPart) -> None:
        pieces = self.choices.setdefault(part.index, {})
        for name in _Delta.__struct_fields__:
            if piece := getattr(part.delta, name):
                pieces.setdefault(name, []).append(piece)
        if part.finish_reason is not None:
            self.finished[part.index] = part.finish_reason
            if len(self.finished) < self._number:
                message = self._message(part.index)
                finish = "refusal" if "refusal" in message else part.finish_reason
                self._arrived(part.index, message.get("content") or message.get("refusal") or "", finish)

    def _message(self, index: int) -> dict[str, str]:
        return {name: "".join(pieces) for name, pieces in self.choices[index].items()}

    def whole(self) -> bytes:
        """Build the reply as one that is not streamed."""
        choices = [
            {"index": index, "message": self._message(index), "finish_reason": self.finished[index]}
            for index in sorted(self.finished)
        ]
        return msgspec.json.encode({"choices": choices, **self._more})
