"""Requests of clients: their fields at the top level as bytes, of which a few are set anew and all others go on as they came."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.models.http.replies import object_in
from microagents.models.model import TEMPLATE_TOKENS
from microagents.web.endpoint.wires import CHAT, MESSAGES, RESPONSES, Wire

FORWARDED_HEADERS = ("anthropic-beta", "anthropic-version", "openai-beta")
"""Headers of clients that go on. Keys, cookies and all others do not."""
UNSTATED_CAP = 2**17
"""Output tokens of a request without a cap, for limits by the minute: no model writes more."""
MOST_CHOICES = 128
SEALED = {"include": b'["reasoning.encrypted_content"]'}
"""Asks for the reasoning itself, which clients send back, since nothing is stored."""
_CALLS = ("tools", "functions", "mcp_servers", "prompt")
"""Fields by which a reply may have calls."""
_STORED = ("previous_response_id", "conversation")
_top_level = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ForwardedRequest(Struct, frozen=True, kw_only=True, dict=True):
    """One request for a reply."""

    wire: Wire
    fields: Mapping[str, bytes]
    """The fields of its body as they came."""
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
            InvalidUsage: the body is no JSON object, or it asks for something that is stored at the provider, or done in the background.
        """
        try:
            found = _top_level.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            why = " ".join(str(error).split())
            raise InvalidUsage(f"the request cannot be read: {why}") from None
        fields = {name: bytes(value) for name, value in found.items()}
        for name in _STORED:
            if fields.get(name, b"null") != b"null":
                raise InvalidUsage(
                    f"{name} is not served: nothing is stored, so send the whole conversation with each request"
                )
        if fields.get("background", b"false") not in (b"false", b"null"):
            raise InvalidUsage("background is not served: a vote needs the replies; leave it out")
        kept = {name: headers[name] for name in FORWARDED_HEADERS if name in headers}
        return cls(wire=wire, fields=fields, headers=kept, query=query, caller=caller)

    @cached_property
    def digest(self) -> bytes:
        """Digest of the caller, the query and the body: equal requests have the same."""
        written = msgspec.msgpack.encode((self.wire.name, self.caller, self.query, list(self.fields.items())))
        return blake2b(written, digest_size=16).digest()

    @property
    def streams(self) -> bool:
        """Whether the client reads events."""
        return self.fields.get("stream") == b"true"

    @cached_property
    def choices(self) -> int:
        """Number of replies that it asks for.

        Raises:
            InvalidUsage: it is no number, or too many.
        """
        number = self._number("n") if self.wire is CHAT else None
        if number is not None and number not in range(1, MOST_CHOICES + 1):
            raise InvalidUsage(f"n must be 1 to {MOST_CHOICES}: each choice is an election")
        return int(number or 1)

    @property
    def has_form(self) -> bool:
        """Whether it gives the text of the reply a form in JSON."""
        return b'"json_' in self.fields.get(self.wire.form, b"")

    @cached_property
    def wants_usage(self) -> bool:
        """Whether the events of a chat are to end with the usage."""
        return b"true" in self.fields.get("stream_options", b"").partition(b"include_usage")[2][:12]

    def cap(self, ceiling: int | None) -> int:
        """Return the output tokens that a reply may have at most.

        Raises:
            InvalidUsage: the cap of the request is no number.
        """
        given = [cap for name in self.wire.caps if (cap := self._number(name)) is not None]
        return min([*given, *([] if ceiling is None else [ceiling])], default=UNSTATED_CAP)

    @property
    def lacks_seals(self) -> bool:
        """Whether its client may count on stored reasoning: nothing is stored here, so the reasoning itself must come with the reply."""
        is_stored = self.fields.get("store", b"null") != b"false"
        return self.wire is RESPONSES and is_stored and b"encrypted_content" not in self.fields.get("include", b"")

    @cached_property
    def is_plain(self) -> bool:
        """Whether its reply can have no calls."""
        return all(self.fields.get(name, b"null") in (b"null", b"[]") for name in _CALLS)

    @cached_property
    def has_logprobs(self) -> bool:
        """Whether its client asks for the log-probabilities of tokens."""
        return self.fields.get("logprobs", b"null") not in (b"null", b"false") or b"logprobs" in self.fields.get(
            "include", b""
        )

    @property
    def temperature(self) -> float | None:
        """Temperature that it names."""
        given: float | None = self._number("temperature")
        return given

    def body(
        self,
        model: str,
        *,
        ceiling: int | None = None,
        seq: int = 0,
        temperature: float = 0,
        more: Sequence[Mapping[str, bytes]] = (),
    ) -> bytes:
        """Write the body of a sample: as it came but for the fields that are the endpoint's to set.

        Args:
            model: name of the model.
            ceiling: most output tokens; None for the client's own cap.
            seq: place of the sample in the order of launches.
            temperature: least temperature of the samples after the first.
            more: further fields; an ``include`` is added to the client's.
        """
        fields = dict(self.fields)
        fields.pop("n", None)
        fields["model"] = msgspec.json.encode(model)
        if self.wire is RESPONSES or "store" in fields:
            fields["store"] = b"false"
        if self.wire is CHAT and self.streams:
            fields["stream_options"] = b'{"include_usage":true}'
        if ceiling is not None:
            given = [name for name in self.wire.caps if self._number(name) is not None]
            for name in given or self.wire.caps[:1]:
                fields[name] = b"%d" % self.cap(ceiling)
        for name, value in itertools.chain.from_iterable(each.items() for each in more):
            if name == "include":
                asked = [msgspec.json.decode(each) or [] for each in (fields.get(name, b"null"), value)]
                value = msgspec.json.encode([*asked[0], *asked[1]])  # noqa: PLW2901
            fields[name] = value
        if seq:
            self._vary(fields, seq, temperature)
        return b"{%s}" % b",".join(msgspec.json.encode(name) + b":" + value for name, value in fields.items())

    def _vary(self, fields: dict[str, bytes], seq: int, temperature: float) -> None:
        """Let a repeat differ from the first sample: at temperature 0, or with one seed, all are equal."""
        if self.temperature is not None and self.temperature < temperature:
            fields["temperature"] = msgspec.json.encode(temperature)
        seed = self._number("seed")
        if seed is not None:
            fields["seed"] = b"%d" % (int(seed) + seq)

    def _number(self, name: str) -> Any:
        value = self.fields.get(name, b"null")
        try:
            return msgspec.json.decode(value, type=int | float | None)
        except (msgspec.MsgspecError, ValueError):
            raise InvalidUsage(f"{name} must be a number, not {value[:40].decode('utf-8', 'replace')}") from None

    @property
    def input_tokens(self) -> int:
        """Tokens of its prompt at most: none is shorter than a byte."""
        return TEMPLATE_TOKENS + sum(map(len, self.fields.values()))

    @cached_property
    def schemas(self) -> Mapping[str, Any]:
        """Schemas of the parameters of its tools, by their names."""
        found: dict[str, Any] = {}
        try:
            tools = msgspec.json.decode(self.fields.get("tools", b"[]"), type=list[dict[str, Any]])
        except (msgspec.MsgspecError, ValueError):
            return found
        for tool in tools:
            made = {**tool, **object_in(tool.get("function"))}
            found[str(made.get("name"))] = made.get("parameters") or made.get("input_schema")
        return found


COUNT_TOKENS = f"{MESSAGES.path}/count_tokens"
"""Path of the count of tokens, which is forwarded without a vote."""
