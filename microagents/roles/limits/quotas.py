"""Quotas: what a replica of the solver may use of the bounds of a run. It takes from them call by call, without asking.

A bound has a name and a total, such as 250 calls in flight. The limiter deals it out in quotas, and moves them between replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from heapq import heappop, heappush
from typing import Literal

from msgspec import Struct, structs

from microagents.base.aio import TaskScope
from microagents.base.errors import MicroagentsError, NotSent
from microagents.base.messages import Request, Stream
from microagents.elections.election import SampleId
from microagents.journal.digests import in_order
from microagents.models.rates import Rate

OUTCOMES_S = 0.2
"""Replies are reported once in this time, other outcomes at once."""
IDLE_S = 0.05
"""What stood idle so long goes back, while other replicas wait."""


Outcome = Literal["replied", "refused", "failed"]
"""How a call to a throttled model may end: with a reply, with 429, or with a failure of the provider or the network."""


class Grant(Struct, frozen=True, kw_only=True):
    """What the limiter sends to a holder."""

    holder: int
    """Number of the holder, which all its trades name."""
    amounts: dict[str, int] = {}
    """Additions to its quotas, by the name of the bound."""
    keep: dict[str, int | None] = {}
    """The largest quota that it may keep while others wait; None once no other waits."""
    epochs: dict[str, int] = {}
    """Epochs of throttles (`microagents.models.throttle`), as they change."""
    out: dict[str, float | None] = {}
    """Seconds for which the provider of a throttled model has been out; None once it delivers again."""


class HoldQuotas(Stream[Grant], frozen=True, kw_only=True):
    """Hold quotas of the bounds. They last until the holder closes the stream, or dies."""

    asker: str
    """Name of the solver's replica."""


class Outcomes(Struct, frozen=True, kw_only=True):
    """How calls to one model have ended. Only those count that were sent in the current epoch."""

    epoch: int
    in_use: int
    """Largest number of calls in flight since the last report."""
    replies: int = 0
    refusals: int = 0
    """Calls that were refused with 429."""
    failures: int = 0
    """Calls that the provider or the network failed."""
    wait_s: float | None = None
    """The longest wait that a refusal asked for."""


class Change(Struct, frozen=True, kw_only=True):
    """What a holder reports about its quota of one bound."""

    returned: int = 0
    """The amount that it gives back."""
    spent: int = 0
    """The amount that its calls have used up."""
    wanted: int = 0
    """The amount that its waiting calls lack."""
    received: int = 0
    """All that it was granted until now, so that a grant on its way is not given twice."""
    path: str = ""
    """Path of the first call that waits."""
    seq: int = 0
    """Sequence number of that call."""
    first: int = 0
    """The amount that this call lacks."""
    spare: int = 0
    """The part of it that this call can do without."""
    outcomes: Outcomes | None = None
    """How calls have ended, if the bound is a throttle."""
    rate: Rate | None = None
    """The rate of the bound, if it comes back each minute."""


class Trade(Request[None], frozen=True, kw_only=True):
    """Give back parts of quotas, and ask for others."""

    holder: int
    changes: dict[str, Change]


class Waiter:
    """A call that waits for an amount, and can do with the least one."""

    def __init__(self, sample: SampleId, number: int, amount: int, least: int) -> None:
        self.sample = sample
        self.number = number
        self.amount = amount
        self.least = least
        self.granted: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        """The amount that it got; None if no call is sent any more."""
        self._order = (in_order(sample.election.path), sample.seq, number)

    def __lt__(self, other: Waiter) -> bool:
        return self._order < other._order


