"""The three wires that the suites of HTTP models are held on: what differs between them, and a server to ask."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from microagents.elections.election import ElectionId, SampleId
from microagents.models.anthropic import AnthropicModel
from microagents.models.http.provider import HttpModel
from microagents.models.model import Call, ModelSpec
from microagents.models.openai import OpenAIModel
from microagents.models.responses import ResponsesModel
from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from tests.models.server import Answer, Server, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "k3y-Zebra-Quartz-77"
ROBUST_S = "10"
"""A timeout that is not meant to pass."""


class Provider(Struct, frozen=True):
    """What differs between them on the wire."""

    name: str
    model: type[HttpModel]
    key_env: str
    path: str
    effort_name: str
    input_tokens: str
    output_tokens: str
    details: str
    reasoning_tokens: str
    cap: str

    def good(self, text: str = "x = 1", finish: str | None = None, usage: object = None) -> dict[str, Any]:
        """The JSON of a reply that ended by itself, or as told."""
        if usage is None:
            usage = {self.input_tokens: 11, self.output_tokens: 7}
        if self.name == "openai":
            message = {"role": "assistant", "content": text, "refusal": None}
            return {"choices": [{"index": 0, "message": message, "finish_reason": finish or "stop"}], "usage": usage}
        if self.name == "openai-responses":
            status = (
                {"status": "completed"}
                if finish is None
                else {"status": "incomplete", "incomplete_details": {"reason": finish}}
            )
            part = {"type": "output_text", "text": text, "annotations": []}
            return {"output": [{"type": "message", "role": "assistant", "content": [part]}], "usage": usage, **status}
        return {"content": [{"type": "text", "text": text}], "stop_reason": finish or "end_turn", "usage": usage}

    def open(self, url: str, name: str = "m-1", **options: str) -> HttpModel:
        """A model that asks a server of the test."""
        return self.model(
            ModelSpec(provider=self.name, name=name, options={"base_url": url, "timeout_s": ROBUST_S, **options})
        )


OPENAI = Provider(
    name="openai", model=OpenAIModel, key_env="OPENAI_API_KEY", path="/chat/completions", effort_name="reasoning_effort",
    input_tokens="prompt_tokens", output_tokens="completion_tokens", details="completion_tokens_details",
    reasoning_tokens="reasoning_tokens", cap="max_tokens",
)  # fmt: skip
RESPONSES = Provider(
    name="openai-responses", model=ResponsesModel, key_env="OPENAI_API_KEY", path="/responses", effort_name="reasoning.effort",
    input_tokens="input_tokens", output_tokens="output_tokens", details="output_tokens_details",
    reasoning_tokens="reasoning_tokens", cap="max_output_tokens",
)  # fmt: skip
ANTHROPIC = Provider(
    name="anthropic", model=AnthropicModel, key_env="ANTHROPIC_API_KEY", path="/v1/messages", effort_name="output_config.effort",
    input_tokens="input_tokens", output_tokens="output_tokens", details="output_tokens_details",
    reasoning_tokens="thinking_tokens", cap="max_tokens",
)  # fmt: skip

WIRES = (OPENAI, RESPONSES, ANTHROPIC)


def a_call(user: str = "What is x?", system: str = "Be brief.", temperature: float | None = 0.1) -> Call:
    sample = SampleId(election=ElectionId(path="0/step", question_digest=b"f"), seq=0)
    return Call(
        id=sample, prompt=Prompt(user=user, system=system), reply=Reply, temperature=temperature, max_output_tokens=64
    )


@asynccontextmanager
async def asking(
    provider: Provider, *answers: Answer, name: str = "m-1", **options: str
) -> AsyncIterator[tuple[HttpModel, Server]]:
    async with serving(*answers) as server:
        model = provider.open(server.url, name, **options)
        try:
            yield model, server
        finally:
            await model.close()
