"""Native calls of tools: tools as providers take them, and calls in the replies of any server, whole or in pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from microagents.replies.parsing import Malformed, parse
from microagents.replies.tool_calls import Calls
from microagents.replies.turns import ToolCall

MAX_NAME_CHARS = 64
_NOT_TAKEN = ("$schema", "$defs", "$id", "definitions", "additionalProperties", "title", "default")
"""Keywords of schemas that some provider refuses, or that say nothing to a model."""
_ENVELOPE = re.compile(r"<\|?(?:tool_call|function_call|tool_calls)\|?>\s*|\[TOOL_CALLS\]\s*")
"""Stands before calls that a model writes into its text."""
_FENCE = re.compile(r"\A```\w*\n(.*?)\n```\Z", re.DOTALL)
_LISTED = {"array": list, "object": dict}
_number_text = msgspec.json.Encoder(decimal_format="number").encode


class NativeCall(Struct):
    """A call as a server writes it, perhaps in pieces."""

    name: str = ""
    id: str = ""
    index: int | None = None
    """Its place among the calls, if the server states it."""
    pieces: list[Any] = []
    """The arguments: objects, or pieces of the text of one."""
    extra: Any = None
    """What the server wants back with the call, such as the signature of a thought."""

    @property
    def text(self) -> str:
        """The pieces of the arguments as they are written."""
        texts = [each if isinstance(each, str) else json.dumps(each) for each in self.pieces]
        return "".join(texts)

    @property
    def arguments(self) -> str | None:
        """The text of the arguments as one JSON object; None if there is none in them."""
        texts = [each for each in self.pieces if isinstance(each, str)]
        if not texts:
            given = self.pieces[-1] if self.pieces else {}
            if not isinstance(given, dict):
                return None
            return json.dumps(given)
        # A server may send the whole text so far in each piece.
        return _object_in("".join(texts)) or _object_in(texts[-1])

    def begins_anew(self, piece: NativeCall) -> bool:
        """Whether a piece is of another call."""
        if not piece.name or not self.name:
            return False
        if piece.name != self.name or (piece.id and self.id and piece.id != self.id):
            return True
        is_whole = self.text.strip() and self.arguments is not None
        return bool(is_whole and (piece.index is None or piece.text))

    def join(self, piece: NativeCall) -> None:
        """Add a piece."""
        self.name, self.id = self.name or piece.name, self.id or piece.id
        self.extra = piece.extra or self.extra
        self.pieces += piece.pieces


def _object_in(text: str) -> str | None:
    """Find the text of an object that is encoded once or twice; an empty text is an empty object."""
    for _ in range(2):
        if text.strip() in ("", "null"):
            return "{}"
        try:
            found = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return None
        if isinstance(found, dict):
            return text
        if not isinstance(found, str):
            return None
        text = found
    return None


def call_in(part: Mapping[str, Any]) -> NativeCall | None:
    """Read a call, or a piece of one, on any wire; None for another part."""
    function = part.get("function")
    given = function if isinstance(function, dict) else part
    name, found = given.get("name"), part.get("call_id") or part.get("id")
    arguments = next(
        (given[each] for each in ("arguments", "input", "parameters") if given.get(each) is not None), None
    )
    index = part.get("index")
    call = NativeCall(
        name=name if isinstance(name, str) else "",
        id=found if isinstance(found, str) else "",
        index=index if isinstance(index, int) else None,
        pieces=[] if arguments is None else [arguments],
        extra=part.get("extra_content"),
    )
    return call if call.name or call.id or call.pieces or call.extra or call.index is not None else None


def join_calls(calls: list[NativeCall], pieces: Sequence[NativeCall]) -> None:
    """Add the calls of an event of a stream, new ones or further pieces. A missing index is not 0."""
    if _are_all_so_far(calls, pieces):
        for call, piece in zip(calls, pieces, strict=False):
            call.pieces = piece.pieces
        pieces = pieces[len(calls) :]
    for piece in pieces:
        last = _meant_by(piece, calls)
        if last is None or last.begins_anew(piece):
            calls.append(piece)
        else:
            last.join(piece)


def _meant_by(piece: NativeCall, calls: Sequence[NativeCall]) -> NativeCall | None:
    """Find the call that a piece may continue."""
    places = list(enumerate(calls))[::-1]
    if piece.index is not None:
        return next(
            (call for place, call in places if piece.index == (place if call.index is None else call.index)), None
        )
    if piece.id and not piece.name:
        same = [call for call in calls if call.id == piece.id]
        return same[-1] if same else next(iter(calls[-1:]), None)
    return calls[-1] if calls else None


def _are_all_so_far(calls: Sequence[NativeCall], pieces: Sequence[NativeCall]) -> bool:
    """Whether an event repeats all calls so far, and adds some."""
    if not calls or len(pieces) <= len(calls):
        return False
    pairs = zip(calls, pieces, strict=False)
    return all((a.id, a.name) == (b.id, b.name) and b.text.startswith(a.text) for a, b in pairs)


class NativeTools:
    """The tools of a prompt as providers take them.

    Args:
        tools: their JSON list.
    """

    def __init__(self, tools: str) -> None:
        self._tools: dict[str, str] = {}
        self._properties: dict[str, dict[str, Any]] = {}
        self.names: dict[str, str] = {}
        """By the name of a tool its name on the wire: a letter or underscore, then letters, digits, underscores and hyphens."""
        self.described: list[tuple[str, str, dict[str, Any]]] = []
        """Name on the wire, description, and schema of the arguments of each tool."""
        for each in json.loads(tools) if tools else ():
            schema, written = each.get("parameters") or {}, self._name_on_wire(each["name"])
            self._tools[written], self.names[each["name"]] = each["name"], written
            plain = _plain(schema, {**schema.get("definitions", {}), **schema.get("$defs", {})}, ())
            whole = {"type": "object", "properties": {}, **plain}
            self.described.append((written, each.get("description", ""), whole))
            self._properties[each["name"]] = whole["properties"]

    def _name_on_wire(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
        plain = (plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}")[:MAX_NAME_CHARS]
        number, free = 2, plain
        while free in self._tools:
            free, number = f"{plain[: MAX_NAME_CHARS - 4]}_{number}", number + 1
        return free

    def read(self, calls: Iterable[NativeCall]) -> tuple[ToolCall, ...] | None:
        """Read calls, each number as the text of a reply has it; None if the arguments of one are no object of JSON."""
        texts = [(self._tools.get(each.name, each.name), each.arguments) for each in calls]
        members = [f'{{"tool":{json.dumps(name)},"arguments":{text}}}' for name, text in texts if text is not None]
        if len(members) < len(texts):
            return None
        try:
            asked = parse(f'{{"calls":[{",".join(members)}]}}', Calls, "json")
        except Malformed:
            return None
        return tuple([self._decoded(call) for call in asked.calls])

    def _decoded(self, call: ToolCall) -> ToolCall:
        """Decode the lists and objects that stand as text, where the schema has a list or an object and no text."""
        properties, arguments = self._properties.get(call.tool, {}), dict(call.arguments)
        for name, value in call.arguments.items():
            types = _types_of(properties.get(name))
            if isinstance(value, str) and "string" not in types:
                arguments[name] = _listed_in(value, tuple([_LISTED[each] for each in types if each in _LISTED]))
        return ToolCall(call.tool, arguments)

    def in_text(self, text: str) -> tuple[str, list[NativeCall]]:
        """Find calls that a model writes into its text, with or without the end of their envelope; and the text before them."""
        envelopes = list(_ENVELOPE.finditer(text))
        if envelopes:
            found = [each for envelope in envelopes for each in _calls_at(text, envelope.end())]
            return (text[: envelopes[0].start()], found) if all(each.name for each in found) else (text, [])
        fenced = _FENCE.match(text.strip())
        body = fenced[1] if fenced else text.strip()
        found = _calls_at(body, 0, is_all=True) if body[:1] in ("{", "[") else []
        if found and all(each.name in self._tools and each.pieces for each in found):
            return "", found
        return text, []


def _calls_at(text: str, start: int, *, is_all: bool = False) -> list[NativeCall]:
    try:
        found, end = json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        return [NativeCall()]
    if is_all and text[end:].strip():
        return []
    listed = found if isinstance(found, list) else [found]
    calls = [call_in(each) if isinstance(each, dict) else None for each in listed]
    return [call or NativeCall() for call in calls]


def _listed_in(text: str, kinds: tuple[type, ...]) -> Any:
    """Return the list or object that a text is exactly; else the text."""
    try:
        found = parse(f'{{"calls":[{{"tool":"","arguments":{{"":{text}}}}}]}}', Calls, "json").calls[0].arguments[""]
    except (Malformed, KeyError, IndexError):
        return text
    return found if isinstance(found, kinds) else text


def _types_of(schema: Any) -> set[str]:
    """Types of the values that a plain schema takes, as far as it says."""
    if not isinstance(schema, dict):
        return set()
    types = {schema["type"]} if "type" in schema else set()
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        types |= _types_of(each)
    return types


def _plain(part: Any, defs: Mapping[str, Any], above: tuple[str, ...]) -> Any:
    """Write a schema without references, lists of types and other keywords that a provider refuses."""
    if isinstance(part, list):
        return [_plain(each, defs, above) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        name = str(part["$ref"]).rpartition("/")[2]
        if name in above or name not in defs:
            return {"type": "object"}
        rest = {key: value for key, value in part.items() if key != "$ref"}
        return _plain({**defs[name], **rest}, defs, (*above, name))
    kept = {key: _plain(value, defs, above) for key, value in part.items() if key not in (*_NOT_TAKEN, "properties")}
    if "properties" in part:  # a parameter may be called title
        kept["properties"] = {name: _plain(each, defs, above) for name, each in part["properties"].items()}
    if isinstance(kept.get("type"), list):
        kept["anyOf"] = [{"type": each} for each in kept.pop("type")]
    return kept


@lru_cache(maxsize=64)
def native_tools(tools: str) -> NativeTools:
    """Return the tools of a prompt as providers take them."""
    return NativeTools(tools)


def written_arguments(call: ToolCall) -> str:
    """Write the arguments of a call as one JSON object."""
    return _number_text(call.arguments).decode()
