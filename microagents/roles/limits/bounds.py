"""Bounds of a run, and the calls that wait for room in them. Pure: no messages, no clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from heapq import heappop, heappush
from math import ceil
from typing import Any

from microagents.journal.digests import in_order
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


class QueuedCall(ABC):
    """A call that waits for room. It keeps no callback of its own: a cycle of references would outlive the call.

    Args:
        place: path of its election, its sequence number there, and a number for calls of the same place.
        amounts: its share of each bound.
        least: the amount that is enough for it, if less.
        learned: experience with its model, by the name of the bound.
        samples: number of samples that it asks for.
    """

    def __init__(
        self,
        place: tuple[str, int, int],
        amounts: Mapping[str, int],
        least: Mapping[str, int],
        *,
        learned: Mapping[str, Experience] = {},
        samples: int = 1,
    ) -> None:
        self._place = place
        self.amounts = amounts
        self.least = least
        self._learned = learned
        self.samples = samples
        self.is_over = False
        self.granted: dict[str, int] = {}

    @cached_property
    def _order(self) -> tuple[Any, ...]:
        """Its place in the queue, which most calls never need."""
        path, *rest = self._place
        return (in_order(path), *rest)

    def __lt__(self, other: QueuedCall) -> bool:
        return self._order < other._order

    def needed(self, bounds: Mapping[str, Bound]) -> dict[str, int]:
        """Return the amounts that it reserves, by the experience with its model until now."""
        found = dict(self.amounts)
        for name, experience in self._learned.items():
            if name in found:
                found[name] = max(found[name], experience.needed(bounds[name].total, self.samples))
        return found

    def enough(self, name: str) -> int | None:
        """Return the amount of a bound that is enough for it; None if only the whole one is."""
        if name in self._learned:
            return None
        return self.least.get(name)

    def most(self, name: str) -> int:
        """Return the most that it may use up of a bound; 0 if that is unknown."""
        experience = self._learned.get(name)
        return max(self.amounts[name], 0 if experience is None else experience.most(self.samples))

    def end(self, granted: dict[str, int] | None = None) -> None:
        """Answer the call, if it was not answered yet."""
        if not self.is_over:
            self.is_over = True
            self.granted = granted or {}
            self._granted(granted)

    @abstractmethod
    def _granted(self, granted: dict[str, int] | None) -> None:
        """Take the granted amounts, once; None if the call is not sent."""


class Queue:
    """Calls that wait, the lowest step first, then the earliest launch.

    Calls of the same bounds share a heap. The first one that lacks room in a bound keeps all later ones from it: else a call that needs
    much would never get it. Calls that do not need this bound pass.

    Args:
        bounds: all bounds by name.
    """

    def __init__(self, bounds: Mapping[str, Bound]) -> None:
        self._bounds = bounds
        self._heaps: dict[frozenset[str], list[QueuedCall]] = {}

    @property
    def has_calls(self) -> bool:
        """Whether a call may wait."""
        return any(self._heaps.values())

    def add(self, waiting: QueuedCall) -> None:
        """Let a call wait."""
        heappush(self._heaps.setdefault(frozenset(waiting.amounts), []), waiting)

    def admit(self, call: QueuedCall) -> bool:
        """Grant a call at once, if none waits and every bound has room for it; returns whether it did."""
        if self.has_calls:
            return False
        needed = call.needed(self._bounds)
        for name, amount in needed.items():
            if amount > self._bounds[name].free:
                return False
        self._grant(call, needed)
        return True

    def _grant(self, call: QueuedCall, granted: dict[str, int]) -> None:
        for name, amount in granted.items():
            self._bounds[name].take(amount)
        call.end(granted)

    def deal(self) -> Iterator[tuple[QueuedCall, dict[str, int]]]:
        """Grant free amounts in order; yields each first call that lacks room, with the least that it lacks by bound."""
        blocked: set[str] = set()
        while (waiting := self._first(blocked)) is not None:
            needed = waiting.needed(self._bounds)
            lacking = {name: amount for name, amount in needed.items() if amount > max(0, self._bounds[name].free)}
            if lacking and not all(self._is_rest_enough(name, waiting) for name in lacking):
                blocked.update(lacking)
                yield waiting, {name: waiting.enough(name) or amount for name, amount in lacking.items()}
                continue
            granted = {name: min(amount, self._bounds[name].free) for name, amount in needed.items()}
            self._grant(waiting, granted)

    def _is_rest_enough(self, name: str, waiting: QueuedCall) -> bool:
        """Whether nothing can come back to a bound, and the rest is enough for a call."""
        bound, least = self._bounds[name], waiting.enough(name)
        return not bound.renews and not bound.held and least is not None and 0 < least <= bound.free

    def _first(self, blocked: set[str]) -> QueuedCall | None:
        first: QueuedCall | None = None
        for names, heap in self._heaps.items():
            while heap and heap[0].is_over:
                heappop(heap)
            if heap and not (names & blocked) and (first is None or heap[0] < first):
                first = heap[0]
        return first
