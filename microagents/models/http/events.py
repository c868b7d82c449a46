"""Bodies of servers as JSON, streamed ones too: on each wire the events of a stream are put together into one reply."""

from __future__ import annotations

import codecs
import re
from typing import Any

from microagents.models.http.refusals import errors_of_choices, words_in
from microagents.models.http.replies import (
    UNREADABLE,
    ChatChoice,
    Said,
    choices_in,
    decode,
    finish_of,
    name_in,
    object_in,
    reply_in,
)

ENDS = ("message_stop", "response.completed", "response.incomplete")
"""Types of the events that end a reply."""
RUNNING = "in_progress"
"""Status of a response that goes on."""
_STREAM = re.compile(rb"(?:data|event|id|retry)?:|\{.*\}\r?\n\{")
"""Beginning of a stream of events, or of one object a line, as Ollama's own wire has them."""
OUTPUT_TEXT = "output_text"
"""Type of the part with the text of an item of a response."""


def found_in(body: bytes, number: int) -> Any:
    """Decode the JSON of a body, or of the events of one that is streamed: some servers stream without being asked.

    Args:
        body: the body.
        number: number of choices that were asked for.

    Raises:
        ValueError: it is neither, ends too early, or has too many values.
        RecursionError: it is nested too deep.
    """
    if not is_streamed(body):
        return reply_in(decode(body))
    reply = streamed_reply(body, number)
    whole = reply.whole()
    if reply.is_cut:
        raise ValueError("the stream ends before the reply")
    return whole


def streamed_reply(body: bytes, number: int) -> StreamedReply:
    """Read all events of a body with this number of choices; raises as `found_in`."""
    reply = StreamedReply(number)
    for line in body.splitlines():
        reply.read(line)
    return reply


def is_streamed(body: bytes) -> bool:
    """Whether a body is a stream."""
    return _STREAM.match(body.removeprefix(codecs.BOM_UTF8).lstrip()) is not None


def _is_of_responses(event: dict[str, Any]) -> bool:
    return name_in(event.get("type")).startswith("response.")


