"""Callers of an endpoint: each has a token, and may have a cap and a policy of its own."""

from __future__ import annotations

import hmac
import os
import re
import tomllib
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from microagents.base.errors import InvalidUsage, refusing
from microagents.base.files import read_text
from microagents.web.endpoint.policy import Policy, read_policy


class CostLimit(Struct, frozen=True):
    """A limit of cost."""

    usd: float
    each_day: bool = False
    """Whether it begins anew each day (UTC)."""

    @classmethod
    def parse(cls, text: str) -> CostLimit:
        """Read ``5`` or ``20/day``.

        Raises:
            InvalidUsage: it is neither.
        """
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})(/day)?", text.strip())
        if found is None or not float(found[1]):
            raise InvalidUsage(f"write a limit of cost in US dollars, such as 5 or 20/day, not {text!r:.100}")
        return cls(float(found[1]), each_day=found[2] is not None)

    def __str__(self) -> str:
        return f"${self.usd:g}{'/day' if self.each_day else ''}"


class Caller(Struct, frozen=True, kw_only=True):
    """One caller."""

    name: str = ""
    """Empty for the only one."""
    token: str | None = None
    """None admits all who reach the endpoint; then only this machine may."""
    limit: CostLimit | None = None
    policy: Policy


class _Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token_env: str
    max_cost: str | float | None = None
    policy: str | None = None


def caller_of(callers: Sequence[Caller], sent: str) -> Caller | None:
    """Return the caller with a token; None if there is none. Each token is compared, so that the time tells nothing."""
    found = None
    for caller in callers:
        token = (caller.token or "").encode()
        if caller.token is None or hmac.compare_digest(sent.encode("utf-8", "surrogateescape"), token):
            found = caller
    return found


def read_callers(file: str, default: Policy) -> list[Caller]:
    """Read a TOML file with a table for each caller: ``token_env``, ``max_cost`` and ``policy``.

    Raises:
        InvalidUsage: it cannot be read, has no caller, or a variable has no token.
    """
    with refusing(f"the tokens {file!r:.200} cannot be read"):
        rows = msgspec.convert(tomllib.loads(read_text(file)), dict[str, _Row])
    if not rows:
        raise InvalidUsage(f"the tokens {file!r:.200} name no caller; write a table [NAME] with token_env for each")
    callers = []
    for name, row in rows.items():
        limit = None if row.max_cost is None else CostLimit.parse(str(row.max_cost))
        policy = default if row.policy is None else read_policy(row.policy)
        callers.append(Caller(name=name, token=token_in(row.token_env), limit=limit, policy=policy))
    return callers


def token_in(variable: str) -> str:
    """Read the token in an environment variable.

    Raises:
        InvalidUsage: it has none.
    """
    token = os.environ.get(variable, "").strip()
    if not token:
        raise InvalidUsage(f"the environment variable {variable} has no token")
    return token
