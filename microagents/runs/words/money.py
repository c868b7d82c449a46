"""Prices as text. For simulated models they are called simulated, since no account is billed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

Price = Callable[[float | None], str]
"""Writes an amount in US dollars; None for an unknown one."""
SIMULATED = "sim:"
"""Prefix of the specs of simulated models."""


def are_simulated(specs: Iterable[str]) -> bool:
    """Return whether all of these models are simulated."""
    return all(spec.startswith(SIMULATED) for spec in specs)


def mark_of(specs: Iterable[str]) -> str:
    """Return the word behind the amounts of a run with these models; empty if all are real."""
    simulated = [spec.startswith(SIMULATED) for spec in specs]
    if not any(simulated):
        return ""
    if all(simulated):
        return "simulated"
    return "partly simulated"


def prices_of(specs: Iterable[str]) -> Price:
    """Say how the amounts of a run with these models are written."""
    mark = mark_of(specs)
    if not mark:
        return money
    return lambda cost_usd: money(cost_usd) if cost_usd is None else f"{money(cost_usd)} {mark}"


def money(cost_usd: float | None) -> str:
    """Write an amount in US dollars as text."""
    if cost_usd is None:
        return "cost unknown"
    return f"${cost_usd:,.4f}" if 0 < cost_usd < 0.1 else f"${cost_usd:,.2f}"  # noqa: PLR2004 - ten cents


def specs_in(pools: Mapping[str, Iterable[str]]) -> list[str]:
    """List the specs of all pools."""
    return [spec for pool in pools.values() for spec in pool]
