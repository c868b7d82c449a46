"""Leases as the limiter holds them: the calls that wait for room or have it, their queue, and the replicas of the solver."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from heapq import heappop, heappush
from typing import Any

from microagents.journal.digests import in_order
from microagents.models.throttle import Throttle
from microagents.roles.limits.bounds import Bound, Experience
from microagents.roles.limits.leases import Acquire
from microagents.roles.limits.reservations import CALLS, COST, TOKENS

UNPRICED = "unpriced"
"""Marked amount of the calls under a limit of cost whose price is unknown."""


class HeldLease:
    """Shares of bounds that a call waits for, and holds once they are granted.

    Args:
        request: the message that asked for it.
        number: number of all leases.
        on_grant: called once the shares are granted.
        throttle: the throttle of its model.
        learned: experience with the model, by the name of the bound.
    """

    def __init__(
        self,
        request: Acquire,
        number: int,
        on_grant: Callable[[HeldLease], None],
        throttle: Throttle | None,
        learned: dict[str, Experience],
    ) -> None:
        self.request, self._number = request, number
        self.throttle, self.learned = throttle, learned
        self._on_grant = on_grant
        self.is_over = False
        """Whether it waits no more."""
        self.granted: dict[str, int] = {}
        self.answered: asyncio.Future[dict[str, int] | None] = asyncio.get_running_loop().create_future()
        """The granted amounts; None if the call is not sent."""
        self._given: dict[str, int] = {}
        """The granted amounts, less what only lets the call go alone."""
        self.marked: dict[str, int] = {}
        """Amounts that it may use up without a record of its end, if its process is killed."""
        self.is_answered = False
        """Whether the call may have been sent."""
        self.epoch = 0
        """Epoch of the throttle when it was answered."""

    @cached_property
    def _order(self) -> tuple[Any, ...]:
        """Its place in the queue, which most calls never need."""
        return in_order(self.request.path), self.request.seq, self._number

    def __lt__(self, other: HeldLease) -> bool:
        return self._order < other._order

    def needed(self, bounds: Mapping[str, Bound]) -> dict[str, int]:
        """Return the amounts that it reserves, by the experience with its model until now."""
        found = dict(self.request.amounts)
        for name, experience in self.learned.items():
            if name in found:
                found[name] = max(found[name], experience.needed(bounds[name].total, self.request.samples))
        return found

    def enough(self, name: str) -> int | None:
        """Return the amount of a bound that is enough for it; None if only the whole one is."""
        if name in self.learned:
            return None
        return self.request.least.get(name)

    def most(self, name: str) -> int:
        """Return the most that it may use up of a bound; 0 if that is unknown."""
        experience = self.learned.get(name)
        return max(self.request.amounts[name], 0 if experience is None else experience.most(self.request.samples))

    def grant(self, granted: dict[str, int]) -> None:
        """Take the granted amounts, once."""
        self.is_over, self.granted = True, granted
        given = self._given = {name: min(amount, self.most(name)) for name, amount in granted.items()}
        if self.request.is_marked:
            self.marked = {name: given[name] for name in (CALLS, TOKENS, COST) if name in given}
            if self.marked.get(COST) == 0:
                self.marked[UNPRICED] = 1
        self._on_grant(self)

    def end(self) -> None:
        """Let the call not be sent, if it waits for its amounts."""
        if not self.is_over:
            self.is_over = True
            self.refuse()

    def answer(self) -> None:
        """Let the call be sent, which waits for it still."""
        if self.throttle is not None:
            self.epoch = self.throttle.epoch
        self.is_answered = True
        self.answered.set_result(self._given)

    def refuse(self) -> None:
        """Let the call not be sent."""
        if not self.answered.done():
            self.answered.set_result(None)


class LeaseHolder:
    """A replica of the solver, and its leases."""

    def __init__(self) -> None:
        self.leases: dict[int, HeldLease] = {}
        self.parked = Counter[str]()
        """Amounts of calls in batches, whose replies are taken later."""
        self.ended: set[int] = set()
        """Leases whose end came before they were asked for."""


class Queue:
    """Calls that wait, the lowest step first, then the earliest launch.

    Calls of the same bounds share a heap. The first one that lacks room in a bound keeps all later ones from it: else a call that needs
    much would never get it. Calls that do not need this bound pass.

    Args:
        bounds: all bounds by name.
    """

    def __init__(self, bounds: Mapping[str, Bound]) -> None:
        self._bounds = bounds
        self._heaps: dict[frozenset[str], list[HeldLease]] = {}

    @property
    def has_calls(self) -> bool:
        """Whether a call may wait."""
        return any(self._heaps.values())

    def add(self, waiting: HeldLease) -> None:
        """Let a call wait."""
        heappush(self._heaps.setdefault(frozenset(waiting.request.amounts), []), waiting)

    def admit(self, call: HeldLease) -> bool:
        """Grant a call at once, if none waits and every bound has room for it; returns whether it did."""
        if self.has_calls:
            return False
        needed = call.needed(self._bounds)
        for name, amount in needed.items():
            if amount > self._bounds[name].free:
                return False
        self._grant(call, needed)
        return True

    def _grant(self, call: HeldLease, granted: dict[str, int]) -> None:
        for name, amount in granted.items():
            self._bounds[name].take(amount)
        call.grant(granted)

    def deal(self) -> Iterator[tuple[HeldLease, dict[str, int]]]:
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

    def _is_rest_enough(self, name: str, waiting: HeldLease) -> bool:
        """Whether nothing can come back to a bound, and the rest is enough for a call."""
        bound, least = self._bounds[name], waiting.enough(name)
        return not bound.renews and not bound.held and least is not None and 0 < least <= bound.free

    def _first(self, blocked: set[str]) -> HeldLease | None:
        first: HeldLease | None = None
        for names, heap in self._heaps.items():
            while heap and heap[0].is_over:
                heappop(heap)
            if heap and not (names & blocked) and (first is None or heap[0] < first):
                first = heap[0]
        return first