class StreamedReply:
    """A reply that is being read.

    Args:
        number: number of choices that were asked for.
    """

    def __init__(self, number: int) -> None:
        self.choices: dict[int, ChatChoice] = {}
        self.finished: set[int] = set()
        """Indexes of the choices whose end is told."""
        self.is_done = False
        self.is_wrapped = False
        """Whether events have another form than the wire's."""
        self.failure: Any = None
        """The first event that cannot be read, as a text, or that is the server's report of an error."""
        self._number = number
        self._begun: list[bytes] = []
        """Lines of an event that is not whole."""
        self._parts: dict[int, dict[str, Any]] = {}
        """The blocks of a message, or the items of a response, whose beginnings are told."""
        self._pieces: dict[int, dict[str, list[str]]] = {}
        """For each of these the pieces of texts that followed, by the name of their field."""
        self._whole_parts: set[int] = set()
        """Places of the items whose ends are told."""
        self._reply: dict[str, Any] = {}
        """The other fields of the reply."""

    @property
    def is_cut(self) -> bool:
        """Whether neither an end nor a failure is told, of a reply that was built."""
        is_told = self.finished or self.is_done or self.failure
        return not is_told and self._reply.get("status", RUNNING) == RUNNING

    def read(self, line: bytes) -> None:
        """Read one line of the stream."""
        line = line.removeprefix(codecs.BOM_UTF8).strip()
        data = line.removeprefix(b"data:").strip()
        if not data:
            self._end_event()
        elif data == b"[DONE]":
            self.is_done = True
        elif line.startswith(b"{"):  # of Ollama's own wire, or an error that a gateway appends
            self._take(line)
        elif data != line and not self._take(data):  # other lines are comments and names of events
            self._begun.append(data)

    def _end_event(self) -> None:
        """Read an event of several lines."""
        data = b"".join(self._begun)
        self._begun.clear()
        if data and not self._take(data):
            self.failure = self.failure or data.decode("utf-8", "replace")

    def _take(self, data: bytes) -> bool:
        """Take an event; returns whether it can be read."""
        try:
            found = decode(data)
            taken = reply_in(found, is_piece=True)
            event = object_in(taken)
            pieces = choices_in(event.get("choices"))
            self._take_message(event)
        except UNREADABLE:
            return False
        for name in ("id", "service_tier"):
            if event.get(name):
                self._reply[name] = event[name]
        self._reply["usage"] = {**object_in(self._reply.get("usage")), **object_in(event.get("usage"))}
        is_reply = (
            pieces
            or object_in(event.get("message") or event.get("delta") or event.get("content_block"))
            or _is_of_responses(event)
        )
        self.is_wrapped |= taken is not found
        if event.get("error") or errors_of_choices(event) or (not is_reply and words_in(found)):
            self.failure = self.failure or taken
        for piece in pieces:
            if 0 <= piece.index < self._number and piece.index not in self.finished:
                self._add(piece)
        return True

    def _take_message(self, event: dict[str, Any]) -> None:
        """Take an event of the wires of responses, whose last one has the whole reply, and of messages."""
        self._reply |= object_in(event.get("response") or event.get("message"))
        delta = object_in(event.get("delta"))
        if _is_of_responses(event):
            self._take_item(event)
        else:
            self._take_block(event, delta)
        self.is_done |= name_in(event.get("type")) in ENDS
        if delta.get("stop_reason"):
            self._reply["stop_reason"] = delta["stop_reason"]
            self.finished.add(0)

    def _take_block(self, event: dict[str, Any], delta: dict[str, Any]) -> None:
        """Take the beginning of a block of a message, or a piece of one."""
        begun, index = event.get("content_block"), event.get("index")
        place = index if isinstance(index, int) else max(self._parts, default=-1) + isinstance(begun, dict)
        if isinstance(begun, dict):
            self._begin(place, begun)
        elif delta and place not in self._parts:
            self._begin(place, {})
        for name in ("text", "thinking", "signature", "partial_json"):
            self._append(place, "input" if name == "partial_json" else name, delta.get(name))

    def _take_item(self, event: dict[str, Any]) -> None:
        """Take an item of a response, or a piece of one."""
        kind, place, item = event["type"], event.get("output_index"), event.get("item")
        self._reply.setdefault("output", [])
        if not isinstance(place, int):
            place = max(self._parts, default=0)
        if isinstance(item, dict):
            self._begin(place, item)
            if kind.endswith(".done"):
                self._whole_parts.add(place)
        if kind == "response.function_call_arguments.delta":
            self._append(place, "arguments", event.get("delta"))
        elif kind == f"response.{OUTPUT_TEXT}.delta":
            if place not in self._parts:
                self._begin(place, {"type": "message"})
            if OUTPUT_TEXT not in self._pieces[place]:
                begun = Said()
                begun.add(self._parts[place].get("content"))
                self._append(place, OUTPUT_TEXT, begun.text)
            self._append(place, OUTPUT_TEXT, event.get("delta"))

    def _begin(self, place: int, part: dict[str, Any]) -> None:
        self._parts[place], self._pieces[place] = part, {}

    def _append(self, place: int, name: str, piece: Any) -> None:
        """Add a piece of text to a field of a part; any other value is no piece, and an empty one would take the place of a whole field."""
        if piece and place in self._parts and isinstance(piece, str):
            self._pieces[place].setdefault(name, []).append(piece)

    def _whole_part(self, place: int) -> dict[str, Any]:
        """Return a part with the pieces of its texts, which are joined once: a text may have a hundred thousand."""
        part = self._parts[place]
        for name, pieces in self._pieces.pop(place, {}).items():
            if name == OUTPUT_TEXT:
                part["content"] = [{"type": OUTPUT_TEXT, "text": "".join(pieces)}]
            else:
                part[name] = "".join([name_in(part.get(name)), *pieces])
        return part

    def _add(self, piece: ChatChoice) -> None:
        begun = ChatChoice(index=piece.index, said=Said(), is_message=piece.is_message)
        choice = self.choices.setdefault(piece.index, begun)
        if choice.is_message or not piece.is_message:  # some servers end with all that the pieces said
            choice.said.join(piece.said)
        tokens = object_in(piece.logprobs).get("content")
        if isinstance(tokens, list):
            choice.logprobs = choice.logprobs or {"content": []}
            choice.logprobs["content"] += tokens
        if piece.reason:
            choice.reason = piece.reason
        if piece.reason and finish_of(name_in(piece.reason)) != "error":
            self.finished.add(piece.index)

    def whole(self) -> Any:
        """Build the reply as one that is not streamed; the failure of one whose text is not there."""
        self._end_event()
        if self.failure is not None and len(self.finished) < self._number:
            return self.failure
        if self._parts and not self._reply.get("output"):
            parts = [self._whole_part(place) for place in sorted(self._parts)]
            self._reply["output" if "output" in self._reply else "content"] = parts
            if self._reply.get("status") == RUNNING and len(self._whole_parts) == len(parts):
                self._reply["status"] = "completed"
        choices = []
        for index in sorted(self.choices):
            choice = self.choices[index]
            told = {"finish_reason": choice.reason, "logprobs": choice.logprobs}
            choices.append({"index": index, "message": _message_of(choice.said), **told})
        return {"choices": choices, **self._reply}


def _message_of(said: Said) -> dict[str, Any]:
    """Return the message of a reply that is not streamed."""
    reasoning = said.extras or {"reasoning": said.reasoning}
    calls = [
        {
            "id": each.id,
            "function": {"name": each.name, "arguments": each.arguments or each.text},
            "extra_content": each.extra,
        }
        for each in said.calls
    ]
    return {"content": said.text, "refusal": said.refusal, **reasoning, "tool_calls": calls}
