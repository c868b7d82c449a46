"""The options of a model behind HTTP, and its row in the table of models, each refused with one sentence if it is wrong."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from urllib.parse import urlsplit

from microagents.actors.registry import unknown
from microagents.base.errors import InvalidUsage, ModelUnavailable
from microagents.models.capabilities import Capabilities, has_ended, nearest_model
from microagents.models.model import Call, ModelSpec

OPTIONS = (
    "base_url",
    "api_key_env",
    "timeout_s",
    "price_in",
    "price_out",
    "effort",
    "service_tier",
    "json_schema",
    "system",
    "calls",
    "batch",
    "stagger",
)
_MOST_CHARS_PER_TOKEN = 6
"""More than a token of ordinary text has, so that no prompt is refused that would fit."""


def check_names(spec: ModelSpec, more: Sequence[str]) -> None:
    """Refuse an option that is neither in `OPTIONS` nor one of only this provider.

    Raises:
        InvalidUsage: there is one.
    """
    known = (*OPTIONS, *more)
    for name in spec.options:
        if name not in known:
            raise InvalidUsage(unknown(f"option of {spec.provider} called", name, known))


def refuse_ended(spec: ModelSpec, capabilities: Capabilities) -> None:
    """Refuse a model that its provider has shut down.

    Raises:
        InvalidUsage: it has.
    """
    if has_ended(capabilities, _today()):
        ended = f"{spec.provider}:{spec.name} was shut down on {capabilities.shutdown}"
        raise InvalidUsage(f"{ended}; today's nearest is {spec.provider}:{capabilities.successor}")


def other_model(name: str, capabilities: Capabilities) -> str | None:
    """Substitute for a model that its provider lacks; None if it is unknown."""
    provider, _, model = name.partition(":")
    nearest = nearest_model(provider, model, _today())
    if nearest is None:
        return None
    ended = f" (shut down on {capabilities.shutdown})" if capabilities.shutdown else ""
    return f"there is no model {model!r}{ended}; today's nearest is {provider}:{nearest}"


def effort_of(name: str, options: Mapping[str, str], capabilities: Capabilities) -> str | None:
    """Return the effort to ask for; None to ask for none.

    Raises:
        InvalidUsage: the model lacks it.
    """
    effort, allowed = options.get("effort"), capabilities.efforts
    if effort is None:
        return capabilities.default_effort
    if allowed is not None and effort not in allowed:
        takes = f"takes effort={either(allowed)}" if allowed else "has no effort"
        raise InvalidUsage(f"{name} {takes}, not {effort!r}")
    return effort


def key_in(options: Mapping[str, str], default: str, address: str, *, is_own_address: bool) -> str | None:
    """Return the key in the environment; None for none, which only another address than the provider's may take.

    Raises:
        InvalidUsage: it is missing, or contains characters that no key has.
    """
    name = options.get("api_key_env", default)
    key = os.environ.get(name, "").strip()
    if not key and (is_own_address or "api_key_env" in options):
        raise InvalidUsage(f"no key for {address}: set the environment variable {name}")
    if not (key.isascii() and key.isprintable()):
        raise InvalidUsage(
            f"the environment variable {name} contains characters that no key has; set it to the key only"
        )
    return key or None


def check_length(call: Call, name: str, window: int | None) -> None:
    """Refuse a call that cannot fit into the context window of its model.

    Raises:
        ModelUnavailable: it cannot.
    """
    if window is None:
        return
    asked = call.prompt.flat
    read = (len(asked.system) + len(asked.user)) // _MOST_CHARS_PER_TOKEN
    if read + call.max_output_tokens > window:
        raise ModelUnavailable(
            "refused",
            f"a prompt of at least {read:,} tokens and --max-output-tokens {call.max_output_tokens} exceed the {window:,} tokens of "
            f"{name}; nothing was sent",
        )


def flag(options: Mapping[str, str], name: str) -> bool:
    """An option that is true or false; false by default.

    Raises:
        InvalidUsage: it is neither.
    """
    given = options.get(name, "false")
    if given not in ("true", "false"):
        raise InvalidUsage(f"{name}={given!r} is neither true nor false")
    return given == "true"


def number_in(options: Mapping[str, str], name: str) -> float:
    """An option that is a number; only a price may be 0.

    Raises:
        InvalidUsage: it is none.
    """
    try:
        value = float(options[name])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and (value > 0 if name == "timeout_s" else value >= 0)):
        raise InvalidUsage(f"{name}={options[name]!r} is not a positive number")
    return value


def hours_in(text: str) -> float:
    """Read a time such as ``24h`` or ``30m``, in hours.

    Raises:
        InvalidUsage: it is none.
    """
    found = re.fullmatch(r"(\d{1,4}(?:\.\d{1,2})?)([hm])", text)
    if found is None or not float(found[1]):
        raise InvalidUsage(f"a time is written like 24h or 30m, not {text!r:.100}")
    return float(found[1]) / (60 if found[2] == "m" else 1)


def checked_url(url: str) -> str:
    """An address without a slash at its end.

    Raises:
        InvalidUsage: it is none, or contains a user.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        good = False
        parts = None
    if parts and "@" in parts.netloc:
        raise InvalidUsage(
            "a base_url may not contain a user or a password; put the key into an environment variable and name it with api_key_env"
        )
    if not good:
        raise InvalidUsage(f"base_url={url!r} is not an address such as http://localhost:8000/v1")
    place, mark, query = url.partition("?")
    return place.rstrip("/") + mark + query


def meant_url(base_url: str, path: str) -> str | None:
    """Return the address that was probably meant, where a server does not know the path behind one; None for none."""
    place = base_url.removesuffix(path)
    root = place.removesuffix("/v1")
    if root == place == base_url and ("?" in base_url or re.search(r"/v\d", base_url)):
        return None  # it has a version of its own
    meant = root if path.startswith("/v1") else f"{root}/v1"
    if meant == base_url:
        return None
    return meant


def either(names: Sequence[str]) -> str:
    """Names in words, such as ``low, medium or high``."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _today() -> date:
    return datetime.now(UTC).date()
