"""Models of Anthropic, and of every server with its messages API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Raw, Struct

from microagents.chat import Sample
from microagents.models.http import Client, Counts, HttpModel, bounded_client, read_or_empty

if TYPE_CHECKING:
    from microagents.models.model import Call

_VERSION = "2023-06-01"
"""The SDK's default, the API version 2026-10-21, accepts no temperature for any model."""
_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}
_REASONING = ("thinking", "redacted_thinking")
"""Types of blocks whose tokens are not in the text."""


class AnthropicModel(HttpModel):
    """A model behind Anthropic's messages API.

    A ``base_url`` is given without ``/v1``. With a ``base_url`` and no key, the key ``none`` is sent: local servers need none.
    """

    sdk = "anthropic"
    url = "https://api.anthropic.com"
    url_env = "ANTHROPIC_BASE_URL"
    key_env = "ANTHROPIC_API_KEY"
    path = "/v1/messages"
    substitutes: ClassVar = {"temperature": None}

    def _connect(self) -> Client:
        from anthropic import AsyncAnthropic, DefaultAioHttpClient  # noqa: PLC0415 - costs 1 s

        return AsyncAnthropic(
            api_key=self._key or "none",
            base_url=self.base_url,
            timeout=None,
            max_retries=0,
            default_headers={"anthropic-version": _VERSION},
            http_client=bounded_client(DefaultAioHttpClient, self._key),
        )

    def _body(self, call: Call) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": call.max_output_tokens,
            "messages": [{"role": "user", "content": call.prompt.user}],
        }
        if call.prompt.system:
            body["system"] = call.prompt.system
        if call.temperature is not None:
            body["temperature"] = call.temperature
        return body

    def _read(self, body: bytes) -> Sample:
        reply = _decode(body)
        text = "".join(block.text or "" for block in reply.content if block.type == "text")
        finish = _FINISH.get(reply.stop_reason, reply.stop_reason)
        counts = read_or_empty(reply.usage, _Counts)
        usage = Counts(
            read=counts.input_tokens,
            written=counts.output_tokens,
            reasoned=read_or_empty(counts.output_tokens_details, _Details).thinking_tokens,
            cached=counts.cache_read_input_tokens,
            cache_written=counts.cache_creation_input_tokens,
            has_reasoning=any(block.type in _REASONING for block in reply.content),
            excludes_cached=True,
        )
        return Sample(text=text, finish=finish, usage=self._usage(usage), model=self.name)


class _Counts(Struct):
    # Raw, since a server may send anything here. A malformed count must not cost a valid reply.
    input_tokens: Raw = Raw(b"")
    cache_read_input_tokens: Raw = Raw()
    cache_creation_input_tokens: Raw = Raw()
    output_tokens: Raw = Raw(b"")
    output_tokens_details: Raw = Raw(b"{}")


class _Details(Struct):
    thinking_tokens: Raw = Raw(b"")


class _Block(Struct):
    type: str
    text: str | None = None


class _Reply(Struct):
    content: list[_Block]
    stop_reason: str
    usage: Raw = Raw(b"{}")


_decode = msgspec.json.Decoder(_Reply).decode
