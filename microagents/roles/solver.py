"""The solver: the only role that talks to a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from contextlib import aclosing
from copy import copy
from functools import partial
from hashlib import blake2b
from typing import Any

import structlog
from msgspec import structs

from microagents.actors import Context, Messenger, Role, eager
from microagents.aio import Slots, TaskScope
from microagents.chat import Reply, Sample, Usage
from microagents.elections.admission import FollowAdmission
from microagents.elections.election import Draw, SampleId
from microagents.errors import InvalidUsage, MicroagentsError, ModelUnavailable, NotSent, Stopped
from microagents.journal.digests import in_order
from microagents.journal.messages import LeaseCalls, RecordCalls, RecordOutage, Report
from microagents.messages import resolve
from microagents.models.latencies import LEAST_STRAGGLER_S, Latencies
from microagents.models.model import Call, Model, Most, checked_model, checked_sample, open_model
from microagents.models.rates import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOKENS
from microagents.models.weighing import at_least
from microagents.roles.call_accounts import CallAccounts, Prices
from microagents.roles.call_leases import AT_ONCE, LEAST, CallLeases
from microagents.roles.groups import Group, Several
from microagents.roles.health import Health
from microagents.roles.reservations import Reservations
from microagents.roles.shares import HoldShares, Outcome, Shares, Trade

BACKOFF_S = (0.5, 60.0)
"""First and longest wait before a call is repeated, unless the provider asks for a longer one."""
TRIAL_S = 1.0
"""Longest wait of a call that tries a model which is out, until it is sent, and of the last one of an outage."""
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
REPLACED_SHARE = 0.2
"""Largest share of calls to a model that are sent again as stragglers: where more are slow, the model is, and more calls do not help it."""
STRAGGLER = "straggler"
"""The reason of such a second call in the account."""


class Source:
    """A model, and the experience of this replica with it."""

    def __init__(self, model: Model, spec: str = "", on_out: Callable[[ModelUnavailable], None] | None = None) -> None:
        self.model = model
        self.spec = spec
        self.reported_refusals = 0
        """Number of refused parameters that the journal knows."""
        self.slots = None if model.max_in_flight is None else Slots(model.max_in_flight)
        """Its connections; None if it takes any number of calls at a time."""
        self.answers_at_once = model.answers_at_once
        self.latencies = Latencies()
        self.prices = Prices()
        self.health = Health(asyncio.get_running_loop(), on_out)
        self.takes_several = model.max_samples > 1
        """Whether a request may ask for several samples: not after one was refused."""
        self.replaced = 0
        """Number of its calls that were sent again as stragglers."""

    def through(self, model: Model) -> Source:
        """The same source with its model behind another one."""
        other = copy(self)
        other.model = model
        return other

    @property
    def straggler_s(self) -> float | None:
        """The duration from which a call should be sent again; None while none should."""
        return None if self.replaced > REPLACED_SHARE * self.latencies.count else self.latencies.straggler_s


class Solver(Role):
    """Takes samples. It repeats attempts that failed in transport: such failures are neither flags nor votes.

    Only the solver accounts for calls, so that the calls in flight of a dead replica are known.
    """

    asks = (LeaseCalls, RecordCalls, RecordOutage, FollowAdmission, HoldShares, Report, Trade)

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._sources: dict[str, Source] = {}
        """The models by spec."""
        self._reservations = Reservations(context.settings)
        self._replaces: bool = context.settings.get("hedge", True)
        """Whether stragglers are sent again."""
        self._groups: dict[Hashable, Group] = {}
        """Draws of this turn of the loop that may go in one request, by what they have in common."""
        self._fallbacks = context.models.get("fallback", ())
        """Models that are asked while another one is out."""
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
        for pool in self.context.models.values():
            for spec in pool:
                self._source(spec)
        at_once = all(source.answers_at_once for source in self._sources.values())
        if not at_once:
            for spec, refused in (await self.ask(Report())).refused.items():
                if spec in self._sources:
                    self._sources[spec].model.refuse(refused)
        self._leases = CallLeases(self.context.name, self.ask, AT_ONCE if at_once else LEAST)
        self._scope.start(self._follow_admission())

    async def stop(self) -> None:
        """Close the models."""
        await self._scope.close()
        await self._shares.close()
        await self._leases.close()
        self._accounts.report()
        for source in self._sources.values():
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
        source = self._delivering(request.model)
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
            source = self._delivering(request.model)
        return await self._draw_singly(request, source, call)

    async def _draw_singly(self, request: Draw, source: Source, call: Call) -> Sample:
        """Take a sample in a request of its own, by another model while the first one does not deliver."""
        outage = _Outage(request.id, self._max_outage_s)
        while True:
            try:
                if source.answers_at_once:
                    sample = await self._attempt(source, call)
                else:
                    sample = await self._first_reply(source, self._substitute_of(source, request), call, outage)
            except _Unsent:
                source = self._delivering(request.model)
            except ModelUnavailable as error:
                other = self._one_that_delivers(request.model)
                if other is None or other is source:
                    if error.retryable:
                        self._note_outage(str(error))
                    await outage.wait(error, source.health)
                source = self._delivering(request.model)
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
        outage = _Outage(group.calls[0].id, self._max_outage_s)
        try:
            while len(calls := group.calls) > 1 and source.takes_several:
                several = Several(source.model, [structs.replace(call, attempt=attempts) for call in calls], group, self._accounts.join)
                attempts += 1
                try:
                    if not await self._request(source, several, outage):
                        break
                except ModelUnavailable as error:
                    if source.health.is_out and self._fallbacks:
                        self._accounts.repeat(error.kind)
                        break
                    if not error.retryable:  # single draws meet the same refusal, unless it is one of several samples at a time
                        source.takes_several = False
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

    async def _request(self, source: Source, several: Several, outage: _Outage) -> bool:
        """Make one attempt at several samples; returns False where it takes too long, or another model has to be asked.

        Raises:
            ModelUnavailable: the attempt gave no reply.
        """
        if source.health.is_out and self._is_replaceable(source):
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

    async def _first_reply(self, source: Source, substitute: Source, call: Call, outage: _Outage) -> Sample:
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

    async def _sent(self, attempt: asyncio.Task[Sample], sent: asyncio.Future[float], source: Source, outage: _Outage) -> None:
        """Wait until an attempt is sent, or has failed before.

        Raises:
            _Unsent: the model is out meanwhile, and a fallback has to be asked.
            Stopped: the outage lasted longer than ``--max-outage``.
        """
        with source.health.waiting() as out:
            ends: list[asyncio.Future[Any]] = [attempt, sent, out]
            is_trial = source.health.is_out and self._is_replaceable(source)
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
                    for source in self._sources.values():
                        if source.slots is not None:
                            source.slots.dismiss()
                    break

    def _delivering(self, spec: str) -> Source:
        """The model of a spec, or the first of its fallbacks that delivers while it is out."""
        return self._one_that_delivers(spec) or self._source(spec)

    def _one_that_delivers(self, spec: str) -> Source | None:
        source = self._source(spec)
        if not self._fallbacks or source.health.may_be_asked():
            return source
        return next((other for other in self._alike(spec) if other.health.may_be_asked()), None)

    def _alike(self, spec: str) -> list[Source]:
        """The fallbacks of a model: those that weigh options if it does, and those that vote if it votes."""
        return [self._source(each) for each in self._fallbacks if each != spec and at_least((each,)) == at_least((spec,))]

    def _is_replaceable(self, source: Source) -> bool:
        """Whether a fallback of the model delivers."""
        return any(not other.health.is_out for other in self._alike(source.spec))

    def _substitute_of(self, source: Source, request: Draw) -> Source:
        """The model that is asked where a call takes too long: the next one of the pool, if the call is not one to a fallback."""
        return self._source(request.substitute) if request.substitute and source.spec == request.model else source

    def _source(self, spec: str) -> Source:
        """The model of a spec, opened on first use. A model without a price makes the cost of the run unknown at once."""
        found = self._sources.get(spec)
        if found is None:
            found = self._sources[spec] = Source(
                checked_model(open_model(spec, self.context), spec), spec, partial(self._warn_out, spec) if self._fallbacks else None
            )
            if not found.model.priced:
                if (max_cost_usd := self.context.settings.get("max_cost_usd")) is not None:
                    if spec in self.context.model_objects:
                        raise InvalidUsage(
                            f"the price of {spec!r} is unknown, so max_cost_usd={max_cost_usd:g} cannot be kept; give a client's model its "
                            "price, client_model(..., price_in='1', price_out='6'), or your own model priced = True and costs with its "
                            "samples; or lift the limit, max_cost_usd=None"
                        )
                    raise InvalidUsage(
                        f"the price of {spec!r} is unknown, so --max-cost {max_cost_usd:g} cannot be kept; give the price in the spec, "
                        "@price_in=...,price_out=..., or in a file, --prices FILE; or lift the limit, --max-cost inf"
                    )
                if spec not in self._fallbacks:  # of a fallback only once it is asked
                    self.tell(RecordCalls(source=self.context.name, usage=Usage(cost_usd=None)))
        return found

    def _warn_out(self, spec: str, error: ModelUnavailable) -> None:
        structlog.get_logger().warning("a model is out, and its fallback is asked", model=spec, error=str(error))

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


class _Outage:
    """The failed attempts at one sample, and the waits between them."""

    def __init__(self, sample: SampleId, max_outage_s: float) -> None:
        self._sample = sample
        self._max_outage_s = max_outage_s
        self._tries = 0
        self._started_s: float | None = None
        """Time of the first failed attempt."""
        self._error: ModelUnavailable | None = None
        """The last failure."""

    def left_s(self, health: Health) -> float | None:
        """Longest wait until the next attempt is sent; None where none failed, or the model has replied to another call since."""
        if self._started_s is None or not health.fails_since(self._started_s):
            return None
        return max(TRIAL_S, self._started_s + self._max_outage_s - asyncio.get_running_loop().time())

    def check(self, health: Health) -> None:
        """Check, before an attempt is sent, that the outage lasts no longer than it may.

        Raises:
            Stopped: it does.
        """
        if self._started_s is not None and health.fails_since(self._started_s):
            self._end_if_over(self._started_s)

    async def wait(self, error: ModelUnavailable, health: Health) -> None:
        """Wait before the next attempt, or until the model is out.

        Raises:
            ModelUnavailable: the error, if another attempt cannot help.
            Stopped: the outage lasted longer than ``--max-outage``.
        """
        if not error.retryable:
            raise error
        if self._started_s is None:
            self._started_s = asyncio.get_running_loop().time()
        self._tries += 1
        self._error = error
        wait_s = min(self._end_if_over(self._started_s), max(error.retry_after_s or 0.0, self._backoff_s()))
        structlog.get_logger().info(
            "a call is tried again", path=self._sample.election.path, tries=self._tries, wait_s=wait_s, error=str(error)
        )
        with health.waiting() as out:
            await asyncio.wait([out], timeout=wait_s)

    def _end_if_over(self, started_s: float) -> float:
        """Seconds that the outage may still last."""
        lasted_s = asyncio.get_running_loop().time() - started_s
        if lasted_s >= self._max_outage_s:
            after = f"after {self._tries} tries in {lasted_s:.0f} s (--max-outage {self._max_outage_s:g})"
            raise Stopped(f"{self._error}; gave up {after}; all decisions so far are kept; resume once the provider delivers again")
        return self._max_outage_s - lasted_s

    def _backoff_s(self) -> float:
        """A wait that doubles with each attempt. The sample's id spreads it: calls that failed together are not repeated together."""
        first_s, longest_s = BACKOFF_S
        spread = blake2b(self._sample.election.question_digest + f"{self._sample.seq}/{self._tries}".encode(), digest_size=2).digest()
        return min(longest_s, first_s * (1 << min(self._tries - 1, 20))) * (0.5 + int.from_bytes(spread) / 65536)