class Quota:
    """Part of one bound that a replica holds. The lowest step goes first, then the earliest launch.

    Args:
        tell: called when the limiter has to know of a change.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._free = 0
        self._in_use = 0
        self._keep: int | None = None
        self._asked_so_far = 0
        """Number of calls that had to wait."""
        self._waiting: list[Waiter] = []
        """A heap. A call that was cancelled stays in it until its turn comes."""
        self._needed = 0
        """The sum of the amounts that calls wait for."""
        self._received = self._returned = self._spent = 0
        self._told_wanted = 0
        """The wanted amount last reported to the limiter."""
        self._told_first: int | None = None
        """Number of the waiter that the limiter knows to be the first; None if it must be reported."""
        self._least_free: int | None = None
        """The amount that was idle all the time since the timer was set; None if none is set."""
        self._outcomes: Outcomes | None = None
        self._reports = False
        """Whether outcomes are reported with the next trade."""
        self._most_in_use = 0
        self.rate: Rate | None = None
        """The amount that comes back each minute; None if none does."""
        self.epoch = 0
        """Epoch of the throttle, if the bound is one."""
        self._is_over = False
        self._failure: MicroagentsError | None = None

    async def take(self, sample: SampleId, amount: int, least: int) -> int:
        """Take an amount for a call; wait if the quota has less free.

        Returns:
            The amount; or less, but at least ``least``, if the bound has only that left.

        Raises:
            NotSent: no call is sent any more.
        """
        if self._free >= amount and self._first() is None and not self._is_over:
            self._use(amount)
            return amount
        if self._failure is not None:
            raise self._failure
        if self._is_over:
            raise NotSent(sample.election.path)
        self._asked_so_far += 1
        waiter = Waiter(sample, self._asked_so_far, amount, least)
        heappush(self._waiting, waiter)
        self._needed += amount
        self._tell_if_due()
        try:
            granted = await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.cancelled():
                self._needed -= amount
                self._settle()
            elif waiter.granted.exception() is None and (granted := waiter.granted.result()):  # as it was cancelled
                self.give_back(granted)
            raise
        if granted is None:
            raise NotSent(sample.election.path)
        return granted

    def give_back(self, amount: int, spent: int = 0, *, to_all: bool = False) -> None:
        """End the use of an amount. A part may be used up for good; more than the amount makes a debt.

        Args:
            amount: what was taken.
            spent: the part that is used up.
            to_all: whether the rest leaves the quota, because the bound may be lower now.
        """
        self._in_use -= amount
        self._spent += spent
        if to_all:
            self._returned += amount - spent
        else:
            self._free += amount - spent
        self._settle()

    def note(self, outcome: Outcome, epoch: int, wait_s: float | None = None) -> None:
        """Note how a call to a throttled model has ended; ``epoch`` is the one in which it was sent."""
        if epoch != self.epoch:
            return
        before = self._outcomes
        if before is None or before.epoch != epoch:
            before = Outcomes(epoch=epoch, in_use=0)
            self._loop.call_later(OUTCOMES_S, self._report)
        waits = [each for each in (before.wait_s, wait_s) if each is not None]
        self._outcomes = Outcomes(
            epoch=epoch,
            in_use=max(before.in_use, self._most_in_use),
            replies=before.replies + (outcome == "replied"),
            refusals=before.refusals + (outcome == "refused"),
            failures=before.failures + (outcome == "failed"),
            wait_s=max(waits, default=None),
        )
        if outcome != "replied":
            self._report()

    def _report(self) -> None:
        if self._outcomes is not None:
            self._reports = True
            self._tell_if_due()

    def receive(self, amount: int) -> None:
        """Add a grant of the limiter."""
        self._free += amount
        self._received += amount
        self._told_wanted = max(0, self._told_wanted - amount)
        told_first, self._told_first = self._told_first, None
        self._serve()  # what is over the level was granted for the first call
        first = self._first()
        if first is not None and first.number == told_first and first.least <= self._free:  # that is all that is left
            self._grant(first, self._free)
        self._settle()

    def keep(self, most: int | None) -> None:
        """Keep at most so much from now on, since others wait; None: all that it has."""
        self._keep = most
        self._settle()

    def dismiss(self, failure: MicroagentsError | None = None) -> None:
        """Let no call take anything from now on: the work is over, or the limiter is lost."""
        self._is_over, self._failure = True, failure
        while (first := self._first()) is not None:
            self._pop(first)
            if failure is None:
                first.granted.set_result(None)
            else:
                first.granted.set_exception(failure)
        self._tell_if_due()

    def change(self) -> Change | None:
        """Return the report for the limiter; None if there is none."""
        if not self._is_due():
            return None
        first, wanted = self._first(), self._wanted()
        told = Change(
            returned=self._returned, spent=self._spent, wanted=wanted, received=self._received, rate=self.rate
        )
        self._returned = self._spent = 0
        self._told_wanted, self._told_first = wanted, None
        if first is not None:
            self._told_first = first.number
            told = structs.replace(
                told,
                path=first.sample.election.path,
                seq=first.sample.seq,
                first=first.amount - self._free,
                spare=first.amount - first.least,
            )
        if self._reports and self._outcomes is not None:
            told = structs.replace(told, outcomes=self._outcomes)
            self._outcomes, self._reports, self._most_in_use = None, False, self._in_use
        return told

    def _is_due(self) -> bool:
        first, wanted, told, keep = self._first(), self._wanted(), self._told_wanted, self._keep
        if self._returned or self._reports or (self._spent and keep is not None):
            return True
        if first is None or not told:
            return wanted != told
        if keep is None:
            return wanted > told
        # While others wait, it is enough that the limiter knows of a need: more of it changes nothing. If quotas are too small to be
        # kept, each call competes with calls of other replicas.
        return self._told_first is None or wanted < told // 2 or (keep == 0 and self._told_first != first.number)

    def _wanted(self) -> int:
        return 0 if self._first() is None else self._needed - self._free

    def _settle(self) -> None:
        """Give back what others wait for, and serve the calls that wait here."""
        if self._keep is not None and (excess := min(self._free, self._free + self._in_use - self._keep)) > 0:
            self._free -= excess
            self._returned += excess
        self._serve()
        if self._keep is not None and self._free > 0 and self._least_free is None:
            self._least_free = self._free
            self._loop.call_later(IDLE_S, self._return_idle)
        self._tell_if_due()

    def _serve(self) -> None:
        while (first := self._first()) is not None and first.amount <= self._free:
            self._grant(first, first.amount)

    def _grant(self, first: Waiter, amount: int) -> None:
        self._pop(first)
        self._use(amount)
        first.granted.set_result(amount)

    def _return_idle(self) -> None:
        idle, self._least_free = self._least_free or 0, None
        if self._keep is not None:
            idle = max(0, min(idle, self._free))
            self._free -= idle
            self._returned += idle
            self._settle()

    def _use(self, amount: int) -> None:
        self._free -= amount
        self._in_use += amount
        self._most_in_use = max(self._most_in_use, self._in_use)
        if self._least_free is not None and self._free < self._least_free:
            self._least_free = self._free

    def _first(self) -> Waiter | None:
        while self._waiting and self._waiting[0].granted.done():
            heappop(self._waiting)
        return self._waiting[0] if self._waiting else None

    def _pop(self, first: Waiter) -> None:
        heappop(self._waiting)
        self._needed -= first.amount

    def _tell_if_due(self) -> None:
        if self._is_due():
            self._tell()


class Quotas:
    """Quotas of one replica of the solver.

    A call takes amounts of several bounds: ``{"concurrency": 1, "calls": 1}``. Of a bound that is used up (``calls``) it may take an
    estimate, and report what it really spent when it gives the rest back, so a bound may as well count tokens or money, in whole units.
    Amounts are taken one after the other, in the order of the mapping. All callers name bounds in one order: first what comes again
    each minute, then what every call gives back (`Bound.renews`), then what is used up. So no two calls wait for each other.

    Args:
        asker: name of the replica.
        stream: opens the stream of grants.
        ask: sends a trade to the limiter.
        on_outage: called with the name of a throttle and the seconds for which its provider has been out, by the calls of all replicas;
            with None when it delivers again.
    """

    def __init__(
        self,
        asker: str,
        stream: Callable[[HoldQuotas], AsyncGenerator[Grant]],
        ask: Callable[[Trade], Awaitable[None]],
        on_outage: Callable[[str, float | None], None] = lambda _name, _out_s: None,
    ) -> None:
        self._asker = asker
        self._stream = stream
        self._ask = ask
        self._on_outage = on_outage
        self._loop = asyncio.get_running_loop()
        self._quotas: dict[str, Quota] = {}
        self._holder: int | None = None
        self._is_telling = False
        self._is_over = False
        self._failure: MicroagentsError | None = None
        self._scope = TaskScope()

    async def close(self) -> None:
        """Give all quotas back."""
        self._holder = None  # a call that ends later reports nothing
        await self._scope.close()

    async def take(self, sample: SampleId, amounts: Mapping[str, int], least: Mapping[str, int] = {}) -> dict[str, int]:
        """Take amounts for a call; wait for what the quotas do not have free.

        Args:
            sample: its place in the order of all calls.
            amounts: what it takes.
            least: what is enough for it, if less.

        Returns:
            What it took: less than it asked for only of a bound with less left.

        Raises:
            NotSent: no call is sent any more.
        """
        taken: dict[str, int] = {}
        try:
            for name, amount in amounts.items():
                taken[name] = await self._quota(name).take(sample, amount, least.get(name, amount))
        except BaseException:
            self.give_back(taken, {})
            raise
        return taken

    def give_back(self, amounts: Mapping[str, int], spent: Mapping[str, int], *, to_all: str | None = None) -> None:
        """End the use of amounts, except for what was spent of them; ``to_all`` names a quota that does not keep the rest."""
        for name, amount in amounts.items():
            self._quotas[name].give_back(amount, spent.get(name, 0), to_all=name == to_all)

    def epoch(self, name: str) -> int:
        """Return the epoch of a throttle."""
        return self._quotas[name].epoch

    def note(self, name: str, outcome: Outcome, epoch: int, wait_s: float | None = None) -> None:
        """Note how a call to a throttled model has ended; ``epoch`` is the one in which it was sent."""
        self._quotas[name].note(outcome, epoch, wait_s)

    def set_rate(self, name: str, rate: Rate) -> None:
        """Note that a bound comes again each minute; the limiter learns it with the first amount that is wanted."""
        quota = self._quota(name)
        quota.rate = quota.rate or rate

    def dismiss(self, failure: MicroagentsError | None = None) -> None:
        """Let no call take anything from now on: the work is over, or the limiter is lost."""
        self._is_over, self._failure = True, failure
        for quota in self._quotas.values():
            quota.dismiss(failure)

    def _quota(self, name: str) -> Quota:
        found = self._quotas.get(name)
        if found is None:
            if not self._quotas and not self._is_over:
                self._scope.start(self._receive())
            found = self._quotas[name] = Quota(self._tell_soon)
            if self._is_over:
                found.dismiss(self._failure)
        return found

    async def _receive(self) -> None:
        try:
            async with aclosing(self._stream(HoldQuotas(asker=self._asker))) as grants:
                async for grant in grants:
                    self._holder = grant.holder
                    for name, epoch in grant.epochs.items():
                        self._quota(name).epoch = epoch
                    for name, out_s in grant.out.items():
                        self._on_outage(name, out_s)
                    for name, most in grant.keep.items():
                        self._quota(name).keep(most)
                    for name, amount in grant.amounts.items():
                        self._quota(name).receive(amount)
                    self._tell_soon()
        except MicroagentsError as error:
            self.dismiss(error)

    def _tell_soon(self) -> None:
        """Trade once for all that happens in this iteration of the loop, after the trade that is under way."""
        if not self._is_telling and self._holder is not None:
            self._is_telling = True
            self._loop.call_soon(self._begin_to_trade)

    def _begin_to_trade(self) -> None:
        if self._holder is not None:
            self._scope.start(self._trade())

    async def _trade(self) -> None:
        try:
            while self._holder is not None and (changes := self._changes()):
                await self._ask(Trade(holder=self._holder, changes=changes))
        except MicroagentsError as error:
            self.dismiss(error)
        finally:
            self._is_telling = False

    def _changes(self) -> dict[str, Change]:
        return {name: change for name, quota in self._quotas.items() if (change := quota.change()) is not None}
