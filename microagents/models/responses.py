"""Models behind OpenAI's responses API. It knows no several choices, no stop and no seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Raw, Struct, structs

from microagents.models.http.replies import Fields, Said, decode_reply, finish_of, is_there
from microagents.models.http.usage import Counts, name_or_none, read_or_empty
from microagents.models.json_schema import schema_name, strict_schema
from microagents.models.openai import CACHING, OpenAIWire, ReadDetails, WrittenDetails
from microagents.models.token_masses import ALTERNATIVES, tokens_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from microagents.models.model import Call
    from microagents.replies.chat import Sample

LEAST_OUTPUT_TOKENS = 16
"""The API refuses a lower limit."""


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

    def _read(self, body: bytes, call: Call) -> Sample:
        reply, said = decode_reply(body), Said()
        said.add(reply.output)
        if not said and not is_there(reply.status):
            raise msgspec.ValidationError("Expected an output with a text")
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
                has_reasoning=said.has_reasoning,
            )
        )
        reason = read_or_empty(reply.incomplete_details, Fields).reason
        is_named = finish_of(name_or_none(reason) or "") is not None
        sample = self._samples_of.make(said, reason if is_named else reply.status, usage)
        if sample.finish == "stop" and usage.output_tokens == max(LEAST_OUTPUT_TOKENS, call.max_output_tokens):
            # llama.cpp says "completed" of replies that it cut off, too.
            sample = structs.replace(sample, finish="length")
        return self._with_mass(sample, call, tokens_in(said.logprobs[0]) if len(said.logprobs) == 1 else [])


class _ResponsesCounts(Struct):
    # Raw, since a server may send anything here. A malformed count must not cost a valid reply.
    input_tokens: Raw = Raw()
    output_tokens: Raw = Raw()
    input_tokens_details: Raw = Raw(b"{}")
    output_tokens_details: Raw = Raw(b"{}")
