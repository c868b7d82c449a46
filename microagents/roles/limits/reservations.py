"""Reservations: the shares of a run's bounds that a call takes before it is sent, and its usage once it has ended.

Of a limit of tokens or of cost a call takes the most that it can use. So no reply, however long, passes the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from msgspec import Struct, structs

from microagents.journal.ending import LimitName
from microagents.models.model import Call, Model, Most, most_tokens
from microagents.replies.chat import Usage

CONCURRENCY = "concurrency"
"""The bound of the calls in flight."""
CALLS = "calls"
"""The bound of the calls that may be billed."""
TOKENS = "tokens"
"""The bound of tokens, of prompts and replies."""
COST = "cost"
"""The bound of cost, in billionths of a US dollar, since bounds are whole numbers."""
UNITS_PER_USD = 1_000_000_000
UNITS = {CALLS: 1, TOKENS: 1, COST: UNITS_PER_USD}
"""Units of a bound in one call, token or US dollar."""
LIMITS: Mapping[str, LimitName] = {CALLS: "max_calls", TOKENS: "max_tokens", COST: "max_cost_usd"}
"""The settings that limit what a run uses up, by their bounds."""


def units(cost_usd: float) -> int:
    """A cost in units of its bound, rounded up."""
    return ceil(cost_usd * UNITS_PER_USD)


class Reservation(Struct, frozen=True, kw_only=True):
    """Amounts of the bounds that one call takes."""

    amounts: dict[str, int]
    """First what it gives back when it ends, then what it uses up."""
    most: Most | None
    """The most that it can use; None if neither tokens nor cost are limited."""
    unstated: tuple[str, ...] = ()
    """Bounds of which its model states no maximum."""

    @property
    def whole(self) -> dict[str, int]:
        """Usage of a call that may be billed and whose reply did not arrive: all but its place among the calls in flight."""
        return {name: amount for name, amount in self.amounts.items() if name != CONCURRENCY}

    def spent(self, usage: Usage) -> dict[str, int]:
        """Usage of the call; its maximum if the reply states none."""
        spent = self.whole
        if self.most is None:
            return spent
        cost_usd = self.most.cost_of(usage)
        if TOKENS in spent:
            spent[TOKENS] = self.most.tokens_of(usage)
        if COST in spent and cost_usd is not None:
            spent[COST] = units(cost_usd)
        return spent

    def unknown(self, usage: Usage) -> tuple[str, ...]:
        """Bounds whose use a usage does not state."""
        has_tokens = usage.input_tokens is not None and usage.output_tokens is not None
        is_told = {TOKENS: has_tokens, COST: usage.cost_usd is not None}
        return tuple([name for name, told in is_told.items() if name in self.amounts and not told])

    def granted(self, held: Mapping[str, int]) -> Reservation:
        """Return the reservation, raised to the most that earlier calls have used."""
        learned = {name: held[name] for name, amount in self.amounts.items() if held[name] > amount}
        if self.most is None or not learned:
            return self
        tokens, cost = learned.get(TOKENS), learned.get(COST)
        most = Most(
            tokens=self.most.tokens if tokens is None else tokens,
            cost_usd=self.most.cost_usd if cost is None else cost / UNITS_PER_USD,
        )
        return structs.replace(self, amounts={**self.amounts, **learned}, most=most)


class Reservations:
    """Reservations of calls under the limits of a run.

    Args:
        settings: the settings of the run.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        bounds = {CONCURRENCY: "concurrency", **LIMITS}
        limited = [name for name, setting in bounds.items() if settings.get(setting) is not None]
        self.are_limited = bool(limited)
        """Whether there is a limit."""
        self.of_most = TOKENS in limited or COST in limited
        """Whether it takes the most that it can use."""
        self._tokens, self._cost = TOKENS in limited, COST in limited
        self.plain = Reservation(amounts=dict.fromkeys([*limited, CALLS], 1), most=None)
        """The reservation of each call when neither tokens nor cost are limited."""

    def of(self, model: Model, call: Call, largest_usd: float) -> Reservation:
        """Return the reservation of a call.

        Args:
            model: its model.
            call: the call.
            largest_usd: the largest cost of a reply of the model so far: the most if it states none and the cost is not limited.
        """
        if not self.of_most:
            return self.plain
        stated, unstated = model.at_most(call), list[str]()
        most = stated or Most(tokens=most_tokens(call.prompt) + call.samples * call.max_output_tokens, cost_usd=None)
        amounts = dict(self.plain.amounts)
        if self._tokens:
            amounts[TOKENS] = most.tokens
        if stated is None:
            unstated.append(TOKENS)
        if self._cost and most.cost_usd is None:
            amounts[COST] = 0
            unstated.append(COST)
        elif self._cost:
            amounts[COST] = max(1, units(most.cost_usd or 0.0))
        elif most.cost_usd is None:
            most = Most(tokens=most.tokens, cost_usd=largest_usd)
        return Reservation(amounts=amounts, most=most, unstated=tuple(unstated))
