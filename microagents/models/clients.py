"""Models that are asked through an SDK's client that a user already has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from microagents.errors import InvalidUsage
from microagents.models.model import Model


class SdkClient(Protocol):
    """A client of an SDK: `openai.AsyncOpenAI`, `anthropic.AsyncAnthropic`, or a class derived from one of them."""

    @property
    def base_url(self) -> Any:
        """Address of the provider."""
        ...

    @property
    def copy(self) -> Callable[..., Any]:
        """Makes the same client with changes."""
        ...


def client_model(client: SdkClient, name: str, *, responses: bool = False, **options: str) -> Model:
    """Build a model that is asked through a user's own client.

    Use it as ``run(task, models=client_model(AsyncOpenAI(), "gpt-6-luna"))``.

    The client gives the address, the key and the transport, and stays open: it is the caller's. Its retries and timeouts do not apply,
    since the solver repeats calls; the bounds on time, size and errors are those of a spec.

    Args:
        client: an ``openai.AsyncOpenAI`` or an ``anthropic.AsyncAnthropic``.
        name: name of the model.
        responses: whether OpenAI's responses API is asked, not chat completions.
        options: options of a spec, such as ``timeout_s="60"`` or ``effort="low"``.

    Raises:
        InvalidUsage: the client is none of these, or an option is wrong.
    """
    from microagents.models import sdk_clients  # noqa: PLC0415 - imports the HTTP models, which not every program needs

    for base in type(client).__mro__:
        match base.__module__.partition(".")[0], base.__name__:
            case "openai", "AsyncOpenAI":
                kind = sdk_clients.OpenAIResponses if responses else sdk_clients.OpenAIChat
                return kind(client, "openai-responses" if responses else "openai", name, options)
            case "anthropic", "AsyncAnthropic":
                return sdk_clients.AnthropicMessages(client, "anthropic", name, options)
    raise InvalidUsage(f"{client!r:.100} is no client that is known here: give an openai.AsyncOpenAI or an anthropic.AsyncAnthropic")
