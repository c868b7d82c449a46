"""Elections that one reply can decide: where the wire tells the log-probabilities of its tokens, they tell how likely its vote is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from microagents.models.http.provider import HttpModel
from microagents.models.openai import OpenAIWire
from microagents.models.token_masses import mass_of, tokens_in
from microagents.replies.chat import Usage
from microagents.replies.masses import LawOfMass, Mass
from microagents.web.endpoint.acts import said_in
from microagents.web.endpoint.asked import ForwardedRequest
from microagents.web.endpoint.policy import Policy


def law_of(provider: HttpModel, asked: ForwardedRequest, policy: Policy) -> LawOfMass | None:
    """Return the law of the masses of the replies to a request; None if they can have none.

    A reply can have one if it is a text that votes by itself, or has a JSON schema; calls have none.
    """
    if not (isinstance(provider, OpenAIWire) and asked.wire.logprobs and asked.is_plain):
        return None
    if not asked.has_form and not (policy.votes == "text" and provider.capabilities.lists_end):
        return None
    named = asked.named.temperature
    if named is None:  # such a request is answered at the server's temperature, which is 1 at most
        named = 1.0
    law = provider.law_at(named)
    if law != provider.law_at(max(named, policy.temperature)):
        return None
    return law


def mass_in(found: Mapping[str, Any], asked: ForwardedRequest, usage: Usage, law: LawOfMass) -> Mass | None:
    """Return the probability of a whole reply; None if it had reasoning before it, or does not tell all of its tokens."""
    said = said_in(found)
    if usage.reasoning_tokens != 0 or said.has_reasoning or said.calls or len(said.logprobs) != 1:
        return None
    tokens = tokens_in(said.logprobs[0])
    if (usage.output_tokens or 0) > len(tokens) + 1:
        return None
    return mass_of(tokens, said.text, law=law, is_closed=asked.has_form)
