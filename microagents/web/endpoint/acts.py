"""The acts of a reply: its calls as a vote, read from any wire and dialect. The reply itself is never changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from microagents.base.text_digests import digest_of
from microagents.models.http.native_calls import NativeCall, call_in, native_tools
from microagents.models.http.replies import UNREADABLE, Said, choices_in, decode, name_in, object_in
from microagents.replies.reply_forms import encode_reply
from microagents.replies.tool_calls import ToolCall, with_whole_numbers
from microagents.replies.turns import canonical
from microagents.systems.agents.actions import Action
from microagents.web.endpoint.asked import ForwardedRequest
from microagents.web.endpoint.policy import TEXT, Policy

MOST_KEPT = 200
"""Characters of an argument in a vote; a longer one is there by its digest, which journals can keep, unless a person has to see it."""
HOSTED = frozenset(
    f"{name}_call"
    for name in ("web_search", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search")
)
"""Items of replies about calls that the server itself has made."""
UNREAD = "unread"
"""Stands for the name of an argument in the vote of a reply or a call that is not the JSON it has to be."""
_OF_WIRE = frozenset(("id", "call_id", "type", "status", "name", "namespace", "caller"))
"""Fields of a call that are no arguments."""


# The docstring is part of the digest of questions: see `Reply`.
class Acts(Action, frozen=True):
    """The calls of a reply; one without calls ends the turn."""

    def flaw(self) -> None:
        """None: any number of calls is a reply."""
        return

    def without_prose(self, prose: Mapping[str, Any]) -> Acts:
        """Return the calls without the arguments that cast no vote."""
        return Acts(calls=super().without_prose(prose).calls)


def shares_of(tool: str, samples: Sequence[Acts]) -> dict[str, float]:
    """Return the share of the samples that call a tool, under an empty name, and of each argument's most frequent value among these."""
    made: list[dict[str, Any]] = []
    for acts in samples:
        calls = [call.arguments for call in acts.calls if call.tool == tool]
        made += calls[:1]
    shares = {"": len(made) / len(samples)}
    if len(made) > 1:
        for argument in sorted(set[str]().union(*made)):
            values = Counter(canonical(arguments.get(argument)) for arguments in made)
            shares[argument] = max(values.values()) / len(made)
    return shares


def vote_text(reply: Mapping[str, Any], asked: ForwardedRequest, policy: Policy) -> str:
    """Return the acts of a whole reply as the JSON of `Acts`.

    Args:
        reply: the reply, in the form of any wire.
        asked: its request. If that gives the text a JSON schema, its value is compared.
        policy: whether texts are compared, and the tools whose arguments a person has to see.

    Raises:
        ValueError: it has a text that is none.
        RecursionError: it is nested too deep.
    """
    said = said_in(reply)
    text = said.text or said.refusal
    calls = [_call(each, asked) for each in said.calls or _written_in(text, asked)]
    if not calls:
        calls = [ToolCall(TEXT, _text_arguments(text, asked, policy))]
    for call in calls:
        if not policy.of(call.tool).approve:
            call.arguments.update({name: _kept(value) for name, value in call.arguments.items()})
    return encode_reply(Acts(calls=calls)).decode()


def said_in(reply: Mapping[str, Any]) -> Said:
    """Read what a reply says, on the wire whose field it has."""
    choices = choices_in(reply.get("choices"))
    if choices:
        choices[0].said.logprobs = [choices[0].logprobs]
        return choices[0].said
    said = Said()
    said.add(reply.get("content"))
    if "output" in reply:
        said.add(reply["output"])
        said.calls = [_call_of(item) for item in said.parts if _is_call(name_in(item.get("type")))]
    return said


def _is_call(kind: str) -> bool:
    return kind.endswith(("_call", "_request")) and kind not in HOSTED


def _call_of(item: dict[str, Any]) -> NativeCall:
    """Read an item of a response that is a call, also one of a built-in tool."""
    named = (name_in(item.get("namespace")), name_in(item.get("name")) or name_in(item.get("type")))
    fields = {field: value for field, value in item.items() if field not in _OF_WIRE}
    name = ".".join(filter(None, named))
    return call_in({"name": name, "input": item.get("arguments", fields)}) or NativeCall()


def _written_in(text: str, asked: ForwardedRequest) -> list[NativeCall]:
    """Find the calls that a model has written into its text."""
    if "{" not in text or not asked.properties:
        return []
    tools = native_tools(json.dumps([{"name": name} for name in asked.properties]))
    return tools.in_text(text)[1]


def _text_arguments(text: str, asked: ForwardedRequest, policy: Policy) -> dict[str, Any]:
    if asked.has_form:
        try:
            return {"value": with_whole_numbers(json.loads(text))}
        except UNREADABLE:
            return {UNREAD: text}
    if policy.votes == "text":
        return {"text": " ".join(text.split())}
    return {}


def _call(call: NativeCall, asked: ForwardedRequest) -> ToolCall:
    given = call.arguments
    if given is None:
        return ToolCall(call.name, {UNREAD: call.text})
    read = {}
    for argument, value in decode(given.encode("utf-8", "surrogatepass")).items():
        if isinstance(value, str) and value[:1] in ("[", "{"):
            properties = asked.properties.get(call.name, {})
            value = _decoded_once_more(value, object_in(properties.get(argument)))  # noqa: PLW2901
        read[argument] = with_whole_numbers(value)
    return ToolCall(call.name, read)


def _decoded_once_more(value: str, schema: Mapping[str, Any]) -> Any:
    """Decode an argument that is JSON in a text, if its schema says array or object."""
    if schema.get("type") == {"[": "array", "{": "object"}[value[0]]:
        with suppress(*UNREADABLE):
            return json.loads(value)
    return value


def _kept(value: Any) -> Any:
    """Return a value, or its digest if it is long."""
    text = value if isinstance(value, str) else canonical(value)
    if len(text) <= MOST_KEPT:
        return value
    return f"{len(text)} characters, blake2b {digest_of(text).hex()}"
