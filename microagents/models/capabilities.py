"""Capabilities of models: the parameters that today's models take, by their exact names (November 2026).

Parameters that the table lacks are learnt from a server's refusals (`HttpModel`).
"""

from __future__ import annotations

from datetime import date
from difflib import get_close_matches
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace as _with

from microagents.replies.media import NAMES, PDF

Sampled = Literal["always", "unthinking", "never"]
"""Whether a parameter of sampling is accepted: always, only while the model does not think, or never."""
CapName = Literal["max_tokens", "max_completion_tokens"]


class Capabilities(Struct, frozen=True, kw_only=True):
    """Parameters that one model takes. The defaults are for a model that is not in the table."""

    temperature: Sampled = "always"
    logprobs: Sampled = "always"
    lists_end: bool = True
    """Whether the log-probabilities of a reply have the one of its end; without it only a schema ends a reply for certain."""
    efforts: tuple[str, ...] | None = None
    """Accepted values of ``effort``; empty if the model has no such parameter, None if they are unknown."""
    default_effort: str | None = None
    """The effort to ask for if the spec names none: the lowest of a model that would think by itself, and bill it."""
    max_tokens_name: CapName | None = None
    """Name of the limit on output in OpenAI's chat API; None if it depends on the server."""
    max_choices: int | None = None
    """Largest number of choices in one reply (``n``); None if it is unknown."""
    json_schema: bool | None = None
    """Whether the output can be constrained to a JSON schema; None if it is unknown."""
    context_window: int | None = None
    """Tokens of prompt and output together; None if it is unknown."""
    cache_floor: int | None = None
    """Tokens of the shortest prefix that the provider caches; None if it is unknown."""
    files: tuple[str, ...] | None = None
    """Types of the pictures and files that it takes; None if they are unknown."""
    picture_tokens: int | None = None
    """Most tokens of a picture, by the provider's rule; None if it is unknown."""
    explicit_cache: bool = False
    """Whether the request says where the cached prefix ends."""
    shutdown: date | None = None
    """The day on which the provider ends the model; None if none is announced."""
    successor: str = ""
    """Name of today's nearest model; empty if the model has no announced end."""

    def takes(self, sampled: Sampled, effort: str | None) -> bool:
        """Return whether a parameter of sampling may be sent with this effort."""
        return sampled == "always" or (sampled == "unthinking" and effort in (None, "none"))


UNKNOWN = Capabilities()


def capabilities_of(provider: str, name: str) -> Capabilities:
    """Look up the capabilities of a model by its exact name, perhaps with a router's prefix (``openai/gpt-5-nano``)."""
    return TABLE[family_of(provider)].get(name.rpartition("/")[2], UNKNOWN)


def family_of(provider: str) -> str:
    """Name the vendor of a provider's models: ``openai`` for all of its wires."""
    if provider in TABLE:
        return provider
    return "openai"


def nearest_model(provider: str, name: str, today: date) -> str | None:
    """Name today's nearest model to one that the provider does not know, or has shut down; None if none is near."""
    table = TABLE[family_of(provider)]
    found = table.get(name, UNKNOWN)
    if found.successor:
        return found.successor
    living = [each for each, has in table.items() if has.shutdown is None or has.shutdown > today]
    return next(iter(get_close_matches(name, living, n=1)), None)


def meant_spec(text: str) -> str | None:
    """Return the spec that a name without a provider means, such as ``gpt-4o`` or ``openai/gpt-6-luna``; None if none is near."""
    provider, slash, name = text.partition("/")
    if slash and provider in TABLE:
        return f"{provider}:{name}"
    near = get_close_matches(text, [each for table in TABLE.values() for each in table], n=1)
    return next((f"{family}:{near[0]}" for family, table in TABLE.items() if near and near[0] in table), None)


def has_ended(found: Capabilities, today: date) -> bool:
    """Return whether a model is shut down."""
    return found.shutdown is not None and found.shutdown <= today


_LOW_TO_HIGH = ("low", "medium", "high")
_LOW_TO_XHIGH = (*_LOW_TO_HIGH, "xhigh")
_LOW_TO_MAX = (*_LOW_TO_XHIGH, "max")
_LUNA, _TERRA, _SOL, _SONNET = "gpt-6-luna", "gpt-6.1-terra", "gpt-6.1-sol", "claude-sonnet-5-5"
_OCTOBER, _NOVEMBER, _DECEMBER = date(2026, 10, 23), date(2026, 11, 30), date(2026, 12, 11)
_FEBRUARY, _JUNE, _JANUARY, _APRIL = date(2026, 2, 19), date(2026, 6, 15), date(2027, 1, 14), date(2027, 4, 1)

