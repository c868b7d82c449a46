"""Marks: the journal bounds what is granted and not recorded before a call is sent, so a kill loses at most that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from microagents.journal.messages import Lost
from microagents.roles.limits.bounds import UNBOUNDED, Bound
from microagents.roles.limits.held_leases import UNPRICED, HeldLease
from microagents.roles.limits.reservations import CALLS, COST, TOKENS, UNITS_PER_USD

PARTS = 8
"""A mark goes beyond what is held by at most this part of what is free: what is left is for the calls after a kill, or for other runs."""


def part_of(free: int) -> int:
    """Return the part of a free amount that may be marked ahead, of a run's limit or of a cap of many runs."""
    return max(0, -(-free // PARTS))


class AmountMark:
    """The mark of one amount."""

    def __init__(self) -> None:
        self._durable = self._next = 0
        """The mark that is durable, and the one that is being committed."""
        self._left, self._next_left = 0, UNBOUNDED
        """What may still be granted under each; the second one is far while none is being committed."""
        self.held = 0
        """Granted to calls without a known end."""
        self._peak = 0
        """The largest amount of late that was granted and not recorded."""

    def covers(self, amount: int) -> bool:
        """Whether an amount may be granted."""
        return amount <= self._left and amount <= self._next_left

    def take(self, amount: int) -> None:
        """Grant an amount."""
        self.held += amount
        self._left -= amount
        self._next_left -= amount

    def raised(self, waiting: int, free: int) -> int:
        """Return the mark for the next commit, which records all ends so far.

        It is twice the largest amount of late, so a run of steady work waits for none, but no more than a limit bears.

        Args:
            waiting: granted to calls that wait for it.
            free: what the limit has left beside.
        """
        unrecorded = self._durable - self._left + waiting
        self._peak = max(unrecorded, self._peak - self._peak // PARTS)
        self._next = min(2 * self._peak, self.held + waiting + part_of(free))
        self._next_left = self._next - self.held
        return self._next

    def commit(self) -> None:
        """Note that the next mark is durable."""
        self._durable, self._left, self._next_left = self._next, self._next_left, UNBOUNDED


class Marks:
    """The marks of a run: of its calls, and of tokens and cost if they are limited.

    Args:
        bounds: the bounds of the run.
        on_short: called when calls wait for the next commit; None if no journal outlives the process, so that none waits.
    """

    def __init__(self, bounds: Mapping[str, Bound], on_short: Callable[[], None] | None) -> None:
        self._bounds, self._on_short = bounds, on_short
        self._marks = {name: AmountMark() for name in (CALLS, TOKENS, COST, UNPRICED)}
        self._waiting: deque[HeldLease] = deque()

    def grant(self, lease: HeldLease) -> None:
        """Answer a call once its amounts are marked."""
        if not self._waiting and self._may_answer(lease):
            self._let_go(lease)
        else:
            self._waiting.append(lease)
            self._answer()

    def release(self, lease: HeldLease) -> None:
        """End a lease. The next commit has the record of its call."""
        lease.refuse()
        if lease.is_answered:
            for name, amount in lease.marked.items():
                self._marks[name].held -= amount

    def dismiss(self) -> None:
        """Refuse the calls that wait."""
        while self._waiting:
            self._waiting.popleft().refuse()

    def raised(self) -> Lost:
        """Return the marks for the next commit, which records all ends so far."""
        waiting = dict.fromkeys(self._marks, 0)
        for lease in self._waiting:
            for name, amount in lease.marked.items():
                waiting[name] += amount
        found = {}
        for name, mark in self._marks.items():
            bound = self._bounds.get(name)
            found[name] = mark.raised(waiting[name], 0 if bound is None else bound.free)
        return lost_of(found)

    def commit(self) -> None:
        """Answer the calls that wait, since the raised marks are durable."""
        for mark in self._marks.values():
            mark.commit()
        self._answer()

    def _answer(self) -> None:
        while self._waiting and self._may_answer(self._waiting[0]):
            self._let_go(self._waiting.popleft())
        if self._waiting and self._on_short is not None:
            self._on_short()

    def _let_go(self, lease: HeldLease) -> None:
        if not lease.answered.done():  # else it was released, or its asker cancelled
            lease.answer()
            for name, amount in lease.marked.items():
                self._marks[name].take(amount)

    def _may_answer(self, lease: HeldLease) -> bool:
        if self._on_short is not None:
            for name, amount in lease.marked.items():
                if not self._marks[name].covers(amount):
                    return False
        return True


def lost_of(amounts: Mapping[str, int]) -> Lost:
    """Return marked amounts as the journal keeps them."""
    return Lost(
        calls=amounts.get(CALLS, 0),
        tokens=amounts.get(TOKENS, 0),
        cost_usd=amounts.get(COST, 0) / UNITS_PER_USD,
        unpriced=amounts.get(UNPRICED, 0),
    )
