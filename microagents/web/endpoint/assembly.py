"""A streamed reply put together from its events, so that its acts can be read; the events themselves go on as they came."""

from __future__ import annotations

import codecs
from typing import Any

from microagents.models.http.replies import UNREADABLE, decode, name_in, object_in


def data_in(line: bytes) -> dict[str, Any] | None:
    """Read the event of a line ``data: {...}``; None for any other line."""
    data = line.removeprefix(codecs.BOM_UTF8).strip()
    if not data.startswith(b"data:"):
        return None
    try:
        return object_in(decode(data.removeprefix(b"data:")))
    except UNREADABLE:
        return None


class Assembly:
    """Puts the events of a stream together, in the form that a reply has which is not streamed."""

    def __init__(self) -> None:
        self.is_ended = False
        """Whether the stream has told the end of the reply."""
        self.failure: dict[str, Any] | None = None
        """The event that reports an error."""
        self._reply: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []
        self._places: dict[int, dict[str, Any]] = {}
        """Calls of a chat by the index that their pieces name."""
        self._blocks: list[dict[str, Any]] = []
        self._items: list[dict[str, Any]] = []

    def read(self, line: bytes) -> None:
        """Read a line."""
        if line.strip() == b"data: [DONE]":
            self.is_ended = True
        event = data_in(line)
        if event is None:
            return
        kind = name_in(event.get("type"))
        if event.get("error") or kind in ("error", "response.failed"):
            self.failure = event
        elif not kind:
            self._take_chunk(event)
        elif kind.startswith("response."):
            self._take_item(kind, event)
        else:
            self._take_block(kind, event)

    def whole(self) -> dict[str, Any]:
        """Return the reply."""
        if self._message or self._calls:
            self._message["tool_calls"] = self._calls
            self._reply["choices"] = [{"message": self._message, "finish_reason": self._reply.pop("reason", None)}]
        if self._blocks:
            self._reply["content"] = [_closed(each) for each in self._blocks]
        if self._items and not self._reply.get("output"):
            self._reply["output"] = self._items
        return self._reply

    def _take_chunk(self, chunk: dict[str, Any]) -> None:
        for name in ("id", "usage", "service_tier"):
            if chunk.get(name):
                self._reply[name] = chunk[name]
        choices = chunk.get("choices")
        for choice in map(object_in, choices[:1] if isinstance(choices, list) else ()):
            delta = object_in(choice.get("delta"))
            for name in ("content", "refusal"):
                if isinstance(delta.get(name), str):
                    self._message[name] = self._message.get(name, "") + delta[name]
            pieces = [object_in(each) for each in delta.get("tool_calls") or ()]
            for piece in pieces[self._told_again(pieces) :]:
                self._take_piece(piece)
            if choice.get("finish_reason"):
                self._message.setdefault("content", "")
                self._reply["reason"] = choice["finish_reason"]
                self.is_ended = True

    def _told_again(self, pieces: list[dict[str, Any]]) -> int:
        """Count the pieces of an event that repeat all calls so far, before another one: some servers send the whole list each time."""
        known = [_named(call) for call in self._calls]
        told = [_named(each) for each in pieces[: len(known)]]
        if known and told == known and len(pieces) > len(known):
            return len(known)
        return 0

    def _take_piece(self, piece: dict[str, Any]) -> None:
        """Add a piece of a call. A call is known by its place, which may be missing, or the same for all."""
        made = object_in(piece.get("function") or piece.get("custom"))
        name, index = name_in(made.get("name")), piece.get("index")
        given = made.get("arguments", made.get("input"))
        if type(index) is int:
            call = self._places.get(index)
        elif self._calls and not name:
            call = self._calls[-1]
        else:
            call = None
        if call is None or _is_other(call["function"], name, given):
            call = {"function": {"name": "", "arguments": ""}}
            self._calls.append(call)
            if type(index) is int:
                self._places[index] = call
        function = call["function"]
        function["name"] = name or function["name"]
        if isinstance(given, dict) or (name and given and str(given).startswith(str(function["arguments"]))):
            function["arguments"] = given
        elif isinstance(function["arguments"], str):
            function["arguments"] += name_in(given)

    def _take_item(self, kind: str, event: dict[str, Any]) -> None:
        """Take an event of responses, whose last one mostly has the whole reply."""
        if kind == "response.output_item.added":
            self._items.append(object_in(event.get("item")))
        elif kind == "response.output_item.done" and self._items:
            self._items[-1] = object_in(event.get("item"))
        elif kind == "response.function_call_arguments.delta" and self._items:
            begun = name_in(self._items[-1].get("arguments"))
            self._items[-1]["arguments"] = begun + name_in(event.get("delta"))
        if isinstance(event.get("response"), dict):
            self._reply.update(event["response"])
        if kind in ("response.completed", "response.incomplete"):
            self.is_ended = True

    def _take_block(self, kind: str, event: dict[str, Any]) -> None:
        """Take an event of messages."""
        delta = object_in(event.get("delta"))
        if kind == "message_start":
            self._reply.update(object_in(event.get("message")))
        elif kind == "content_block_start":
            self._blocks.append({**object_in(event.get("content_block")), "pieces": []})
        elif kind == "content_block_delta" and self._blocks:
            self._blocks[-1]["pieces"].append(delta.get("partial_json") or delta.get("text") or "")
        elif kind == "message_delta":
            self._reply["usage"] = {**object_in(self._reply.get("usage")), **object_in(event.get("usage"))}
            self._reply["stop_reason"] = delta.get("stop_reason")
        elif kind == "message_stop":
            self.is_ended = True


def _named(call: dict[str, Any]) -> tuple[Any, Any]:
    """Return the name of a call, and its arguments as they are written."""
    function = object_in(call.get("function"))
    return function.get("name"), function.get("arguments") or ""


def _is_other(known: dict[str, Any], name: str, given: Any) -> bool:
    """Whether a piece with a name begins another call than the one at its place."""
    if not name or not known["name"]:
        return False
    if name != known["name"]:
        return True
    return bool(given) and given != known["arguments"] and _are_whole(known["arguments"])


def _are_whole(written: Any) -> bool:
    """Whether the arguments of a call are an object, or its text."""
    if not isinstance(written, str):
        return True
    try:
        return bool(written) and isinstance(decode(written.encode("utf-8", "surrogatepass")), dict)
    except UNREADABLE:
        return False


def _closed(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block with its pieces put together."""
    text = "".join(map(str, block.pop("pieces")))
    if block.get("type") == "tool_use":
        return {**block, "input": text or block.get("input")}
    return {**block, "text": name_in(block.get("text")) + text}