_GPT = Capabilities(
    lists_end=False,
    max_tokens_name="max_completion_tokens",
    max_choices=128,
    json_schema=True,
    cache_floor=1024,
    files=tuple(NAMES),
    picture_tokens=25_000,  # 10,000 patches of 32 x 32 at most, and 2.46 tokens for each in the dearest family
)
_CHAT = _with(_GPT, efforts=(), max_tokens_name=None)
"""Does not think."""
_THINKING = _with(_GPT, temperature="never", logprobs="never", efforts=_LOW_TO_HIGH, default_effort="low")
"""Always thinks."""
_ASKED = _with(_GPT, temperature="unthinking", logprobs="unthinking", context_window=400_000)
"""Thinks only if an effort is given."""
_SIX = _with(_THINKING, efforts=_LOW_TO_MAX, context_window=1_050_000, explicit_cache=True)
_SIX_OR_NOT = _with(_SIX, temperature="unthinking", logprobs="unthinking", efforts=("none", *_LOW_TO_MAX))
"""Thinks unless the effort is none."""

_OPENAI = {
    "gpt-6-luna gpt-6-sol gpt-5.6-sol gpt-5.6-terra gpt-5.6-luna": _SIX_OR_NOT,
    "gpt-6-astra gpt-6.2-astra gpt-6.1-sol gpt-6.2-sol gpt-6.1-terra": _SIX,
    "gpt-5.5 gpt-5.5-2026-04-23": _with(
        _SIX_OR_NOT, efforts=("none", *_LOW_TO_XHIGH), context_window=1_000_000, explicit_cache=False
    ),
    "gpt-5.4": _with(_ASKED, efforts=("none", *_LOW_TO_XHIGH), context_window=1_050_000),
    "gpt-5.4-mini gpt-5.4-mini-2026-03-17 gpt-5.2 gpt-5.2-2025-12-11": _with(_ASKED, efforts=("none", *_LOW_TO_XHIGH)),
    "gpt-5.4-nano gpt-5.4-nano-2026-03-17": _with(
        _ASKED, efforts=("none", *_LOW_TO_XHIGH), shutdown=_APRIL, successor=_LUNA
    ),
    "gpt-5.1 gpt-5.1-2025-11-13": _with(_ASKED, efforts=("none", *_LOW_TO_HIGH), shutdown=_APRIL, successor=_TERRA),
    "gpt-5 gpt-5-2025-08-07": _with(
        _THINKING, efforts=("minimal", *_LOW_TO_HIGH), context_window=400_000, shutdown=_DECEMBER, successor=_TERRA
    ),
    "gpt-5-mini gpt-5-mini-2025-08-07 gpt-5-nano gpt-5-nano-2025-08-07": _with(
        _THINKING, efforts=("minimal", *_LOW_TO_HIGH), context_window=400_000, shutdown=_DECEMBER, successor=_LUNA
    ),
    "o3 o3-2025-04-16": _with(_THINKING, context_window=200_000, shutdown=_DECEMBER, successor=_SOL),
    "o4-mini o4-mini-2025-04-16 o3-mini o3-mini-2025-01-31": _with(
        _THINKING, context_window=200_000, shutdown=_OCTOBER, successor=_LUNA
    ),
    "o1 o1-2024-12-17": _with(_THINKING, context_window=200_000, shutdown=_OCTOBER, successor=_SOL),
    "gpt-4 gpt-4-0613 gpt-4-turbo gpt-4-turbo-2024-04-09": _with(_CHAT, files=(), shutdown=_OCTOBER, successor=_TERRA),
    "gpt-3.5-turbo gpt-3.5-turbo-0125": _with(_CHAT, files=(), shutdown=_OCTOBER, successor=_LUNA),
    "gpt-4.1 gpt-4.1-2025-04-14": _with(_CHAT, context_window=1_000_000, shutdown=_JANUARY, successor=_TERRA),
    "gpt-4.1-mini gpt-4.1-mini-2025-04-14": _with(_CHAT, context_window=1_000_000, shutdown=_JANUARY, successor=_LUNA),
    "gpt-4.1-nano gpt-4.1-nano-2025-04-14": _with(_CHAT, context_window=1_000_000, shutdown=_OCTOBER, successor=_LUNA),
    "gpt-4o gpt-4o-2024-11-20 gpt-4o-2024-08-06": _with(
        _CHAT, context_window=128_000, shutdown=_JANUARY, successor=_TERRA
    ),
    "gpt-4o-mini gpt-4o-mini-2024-07-18": _with(
        _CHAT,
        picture_tokens=48_169,  # eight tiles of 5,667, and 2,833
        context_window=128_000,
        shutdown=_JANUARY,
        successor=_LUNA,
    ),
}

