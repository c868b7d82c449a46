"""The limiter: every call of a bounded run acquires its shares of the bounds here before it is sent."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

from msgspec import Struct, structs

from microagents.base.errors import InvalidUsage
from microagents.journal.ending import ReachedLimit
from microagents.journal.messages import Account, Ended, Lost
from microagents.models.throttle import START, Throttle
from microagents.roles.limits.bounds import UNBOUNDED, Bound, Experience, RateBound
from microagents.roles.limits.held_leases import UNPRICED, HeldLease, LeaseHolder, Queue
from microagents.roles.limits.leases import Acquire
from microagents.roles.limits.loss_marks import Marks, lost_of
from microagents.roles.limits.reservations import CALLS, CONCURRENCY, COST, LIMITS, TOKENS, UNITS, UNITS_PER_USD
from microagents.roles.limits.shared_cuts import SharedCuts
from microagents.roles.limits.unread import Unread

REPLIES_S = 0.2
"""Replies are counted together once in this time, so that a limit grows in bounded steps. A refusal counts at once."""
REFILL_S = 0.05
"""Shortest time between two looks at what a provider has filled again."""
MOST_UNPRICED = 3
"""Under a limit of cost a run stops once so many calls that may be billed had no reply, before any price is known."""


class Limit(Struct, frozen=True, kw_only=True):
    """A limit that a run does not pass, over all its sittings."""

    bound: str
    """Name of its bound."""
    value: float = math.inf
    total: int
    """The value in units of the bound."""

    @property
    def option(self) -> str:
        """The option and its value, such as ``--max-calls 100``."""
        return f"--max-{self.bound} {self.value:.15g}"

    def left(self, account: Account) -> int:
        """Return the amount that calls may still use."""
        used = account.used_at_most[LIMITS[self.bound]]
        return max(0, self.total - ceil(used * UNITS[self.bound]))

    def text(self, amount: int) -> str:
        """Write an amount."""
        if self.bound == COST:
            return f"${amount / UNITS_PER_USD:,.6f}"
        return f"{amount:,} {self.bound}"

    def reached(self, enough: int) -> ReachedLimit:
        """Return the limit as the ending of a run names it. ``enough`` is an amount under which the next call is sent; 0 if none is."""
        return ReachedLimit(setting=LIMITS[self.bound], value=self.value, enough=enough / UNITS[self.bound])


def _limits(settings: Mapping[str, Any]) -> dict[str, Limit]:
    """Return the limits of a run by the names of their bounds. Calls are counted without a limit, too."""
    found = {CALLS: Limit(bound=CALLS, total=UNBOUNDED)}
    for bound, setting in LIMITS.items():
        value = settings.get(setting)
        if value is not None:
            found[bound] = Limit(bound=bound, value=value, total=ceil(value * UNITS[bound]))
    return found


class Limiter:
    """Bounds the calls in flight (``--concurrency``), those to each model (`Throttle`), the billed ones, their tokens and their cost.

    Before it is sent, a call acquires the most that it can use, so no limit is passed.

    Args:
        settings: the settings of the run.
        on_stop: called with the reason, the remedy and the limit, if one is reached, when the run must stop.
        on_outage: called when a provider is out, or delivers again.
        on_settled: called with the cost in US dollars that is counted for so many calls which no price was known for.
        on_short: called when calls wait for a commit that raises the marks; None without a journal that outlives the process.
        sharers: number of runs that share the providers.
        cuts: cuts of all of them; None without others.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        on_stop: Callable[[str, str, ReachedLimit | None], None],
        on_outage: Callable[[], None],
        on_settled: Callable[[float, int], None],
        on_short: Callable[[], None] | None,
        sharers: int = 1,
        cuts: SharedCuts | None = None,
    ) -> None:
        self._on_stop, self._on_outage, self._on_settled = on_stop, on_outage, on_settled
        self._start, self._cuts = max(1, START // sharers), cuts
        self._bounds: dict[str, Bound] = {}
        self._queue = Queue(self._bounds)
        self.marks = Marks(self._bounds, on_short)
        self._holders: dict[int, LeaseHolder] = {}
        self._came = self._asked = 0
        """Numbers of holders and of leases so far."""
        self._limits = _limits(settings)
        self._max_outage_s: float = settings.get("max_outage_s", math.inf)
        self._learned: dict[str, dict[str, Experience]] = {}
        """Experience with models that state no maximum, by spec and by the name of the bound."""
        self._unpriced = 0
        """Calls without a reply that no price was known for; the first price counts for them."""
        self._throttles: dict[str, Throttle] = {}
        """Of the bounds on the calls in flight to one model."""
        self._unread: dict[str, Unread] = {}
        """Replies in a row that could not be read, by the same names."""
        self._out_since: dict[str, float] = {}
        """Times from which the providers of throttles are out."""
        self._replied: dict[str, int] = {}
        """Replies that throttles have not counted yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_dealing = False
        """Whether leases are dealt in the next iteration of the loop."""
        self._is_stopped = False
        """Whether the run has to stop."""
        self._is_dismissed = False
        """Whether no call is sent any more."""
        self._is_paused = False
        self._loop = asyncio.get_running_loop()
        concurrency: int | None = settings.get("concurrency")
        if concurrency is not None:
            self._bounds[CONCURRENCY] = Bound(concurrency, renews=True)

    def begin(self, account: Account) -> None:
        """Subtract the usage of earlier sittings from the limits.

        Raises:
            InvalidUsage: the cost is limited, and the cost of earlier calls is unknown.
        """
        if COST in self._limits and account.cost_usd is None:
            raise InvalidUsage(
                f"the cost of earlier calls of this run is unknown, so {self._limits[COST].option} cannot be kept; lift the limit, "
                "--max-cost inf, or begin another run"
            )
        self._unpriced = account.unpriced
        for name, limit in self._limits.items():
            self._bounds[name] = Bound(limit.left(account), renews=False)

    def close(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def pause(self, *, is_paused: bool) -> None:
        """Grant nothing, or go on with it."""
        self._is_paused = is_paused
        self._deal_soon()

    @property
    def outages(self) -> dict[str, float]:
        """Seconds for which providers have been out, by the names of their throttles."""
        return {name: self._loop.time() - since_s for name, since_s in self._out_since.items()}

    def admit(self) -> int:
        """Admit a holder of leases; returns its number."""
        self._came += 1
        self._holders[self._came] = LeaseHolder()
        return self._came

    def end(self, holder: int) -> Lost:
        """End a holder; returns what it may have used up of its leases."""
        lost = Counter[str]()
        ended = self._holders.pop(holder)
        for name, amount in ended.parked.items():
            self._bounds[name].give_back(amount, amount)
        for held in ended.leases.values():
            held.end()
            self.marks.release(held)
            for name, amount in held.granted.items():
                bound = self._bounds[name]
                spent = held.marked.get(name, amount) if held.is_answered and not bound.renews else 0
                bound.give_back(amount, spent)
            if held.is_answered:
                lost.update(held.marked)
        self._unpriced += lost[UNPRICED]
        self._deal_soon()
        return lost_of(lost)

    async def acquire(self, request: Acquire) -> dict[str, int] | None:
        """Wait for room for a call; returns its share of each bound, or None if no call is sent any more."""
        holder = self._holders.get(request.holder)
        if holder is None or self._is_dismissed:  # it died meanwhile, or had not heard yet that the run ends
            return None
        if request.number in holder.ended:  # it was cancelled before this came
            holder.ended.remove(request.number)
            return None
        self._add_bounds(request)
        learned = self._learned.setdefault(request.model, {})
        for name in request.unstated:
            learned.setdefault(name, Experience())
        self._asked += 1
        throttle = self._throttles.get(request.throttle or "")
        held = HeldLease(request, self._asked, self.marks.grant, throttle, learned)
        holder.leases[request.number] = held
        if self._is_dealing or self._is_paused or not self._queue.admit(held):
            self._queue.add(held)
            self._deal_soon()
        return await held.answered

    def release(self, ended: Ended) -> None:
        """Take back the shares of a call that has ended, or that was cancelled as it waited."""
        holder = self._holders.get(ended.holder)
        if holder is None:
            return
        if not ended.number:
            self._give_back(holder, {}, ended)
            return
        held = holder.leases.pop(ended.number, None)
        if held is None:
            holder.ended.add(ended.number)
            return
        held.end()
        self.marks.release(held)
        self._note(held, ended)
        self._learn(held, ended)
        self._give_back(holder, held.granted, ended)

    def _give_back(self, holder: LeaseHolder, granted: Mapping[str, int], ended: Ended) -> None:
        """Give back granted amounts, less those that are left to a batch, and more those that were."""
        for name in {**granted, **ended.parked}:
            parked = max(ended.parked.get(name, 0), -holder.parked[name])
            holder.parked[name] += parked
            self._bounds[name].give_back(granted.get(name, 0) - parked, ended.spent.get(name, 0))
        self._deal_soon()

    def dismiss(self) -> None:
        """Refuse the calls that wait, and all later ones."""
        self._is_dismissed = True
        for holder in self._holders.values():
            for held in list(holder.leases.values()):
                held.end()
        self.marks.dismiss()

    def _add_bounds(self, request: Acquire) -> None:
        for name in request.amounts:
            if name in self._bounds:
                continue
            if name in request.rates:
                self._bounds[name] = RateBound(request.rates[name], self._loop.time())
            else:
                self._bounds[name] = Bound(self._start, renews=True)
                self._throttles[name] = Throttle(self._start, self._max_outage_s)
                self._unread[name] = Unread()

    def change(self, settings: Mapping[str, Any], account: Account) -> None:
        """Bound the run anew. A new limit counts the calls in flight of the account; a lifted one stays, as good as none."""
        concurrency = settings.get("concurrency")
        if concurrency is not None or CONCURRENCY in self._bounds:
            self._bounds.setdefault(CONCURRENCY, Bound(0, renews=True)).total = concurrency or UNBOUNDED
        limits = _limits(settings)
        for name in LIMITS:
            limit, before = limits.get(name), self._limits.get(name)
            if limit is None and before is not None:
                limit = structs.replace(before, total=UNBOUNDED)
            if limit is None:
                continue
            bound = self._bounds.setdefault(name, Bound(0, renews=False))
            bound.total += limit.left(account) if before is None else limit.total - before.total
            self._limits[name] = limit
        self._deal_soon()

    def _learn(self, held: HeldLease, ended: Ended) -> None:
        """Learn the usage of a call whose model states no maximum, or has gone above it."""
        learned = held.learned
        for name in (TOKENS, COST):
            spent = ended.spent.get(name)
            if spent is None or name not in held.granted:
                continue
            has_replied, is_known = ended.outcome == "replied", name not in ended.unknown
            if is_known and spent > held.most(name):
                learned.setdefault(name, Experience())
            if has_replied and name in learned:
                learned[name].learn(spent if is_known else 0, held.request.samples)
            if not spent and not is_known:
                self._unpriced += not has_replied
                self._check_price(held.request.model, has_replied=has_replied)
        if self._unpriced and COST in learned:
            self._settle(learned[COST].most(1))

    def _settle(self, most: int) -> None:
        """Count the calls without a reply that no price was known for at the most that they may have cost, once there is one."""
        if most:
            count, self._unpriced = self._unpriced, 0
            self._bounds[COST].total -= count * most
            unsettled_usd = count * most / UNITS_PER_USD
            self._on_settled(unsettled_usd, count)

    def _check_price(self, spec: str, *, has_replied: bool) -> None:
        """Stop the run if a model has replied without a cost before any price was known, or too many calls had no reply."""
        if has_replied:
            why = f"{spec} replied without a cost"
            remedy = "give its samples usage.cost_usd, or begin another run without the limit"
        else:
            why = f"{self._unpriced} calls to {spec} ended without a reply and may be billed"
            remedy = "resume it to try again"
        if not self._is_stopped and (has_replied or self._unpriced >= MOST_UNPRICED):
            self._bounds[COST].total = 0
            limit = self._limits[COST]
            reached = limit.reached(0) if has_replied else None
            self._stop(f"{limit.option} cannot be kept: {why}, and no price is known", remedy, reached)

    def _note(self, held: HeldLease, ended: Ended) -> None:
        """Let the throttle of a model learn how a call ended, unless it was sent before the last cut."""
        throttle, name = held.throttle, held.request.throttle
        if throttle is None or name is None or ended.outcome is None:
            return
        self._note_unread(self._unread[name], ended)
        if held.epoch != throttle.epoch:
            return
        if ended.outcome == "replied":
            if not self._replied.get(name):
                self._loop.call_later(REPLIES_S, self._count_replies, name)
            self._replied[name] = self._replied.get(name, 0) + 1
            return
        self._count_replies(name)
        if ended.outcome == "refused":
            throttle.refuse(self._loop.time(), ended.wait_s)
            if self._cuts is not None and held.epoch != throttle.epoch:
                self._cuts.tell(name)
        else:
            throttle.fail(self._loop.time())
        self._report_outage(name, throttle)

    def _note_unread(self, unread: Unread, ended: Ended) -> None:
        """Stop the run once too many replies in a row, to whichever solver, could not be read."""
        if ended.outcome == "replied":
            unread.clear()
        elif ended.unread:
            unread.add(ended.unread)
        if unread.said is not None and not self._is_stopped:
            self._stop(unread.said, "correct the server or the address, and resume")

    def _count_replies(self, name: str) -> None:
        """Let a throttle grow by the replies since it last could, after the cuts of other runs."""
        for cut in self._cuts.heard() if self._cuts is not None else ():
            if cut in self._throttles:
                self._throttles[cut].follow(self._loop.time())
        if replied := self._replied.pop(name, 0):
            bound, throttle = self._bounds[name], self._throttles[name]
            throttle.reply(replied, bound.most_held, self._loop.time())
            bound.most_held = bound.held
            self._report_outage(name, throttle)
            self._deal_soon()

    def _report_outage(self, name: str, throttle: Throttle) -> None:
        """Report that a provider is out, or delivers again."""
        if throttle.is_out == (name in self._out_since):
            return
        if throttle.is_out:
            self._out_since[name] = self._loop.time()
        else:
            del self._out_since[name]
        self._on_outage()

    def _deal_soon(self) -> None:
        """Deal once for all that comes in this iteration of the loop, if a call waits, or a throttle may have changed."""
        if not self._is_dealing and (self._queue.has_calls or self._throttles):
            self._is_dealing = True
            self._loop.call_soon(self._deal)

    def _deal(self) -> None:
        self._is_dealing, now_s = False, self._loop.time()
        if self._is_paused:
            return
        for name, bound in self._bounds.items():
            if (throttle := self._throttles.get(name)) is not None:
                bound.total = throttle.allowed(now_s)
            elif isinstance(bound, RateBound):
                bound.refill(now_s)
        for waiting, lacking in self._queue.deal():
            for name, least in lacking.items():
                bound, throttle = self._bounds[name], self._throttles.get(name)
                if isinstance(bound, RateBound):
                    self._deal_at(now_s + max(REFILL_S, bound.seconds_to(waiting.request.amounts[name])))
                elif name in self._limits and not bound.held:
                    self._end(name, bound, least)
                elif throttle is not None and throttle.probe_s is not None and not bound.total:
                    self._deal_at(throttle.probe_s)

    def _deal_at(self, at_s: float) -> None:
        timer = self._timer
        if timer is None or timer.when() > at_s or timer.when() <= self._loop.time():
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(at_s, self._deal)

    def _end(self, name: str, bound: Bound, lacking: int) -> None:
        """Stop the run."""
        if self._is_stopped:
            return
        limit = self._limits[name]
        reason, enough = f"{limit.option} is reached", limit.total - bound.free
        if bound.free > 0:
            enough += lacking
            reason += f": {limit.text(bound.free)} left, and the next call may use up to {limit.text(lacking)}"
        elif bound.free < 0:
            reason += f", and passed by {limit.text(-bound.free)}: calls used up more than was reserved for them"
        self._stop(reason, "resume with a higher limit", limit.reached(enough))

    def _stop(self, reason: str, remedy: str, limit: ReachedLimit | None = None) -> None:
        self._is_stopped = True
        self._on_stop(reason, remedy, limit)
