"""Requests of clients: their fields at the top level as bytes, of which a few are set anew and all others go on as they came."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from microagents.base.errors import InvalidUsage
from microagents.base.named_values import stated
from microagents.models.http.replies import UNREADABLE, decode, object_in
from microagents.models.model import TEMPLATE_TOKENS
from microagents.web.endpoint.wires import CHAT, MESSAGES, RESPONSES, Wire

FORWARDED_HEADERS = ("anthropic-beta", "anthropic-version", "openai-beta")
"""Headers of clients that go on. Keys, cookies and all others do not."""
UNSTATED_CAP = 2**17
"""Output tokens of a request without a cap, for limits by the minute: no model writes more."""
MOST_CHOICES = 128
SEALED, LISTED = "reasoning.encrypted_content", "message.output_text.logprobs"
"""Further parts of a response: the reasoning itself, which clients send back since nothing is stored, and log-probabilities."""
_CALLS = ("tools", "functions", "mcp_servers", "prompt")
"""Fields by which a reply may have calls."""
_FILE = re.compile(rb'"type"\s*:\s*"(?:(file|input_file|document)|image|image_url|input_image|computer_screenshot)"')
"""Type of a part with a file or a picture."""
_STORED = ("previous_response_id", "conversation")
_UNBOUNDED = (
    *("web_search_options", "search_parameters", "plugins", "mcp_servers", "prompt"),
    *("models", "fallbacks", "service_tier", "speed", "inference_geo", "audio", "thread", "container"),
)
"""Fields by which a provider adds tokens or fees that no body shows, or charges other prices."""
_HARMLESS = (b"null", b"[]", *[b'"%s"' % each for each in (b"auto", b"default", b"standard", b"flex", b"global")])
"""Values of these fields by which it does neither."""
_SERVED = re.compile(
    r"(?:function|custom|namespace|local_shell|apply_patch|(?:bash|text_editor|memory|computer|browser|web_search)[\w-]*) .*|"
    r"shell local|tool_search client"
)
"""Types and places of tools that clients run, and of web search, which coding agents list in each request."""
_Tokens = Annotated[float, Meta(ge=0, le=1e9)] | None


class _StreamOptions(Struct):
    include_usage: bool | None = None


class NamedFields(Struct):
    """The fields of a request that the endpoint reads; all others go on unread."""

    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MOST_CHOICES)] | None = None
    """Number of choices, each of which is an election."""
    temperature: float | None = None
    seed: int | None = None
    max_completion_tokens: _Tokens = None
    max_tokens: _Tokens = None
    max_output_tokens: _Tokens = None
    store: bool | None = None
    background: bool | None = None
    include: list[str] | None = None
    logprobs: bool | None = None


NULL, EMPTY = Raw(b"null"), Raw(b"[]")
"""A field without a value, and one with none."""
_top_level = msgspec.json.Decoder(dict[str, Raw])
_named = msgspec.json.Decoder(NamedFields)


class ForwardedRequest(Struct, frozen=True, kw_only=True, dict=True):
    """One request for a reply."""

    wire: Wire
    whole: bytes
    """Its body as it came."""
    fields: Mapping[str, Raw]
    """The fields of its body as they came."""
    named: NamedFields
    headers: Mapping[str, str]
    """Its headers that go on."""
    query: str = ""
    caller: str = ""
    """Name of the token that it came with."""

    @classmethod
    def read(
        cls, wire: Wire, body: bytes, headers: Mapping[str, str], query: str, caller: str = ""
    ) -> ForwardedRequest:
        """Read a request.

        Raises:
            InvalidUsage: the body is no JSON object, a field that is read has another type, or it asks for something that is stored
                at the provider, or done in the background.
        """
        try:
            fields, named = _top_level.decode(body), _named.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            why = " ".join(str(error).split())
            raise InvalidUsage(f"the request cannot be read: {why}") from None
        for name in _STORED:
            if fields.get(name, NULL) != NULL:
                raise InvalidUsage(
                    f"{name} is not served: nothing is stored, so send the whole conversation with each request"
                )
        if named.background:
            raise InvalidUsage("background is not served: a vote needs the replies; leave it out")
        kept = {name: headers[name] for name in FORWARDED_HEADERS if name in headers}
        return cls(wire=wire, whole=body, fields=fields, named=named, headers=kept, query=query, caller=caller)

    @cached_property
    def digest(self) -> bytes:
        """Digest of the caller, the query and the body: equal requests have the same."""
        hashed = blake2b(msgspec.msgpack.encode((self.wire.name, self.caller, self.query)), digest_size=16)
        hashed.update(self.whole)
        return hashed.digest()

    def behind(self, path: str) -> str:
        """Return a path with the query of the request."""
        if self.query:
            return f"{path}?{self.query}"
        return path

    @property
    def streams(self) -> bool:
        """Whether the client reads events."""
        return self.named.stream is True

    @property
    def choices(self) -> int:
        """Number of replies that it asks for."""
        if self.wire is CHAT and self.named.n:
            return self.named.n
        return 1

    @property
    def has_form(self) -> bool:
        """Whether it gives the text of the reply a form in JSON."""
        return any(b'"json' in bytes(self.fields.get(name, NULL)) for name in self.wire.forms)

    @property
    def wants_usage(self) -> bool:
        """Whether the events of a chat are to end with the usage."""
        asked = self.named.stream_options
        return asked is not None and asked.include_usage is True

    @property
    def caps(self) -> Mapping[str, float]:
        """The caps on output tokens that it names."""
        given = {name: getattr(self.named, name) for name in self.wire.caps}
        return stated(given)

    def cap(self, ceiling: int | None) -> int:
        """Return the output tokens that a reply may have at most."""
        if ceiling is None:
            ceiling = UNSTATED_CAP
        return int(min([ceiling, *self.caps.values()]))

    @property
    def lacks_seals(self) -> bool:
        """Whether its client may count on stored reasoning: nothing is stored here, so the reasoning itself must come with the reply."""
        return self.wire is RESPONSES and self.named.store is not False and SEALED not in self.included

    @property
    def included(self) -> Sequence[str]:
        """Further parts of a reply that its client names."""
        return self.named.include or ()

    @cached_property
    def is_plain(self) -> bool:
        """Whether its reply can have no calls."""
        return all(self.fields.get(name, NULL) in (NULL, EMPTY) for name in _CALLS)

    @property
    def has_logprobs(self) -> bool:
        """Whether its client asks for the log-probabilities of tokens."""
        return bool(self.named.logprobs) or LISTED in self.included

    def body(
        self,
        model: str,
        *,
        ceiling: int | None = None,
        seq: int = 0,
        temperature: float = 0,
        more: Mapping[str, object] = {},
        includes: Sequence[str] = (),
    ) -> bytes:
        """Write the body of a sample: as it came but for the fields that are the endpoint's to set.

        Args:
            model: name of the model.
            ceiling: most output tokens; None for the client's own cap.
            seq: place of the sample in the order of launches.
            temperature: least temperature of the samples after the first.
            more: further fields.
            includes: further parts of a response, beside the ones that the client names.
        """
        fields: dict[str, object] = {**self.fields, "model": model}
        fields.pop("n", None)
        if self.wire is RESPONSES or "store" in fields:
            fields["store"] = False
        if self.wire is CHAT and self.streams:
            options = msgspec.json.decode(self.fields.get("stream_options", NULL))
            fields["stream_options"] = {**(options or {}), "include_usage": True}
        if ceiling is not None:
            for name in self.caps or self.wire.caps[:1]:
                fields[name] = self.cap(ceiling)
        if includes and self.wire is RESPONSES:
            fields["include"] = [*self.included, *includes]
        fields.update(more)
        if seq:
            self._vary(fields, seq, temperature)
        return msgspec.json.encode(fields)

    def _vary(self, fields: dict[str, object], seq: int, temperature: float) -> None:
        """Let a repeat differ from the first sample: at temperature 0, or with one seed, all are equal."""
        named = self.named
        if named.temperature is not None and named.temperature < temperature:
            fields["temperature"] = temperature
        if named.seed is not None:
            fields["seed"] = named.seed + seq

    @property
    def input_tokens(self) -> int:
        """Tokens of its prompt at most: none is shorter than a byte."""
        return TEMPLATE_TOKENS + sum(map(len, self.fields.values()))

    @cached_property
    def are_pictures(self) -> Sequence[bool]:
        """Whether each of its files is a picture. A short address may stand for a long one."""
        return [found[1] is None for found in _FILE.finditer(self.whole)]

    @cached_property
    def tools(self) -> Sequence[dict[str, Any]]:
        """Its tools; an empty object in their place if they cannot be read."""
        try:
            found = decode(bytes(self.fields.get("tools", EMPTY))) or ()
        except UNREADABLE:
            found = {}
        if not isinstance(found, list | tuple):
            found = (found,)
        return [object_in(each) for each in found]

    @property
    def unbounded(self) -> str | None:
        """Name of a field or of the type of a tool by which its cost has no bound; None for none."""
        for name in _UNBOUNDED:
            if bytes(self.fields.get(name, NULL)) not in _HARMLESS:
                return name
        for tool in self.tools:
            if _is_unbounded(tool):
                return str(tool.get("type", "a tool without a type"))
        if b'"tool_addition"' in self.whole:  # a message may bring a tool
            return "tool_addition"
        return None

    @cached_property
    def properties(self) -> Mapping[str, Mapping[str, Any]]:
        """Schemas of the parameters of its tools, by the names of both."""
        found: dict[str, Any] = {}
        for tool in self.tools:
            made = {**tool, **object_in(tool.get("function"))}
            schema = object_in(made.get("parameters") or made.get("input_schema"))
            found[str(made.get("name"))] = object_in(schema.get("properties"))
        return found


def _is_unbounded(tool: dict[str, Any]) -> bool:
    """Whether a provider runs a tool itself, as far as is known."""
    kind, place = tool.get("type"), tool.get("execution") or object_in(tool.get("environment")).get("type")
    if kind is None:
        return tool.keys().isdisjoint(("function", "input_schema"))
    return _SERVED.fullmatch(f"{kind} {place}") is None


COUNT_TOKENS = f"{MESSAGES.path}/count_tokens"
"""Path of the count of tokens, which is forwarded without a vote."""
