"""The limiter: deals the bounds of a run out to all replicas of the solver. It runs in the driver's process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from msgspec import Struct, structs

from microagents.actors.role import Context, Messenger, Role
from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidUsage
from microagents.journal.messages import Account, FollowSettings, RecordLimit, Report
from microagents.models.rates import Rate
from microagents.models.throttle import START, Throttle
from microagents.roles.limits.bounds import Bound
from microagents.roles.limits.quotas import Grant, HoldQuotas, Outcomes, Trade
from microagents.roles.limits.reservations import CALLS, CONCURRENCY, COST, TOKENS, UNITS_PER_USD, units

LEVEL_EVERY_S = 0.02
"""Shortest time between two changes of what holders may keep, and as much more for every 20 holders, since each is notified."""
REFILL_S = 0.05
"""Shortest time between two looks at what a provider has filled again."""
LIFT_S = 0.5
"""So long after the last call had to wait, holders may keep again whatever they have."""


RUN_BOUNDS = {CONCURRENCY: True, CALLS: False, TOKENS: False, COST: False}
"""The bounds that settings of the run set, and whether calls give back what they take of them."""
UNBOUNDED = 1 << 62
"""The total of a bound that was lifted."""


class Limit(Struct, frozen=True, kw_only=True):
    """A limit that a run does not pass, over all its sittings."""

    option: str
    """The option and its value, such as ``--max-calls 100``."""
    total: int
    used: Callable[[Account], int]
    """The amount that calls have used up, at most."""
    text: Callable[[int], str]
    """Writes an amount."""

    def left(self, account: Account) -> int:
        """Return the amount that calls may still use."""
        return max(0, self.total - self.used(account))


def _limits(settings: Mapping[str, Any]) -> dict[str, Limit]:
    """Return the limits of a run by the names of their bounds."""
    calls, tokens, cost_usd = [settings.get(name) for name in ("max_calls", "max_tokens", "max_cost_usd")]
    found = {}
    if calls is not None:
        found[CALLS] = Limit(
            option=f"--max-calls {calls}",
            total=calls,
            used=lambda account: account.calls + account.in_flight + account.lost_in_flight,
            text=lambda amount: f"{amount:,} calls",
        )
    if tokens is not None:
        found[TOKENS] = Limit(
            option=f"--max-tokens {tokens}",
            total=tokens,
            used=lambda account: account.tokens_at_most,
            text=lambda amount: f"{amount:,} tokens",
        )
    if cost_usd is not None:
        found[COST] = Limit(
            option=f"--max-cost {cost_usd:g}",
            total=units(cost_usd),
            used=lambda account: units(account.cost_at_most_usd or 0.0),
            text=lambda amount: f"${amount / UNITS_PER_USD:,.6f}",
        )
    return found


class Limiter(Role):
    """Bounds the calls in flight (``--concurrency``), those to each model (`Throttle`), the billed ones, their tokens and their cost.

    Before it is sent, a call takes the most that it can use, so no limit is passed.
    """

    asks = (FollowSettings, RecordLimit, Report)

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._bounds: dict[str, Bound] = {}
        self._holders: dict[int, SolverReplica] = {}
        self._came = 0
        """Number of holders so far."""
        self._limits = _limits(context.settings)
        self._throttles: dict[str, Throttle] = {}
        """Of the bounds on the calls in flight to one model."""
        self._out_since: dict[str, float] = {}
        """Times from which the providers of throttles are out."""
        self._rates: dict[str, Refill] = {}
        """Of the bounds that a provider fills again each minute."""
        self._in_use: dict[str, dict[int, int]] = {}
        """Calls in flight to each of these models by holder, as last reported."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._times: dict[str, Times] = {}
        self._changed: dict[str, None] = {}
        """Names of the bounds that are dealt in the next iteration of the loop."""
        self._is_reported = False
        """Whether the limit was reported to the recorder."""
        self._is_counting = False
        self._scope = TaskScope()
        self._loop = asyncio.get_running_loop()

    async def start(self) -> None:
        """Subtract what earlier sittings used from the limits.

        Raises:
            InvalidUsage: the cost is limited, and the cost of earlier calls is unknown.
        """
        concurrency: int | None = self.context.settings.get("concurrency")
        if concurrency is not None:
            self._add(CONCURRENCY, Bound(concurrency, renews=True))
        self._scope.start(self._follow_settings())
        if not self._limits:
            return
        account = await self.ask(Report())
        if COST in self._limits and account.cost_usd is None:
            raise InvalidUsage(
                f"the cost of earlier calls of this run is unknown, so {self._limits[COST].option} cannot be kept; lift the limit, "
                "--max-cost inf, or begin another run"
            )
        for name, limit in self._limits.items():
            self._add(name, Bound(limit.left(account), renews=False))

    async def stop(self) -> None:
        """Forget all timers."""
        for timer in self._timers.values():
            timer.cancel()
        await self._scope.close()

    async def hold_quotas(self, request: HoldQuotas) -> AsyncIterator[Grant]:  # noqa: ARG002 - a holder is known by its number
        """Yield what the holder is granted, until it leaves."""
        self._came += 1
        number = self._came
        keep: dict[str, int | None] = {
            name: bound.keep for name, bound in self._bounds.items() if bound.keep is not None
        }
        epochs = {name: throttle.epoch for name, throttle in self._throttles.items()}
        out: dict[str, float | None] = {name: self._loop.time() - since_s for name, since_s in self._out_since.items()}
        holder = self._holders[number] = SolverReplica(Grant(holder=number, keep=keep, epochs=epochs, out=out))
        try:
            while True:
                yield await holder.next()
        finally:
            del self._holders[number]
            for in_use in self._in_use.values():
                in_use.pop(number, None)
            for name, bound in self._bounds.items():
                bound.leave(number)
                self._deal_soon(name)

    async def trade(self, request: Trade) -> None:
        """Take what a holder gives back, and grant what it and others want."""
        if request.holder not in self._holders:  # it died meanwhile, and its quotas are free already
            return
        for name, change in request.changes.items():
            if name not in self._bounds and change.rate is not None:
                self._add(name, Bound(change.rate.left, renews=False))
                self._rates[name] = Refill(change.rate, self._loop.time())
            elif name not in self._bounds and name in RUN_BOUNDS:  # a solver has heard of a new limit first
                self._add(name, Bound(0, renews=name == CONCURRENCY))
            elif name not in self._bounds:
                self._add(name, Bound(START, renews=True))
                self._throttles[name] = Throttle()
            self._bounds[name].trade(request.holder, change)
            if change.outcomes is not None:
                self._note(name, request.holder, change.outcomes)
            self._deal_soon(name)

    async def _follow_settings(self) -> None:
        async with aclosing(self.stream(FollowSettings())) as changes:
            async for changed in changes:
                await self._change({**self.context.settings, **changed})

    async def _change(self, settings: Mapping[str, Any]) -> None:
        """Bound the run anew. A new limit counts the calls in flight as the recorder knows them; a lifted one stays, as good as none."""
        account, limits = await self.ask(Report()), _limits(settings)
        for name, renews in RUN_BOUNDS.items():
            limit, before = limits.get(name), self._limits.get(name)
            if name not in self._bounds:
                if (renews and settings.get("concurrency") is None) or (not renews and limit is None):
                    continue
                self._add(name, Bound(0, renews=renews))
            bound = self._bounds[name]
            if renews:
                bound.total = settings.get("concurrency") or UNBOUNDED
            elif limit is None and before is not None:
                self._limits[name] = structs.replace(before, total=UNBOUNDED)
                bound.total += UNBOUNDED - before.total
            elif limit is not None:
                self._limits[name] = limit
                bound.total += limit.left(account) if before is None else limit.total - before.total
            self._deal_soon(name)

    def _note(self, name: str, number: int, outcomes: Outcomes) -> None:
        """Let the throttle of a model learn how its calls ended."""
        throttle, now_s = self._throttles[name], self._loop.time()
        in_use = self._in_use.setdefault(name, {})
        in_use[number] = outcomes.in_use
        if outcomes.epoch != throttle.epoch:
            return
        if outcomes.replies:
            throttle.reply(outcomes.replies, sum(in_use.values()), now_s)
        for _ in range(outcomes.refusals):
            throttle.refuse(now_s, outcomes.wait_s)
            if throttle.epoch != outcomes.epoch:  # the others were sent before the cut
                break
        for _ in range(outcomes.failures):
            throttle.fail(now_s)
        if throttle.epoch != outcomes.epoch:
            for holder in self._holders.values():
                holder.set_epoch(name, throttle.epoch)
        self._tell_outage(name, is_out=throttle.is_out)

    def _tell_outage(self, name: str, *, is_out: bool) -> None:
        """Notify all holders that a provider is out, or delivers again, if they do not know."""
        if is_out == (name in self._out_since):
            return
        if is_out:
            self._out_since[name] = self._loop.time()
        else:
            del self._out_since[name]
        for holder in self._holders.values():
            holder.set_out(name, 0.0 if is_out else None)

    def _add(self, name: str, bound: Bound) -> None:
        self._bounds[name] = bound
        self._times[name] = Times()

    def _deal_soon(self, name: str) -> None:
        """Deal once for all trades of this iteration of the loop."""
        if not self._changed:
            self._loop.call_soon(self._deal_all)
        self._changed[name] = None

    def _deal_all(self) -> None:
        changed, self._changed = self._changed, {}
        for name in changed:
            self._deal(name)

    def _deal(self, name: str) -> None:
        bound = self._bounds[name]
        if (throttle := self._throttles.get(name)) is not None:
            bound.total = throttle.allowed(self._loop.time())
            if throttle.probe_s is not None and not bound.total:
                self._look_again(name, throttle.probe_s)
        if (rate := self._rates.get(name)) is not None:
            rate.refill(bound, self._loop.time())
        self._set_keep(name, bound)
        for number, amount in bound.deal():
            self._holders[number].grant(name, amount)
        if rate is not None and bound.is_wanted:
            self._look_again(name, self._loop.time() + max(REFILL_S, (bound.lacking - bound.free) / rate.each_s))
        elif name in self._limits and bound.is_spent:
            self._end(name, bound)

    def _set_keep(self, name: str, bound: Bound) -> None:
        """Say what holders may keep, and look at it again when it may change."""
        times, now_s, before = self._times[name], self._loop.time(), bound.keep
        if bound.is_scarce:
            times.scarce_s = now_s
            if bound.keep is None or now_s >= times.level_s:
                bound.keep = bound.level()
                times.level_s = now_s + LEVEL_EVERY_S * (1 + len(self._holders) / 20)
            else:
                self._look_again(name, times.level_s)
        elif bound.keep is not None:
            if now_s >= times.scarce_s + LIFT_S:
                bound.keep = None
            else:
                self._look_again(name, times.scarce_s + LIFT_S)
        if bound.keep != before:
            for holder in self._holders.values():
                holder.keep(name, bound.keep)

    def _look_again(self, name: str, at_s: float) -> None:
        timer = self._timers.get(name)
        if timer is not None and timer.when() <= at_s:
            return
        if timer is not None:
            timer.cancel()
        self._timers[name] = self._loop.call_at(at_s, self._on_timer, name)

    def _on_timer(self, name: str) -> None:
        del self._timers[name]
        self._deal(name)

    def _end(self, name: str, bound: Bound) -> None:
        """Stop the run, unless holders that died have left something."""
        if self._is_counting or self._is_reported:
            return
        if bound.lost:
            self._is_counting = True
            self._scope.start(self._count_again(name, bound))
        else:
            self._is_reported = True
            limit = self._limits[name]
            left = (
                f"{limit.text(bound.free)} left, and the next call may use up to {limit.text(bound.lacking)}"
                if bound.free > 0
                else ""
            )
            self.tell(RecordLimit(limit=limit.option, left=left))

    async def _count_again(self, name: str, bound: Bound) -> None:
        """Ask the recorder what the dead have spent. All calls of the living have ended, and are recorded."""
        (lost, bound.lost), total = (bound.lost, 0), bound.total
        account = await self.ask(Report(final=True))
        self._is_counting = False
        bound.total += max(0, min(lost, self._limits[name].left(account) - total))
        self._deal_soon(name)


