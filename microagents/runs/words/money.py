"""Prices as text. For simulated models they are called simulated, since no account is billed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

SIMULATED = "sim:"
"""Prefix of the specs of simulated models."""


class Price(NamedTuple):
    """Writes the amounts of some models."""

    mark: str = ""
    """The word after each amount; empty if all models are real."""

    def __call__(self, cost_usd: float | None) -> str:
        """Write an amount in US dollars; None for an unknown one."""
        if cost_usd is None:
            return money(None)
        return f"{money(cost_usd)} {self.mark}".rstrip()

    @property
    def is_billed(self) -> bool:
        """Whether some amounts are billed to an account."""
        return self.mark != "simulated"

    @property
    def note(self) -> str:
        """The sentence after a list of amounts without that word; empty if all models are real."""
        return _NOTES[self.mark]


_NOTES = {
    "": "",
    "partly simulated": "partly simulated: those costs are the list prices of the real models",
    "simulated": "simulated: no real model was asked; costs are the list prices of the real one",
}


def prices_of(specs: Iterable[str]) -> Price:
    """Say how the amounts of a run with these models are written."""
    simulated = [spec.startswith(SIMULATED) for spec in specs]
    if not any(simulated):
        return Price()
    if all(simulated):
        return Price("simulated")
    return Price("partly simulated")


def money(cost_usd: float | None) -> str:
    """Write an amount in US dollars as text."""
    if cost_usd is None:
        return "cost unknown"
    return f"${cost_usd:,.4f}" if 0 < cost_usd < 0.1 else f"${cost_usd:,.2f}"  # noqa: PLR2004 - ten cents


def specs_in(pools: Mapping[str, Iterable[str]]) -> list[str]:
    """List the specs of all pools."""
    return [spec for pool in pools.values() for spec in pool]