_CLAUDE = Capabilities(
    logprobs="never",
    max_choices=1,
    json_schema=True,
    context_window=1_000_000,
    cache_floor=4096,
    explicit_cache=True,
    efforts=_LOW_TO_MAX,
    files=tuple(NAMES),
    picture_tokens=4_784,
)
_CLAUDE_THINKING = _with(_CLAUDE, temperature="never", default_effort="low")

_ANTHROPIC = {
    "claude-haiku-5-5 claude-opus-5-5 claude-opus-5": _with(_CLAUDE_THINKING, cache_floor=512),
    "claude-sonnet-5-5 claude-sonnet-5": _with(_CLAUDE_THINKING, cache_floor=1024),
    "claude-fable-5 claude-fable-5-1 claude-fable-5-2 claude-mythos-5 claude-mythos-5-1 claude-mythos-5-2": _CLAUDE_THINKING,
    "claude-opus-4-8 claude-opus-4-7": _with(_CLAUDE, temperature="never"),
    "claude-opus-4-6": _with(_CLAUDE, efforts=(*_LOW_TO_HIGH, "max")),
    "claude-sonnet-4-6": _with(_CLAUDE, efforts=_LOW_TO_HIGH),
    "claude-opus-4-5 claude-opus-4-5-20251101": _with(_CLAUDE, efforts=_LOW_TO_HIGH, context_window=200_000),
    "claude-haiku-4-5 claude-haiku-4-5-20251001": _with(_CLAUDE, efforts=(), context_window=200_000),
    "claude-sonnet-4-5 claude-sonnet-4-5-20250929": _with(
        _CLAUDE, efforts=(), context_window=200_000, cache_floor=1024, shutdown=_NOVEMBER, successor=_SONNET
    ),
    "claude-sonnet-4-0 claude-sonnet-4-20250514": _with(_CLAUDE, efforts=(), shutdown=_JUNE, successor=_SONNET),
    "claude-opus-4-0 claude-opus-4-20250514": _with(_CLAUDE, efforts=(), shutdown=_JUNE, successor="claude-opus-5-5"),
    "claude-3-5-haiku-latest claude-3-5-haiku-20241022": _with(
        _CLAUDE, efforts=(), shutdown=_FEBRUARY, successor="claude-haiku-5-5"
    ),
    "claude-3-7-sonnet-latest claude-3-7-sonnet-20250219": _with(
        _CLAUDE, efforts=(), shutdown=_FEBRUARY, successor=_SONNET
    ),
}

_FLASH = "gemini-3.8-flash"
_GEMINI = Capabilities(
    logprobs="never",
    efforts=_LOW_TO_HIGH,
    default_effort="low",
    max_tokens_name="max_tokens",
    max_choices=1,
    json_schema=True,
    context_window=1_048_576,
    files=tuple([kind for kind in NAMES if kind not in (PDF, "image/gif")]),
    picture_tokens=2_240,
)
"""Always thinks."""

_GOOGLE = {
    "gemini-4-argon gemini-4-carbon gemini-4-hydrogen gemini-4-neon gemini-3.1-pro-preview": _GEMINI,
    "gemini-3.8-flash gemini-3.7-flash gemini-3.6-flash gemini-3.5-flash gemini-3.5-flash-lite gemini-3.1-flash-lite": _with(
        _GEMINI, efforts=("minimal", *_LOW_TO_HIGH)
    ),
    "gemini-2.0-flash gemini-2.0-flash-001 gemini-2.0-flash-lite gemini-2.0-flash-lite-001": _with(
        _GEMINI, efforts=(), default_effort=None, shutdown=date(2026, 6, 1), successor=_FLASH
    ),
}

TABLE = {
    family: {name: found for names, found in table.items() for name in names.split()}
    for family, table in (("openai", _OPENAI), ("anthropic", _ANTHROPIC), ("gemini", _GOOGLE))
}
"""The known models by vendor and exact name."""
