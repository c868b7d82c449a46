"""The acts of a reply: its calls as a vote, read from any wire and dialect. The reply itself is never changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from microagents.models.http.replies import UNREADABLE, Said, decode, name_in, object_in
from microagents.replies.chat import encode_reply
from microagents.replies.tool_calls import ToolCall, with_whole_numbers
from microagents.replies.turns import canonical
from microagents.systems.agents.actions import Action
from microagents.web.endpoint.policy import TEXT

MOST_KEPT = 200
"""Characters of an argument in a vote; a longer one is there by its digest, which journals can keep."""
HOSTED = frozenset(
    f"{name}_call"
    for name in ("web_search", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search")
)
"""Items of replies about calls that the server itself has made."""
_OF_WIRE = frozenset(("id", "call_id", "type", "status", "name", "namespace", "caller"))
"""Fields of a call that are no arguments."""
Schemas = Callable[[], Mapping[str, Any]]
"""The schemas of the parameters of a request's tools by name, read when one is needed."""


# The docstring is part of the digest of questions: see `Reply`.
class Acts(Action, frozen=True):
    """The calls of a reply; one without calls ends the turn."""

    def flaw(self) -> None:
        """None: any number of calls is a reply."""
        return

    def without_prose(self, prose: Mapping[str, Any]) -> Acts:
        """Return the calls without the arguments that cast no vote."""
        return Acts(calls=super().without_prose(prose).calls)


def vote_text(reply: Mapping[str, Any], schemas: Schemas, *, has_form: bool, by_text: bool) -> str:
    """Return the acts of a whole reply as the JSON of `Acts`.

    Args:
        reply: the reply, in the form of any wire.
        schemas: the schemas of the tools.
        has_form: whether the request gives the text a JSON schema, so that its value is compared.
        by_text: whether texts are compared.
    """
    calls = [_call(name, given, schemas) for name, given in _calls_in(reply)]
    if not calls:
        calls = [ToolCall(TEXT, _text_arguments(_text_in(reply), has_form=has_form, by_text=by_text))]
    return encode_reply(Acts(calls=calls)).decode()


def _text_arguments(text: str, *, has_form: bool, by_text: bool) -> dict[str, Any]:
    if has_form:
        try:
            return {"value": _kept(with_whole_numbers(json.loads(text)))}
        except UNREADABLE:
            return {"unread": _kept(text)}
    if by_text:
        return {"text": _kept(" ".join(text.split()))}
    return {}


def _call(name: str, given: Any, schemas: Schemas) -> ToolCall:
    arguments = arguments_in(given)
    read = {}
    for argument, value in arguments.items():
        if isinstance(value, str) and value[:1] in ("[", "{"):
            value = _decoded_once_more(name, argument, value, schemas)  # noqa: PLW2901
        read[argument] = _kept(with_whole_numbers(value))
    return ToolCall(name, read)


def arguments_in(given: Any) -> dict[str, Any]:
    """Read the arguments of a call: an object, or a text of it; nothing of none. One encoded twice is decoded twice."""
    for _ in range(2):
        if isinstance(given, str):
            if not given.strip():
                return {}
            try:
                given = decode(given.encode("utf-8", "surrogatepass"))
            except UNREADABLE:
                return {"unread": given}
    if given is None:
        return {}
    if isinstance(given, dict):
        return given
    return {"unread": canonical(given)}


def _decoded_once_more(tool: str, argument: str, value: str, schemas: Schemas) -> Any:
    """Decode an argument that is JSON in a text, if its schema says array or object."""
    schema = object_in(object_in(object_in(schemas().get(tool)).get("properties")).get(argument))
    wanted = {"[": "array", "{": "object"}[value[0]]
    if wanted != schema.get("type"):
        return value
    try:
        return json.loads(value)
    except UNREADABLE:
        return value


def _kept(value: Any) -> Any:
    """Return a value, or its digest if it is long."""
    text = value if isinstance(value, str) else canonical(value)
    if len(text) <= MOST_KEPT:
        return value
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{len(text)} characters, blake2b {digest}"


def _calls_in(reply: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the calls of a reply, as the name of each and its arguments as they are written."""
    choices = reply.get("choices")
    if isinstance(choices, list):
        for choice in choices[:1]:
            yield from _of_message(object_in(object_in(choice).get("message")))
    for part in _parts(reply.get("content")):
        if part.get("type") == "tool_use":
            yield name_in(part.get("name")), part.get("input")
    for item in _parts(reply.get("output")):
        kind = name_in(item.get("type"))
        if kind in HOSTED or not kind.endswith(("_call", "_request")):
            continue
        name = ".".join(filter(None, (name_in(item.get("namespace")), name_in(item.get("name")) or kind)))
        if "arguments" in item:
            yield name, item["arguments"]
        else:
            yield name, {field: value for field, value in item.items() if field not in _OF_WIRE}


def _of_message(message: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for each in _parts(message.get("tool_calls")):
        made = object_in(each.get("function") or each.get("custom") or each)
        yield name_in(made.get("name")), made.get("arguments", made.get("input"))
    alone = object_in(message.get("function_call"))
    if alone:
        yield name_in(alone.get("name")), alone.get("arguments")


def _parts(found: Any) -> list[dict[str, Any]]:
    if not isinstance(found, list):
        return []
    return [each for each in found if isinstance(each, dict)]


def _text_in(reply: Mapping[str, Any]) -> str:
    said = Said(texts=[], reasonings=[], logprobs=[])
    choices = reply.get("choices")
    message = object_in(choices[0]).get("message") if isinstance(choices, list) and choices else None
    for found in (message, reply.get("content"), reply.get("output")):
        try:
            said.add(found)
        except ValueError:  # of no text
            continue
    return said.text or said.refusal
