"""Profiles of simulated models: error rates, latency and prices, each an option of a spec."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from microagents.actors.ranges import OneToMillion
from microagents.actors.registry import unknown
from microagents.base.errors import InvalidUsage, refusal
from microagents.models.model import ModelSpec

Share = Annotated[float, Field(ge=0, le=1)]
UpToMillion = Annotated[float, Field(ge=0, le=1_000_000)]


class Profile(BaseModel):
    """Error rates, latency and prices of a simulated model. Every field is an option: ``sim:gpt-4.1-mini@error=0.01,latency=0.8``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    error: Share
    """Share of wrong replies among the unflagged ones, at the provider's default temperature."""
    cool_error: Share | None = None
    """The same share at temperatures up to 0.1, with a linear change from there up to 1; None: equal to ``error``."""
    flag: Share = 0.0
    """Share of replies that get a red flag: half of them exceed the length limit, half break the format."""
    alternatives: OneToMillion = 3
    """Number of different wrong replies to a question; 1 makes the two-way race of MAKER's scaling laws."""
    hard: Share = 0.0
    """Share of hard questions, each with one wrong reply. Models of different names find different questions hard (LEAD, figure 5)."""
    hard_error: Share = 0.65
    """Error rate at a hard question that is asked by itself, or as the first step of a rollout (LEAD, figure 3: above one half)."""
    hard_ahead: Share = 0.1
    """Error rate at a hard step that a rollout reaches from two or more steps before (LEAD, table 2); from one step before, the mean of
    this and ``hard_error``."""
    decay: Share = 0.0
    """Addition of each step of a rollout to the error rate at the ordinary steps after it (LEAD, figure 7a)."""
    latency: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    """Median time of a reply in seconds."""
    sigma: Annotated[float, Field(ge=0, le=5)] = 0.5
    """Spread of the latency: the standard deviation of its logarithm."""
    hang: Share = 0.0
    """Share of calls that give no reply, and fail after two minutes."""
    tokens: UpToMillion = 400.0
    """Median length of a reply in output tokens."""
    price_in: UpToMillion = 0.0
    """US dollars per million input tokens."""
    price_out: UpToMillion = 0.0
    """US dollars per million output tokens."""


# Error rates: MAKER, figure 6 and section 4.3. Prices: the named models' at that time, to estimate the cost of a run.
PROFILES = {
    "gpt-4.1-nano": Profile(error=0.3583, flag=0.02, price_in=0.1, price_out=0.4),
    "gpt-4.1-mini": Profile(error=0.0045, cool_error=0.0022, flag=0.004, price_in=0.4, price_out=1.6),
    "o3-mini": Profile(error=0.0017, flag=0.002, price_in=1.1, price_out=4.4),
    "perfect": Profile(error=0.0),
}


def profile_of(spec: ModelSpec) -> Profile:
    """Build the profile that a spec names, with its options.

    Raises:
        InvalidUsage: the profile or an option is unknown, or a value is out of range.
    """
    base = PROFILES.get(spec.name)
    if base is None:
        raise InvalidUsage(unknown("simulated model called", f"sim:{spec.name}", [f"sim:{name}" for name in PROFILES]))
    given: dict[str, object] = {**spec.options}
    if "error" in given:
        given.setdefault("cool_error", None)  # an explicit error rate holds at every temperature
    try:
        return Profile.model_validate({**dict(base), **given})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        raise InvalidUsage(unknown("option of a simulated model called", name, list(Profile.model_fields)))
    raise InvalidUsage(refusal(name, first["msg"], first["input"]))
