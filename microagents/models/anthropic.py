"""Models of Anthropic, and of every server with its messages API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from microagents.base.errors import InvalidUsage
from microagents.base.named_values import stated
from microagents.models.http.batch_wires import AnthropicBatches
from microagents.models.http.histories import messages_of
from microagents.models.http.media_parts import MESSAGES
from microagents.models.http.provider import HttpModel
from microagents.models.http.replies import Said
from microagents.models.http.sending import Body, Client, Parameters, Sender, headers_of
from microagents.models.json_schema import strict_schema
from microagents.models.prices import NO_PRICES, UserPrices
from microagents.replies.json_forms import AGAIN
from microagents.replies.reply_forms import json_form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from microagents.actors.role import Context
    from microagents.elections.sample_batches import BatchKind
    from microagents.models.http.batch_client import BatchTerms
    from microagents.models.http.batch_wires import BatchWire
    from microagents.models.http.native_calls import NativeCall
    from microagents.models.model import Call, ModelSpec
    from microagents.replies.chat import Sample

_VERSION = "2023-06-01"
"""The SDK's default, the API version 2026-10-21, accepts no temperature for any model; this one takes it for older models."""
CACHED = {"type": "ephemeral"}
_LEAST_BUDGET = 1024
"""Tokens of thinking that the API asks for at least."""


class AnthropicModel(HttpModel):
    """A model behind Anthropic's messages API.

    A ``base_url`` is given without ``/v1``. With a ``base_url`` and no key, the key ``none`` is sent: local servers need none.

    One more option: ``thinking``, which is ``adaptive``, ``disabled``, or a budget in tokens.
    """

    sdk = "anthropic"
    url = "https://api.anthropic.com"
    url_env = "ANTHROPIC_BASE_URL"
    key_env = "ANTHROPIC_API_KEY"
    path = "/v1/messages"
    batch_kinds: ClassVar[tuple[BatchKind, ...]] = ("file",)
    form = MESSAGES
    excludes_cached = True
    models_path = "/v1/models?limit=1000"
    more_options = ("thinking",)
    effort_name = "output_config.effort"
    substitutes: ClassVar = {"temperature": None, "output_config.effort": None}

    def __init__(self, spec: ModelSpec, prices: UserPrices = NO_PRICES) -> None:
        super().__init__(spec, prices)
        self._thinking = _thinking(spec.options.get("thinking"))

    def join(self, context: Context) -> None:
        """Take the name of a run, and check the options against its task."""
        super().join(context)
        for task in context.tasks[:1]:
            reply = task.reply_type()
            if self._has_schema and reply is not None and AGAIN in json_form(reply):
                raise InvalidUsage(
                    f"{reply.__name__} has a type that contains itself, which Anthropic takes in no schema; leave json_schema=true out: "
                    "the prompt shows the form, and each reply is checked"
                )

    @property
    def _wants_reasoning(self) -> bool:
        return self._thinking is not None and self._thinking["type"] == "enabled"

    def _batch_wire(self, sender: Sender, terms: BatchTerms) -> BatchWire:  # noqa: ARG002 - it has one kind
        return AnthropicBatches(sender, self.path, self._redaction)

    def _connect(self) -> Client:
        from anthropic import AsyncAnthropic  # noqa: PLC0415 - costs 1 s

        headers = headers_of(AsyncAnthropic, self._key, self.base_url)
        return Sender(self.base_url, {**headers, "anthropic-version": _VERSION})

    def _parameters(self, call: Call) -> Parameters:
        thinks = self._thinking is not None and self._thinking["type"] != "disabled"
        parameters = {
            "max_tokens": call.max_output_tokens,
            "temperature": None if thinks else call.temperature,  # a model that thinks takes none
            "thinking": self._thinking,
            self.effort_name: self._effort,
            "output_config.format": {"type": "json_schema", "schema": strict_schema(call.reply, has_bounds=False)}
            if self._constrains(call)
            else None,
            "service_tier": self._options.get("service_tier"),
        }
        return stated(parameters)

    def _content(self, call: Call, parameters: Parameters) -> Body:  # noqa: ARG002
        prompt, history = self._opened(call.prompt, call.contents)
        system: Any = prompt.system
        mark = {"cache_control": CACHED} if self.caches.takes_static(prompt) else {}
        user = self.form.content(prompt.user_parts, prompt.files, call.contents, mark if prompt.static_chars else {})
        if mark and not prompt.static_chars:
            system = [{"type": "text", "text": system, **mark}]
        messages = messages_of(history, {"role": "user", "content": user})
        if history.turns and self.caches.takes(prompt.size):
            _mark_last(messages[-1])  # the next step reads from the cache what this one ends with
        content: Body = {"model": self.model, "messages": messages}
        if prompt.tools:
            content["tools"] = [
                {"name": name, "description": said, "input_schema": schema}
                for name, said, schema in history.tools.described
            ]
        if system:
            content["system"] = system
        return content

    def _items(self, said: Said, calls: Sequence[NativeCall]) -> list[dict[str, Any]] | None:  # noqa: ARG002 - the content has them
        if not any("thinking" in str(each.get("type")) for each in said.parts):
            return None
        return said.parts

    def _read(self, reply: Body, call: Call) -> Sample:
        said = Said()
        said.add(reply.get("content"))
        if not said and not reply.get("stop_reason"):
            raise ValueError("Expected a content with a text")
        usage = self.meter.usage(reply, has_reasoning=said.has_reasoning)
        return self._samples.sample(said, reply.get("stop_reason"), usage, call)


def _mark_last(message: dict[str, Any]) -> None:
    """Mark the last part of a message as the end of a prefix to cache; parts are shared with other requests, so it is copied."""
    *before, last = message["content"]
    message["content"] = [*before, {**last, "cache_control": CACHED}]


def _thinking(given: str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    if given in ("adaptive", "disabled"):
        return {"type": given}
    if not given.isascii() or not given.isdigit() or int(given[:9]) < _LEAST_BUDGET:
        raise InvalidUsage(
            f"thinking must be adaptive, disabled or a budget of at least {_LEAST_BUDGET} tokens, not {given!r}"
        )
    return {"type": "enabled", "budget_tokens": int(given)}
