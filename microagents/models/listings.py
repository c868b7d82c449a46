"""Models as their providers list them: names, and where a provider says so, limits, inputs and ends."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime
from typing import Any

from msgspec import Struct

from microagents.base.errors import ModelUnavailable
from microagents.models.http.replies import UNREADABLE, decode, name_in, object_in
from microagents.models.http.sending import Answered

INPUTS = {"image_input": "pictures", "pdf_input": "PDFs"}
"""Inputs besides text, by their name in Anthropic's capabilities."""


class Listed(Struct, frozen=True, kw_only=True):
    """One model of a list; None where the provider does not say."""

    retires: date | None = None
    is_retired: bool = False
    context_window: int | None = None
    """Tokens of the longest prompt."""
    inputs: dict[str, bool] = {}
    """Whether it takes pictures and PDFs, by the words for them."""

    @property
    def facts(self) -> list[str]:
        """Its limits and inputs, in words."""
        facts = []
        if self.context_window is not None:
            facts.append(f"reads {self.context_window:,} tokens")
        taken = [word for word, is_taken in self.inputs.items() if is_taken]
        left = [word for word, is_taken in self.inputs.items() if not is_taken]
        if taken:
            facts.append(f"takes {' and '.join(taken)}")
        if left:
            facts.append(f"takes no {' and no '.join(left)}")
        return facts


def models_in(answer: Answered) -> dict[str, Listed]:
    """Read a list of models by their names, in the form of OpenAI, Anthropic or Google; empty if there is none."""
    if isinstance(answer, ModelUnavailable) or not answer.is_success:
        return {}
    try:
        found = object_in(decode(answer.content))
    except UNREADABLE:
        return {}
    listed = found.get("data") or found.get("models")
    if not isinstance(listed, list):
        return {}
    entries = [object_in(each) for each in listed]
    given = [each.get("id") or each.get("name") for each in entries]
    names = list(map(name_in, given))
    models = {name.removeprefix("models/"): _listed(each) for name, each in zip(names, entries, strict=True)}
    models.pop("", None)
    return models


def _listed(entry: dict[str, Any]) -> Listed:
    status = object_in(entry.get("modelStatus"))
    stage = name_in(entry.get("lifecycle") or status.get("modelStage"))
    window = entry.get("max_input_tokens") or entry.get("inputTokenLimit")
    capabilities = object_in(entry.get("capabilities"))
    inputs = {}
    for name, word in INPUTS.items():
        is_taken = object_in(capabilities.get(name)).get("supported")
        if isinstance(is_taken, bool):
            inputs[word] = is_taken
    return Listed(
        retires=_day(entry.get("retires_at") or status.get("retirementTime")),
        is_retired=stage.lower() == "retired",
        context_window=window if type(window) is int else None,
        inputs=inputs,
    )


def _day(found: Any) -> date | None:
    with suppress(ValueError):
        return datetime.fromisoformat(name_in(found)).date()
    return None
