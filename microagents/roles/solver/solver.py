"""The solver: the only role that talks to a model."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from contextlib import aclosing
from typing import Any

import structlog
from msgspec import structs

from microagents.actors import Context, Messenger, Role, eager
from microagents.aio import TaskScope
from microagents.elections.admission import FollowAdmission
from microagents.elections.election import Draw
from microagents.errors import MicroagentsError, ModelUnavailable, NotSent
from microagents.journal.digests import in_order
from microagents.journal.messages import LeaseCalls, RecordCalls, RecordOutage, Report
from microagents.messages import resolve
from microagents.models.latencies import LEAST_STRAGGLER_S
from microagents.models.model import Call, Most, checked_sample
from microagents.models.rates import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOKENS
from microagents.replies.chat import Reply, Sample, Usage
from microagents.roles.limits.reservations import Reservations
from microagents.roles.limits.shares import HoldShares, Outcome, Shares, Trade
from microagents.roles.solver.call_accounts import CallAccounts
from microagents.roles.solver.call_leases import AT_ONCE, LEAST, CallLeases
from microagents.roles.solver.groups import Group, Several
from microagents.roles.solver.outages import TRIAL_S, Outage
from microagents.roles.solver.sources import Source, Sources

WARN_EVERY_S = 60.0
"""Shortest interval of warnings about outages."""
MAY_BE_BILLED = ("timeout", "garbled", "broken")
"""Kinds of failure after which the provider may still charge for the call."""
OUTCOMES: Mapping[str, Outcome] = {
    "busy": "refused",
    **dict.fromkeys(("server", "network", "broken", "timeout", "garbled"), "failed"),
}
"""What the throttle of a model learns from kinds of failure."""
A_MINUTE = " a minute"
"""Ends the names of bounds that providers set by the minute."""
CHARS_PER_TOKEN = 4
"""Of ordinary text; the estimate of a prompt's tokens."""
STRAGGLER = "straggler"
"""The reason of such a second call in the account."""


