"""Leaves: the shares of a run's bounds that a call asks the limiter for before it is sent, and gives back at its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Literal

from msgspec import Struct, structs

from microagents.base.aio import Notifier, TaskScope
from microagents.base.errors import MicroagentsError, NotSent
from microagents.base.messages import Batched, Request, Stream
from microagents.models.rates import Rate

Outcome = Literal["replied", "refused", "failed"]
"""How a call to a throttled model may end: with a reply, with 429, or with a failure of the provider or the network."""


class News(Struct, frozen=True, kw_only=True):
    """Messages of the limiter to a holder."""

    holder: int
    """Number of the holder, which all its leaves name."""
    out: dict[str, float | None] = {}
    """Seconds for which the provider of a throttled model has been out; None once it delivers again."""


class HoldLeaves(Stream[News], frozen=True, kw_only=True):
    """Hold leaves. They last until they are given back, or the holder closes the stream, or dies."""

    asker: str
    """Name of the solver's replica."""


class Leave(Request[dict[str, int] | None], frozen=True, kw_only=True):
    """Wait until the bounds have room for a call. The lowest step goes first, then the earliest launch.

    The reply is the call's share of each bound; None if no call is sent any more.
    """

    holder: int = 0
    number: int = 0
    """Number of the leave, which its end names."""
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


class Ended(Struct, frozen=True, kw_only=True):
    """The end of a call, or of its wait for a leave."""

    holder: int = 0
    number: int
    spent: dict[str, int] = {}
    """What it has used up for good, by bound; more than it held makes a debt."""
    unknown: tuple[str, ...] = ()
    """Bounds of which this is unknown, and counted at the most."""
    outcome: Outcome | None = None
    """For the throttle of its model."""
    wait_s: float | None = None
    """The wait that a refusal asked for."""
    unread: str = ""
    """The error of a reply that could not be read; else empty."""


class EndLeaves(Batched, frozen=True, kw_only=True):
    """Give leaves back."""

    ended: list[Ended]

    @classmethod
    def together(cls, waiting: Sequence[Batched]) -> EndLeaves:
        """Make one message of several."""
        return EndLeaves(ended=[end for each in waiting if isinstance(each, EndLeaves) for end in each.ended])


class RefuseLeaves(Request[None], frozen=True, kw_only=True):
    """Answer the calls of a holder that wait: none is sent any more."""

    holder: int


class Leaves:
    """Leaves of one replica of the solver.

    Args:
        asker: name of the replica.
        stream: opens the stream of news, which ends the leaves if the replica dies.
        ask: asks the limiter for a leave.
        tell: sends a one-way message to the limiter.
        on_outage: called with the name of a throttle and the seconds for which its provider has been out, by the calls of all replicas;
            with None when it delivers again.
    """

    def __init__(
        self,
        asker: str,
        stream: Callable[[HoldLeaves], AsyncGenerator[News]],
        ask: Callable[[Leave], Awaitable[dict[str, int] | None]],
        tell: Callable[[EndLeaves | RefuseLeaves], None],
        on_outage: Callable[[str, float | None], None] = lambda _name, _out_s: None,
    ) -> None:
        self._asker = asker
        self._stream = stream
        self._ask = ask
        self._tell = tell
        self._on_outage = on_outage
        self._holder: int | None = None
        self._asked = 0
        self._is_following = self._is_over = False
        self._failure: MicroagentsError | None = None
        self._known = Notifier()
        """Notified when the holder's number is known, and when it never will be."""
        self._scope = TaskScope()

    async def close(self) -> None:
        """Give all leaves back."""
        self._holder, self._is_over = None, True  # a call that ends later reports nothing
        self._known.notify()
        await self._scope.close()

    async def take(self, wanted: Leave) -> tuple[int, dict[str, int]]:
        """Take a leave for a call; wait until the bounds have room. Holder and number are filled in here.

        Returns:
            The number of the leave, and the call's amounts: less than was asked for only of a bound with less left, and more if its
            model states no maximum.

        Raises:
            NotSent: no call is sent any more.
        """
        while self._holder is None:
            self._check(wanted.path)
            if not self._is_following:
                self._is_following = True
                self._scope.start(self._follow())
            await self._known.wait()
        self._check(wanted.path)
        self._asked += 1
        number = self._asked
        try:
            granted = await self._ask(structs.replace(wanted, holder=self._holder, number=number))
        except BaseException:
            self.end(Ended(number=number))  # it may have been granted meanwhile
            raise
        if granted is None:
            self.end(Ended(number=number))
            raise NotSent(wanted.path)
        return number, granted

    def end(self, ended: Ended) -> None:
        """Give a leave back. Its holder is filled in here."""
        if self._holder is not None:
            self._tell(EndLeaves(ended=[structs.replace(ended, holder=self._holder)]))

    def dismiss(self, failure: MicroagentsError | None = None) -> None:
        """Let no call take a leave from now on: the work is over, or the limiter is lost."""
        self._is_over, self._failure = True, failure
        self._known.notify()
        if self._holder is not None and failure is None:
            self._tell(RefuseLeaves(holder=self._holder))

    def _check(self, path: str) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_over:
            raise NotSent(path)

    async def _follow(self) -> None:
        try:
            async with aclosing(self._stream(HoldLeaves(asker=self._asker))) as following:
                async for news in following:
                    self._holder = news.holder
                    self._known.notify()
                    for name, out_s in news.out.items():
                        self._on_outage(name, out_s)
        except MicroagentsError as error:
            self.dismiss(error)
