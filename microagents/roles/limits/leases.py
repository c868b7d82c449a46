"""Leases: the shares of a run's bounds that a call acquires before it is sent, and releases at its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from msgspec import structs

from microagents.base.aio import Notifier
from microagents.base.errors import NotSent
from microagents.base.messages import Request
from microagents.journal.messages import Ended
from microagents.models.rates import Rate


class Acquire(Request[dict[str, int] | None], frozen=True, kw_only=True):
    """Wait until the bounds have room for a call. The lowest step goes first, then the earliest launch.

    The reply is the call's share of each bound; None if no call is sent any more.
    """

    holder: int = 0
    """Number of the subscription whose end releases the lease."""
    number: int = 0
    """Number of the lease, which its end names."""
    path: str
    seq: int
    amounts: Mapping[str, int]
    least: Mapping[str, int] = {}
    """Amounts that are enough for the call if a bound has no more left, by the bound's name."""
    model: str = ""
    """Spec of the call's model."""
    samples: int = 1
    """Number of samples that the call asks for."""
    unstated: tuple[str, ...] = ()
    """Bounds of which the model states no maximum: the amounts are then the least, and what its calls have used up gives the rest."""
    throttle: str | None = None
    """Name of the bound that is the throttle of the model."""
    rates: Mapping[str, Rate] = {}
    """Rates of the bounds that a provider fills again each minute."""
    is_marked: bool = True
    """Whether the call may be lost with its process. A line of a batch is not: the journal has its batch."""


class Leases:
    """Leases of one replica of the solver.

    Args:
        ask: asks the keeper for a lease.
        on_end: called with the end of each lease.
    """

    def __init__(
        self, ask: Callable[[Acquire], Awaitable[dict[str, int] | None]], on_end: Callable[[Ended], None]
    ) -> None:
        self._ask, self._on_end = ask, on_end
        self.holder = 0
        """Number of its subscription, without which it has no lease."""
        self._asked = self._open = 0
        """Number of leases so far, and of unreleased ones."""
        self._released = Notifier()

    async def acquire(self, wanted: Acquire) -> tuple[int, dict[str, int]]:
        """Acquire a lease for a call; wait until the bounds have room. Holder and number are filled in here.

        Returns:
            The number of the lease, and the call's amounts: less than was asked for only of a bound with less left, and more if its
            model states no maximum.

        Raises:
            NotSent: no call is sent any more.
        """
        self._asked += 1
        self._open += 1
        number, granted = self._asked, None
        try:
            granted = await self._ask(structs.replace(wanted, holder=self.holder, number=number))
        finally:
            if granted is None:
                self.release(Ended(number=number))  # if the wait was cancelled, it may have been granted meanwhile
        if granted is None:
            raise NotSent(wanted.path)
        return number, granted

    def release(self, ended: Ended) -> None:
        """Release a lease. Its holder is filled in here."""
        self._open -= 1
        self._on_end(structs.replace(ended, holder=self.holder))
        self._released.notify()

    def end_parked(self, amounts: Mapping[str, int], spent: dict[str, int]) -> None:
        """Give back amounts that an ended lease left to a batch."""
        parked = {name: -amount for name, amount in amounts.items()}
        self._on_end(Ended(holder=self.holder, number=0, parked=parked, spent=spent))

    async def all_released(self) -> None:
        """Wait until all leases are released."""
        while self._open:
            await self._released.wait()
