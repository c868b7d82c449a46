"""Models behind OpenAI's responses API. It knows no several choices, no stop and no seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import structs

from microagents.base.logs import log
from microagents.models.http.batch_wires import ResponseWindows
from microagents.models.http.histories import responses_input
from microagents.models.http.media_parts import RESPONSES
from microagents.models.http.replies import Said, finish_of, name_in, object_in
from microagents.models.json_schema import schema_name, strict_schema
from microagents.models.openai import CACHING, OpenAIWire
from microagents.models.token_masses import ALTERNATIVES, tokens_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from microagents.elections.sample_batches import BatchKind
    from microagents.models.http.batch_client import BatchTerms
    from microagents.models.http.batch_wires import BatchWire
    from microagents.models.http.native_calls import NativeCall
    from microagents.models.http.sending import Body, Parameters, Sender
    from microagents.models.model import Call
    from microagents.replies.chat import Sample

LEAST_OUTPUT_TOKENS = 16
"""The API refuses a lower limit."""
LONG_WINDOW_S = 8 * 3600.0
"""Length of the longer of the two windows of background responses."""


class ResponsesModel(OpenAIWire):
    """A model behind OpenAI's responses API, with storing switched off."""

    path = "/responses"
    batch_kinds: ClassVar[tuple[BatchKind, ...]] = ("file", "window")
    form = RESPONSES
    effort_name = "reasoning.effort"
    mass_parameters: ClassVar = {"include": ["message.output_text.logprobs"], "top_logprobs": ALTERNATIVES}
    substitutes: ClassVar = {"temperature": None, "reasoning.effort": None, "include": None, **CACHING}

    def _batch_wire(self, sender: Sender, terms: BatchTerms) -> BatchWire:
        if terms.kind == "file":
            return super()._batch_wire(sender, terms)
        log().warning(
            "the provider stores each reply until it is recorded, then it is deleted: background responses need store=true",
            model=self.name,
        )
        is_short = terms.within_s is not None and terms.within_s < LONG_WINDOW_S
        return ResponseWindows(sender, self.path, self._redaction, "2h" if is_short else "8h")

    def _parameters(self, call: Call) -> Parameters:
        parameters = {
            **super()._parameters(call),
            "max_output_tokens": max(LEAST_OUTPUT_TOKENS, call.max_output_tokens),
            "store": False,
        }
        if call.prompt.tools:  # what is not stored at the provider comes back with the next request
            parameters["include"] = ["reasoning.encrypted_content"]
        if self._constrains(call):
            schema = strict_schema(call.reply)
            parameters["text.format"] = {
                "type": "json_schema",
                "name": schema_name(call.reply),
                "schema": schema,
                "strict": True,
            }
        return parameters

    def _content(self, call: Call, parameters: Parameters) -> Body:
        prompt, history = self._opened(call.prompt, call.contents)
        further = list(responses_input(history))
        content: Body = {"model": self.model, "input": prompt.user}
        if "prompt_cache_options" in parameters and self.caches.takes_static(prompt):
            content["input"] = [*self._messages(prompt, call.contents), *further]
        else:
            if further or prompt.files:
                user = self.form.content(prompt.user_parts, prompt.files, call.contents)
                content["input"] = [{"role": "user", "content": user}, *further]
            if prompt.system:
                content["instructions"] = prompt.system
        if prompt.tools:
            content["tools"] = [
                {"type": "function", "name": name, "description": said, "parameters": schema, "strict": False}
                for name, said, schema in history.tools.described
            ]
        return content

    def _items(self, said: Said, calls: Sequence[NativeCall]) -> list[dict[str, Any]] | None:  # noqa: ARG002 - the output has them
        if not any(each.get("type") == "reasoning" for each in said.parts):
            return None
        return said.parts

    def _read(self, reply: Body, call: Call) -> Sample:
        said = Said()
        said.add(reply.get("output"))
        if not said:
            said.add(reply.get("output_text"))
        if not said and not reply.get("status"):
            raise ValueError("Expected an output with a text")
        usage = self.meter.usage(reply, has_reasoning=said.has_reasoning)
        details = object_in(reply.get("incomplete_details"))
        reason = name_in(details.get("reason"))
        is_named = finish_of(reason) is not None
        sample = self._samples.sample(said, reason if is_named else reply.get("status"), usage, call)
        if sample.finish == "stop" and usage.output_tokens == max(LEAST_OUTPUT_TOKENS, call.max_output_tokens):
            # llama.cpp says "completed" of replies that it cut off, too.
            sample = structs.replace(sample, finish="length")
        return self._with_mass(sample, call, tokens_in(said.logprobs[0]) if len(said.logprobs) == 1 else [])
