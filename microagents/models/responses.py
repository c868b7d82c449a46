"""Models behind OpenAI's responses API. It knows no several choices, no stop and no seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import structs

from microagents.models.http.replies import Said, finish_of, name_in, object_in
from microagents.models.json_schema import schema_name, strict_schema
from microagents.models.openai import CACHING, OpenAIWire
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

    def _read(self, reply: Mapping[str, Any], call: Call) -> Sample:
        said = Said()
        said.add(reply.get("output"))
        if not said:
            said.add(reply.get("output_text"))
        if not said and not reply.get("status"):
            raise ValueError("Expected an output with a text")
        usage = self._meter.usage(reply, has_reasoning=said.has_reasoning)
        details = object_in(reply.get("incomplete_details"))
        reason = name_in(details.get("reason"))
        is_named = finish_of(reason) is not None
        sample = self._samples_of.make(said, reason if is_named else reply.get("status"), usage)
        if sample.finish == "stop" and usage.output_tokens == max(LEAST_OUTPUT_TOKENS, call.max_output_tokens):
            # llama.cpp says "completed" of replies that it cut off, too.
            sample = structs.replace(sample, finish="length")
        return self._with_mass(sample, call, tokens_in(said.logprobs[0]) if len(said.logprobs) == 1 else [])
