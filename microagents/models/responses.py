"""Models behind OpenAI's responses API. It knows no several choices, no stop and no seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Raw, Struct

from microagents.base.errors import ModelUnavailable
from microagents.models.http.usage import Counts, read_or_empty
from microagents.models.json_schema import schema_name, strict_schema
from microagents.models.openai import CACHING, OpenAIWire, ReadDetails, WrittenDetails
from microagents.models.token_masses import ALTERNATIVES, tokens_in
from microagents.replies.chat import Sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from microagents.models.model import Call

LEAST_OUTPUT_TOKENS = 16
"""The API refuses a lower limit."""
_REASONS = {"max_output_tokens": "length"}


class ResponsesModel(OpenAIWire):
    """A model behind OpenAI's responses API, with storing switched off."""

    path = "/responses"
    effort_name = "reasoning.effort"
    mass_parameters: ClassVar = {"include": ["message.output_text.logprobs"], "top_logprobs": ALTERNATIVES}
    substitutes: ClassVar = {"temperature": None, "reasoning.effort": None, **CACHING}

    def _parameters(self, call: Call) -> dict[str, Any]:
        parameters = {
            **super()._parameters(call),
            "max_output_tokens": max(LEAST_OUTPUT_TOKENS, call.max_output_tokens),
            "store": False,
        }
        if self._has_schema:
            schema = strict_schema(call.reply)
            parameters["text.format"] = {
                "type": "json_schema",
                "name": schema_name(call.reply),
                "schema": schema,
                "strict": True,
            }
        return parameters

    def _content(self, call: Call, parameters: Mapping[str, Any]) -> dict[str, Any]:
        if "prompt_cache_options" in parameters and self._is_cached(call.prompt):
            return {"model": self.model, "input": self._messages(call.prompt, "input_text")}
        content: dict[str, Any] = {"model": self.model, "input": call.prompt.user}
        if call.prompt.system:
            content["instructions"] = call.prompt.system
        return content

    def _read(self, body: bytes, call: Call) -> Sample | ModelUnavailable:
        reply = _decode(body)
        if reply.status == "failed":
            error = reply.error or _Failure()
            return ModelUnavailable(
                "busy" if error.code == "rate_limit_exceeded" else "server", f"{error.code}: {error.message}"
            )
        parts = [part for item in reply.output for part in item.content or ()]
        refusals = [part.refusal for part in parts if part.refusal]
        counts = read_or_empty(reply.usage, _ResponsesCounts)
        read = read_or_empty(counts.input_tokens_details, ReadDetails)
        usage = self._meter.usage(
            Counts(
                read=counts.input_tokens,
                written=counts.output_tokens,
                reasoned=read_or_empty(counts.output_tokens_details, WrittenDetails).reasoning_tokens,
                cached=read.cached_tokens,
                cache_written=read.cache_write_tokens,
                served=reply.service_tier,
                has_reasoning=any(item.type == "reasoning" for item in reply.output),
            )
        )
        finish = _finish(reply)
        if finish == "stop" and usage.output_tokens == max(LEAST_OUTPUT_TOKENS, call.max_output_tokens):
            finish = "length"  # llama.cpp says "completed" of replies that it cut off, too
        written = [part for part in parts if part.type == "output_text"]
        sample = Sample(
            text="".join(part.text for part in written) or "".join(refusals),
            finish="refusal" if refusals else finish,
            usage=usage,
            model=self.name,
        )
        return self._with_mass(sample, call, tokens_in(written[0].logprobs) if len(written) == 1 else [])


def _finish(reply: _ResponsesReply) -> str:
    if reply.status == "completed":
        return "stop"
    reason = reply.incomplete_details.reason if reply.incomplete_details is not None else ""
    return _REASONS.get(reason, reason) if reply.status == "incomplete" else reply.status


class _ResponsesCounts(Struct):
    # Raw, since a server may send anything here. A malformed count must not cost a valid reply.
    input_tokens: Raw = Raw()
    output_tokens: Raw = Raw()
    input_tokens_details: Raw = Raw(b"{}")
    output_tokens_details: Raw = Raw(b"{}")


class _ItemPart(Struct):
    type: str
    text: str = ""
    refusal: str | None = None
    logprobs: Raw = Raw()


class _Item(Struct):
    type: str
    # Of a message its parts; other items, such as reasoning, have their own, or none.
    content: list[_ItemPart] | None = None


class _Incomplete(Struct):
    reason: str = ""


class _Failure(Struct):
    code: str = "server_error"
    message: str = "the response failed"


class _ResponsesReply(Struct):
    status: str
    output: list[_Item]
    incomplete_details: _Incomplete | None = None
    error: _Failure | None = None
    service_tier: Raw = Raw()
    usage: Raw = Raw(b"{}")


_decode = msgspec.json.Decoder(_ResponsesReply).decode
