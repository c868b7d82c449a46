"""The accounts of one solver replica: the calls that it sent, their endings and costs. It reports them to the keeper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf

from microagents.journal.messages import Ended, RecordCalls
from microagents.models.model import Most
from microagents.models.rates import Rate
from microagents.replies.chat import Usage


class Prices:
    """Average cost of the answered calls to one model: the estimate for a call whose reply did not arrive."""

    def __init__(self) -> None:
        self._answered = 0
        self._total_usd: float | None = 0.0
        self.largest_usd = 0.0
        """The largest cost of a reply."""
        self._owed = 0
        """Number of unanswered calls that no estimate was possible for."""
        self._owed_most_usd = 0.0
        """The most that they can have cost."""

    def answered(self, cost_usd: float | None) -> float:
        """Add an answered call; returns the estimated cost of the unanswered calls before it that had no estimate."""
        self._answered += 1
        if cost_usd is None or self._total_usd is None:
            self._total_usd = None
        else:
            self._total_usd += cost_usd
        if cost_usd is not None and cost_usd > self.largest_usd:
            self.largest_usd = cost_usd
        if not self._owed:
            return 0.0
        owed_usd = min(self._owed * (cost_usd or 0.0), self._owed_most_usd)
        self._owed, self._owed_most_usd = 0, 0.0
        return owed_usd

    def unanswered(self, most_usd: float) -> float:
        """Return the estimated cost of a call whose reply did not arrive: 0 until the first reply, which makes up for it.

        Args:
            most_usd: the most that it can have cost.
        """
        if not self._answered:
            self._owed += 1
            self._owed_most_usd += most_usd
            return 0.0
        return min((self._total_usd or 0.0) / self._answered, most_usd)


class CallAccounts:
    """Adds up calls, and reports them once an iteration of the event loop: a message for each call costs 3 microseconds a step.

    Args:
        source: name of the solver replica.
        tell: sends a report.
        in_flight: finds the calls in flight, by the spec of the model.
    """

    def __init__(
        self, source: str, tell: Callable[[RecordCalls], None], in_flight: Callable[[], dict[str, int]]
    ) -> None:
        self._source = source
        self._in_flight = in_flight
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._is_due = False
        self._sums = RecordCalls(source=source)

    def end_answered(self, usage: Usage, prices: Prices, *, measured: bool, most: Most | None = None) -> None:
        """Count the end of a call with its reply.

        Args:
            usage: its tokens and its cost.
            prices: prices of its model.
            measured: whether the length flag can find the length of the reply, or does not ask for it.
            most: the amount reserved of a limit of tokens or cost; None if neither is limited.
        """
        # With few calls of functions, since it runs for every sample.
        if not self._is_due:
            self.report_soon()
        self._sums.calls += 1
        self._sums.unmeasured += not measured
        self._sums.miscounted += bool(usage.flaw)
        self._sums.input_tokens += usage.input_tokens or 0
        self._sums.output_tokens += usage.output_tokens or 0
        self._sums.cached_tokens += usage.cached_tokens
        self._sums.cache_write_tokens += usage.cache_write_tokens
        cost_usd = usage.cost_usd
        if most is not None:
            cost_usd = self._settle(usage, most)
        if cost_usd is None or self._sums.cost_usd is None:
            self._sums.cost_usd = None
        else:
            self._sums.cost_usd += cost_usd
        if owed_usd := prices.answered(cost_usd):
            self._add_estimate(owed_usd)
            if most is not None:  # as for the call that it is owed for
                self._sums.unsettled_usd -= owed_usd

    def end_unanswered(self, prices: Prices, most: Most | None = None) -> None:
        """Count the end of a call whose reply did not arrive, but which the provider may bill."""
        self.report_soon()
        self._sums.calls += 1
        self._sums.unanswered += 1
        if most is not None:
            self._sums.unsettled_tokens += most.tokens
        if most is not None and most.cost_usd is None:  # the limiter settles it
            self._sums.unpriced += 1
            return
        most_usd = inf if most is None else most.cost_usd or 0.0
        estimate_usd = prices.unanswered(most_usd)
        self._add_estimate(estimate_usd)
        if most is not None:
            self._sums.unsettled_usd += most_usd - estimate_usd

    def _settle(self, usage: Usage, most: Most) -> float | None:
        """Return the cost of a reply, at most if it does not say, and count the tokens that it may have used beyond the known ones."""
        self._sums.unsettled_tokens += most.tokens_of(usage) - (usage.input_tokens or 0) - (usage.output_tokens or 0)
        cost_usd = most.cost_of(usage)
        if usage.cost_usd is None and cost_usd is not None:
            self._sums.estimated_usd += cost_usd
        return cost_usd

    def join(self, samples: int) -> None:
        """Count samples that came in the request of another one."""
        self._sums.joined += samples

    def repeat(self, reason: str) -> None:
        """Count a call that is sent again."""
        self.report_soon()
        self._sums.repeated[reason] = self._sums.repeated.get(reason, 0) + 1

    def refuse(self, spec: str, refused: Mapping[str, str | None]) -> None:
        """Report the parameters that a model refuses."""
        self.report_soon()
        self._sums.refused[spec] = dict(refused)

    def limit(self, spec: str, rates: Mapping[str, Rate]) -> None:
        """Report the limits that the provider of a model states."""
        self.report_soon()
        self._sums.limits[spec] = {name: rate.each_minute for name, rate in rates.items()}

    def time(self, spec: str, took_s: float) -> None:
        """Note the time that an answered call took."""
        self._sums.took_s.setdefault(spec, []).append(took_s)

    def end_lease(self, ended: Ended) -> None:
        """Report the end of a lease, with the usage of its call."""
        self.report_soon()
        self._sums.ended.append(ended)

    def report_unpriced(self) -> None:
        """Make the cost of the run unknown at once."""
        self._tell(RecordCalls(source=self._source, in_flight=self._in_flight(), cost_usd=None))

    def report(self) -> None:
        """Send the sums since the last report."""
        if not self._is_due:
            return
        self._is_due = False
        self._sums.in_flight = self._in_flight()
        self._tell(self._sums)
        self._sums = RecordCalls(source=self._source)

    def _add_estimate(self, cost_usd: float) -> None:
        self._sums.estimated_usd += cost_usd
        self._sums.cost_usd = None if self._sums.cost_usd is None else self._sums.cost_usd + cost_usd

    def report_soon(self) -> None:
        """Report on the next iteration of the loop, before a role can report a verdict that its replies lead to.

        It tells the calls in flight, so the start of a call and an end without a bill need no more.
        """
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.report)
