"""The effect of voting on a run: the chance that a chain of its length is right with one sample a step."""

from __future__ import annotations

from math import exp, inf, log

from msgspec import Struct

from microagents.elections.laws import wilson_interval
from microagents.journal.messages import Account

MIN_WRONG = 5
"""Fewer wrong votes give no chance: its interval would span more than a factor of a hundred."""


class UnvotedSuccess(Struct, frozen=True, kw_only=True):
    """Chance that every step is right with one sample a step, as natural logarithms: a long chain's underflows."""

    ln_rate: float
    ln_low: float
    """Lower end of the 95 % interval, from Wilson's for the share of right votes."""
    ln_high: float

    def as_json(self) -> dict[str, float]:
        """Return the chance and its interval; 0 if it is below 1e-308."""
        return {"rate": exp(self.ln_rate), "low": exp(self.ln_low), "high": exp(self.ln_high)}


def unvoted_success(account: Account) -> UnvotedSuccess | None:
    """Estimate the chance of all steps that are done, with one sample each, from the measured share of right votes.

    A vote is right if it agrees with the decision, unless the oracle calls the decision wrong. Steps are taken to err alike and
    independently. If they do not, the chance is lower.

    Returns:
        None if the votes cannot show it: in work that is not a chain of one election a step, and with fewer than `MIN_WRONG` wrong votes.
    """
    if account.inputs != 1 or not account.decided or account.decided != account.steps or account.samples:
        return None
    wrong = account.outvoted + account.misled
    if wrong < MIN_WRONG:
        return None
    low, high = wilson_interval(account.votes - wrong, account.votes)
    ln_rate, ln_low, ln_high = [
        account.steps * (log(share) if share > 0 else -inf) for share in (1 - wrong / account.votes, low, high)
    ]
    return UnvotedSuccess(ln_rate=ln_rate, ln_low=ln_low, ln_high=ln_high)


def certified_text(account: Account) -> str | None:
    """Write how many decisions the masses of replies took, and whether the draws after them agree; None if no reply had a mass."""
    if not (account.certified or account.masses):
        return None
    parts = [f"{100 * account.certified / max(1, account.decided):.0f} % of decisions by the model's own probabilities"]
    for spec, audit in account.masses.items():
        seen = f"{audit.repeated:,} of {audit.draws:,} further draws repeated the likeliest reply"
        if audit.is_false:
            parts.append(
                f"the probabilities of {spec} DO NOT HOLD: {seen}, by its numbers at least {audit.claimed:,.1f}; since then its votes "
                "decide, and what it certified before may not be what it says most often"
            )
        else:
            parts.append(f"{seen}, by the numbers of {spec} at least {audit.claimed:,.1f}")
    return "; ".join(parts)
