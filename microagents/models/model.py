"""What a provider's file offers to the solver: one call in, one sample out, or our own plain error."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from microagents.chat import Prompt, Reply, Sample
from microagents.elections.election import SampleId
from microagents.errors import InvalidUsage


class Call(Struct, frozen=True, kw_only=True):
    """One request for one sample.

    Providers send ``prompt``, ``temperature`` and ``max_output_tokens``; the simulated model draws its chance from ``id``, and asks the
    task's expert for a ``reply``.
    """

    id: SampleId
    prompt: Prompt
    reply: type[Reply]
    temperature: float | None
    max_output_tokens: int


class Model(Protocol):
    """A source of samples, used by one event loop."""

    @property
    def priced(self) -> bool:
        """Whether it is known what a call costs."""
        ...

    async def complete(self, call: Call) -> Sample:
        """Take one sample. One attempt: the solver retries.

        Raises:
            ModelUnavailable: for everything that kept a reply from arriving.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class ModelSpec(Struct, frozen=True, kw_only=True):
    """``provider:name[@key=value,...]``, taken apart."""

    provider: str
    name: str
    options: dict[str, str] = {}

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """Read a spec such as ``openai:my-model@base_url=http://localhost:8000/v1``.

        Raises:
            InvalidUsage: when it has not this form.
        """
        head, _, tail = text.partition("@")
        provider, colon, name = head.partition(":")
        pairs = [pair.partition("=") for pair in tail.split(",") if pair]
        if not (provider and colon and name) or not all(key and equals for key, equals, _ in pairs):
            raise InvalidUsage(f"{text!r} is not a model; write provider:model[@key=value,...], such as sim:gpt-4.1-mini@error=0.01")
        return cls(provider=provider, name=name, options={key.strip(): value.strip() for key, _, value in pairs})
