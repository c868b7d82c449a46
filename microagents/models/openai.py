"""Models of OpenAI, and of every server with its chat completions API: vLLM, Ollama, llama.cpp and others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Raw, Struct

from microagents.chat import Sample
from microagents.models.http import Client, Counts, HttpModel, bounded_client, read_or_empty

if TYPE_CHECKING:
    from microagents.models.model import Call

_REASONING = re.compile(r"(.*/)?(o\d|gpt-[5-9])")
"""Names of the models that accept only ``max_completion_tokens``, on any server."""


class OpenAIModel(HttpModel):
    """A model behind OpenAI's chat completions API.

    The cap on output is sent as ``max_completion_tokens`` to OpenAI itself and to reasoning models, known by name (o1,
    o3, gpt-5 and later). All other addresses get ``max_tokens``: a server that does not know the newer name may ignore
    it and set no cap. A server that refuses one name gets the other.

    With a ``base_url`` and no key, the key ``none`` is sent: local servers need none.
    """

    sdk = "openai"
    url = "https://api.openai.com/v1"
    url_env = "OPENAI_BASE_URL"
    key_env = "OPENAI_API_KEY"
    path = "/chat/completions"
    substitutes: ClassVar = {
        "temperature": None,
        "max_tokens": "max_completion_tokens",
        "max_completion_tokens": "max_tokens",
    }

    def _connect(self) -> Client:
        from openai import AsyncOpenAI, DefaultAioHttpClient  # noqa: PLC0415 - costs 0.5 s

        return AsyncOpenAI(
            api_key=self._key or "none",
            base_url=self.base_url,
            timeout=None,
            max_retries=0,
            http_client=bounded_client(DefaultAioHttpClient, self._key),
        )

    def _body(self, call: Call) -> dict[str, Any]:
        messages = [{"role": "user", "content": call.prompt.user}]
        if call.prompt.system:
            messages.insert(0, {"role": "system", "content": call.prompt.system})
        body: dict[str, Any] = {"model": self.model, "messages": messages, self._cap_name(): call.max_output_tokens}
        if call.temperature is not None:
            body["temperature"] = call.temperature
        return body

    def _cap_name(self) -> str:
        newer = urlsplit(self.base_url).hostname == "api.openai.com" or _REASONING.match(self.model)
        return "max_completion_tokens" if newer else "max_tokens"

    def _read(self, body: bytes) -> Sample:
        reply = _decode(body)
        choice = reply.choices[0]
        message = choice.message
        finish = "refusal" if message.refusal else choice.finish_reason
        counts = read_or_empty(reply.usage, _Counts)
        read = read_or_empty(counts.prompt_tokens_details, _ReadDetails)
        usage = Counts(
            read=counts.prompt_tokens,
            written=counts.completion_tokens,
            reasoned=read_or_empty(counts.completion_tokens_details, _WrittenDetails).reasoning_tokens,
            cached=read.cached_tokens,
            cache_written=read.cache_write_tokens,
            has_reasoning=bool(message.reasoning or message.reasoning_content),
        )
        return Sample(text=message.content or message.refusal or "", finish=finish, usage=self._usage(usage), model=self.name)


class _Counts(Struct):
    # Raw, since a server may send anything here. A malformed count must not cost a valid reply.
    prompt_tokens: Raw = Raw(b"")
    completion_tokens: Raw = Raw(b"")
    prompt_tokens_details: Raw = Raw(b"{}")
    completion_tokens_details: Raw = Raw(b"{}")


class _ReadDetails(Struct):
    cached_tokens: Raw = Raw()
    cache_write_tokens: Raw = Raw()


class _WrittenDetails(Struct):
    reasoning_tokens: Raw = Raw()


class _Message(Struct):
    content: str | None = None
    refusal: str | None = None
    # Servers of open models give the reasoning beside the content, under either name.
    reasoning: str | None = None
    reasoning_content: str | None = None


class _Choice(Struct):
    message: _Message
    finish_reason: str


class _Reply(Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1)]
    usage: Raw = Raw(b"{}")


_decode = msgspec.json.Decoder(_Reply).decode
