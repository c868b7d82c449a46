"""Leases as the limiter holds them, and the replicas of the solver that acquired them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from microagents.models.throttle import Throttle
from microagents.roles.limits.bounds import Experience, QueuedCall
from microagents.roles.limits.leases import Acquire
from microagents.roles.limits.reservations import CALLS, COST, TOKENS

UNPRICED = "unpriced"
"""Marked amount of the calls under a limit of cost whose price is unknown."""


class HeldLease(QueuedCall):
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
        place = (request.path, request.seq, number)
        super().__init__(place, request.amounts, request.least, learned=learned, samples=request.samples)
        self.model, self.learned = request.model, learned
        self.throttled_as, self.throttle = request.throttle, throttle
        self._on_grant, self._is_marked = on_grant, request.is_marked
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

    def _granted(self, granted: dict[str, int] | None) -> None:
        if granted is None:
            self.refuse()
            return
        given = self._given = {name: min(amount, self.most(name)) for name, amount in granted.items()}
        if self._is_marked:
            self.marked = {name: given[name] for name in (CALLS, TOKENS, COST) if name in given}
            if self.marked.get(COST) == 0:
                self.marked[UNPRICED] = 1
        self._on_grant(self)

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