class Solver(Role):
    """Takes samples. It repeats attempts that failed in transport: such failures are neither flags nor votes.

    Only the solver accounts for calls, so that the calls in flight of a dead replica are known.
    """

    asks = (LeaseCalls, RecordCalls, RecordOutage, FollowAdmission, HoldShares, Report, Trade)

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._sources = Sources(context, self._report_unpriced)
        self._reservations = Reservations(context.settings)
        self._replaces: bool = context.settings.get("resend_stragglers", True)
        """Whether stragglers are sent again."""
        self._groups: dict[Hashable, Group] = {}
        """Draws of this turn of the loop that may go in one request, by what they have in common."""
        self._is_out = False
        """Whether a provider is out."""
        self._warned_s: float | None = None
        """Time of the last warning about an outage."""
        self._max_outage_s: float = context.settings["max_outage_s"]
        self._scope = TaskScope()
        self._loop = asyncio.get_running_loop()
        self._may_send = True
        self._accounts = CallAccounts(context.name, self.tell)
        self._leases: CallLeases
        self._shares = Shares(context.name, self.stream, self.ask)

    async def start(self) -> None:
        """Open every model of the run, so that a wrong name or a missing key is reported before the first call."""
        self._sources.open_all()
        at_once = all(source.answers_at_once for source in self._sources)
        if not at_once:
            self._sources.refuse((await self.ask(Report())).refused)
        self._leases = CallLeases(self.context.name, self.ask, AT_ONCE if at_once else LEAST)
        self._scope.start(self._follow_admission())

    async def stop(self) -> None:
        """Close the models."""
        await self._scope.close()
        await self._shares.close()
        await self._leases.close()
        self._accounts.report()
        for source in self._sources:
            source.health.close()
            await source.model.close()

    @eager
    async def draw(self, request: Draw) -> Sample:
        """Take one sample.

        Raises:
            NotSent: the run is ending, so no call is sent.
            Stopped: the provider was out for longer than ``--max-outage``.
            ModelUnavailable: the provider refuses the request for good.
        """
        source = self._sources.delivering(request.model)
        call = Call(
            id=request.id,
            prompt=request.prompt,
            reply=resolve(request.reply, Reply),
            temperature=request.temperature,
            max_output_tokens=request.max_output_tokens,
            needs_length=request.needs_length,
            rejected=request.rejected,
            first_prompt=request.first_prompt,
            choices=request.choices,
            is_followed=request.is_followed,
        )
        if source.takes_several and not call.rejected and (source.model.joins_guesses or not request.is_followed):
            drawn = await self._draw_together(source, call)
            if isinstance(drawn, Sample):
                return _marked(drawn, source, request.model)
            call = structs.replace(call, attempt=drawn)
            source = self._sources.delivering(request.model)
        return await self._draw_singly(request, source, call)

    async def _draw_singly(self, request: Draw, source: Source, call: Call) -> Sample:
        """Take a sample in a request of its own, by another model while the first one does not deliver."""
        outage = Outage(request.id, self._max_outage_s)
        while True:
            try:
                if source.answers_at_once:
                    sample = await self._attempt(source, call)
                else:
                    sample = await self._first_reply(source, self._substitute_of(source, request), call, outage)
            except _Unsent:
                source = self._sources.delivering(request.model)
            except ModelUnavailable as error:
                other = self._sources.one_that_delivers(request.model)
                if other is None or other is source:
                    if error.retryable:
                        self._note_outage(str(error))
                    await outage.wait(error, source.health)
                source = self._sources.delivering(request.model)
                self._accounts.repeat(error.kind)
                call = structs.replace(call, attempt=call.attempt + 1)
            else:
                if self._is_out:
                    self._note_outage(None)
                return _marked(sample, source, request.model)

    async def _draw_together(self, source: Source, call: Call) -> Sample | int:
        """Take a sample in one request with those of the same election that are drawn in this turn of the loop.

        Returns:
            The sample; or, where it has to be drawn singly, the number of attempts that were made.
        """
        # The order of arrival decides what goes together, and thus the price alone: a sample is that of its id in any request.
        temperature = None if "temperature" in source.model.refused else call.temperature
        like = (call.id.election, source.spec, temperature, call.prompt)
        group = self._groups.get(like)
        if group is None:
            group = self._groups[like] = Group(source, self._loop)
            self._loop.call_soon(self._send_group, like)
        return await group.sample(call)

    def _send_group(self, like: Hashable) -> None:
        for group in self._groups.pop(like).parts():
            group.request = self._scope.start(self._draw_group(group))

    async def _draw_group(self, group: Group) -> None:
        """Take the samples of a group in one request; what it does not give is left to be drawn singly."""
        source, attempts = group.source, 0
        outage = Outage(group.calls[0].id, self._max_outage_s)
        try:
            while len(calls := group.calls) > 1 and source.takes_several:
                several = Several(source.model, [structs.replace(call, attempt=attempts) for call in calls], group, self._accounts.join)
                attempts += 1
                try:
                    if not await self._request(source, several, outage):
                        break
                except ModelUnavailable as error:
                    if source.health.is_out and self._sources.fallbacks:
                        self._accounts.repeat(error.kind)
                        break
                    if not error.retryable:  # single draws meet the same refusal, unless it is one of several samples at a time
                        source.is_refused_several = True
                        break
                    self._note_outage(str(error))
                    await outage.wait(error, source.health)
                    self._accounts.repeat(error.kind)
                else:
                    if self._is_out:
                        self._note_outage(None)
                    if len(several.calls) == len(calls) or len(group.calls) == len(calls):  # not cut to what the limits left; or in vain
                        break
        except MicroagentsError as error:
            group.fail(error)
        finally:
            group.leave(attempts)

    async def _request(self, source: Source, several: Several, outage: Outage) -> bool:
        """Make one attempt at several samples; returns False where it takes too long, or another model has to be asked.

        Raises:
            ModelUnavailable: the attempt gave no reply.
        """
        if source.health.is_out and self._sources.is_replaceable(source):
            return False
        first, through = structs.replace(several.calls[0], samples=len(several.calls)), source.through(several)
        if source.model.answers_at_once:
            await self._attempt(through, first)
            return True
        sent: asyncio.Future[float] = self._loop.create_future()
        attempts = TaskScope()
        try:
            attempt = attempts.start(self._attempt(through, first, sent))
            await self._sent(attempt, sent, source, outage)
            while not attempt.done() and (left_s := self._left_s(source, sent.result())) > 0:
                await asyncio.wait([attempt], timeout=left_s)
            if attempt.done():
                await attempt
                return True
            source.replaced += 1
            self._accounts.repeat(STRAGGLER)
        except _Unsent:
            pass
        finally:
            source.reported_refusals = through.reported_refusals
            await attempts.close()
        return False

    async def _first_reply(self, source: Source, substitute: Source, call: Call, outage: Outage) -> Sample:
        """Make one attempt. If it is a straggler, make another one beside it; the first reply counts, and the other call is cancelled.

        Raises:
            ModelUnavailable: no attempt gave a reply.
            _Unsent: another model has to be asked.
        """
        sent: asyncio.Future[float] = self._loop.create_future()
        attempts = TaskScope()
        try:
            first = attempts.start(self._attempt(source, call, sent))
            await self._sent(first, sent, source, outage)
            # The limit changes with every reply of the model, and before the first ones there is none.
            while not first.done() and (left_s := self._left_s(source, sent.result())) > 0:
                await asyncio.wait([first], timeout=left_s)
            if not first.done():
                source.replaced += 1
                again: asyncio.Future[float] = self._loop.create_future()
                again.add_done_callback(lambda _: self._accounts.repeat(STRAGGLER))
                second = attempts.start(self._attempt(substitute, structs.replace(call, attempt=call.attempt + 1), again))
                running = {first, second}
                while running:
                    _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for each in (first, second):
                        if each.done() and each.exception() is None:
                            return each.result()
            return await first
        finally:
            await attempts.close()

    async def _sent(self, attempt: asyncio.Task[Sample], sent: asyncio.Future[float], source: Source, outage: Outage) -> None:
        """Wait until an attempt is sent, or has failed before.

        Raises:
            _Unsent: the model is out meanwhile, and a fallback has to be asked.
            Stopped: the outage lasted longer than ``--max-outage``.
        """
        with source.health.waiting() as out:
            ends: list[asyncio.Future[Any]] = [attempt, sent, out]
            is_trial = source.health.is_out and self._sources.is_replaceable(source)
            while not any(each.done() for each in ends):
                within_s = TRIAL_S if is_trial else outage.left_s(source.health)
                done, _ = await asyncio.wait(ends, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
                if not done and is_trial:
                    raise _Unsent
                if not done:
                    outage.check(source.health)
            if not attempt.done() and not sent.done():
                raise _Unsent

    def _left_s(self, source: Source, sent_s: float) -> float:
        """Seconds until a call that was sent at a time is a straggler, as far as is known now."""
        limit_s = source.straggler_s if self._replaces else None
        return LEAST_STRAGGLER_S if limit_s is None else sent_s + limit_s - self._loop.time()

    async def _attempt(self, source: Source, call: Call, sent: asyncio.Future[float] | None = None) -> Sample:
        """Make one attempt, as soon as the model has a connection for it and the bounds of the run have room for it.

        ``sent`` gets the time at which the call is sent.
        """
        slots = source.slots
        if slots is not None:
            await slots.acquire(lambda: (in_order(call.id.election.path), call.id.seq))
        try:
            if self._reservations.are_needed or source.model.throttled_as is not None:
                return await self._send_with_permit(source, call, sent)
            if not self._leases.take_now():
                await self._leases.take()
            if not self._may_send:
                raise NotSent(call.id.election.path)
            return await self._send(source, call, sent)
        finally:
            if slots is not None:
                slots.release()

    def _counted_by_provider(self, source: Source, call: Call) -> dict[str, int]:
        """What a call takes of the requests and tokens that its provider allows each minute, as an estimate."""
        rates = source.model.rates
        if not rates:
            return {}
        read = len(call.prompt.system + call.prompt.user) // CHARS_PER_TOKEN
        written = call.max_output_tokens * call.samples
        needed = {REQUESTS: 1, INPUT_TOKENS: read, OUTPUT_TOKENS: written, TOKENS: read + written}
        counted = {}
        for kind, rate in rates.items():
            name = f"{source.model.throttled_as}, {kind}{A_MINUTE}"
            self._shares.set_rate(name, rate)
            counted[name] = min(needed[kind], rate.each_minute)  # a call that needs more is for the provider to refuse
        return counted

    async def _send_with_permit(self, source: Source, call: Call, sent: asyncio.Future[float] | None) -> Sample:
        """Send a call as soon as the shares of this replica have room for it."""
        reserve, throttle, shares = self._reservations.of, source.model.throttled_as, self._shares
        in_flight = {} if throttle is None else {throttle: 1}
        asked, largest_usd = call.samples, source.prices.largest_usd
        reserved, counted = reserve(source.model, call, largest_usd), self._counted_by_provider(source, call)
        least = reserved if asked == 1 else reserve(source.model, structs.replace(call, samples=1), largest_usd)
        taken = await shares.take(call.id, {**counted, **in_flight, **reserved.amounts}, least.amounts)
        while any(taken[name] < amount for name, amount in reserved.amounts.items()):  # the limits have no room for so many samples
            call = structs.replace(call, samples=call.samples - 1)
            reserved, counted = reserve(source.model, call, largest_usd), self._counted_by_provider(source, call)
        amounts = {**counted, **in_flight, **reserved.amounts}
        if call.samples < asked:
            shares.give_back({name: amount - amounts[name] for name, amount in taken.items()}, {})
        spent: Mapping[str, int] = {}
        outcome: Outcome | None = None
        epoch = 0 if throttle is None else shares.epoch(throttle)
        wait_s: float | None = None
        try:
            await self._leases.take(reserved.most)
            if not self._may_send:
                raise NotSent(call.id.election.path)
            spent = {**counted, **reserved.whole}
            sample = await self._send(source, call, sent, reserved.most)
            spent = {**{name: _counted(name, amount, sample.usage) for name, amount in counted.items()}, **reserved.spent(sample.usage)}
        except ModelUnavailable as error:
            if error.kind not in MAY_BE_BILLED:
                spent = {}
            outcome, wait_s = OUTCOMES.get(error.kind), error.retry_after_s
            raise
        else:
            outcome = "replied"
            return sample
        finally:
            if throttle is not None and outcome is not None:
                shares.note(throttle, outcome, epoch, wait_s)
            # The permit of a call that was refused is not used again before the limiter has heard of it.
            shares.give_back(amounts, spent, to_all=throttle if outcome in ("refused", "failed") else None)

    async def _send(self, source: Source, call: Call, sent: asyncio.Future[float] | None = None, most: Most | None = None) -> Sample:
        """Send one call, and account for it.

        ``most`` was reserved for it where tokens or cost are limited.
        """
        if sent is not None:
            sent.set_result(self._loop.time())
        self._accounts.send()
        source.health.in_flight += 1
        usage: Usage | None = None
        may_be_billed = True
        try:
            sample = checked_sample(await source.model.complete(call), type(source.model).__name__)
            usage = sample.usage
            if len(refused := source.model.refused) != source.reported_refusals:
                source.reported_refusals = len(refused)
                self._accounts.refuse(source.spec, refused)
            if sent is not None:
                source.latencies.add(self._loop.time() - sent.result())
            source.health.delivered()
        except ModelUnavailable as error:
            source.health.failed(error)
            may_be_billed = error.kind in MAY_BE_BILLED
            raise
        else:
            return sample
        finally:
            source.health.in_flight -= 1
            # A cancelled call is accounted for as well: the provider may bill it.
            if usage is not None:
                is_measured = not call.needs_length or usage.visible_tokens is not None
                self._accounts.end_answered(usage, source.prices, measured=is_measured, most=most)
            elif may_be_billed:
                self._accounts.end_unanswered(source.prices, most)
            else:
                self._accounts.end_unbilled()

    async def _follow_admission(self) -> None:
        async with aclosing(self.stream(FollowAdmission())) as changes:
            async for admission in changes:
                if admission == "nothing":
                    self._may_send = False
                    self._shares.dismiss()
                    for source in self._sources:
                        if source.slots is not None:
                            source.slots.dismiss()
                    break

    def _substitute_of(self, source: Source, request: Draw) -> Source:
        """The model that is asked where a call takes too long: the next one of the pool, if the call is not one to a fallback."""
        return self._sources.of(request.substitute) if request.substitute and source.spec == request.model else source

    def _report_unpriced(self) -> None:
        """Make the cost of the run unknown at once."""
        self.tell(RecordCalls(source=self.context.name, usage=Usage(cost_usd=None)))

    def _note_outage(self, error: str | None) -> None:
        """Report the start or the end of an outage. Busy providers have many short ones, so the log gets at most one a minute."""
        if self._is_out == (error is not None):
            return
        self._is_out = error is not None
        self.tell(RecordOutage(error=error))
        now_s = asyncio.get_running_loop().time()
        if error is not None and (self._warned_s is None or now_s >= self._warned_s + WARN_EVERY_S):
            self._warned_s = now_s
            structlog.get_logger().warning(
                "calls are tried again until the provider delivers", error=error, max_outage_s=self._max_outage_s
            )


def _counted(name: str, estimate: int, usage: Usage) -> int:
    """What an answered call has used up of a bound, by its usage where that is known."""
    read, written = usage.input_tokens, usage.output_tokens
    counted = {INPUT_TOKENS: read, OUTPUT_TOKENS: written, TOKENS: None if read is None or written is None else read + written}
    found = counted.get(name.rpartition(", ")[2].removesuffix(A_MINUTE))
    return estimate if found is None else found


def _marked(sample: Sample, source: Source, asked: str) -> Sample:
    """A sample with the fallback that gave it, if one did."""
    return sample if source.spec == asked else structs.replace(sample, fallback=source.spec)


class _Unsent(Exception):
    """A call was not sent, since its model is out and another one has to be asked."""
