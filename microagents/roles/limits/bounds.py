"""Bounds of a run, and how they are dealt out in quotas. Pure: no messages, no clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from microagents.journal.digests import in_order
from microagents.roles.limits.quotas import Change

SPREAD = 2
"""A quota of what can be used up is at most 1 / (SPREAD * holders) of what is left: the last quotas are small."""


class Holding:
    """Quota of one holder, as the limiter sees it."""

    def __init__(self, holder: int) -> None:
        self.holder = holder
        self.held = 0
        """What it was granted, and has neither given back nor spent, as far as it has reported."""
        self.granted = 0
        """All that it was granted."""
        self.wanted = 0
        """The amount that its waiting calls lack, less the grants since."""
        self.first: tuple[Any, ...] | None = None
        """Place of its first waiting call in the order of all; None after a grant, until it reports."""
        self.first_lacks = 0
        """The amount that this call lacks."""
        self.least_lacks = 0
        """The amount that it lacks of the least that it can do with."""

    @property
    def order(self) -> tuple[Any, ...]:
        """Place of its first call; holders that did not report theirs come last."""
        return (self.first is None, self.first or (), self.holder)


class Bound:
    """One bound, and the quotas of it.

    While all holders have what they want, they keep it. If they want more than there is, each may keep as much as all can have
    (`level`), and what is over goes, call by call, to the lowest call of all. Of what can be used up nothing may be kept then, so that no
    part of it lies idle while a call waits.

    Args:
        total: the bound.
        renews: whether a call gives back what it took, such as a place among the calls in flight, or uses it up.
    """

    def __init__(self, total: int, *, renews: bool) -> None:
        self.total = total
        """What can be held by all together; of what is used up, what is left."""
        self.renews = renews
        self.keep: int | None = None
        """The amount that a holder may keep while others wait; None while none waits."""
        self.lost = 0
        """The amount held by holders that have died. Part of it may be spent."""
        self._held = 0
        self._positions: dict[int, Holding] = {}

    @property
    def free(self) -> int:
        """Amount that no holder has; negative if the total was lowered."""
        return self.total - self._held

    @property
    def is_held(self) -> bool:
        """Whether a holder has anything: a call of its may turn out to be free of charge."""
        return self._held > 0

    @property
    def is_wanted(self) -> bool:
        """Whether a call waits."""
        return any(position.wanted > 0 for position in self._positions.values())

    @property
    def is_scarce(self) -> bool:
        """Whether holders want more than is free."""
        return self.free < 0 or sum(position.wanted for position in self._positions.values()) > self.free

    @property
    def is_spent(self) -> bool:
        """Whether a call waits, and nothing that is left, or could still come back, is enough for the first one."""
        return not self.renews and not self.is_held and 0 < self.lacking > self.free

    @property
    def lacking(self) -> int:
        """Amount that the first waiting call lacks of the least that it can do with."""
        waiting = [
            position for position in self._positions.values() if position.wanted > 0 and position.first is not None
        ]
        return min(waiting, key=lambda each: each.order).least_lacks if waiting else 0

    def trade(self, holder: int, change: Change) -> None:
        """Take what a holder gives back, and note what it wants."""
        position = self._positions.get(holder)
        if position is None:
            position = self._positions[holder] = Holding(holder)
        position.held -= change.returned + change.spent
        self._held -= change.returned + change.spent
        self.total -= change.spent
        on_its_way = position.granted - change.received
        position.wanted = max(0, change.wanted - on_its_way)
        position.first = (in_order(change.path), change.seq) if position.wanted and not on_its_way else None
        position.first_lacks = change.first
        position.least_lacks = change.first - change.spare

    def leave(self, holder: int) -> None:
        """Free the quota of a holder that has left. The part of it that was used up is unknown."""
        position = self._positions.pop(holder, None)
        if position is None:
            return
        self._held -= position.held
        if not self.renews:
            self.total -= position.held
            self.lost += position.held

    def refill(self, amount: int, most: int) -> None:
        """Add to the total, up to so much that is free."""
        self.total += max(0, min(amount, most - self.free))

    def level(self) -> int:
        """What each holder may keep, so that all have as much of what they want as possible, and none more than another that waits."""
        if not self.renews:
            return 0
        wanted = sorted(position.held + position.wanted for position in self._positions.values())
        left = max(0, self.total)
        for number, each in enumerate(wanted):
            level = left // (len(wanted) - number)
            if each > level:
                return level
            left -= each
        return left

    def deal(self) -> Iterator[tuple[int, int]]:
        """Grant what is free; yields holders and amounts."""
        waiting = sorted((each for each in self._positions.values() if each.wanted > 0), key=lambda each: each.order)
        wanted = sum(each.wanted for each in waiting)
        if wanted <= self.free:
            for each in waiting:
                if each.first is None and self.keep == 0 and not self.renews:
                    continue  # a part of an amount is given back as it arrives, so two parts on their way would never meet
                wanted -= each.wanted
                ahead = 0 if self.renews else (self.free - each.wanted - wanted) // (SPREAD * len(self._positions))
                yield self._grant(each, each.wanted + ahead)
            return
        for each in waiting:
            if (amount := min(each.wanted, (self.keep or 0) - each.held, self.free)) > 0:
                yield self._grant(each, amount)
        for each in waiting:
            # The first one is waited for: else a call that needs much would never get it.
            if each.first is None or each.first_lacks > self.free:
                break
            yield self._grant(each, each.first_lacks)
        for each in waiting[:1]:
            if not self.renews and not self.is_held and each.first is not None and each.least_lacks <= self.free:
                yield self._grant(each, self.free)  # nothing comes back, so the first call has to do with what is left

    def _grant(self, position: Holding, amount: int) -> tuple[int, int]:
        position.held += amount
        position.granted += amount
        position.wanted = max(0, position.wanted - amount)
        position.first = None
        self._held += amount
        return position.holder, amount
