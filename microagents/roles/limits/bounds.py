"""Bounds of a run, and the experience with models that state no maximum. Pure: no messages, no clock."""

from __future__ import annotations

from math import ceil

from microagents.models.rates import Rate

UNBOUNDED = 1 << 62
"""The total of a bound without a limit."""


class Bound:
    """One bound, such as 250 calls in flight.

    Args:
        total: the most that all calls can hold together; of a bound that is used up, the rest.
        renews: whether a call gives back its share, such as a place among the calls in flight, or uses it up.
    """

    def __init__(self, total: int, *, renews: bool) -> None:
        self.total = total
        self.renews = renews
        self.held = 0
        """The amount that calls hold."""
        self.most_held = 0
        """The largest amount held, until its reader sets it anew."""

    @property
    def free(self) -> int:
        """Amount that no call holds; negative if the total was lowered, or a call has spent more than it held."""
        return self.total - self.held

    def take(self, amount: int) -> None:
        """Let a call hold an amount."""
        self.held += amount
        self.most_held = max(self.most_held, self.held)

    def give_back(self, amount: int, spent: int) -> None:
        """End a call: it no longer holds an amount, and has used up a part of it."""
        self.held -= amount
        self.total -= spent


class RateBound(Bound):
    """A bound that a provider fills again each minute.

    Args:
        rate: its limit.
        now_s: the time.
    """

    def __init__(self, rate: Rate, now_s: float) -> None:
        super().__init__(rate.left, renews=False)
        self._each_s = rate.each_minute / 60
        self._most = rate.each_minute
        self._until_s = now_s

    def refill(self, now_s: float) -> None:
        """Add the amount that is due, up to the limit."""
        due = int((now_s - self._until_s) * self._each_s)
        if due:
            self._until_s += due / self._each_s
            self.total += max(0, min(due, self._most - self.free))

    def seconds_to(self, amount: int) -> float:
        """Estimate the time until an amount is free."""
        return (amount - self.free) / self._each_s


MARGIN = 3
"""Of a bound of which a model states no maximum a call may use up as many times the largest use so far."""


class Experience:
    """The use of a bound by the calls to one model that states no maximum, or has gone above it; by the sample."""

    def __init__(self) -> None:
        self.dearest = 0
        """The largest use so far."""
        self._seen = 0
        """Number of calls whose use is known."""

    def learn(self, used: int, samples: int) -> None:
        """Note the use of a call that asked for a number of samples."""
        self._seen += 1
        self.dearest = max(self.dearest, ceil(used / samples))

    def most(self, samples: int) -> int:
        """Bound the use of a call by the dearest; 0 while no price is known."""
        return MARGIN * self.dearest * samples

    def needed(self, left: int, samples: int) -> int:
        """Return the amount that a call reserves: the first one all that is left, so that it goes alone, and later ones smaller parts."""
        return max(1, self.most(samples), left // (1 + self._seen))
