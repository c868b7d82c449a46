"""Profiles of simulated models: error rates, latency and prices, each an option of a spec."""

from __future__ import annotations

from difflib import get_close_matches

from msgspec import Struct, convert, structs

from microagents.base.errors import InvalidUsage
from microagents.models.model import ModelSpec

MAX_ALTERNATIVES = 1_000_000
_MAX_VALUES = {"latency": 86_400, "sigma": 5, "tokens": 1_000_000, "price_in": 1_000_000, "price_out": 1_000_000}


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Error rates, latency and prices of a simulated model. Every field is an option: ``sim:gpt-4.1-mini@error=0.01,latency=0.8``."""

    error: float
    """Share of wrong replies among the unflagged ones, at the provider's default temperature."""
    cool_error: float | None = None
    """The same share at temperatures up to 0.1, with a linear change from there up to 1; None: equal to ``error``."""
    flag: float = 0.0
    """Share of replies that get a red flag: half of them exceed the length limit, half break the format."""
    alternatives: int = 3
    """Number of different wrong replies to a question; 1 makes the two-way race of MAKER's scaling laws."""
    hard: float = 0.0
    """Share of hard questions, each with one wrong reply. Models of different names find different questions hard (LEAD, figure 5)."""
    hard_error: float = 0.65
    """Error rate at a hard question that is asked by itself, or as the first step of a rollout (LEAD, figure 3: above one half)."""
    hard_ahead: float = 0.1
    """Error rate at a hard step that a rollout reaches from two or more steps before (LEAD, table 2); from one step before, the mean of
    this and ``hard_error``."""
    decay: float = 0.0
    """Addition of each step of a rollout to the error rate at the ordinary steps after it (LEAD, figure 7a)."""
    latency: float = 0.0
    """Median time of a reply in seconds."""
    sigma: float = 0.5
    """Spread of the latency: the standard deviation of its logarithm."""
    hang: float = 0.0
    """Share of calls that give no reply, and fail after two minutes."""
    tokens: float = 400.0
    """Median length of a reply in output tokens."""
    price_in: float = 0.0
    """US dollars per million input tokens."""
    price_out: float = 0.0
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
        near = get_close_matches(spec.name, PROFILES, n=1)
        hint = f"; did you mean sim:{near[0]}" if near else ""
        raise InvalidUsage(
            f"unknown simulated model {spec.name!r}{hint}; there are {', '.join(f'sim:{name}' for name in PROFILES)}"
        )
    known = {field.name: field.type for field in structs.fields(Profile)}
    given: dict[str, object] = {}
    for name, text in spec.options.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}" if near else ""
            raise InvalidUsage(f"a simulated model has no option {name!r}{hint}; options are {', '.join(known)}")
        try:
            given[name] = convert(f"0{text}" if text.startswith(".") else text, known[name], strict=False)
        except ValueError:
            raise InvalidUsage(f"{name} must be a {'whole ' * (known[name] is int)}number, not {text!r}") from None
    if "error" in given:
        given.setdefault("cool_error", None)  # an explicit error rate holds at every temperature
    profile = structs.replace(base, **given)
    _check(profile)
    return profile


def _check(profile: Profile) -> None:
    for name in ("error", "cool_error", "flag", "hard", "hard_error", "hard_ahead", "decay", "hang"):
        share = getattr(profile, name)
        if share is not None and not 0 <= share <= 1:
            raise InvalidUsage(f"{name} must be a share from 0 to 1, not {share!r}")
    for name, most in _MAX_VALUES.items():
        if not 0 <= getattr(profile, name) <= most:
            raise InvalidUsage(f"{name} must be a number from 0 to {most:,}, not {getattr(profile, name)!r}")
    if not 1 <= profile.alternatives <= MAX_ALTERNATIVES:
        raise InvalidUsage(f"alternatives must be from 1 to {MAX_ALTERNATIVES:,}, not {profile.alternatives!r}")