class SolverReplica:
    """A replica of the solver, and the news it has to get.

    Args:
        told_first: what it has to know first, its number at least.
    """

    def __init__(self, told_first: Grant) -> None:
        self._untold = told_first
        self._has_news = asyncio.Event()
        self._has_news.set()

    async def next(self) -> Grant:
        """Wait for news, and return it."""
        await self._has_news.wait()
        self._has_news.clear()
        told, self._untold = self._untold, Grant(holder=self._untold.holder)
        return told

    def grant(self, name: str, amount: int) -> None:
        """Add to its quota."""
        amounts = self._untold.amounts
        self._untold = structs.replace(self._untold, amounts={**amounts, name: amounts.get(name, 0) + amount})
        self._has_news.set()

    def keep(self, name: str, most: int | None) -> None:
        """Send it the amount that it may keep."""
        self._untold = structs.replace(self._untold, keep={**self._untold.keep, name: most})
        self._has_news.set()

    def set_epoch(self, name: str, epoch: int) -> None:
        """Send it the epoch of a throttle."""
        self._untold = structs.replace(self._untold, epochs={**self._untold.epochs, name: epoch})
        self._has_news.set()

    def set_out(self, name: str, out_s: float | None) -> None:
        """Send it how long the provider of a model has been out; None once it delivers again."""
        self._untold = structs.replace(self._untold, out={**self._untold.out, name: out_s})
        self._has_news.set()


class Times:
    """When things may change in a bound."""

    def __init__(self) -> None:
        self.level_s = 0.0
        """Time from which what holders may keep can be changed."""
        self.scarce_s = 0.0
        """Last time at which a call had to wait."""


class Refill:
    """What a provider fills into a bound.

    Args:
        rate: its limit.
        now_s: the time.
    """

    def __init__(self, rate: Rate, now_s: float) -> None:
        self.each_s = rate.each_minute / 60
        """The amount that it adds each second."""
        self._most = rate.each_minute
        self._until_s = now_s

    def refill(self, bound: Bound, now_s: float) -> None:
        """Add the amount that is due."""
        due = int((now_s - self._until_s) * self.each_s)
        if due:
            self._until_s += due / self.each_s
            bound.refill(due, self._most)
