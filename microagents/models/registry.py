"""From a spec to a model."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from microagents.errors import InvalidUsage
from microagents.models.model import Model, ModelSpec
from microagents.task import Task

PROVIDERS = ("sim", "openai", "anthropic", "scripted")


def open_model(text: str, tasks: Sequence[Task], seed: int) -> Model:
    """Open the model that a spec names. Only the provider's own file is imported.

    Raises:
        InvalidUsage: an unknown provider or option, a missing key, a task that the simulated model cannot do.
    """
    spec = ModelSpec.parse(text)
    match spec.provider:
        case "sim":
            from microagents.models.simulated import SimulatedModel  # noqa: PLC0415 - providers load on demand

            return SimulatedModel(spec, tasks, seed)
        case "openai":
            from microagents.models.openai import OpenAIModel  # noqa: PLC0415 - half a second

            return OpenAIModel(spec)
        case "anthropic":
            from microagents.models.anthropic import AnthropicModel  # noqa: PLC0415 - a second

            return AnthropicModel(spec)
        case "scripted":
            from microagents.models.scripted import ScriptedModel  # noqa: PLC0415 - providers load on demand

            return ScriptedModel(spec)
    near = get_close_matches(spec.provider, PROVIDERS, n=1)
    raise InvalidUsage(
        f"{text!r} names no provider known here{f'; did you mean {near[0]}:' if near else ''}; providers are {', '.join(PROVIDERS)}"
    )
