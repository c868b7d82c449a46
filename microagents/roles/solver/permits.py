"""Permits: the keeper's leases, which a call holds from before it is sent until it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from microagents.base.aio import Notifier
from microagents.base.errors import ModelUnavailable, NotSent
from microagents.elections.election import total_usd
from microagents.journal.messages import Ended, Outcome
from microagents.models.model import Call, Most
from microagents.models.rates import INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS, TOKENS, Rate
from microagents.replies.chat import Sample, Usage
from microagents.roles.limits.leases import Acquire, Leases
from microagents.roles.limits.reservations import CALLS, Reservation, Reservations
from microagents.roles.solver.backends import Backend

MAY_BE_BILLED = ("timeout", "garbled", "broken")
"""Kinds of failure after which the provider may still charge for the call."""
OUTCOMES: Mapping[str, Outcome] = {
    "busy": "refused",
    **dict.fromkeys(("server", "network", "broken", "timeout", "garbled"), "failed"),
}
"""What the throttle of a model learns from kinds of failure."""
A_MINUTE = " a minute"
"""Ends the names of bounds that providers set by the minute."""
AT_ONCE = 256
"""Calls of one lease to models that answer at once: the keeper is asked once for all of them."""
TOGETHER = 4
"""Calls of one lease to other models that nothing limits, if no more wait. A kill counts those that are not sent as lost, too."""
CHARS_PER_TOKEN = 4
"""Of ordinary text; the estimate of a prompt's tokens."""


class Attempt:
    """One attempt at a sample.

    Args:
        backend: its model.
        call: the call.
        sent: gets the time at which the call is sent.
    """

    permit: Permit | Block | None = None
    """What the call holds of the bounds."""
    most: Most | None = None
    """The most that it can use, which was reserved for it; None if neither tokens nor cost are limited."""
    may_be_billed = False
    """Whether it is sent, and has not failed in a way that the provider does not charge for."""
    usage: Usage | None = None
    """Usage of its reply, of all samples together; None without one."""
    error: ModelUnavailable | None = None

    def __init__(self, backend: Backend, call: Call, sent: asyncio.Future[float] | None) -> None:
        self.backend = backend
        self.call = call
        self.sent = sent

    @property
    def is_in_batch(self) -> bool:
        """Whether it ended without a reply or an error, and a batch has its sample: the reply is taken later."""
        batches = self.backend.model.batches
        return batches is not None and self.usage is None and self.error is None and batches.has_bought(self.call)

    def fail(self, error: ModelUnavailable) -> None:
        """Note that the call was sent in vain."""
        self.error = error
        self.may_be_billed = error.kind in MAY_BE_BILLED


class Permit(Struct, frozen=True, kw_only=True):
    """Shares of the bounds that one call holds."""

    number: int
    """Number of its lease; 0 if an earlier attempt has left its amounts to a batch."""
    counted: dict[str, int]
    """The part that its provider counts by the minute."""
    reserved: Reservation

    def spent(self, attempt: Attempt) -> dict[str, int]:
        """Usage of the call; its maximum if unknown."""
        usage = attempt.usage
        if usage is not None:
            counted = {name: _counted(name, amount, usage) for name, amount in self.counted.items()}
            return {**counted, **self.reserved.spent(usage)}
        if not attempt.may_be_billed:
            return {}
        return {**self.counted, **self.reserved.whole}


class Block:
    """A lease of calls that nothing limits.

    Args:
        number: number of the lease.
        calls: number of the calls.
    """

    def __init__(self, number: int, calls: int) -> None:
        self.number = number
        self.left, self.open, self.spent = calls, 0, 0
        """Calls left to send, calls in flight, and calls that may be billed."""


class Permits:
    """Bounds calls by the limits of the run, by the throttle of their model, and by its provider's allowance each minute.

    Args:
        settings: settings of the run.
        leases: leases of the solver.
        sharers: number of runs that share that allowance.
    """

    def __init__(self, settings: Mapping[str, Any], leases: Leases, sharers: int = 1) -> None:
        self._sharers = sharers
        self.reservations = Reservations(settings)
        self._leases = leases
        self._block: Block | None = None
        self._drops = 0
        """Number of times that a block was given up, also one that was asked for."""
        self._waiting, self._is_asking = 0, False
        """Calls that wait for the next block, and whether one of them asks for it."""
        self._asked = Notifier()
        """Notifies the others of its end."""
        self._is_dismissed = False

    def acquire(self, attempt: Attempt) -> Awaitable[None] | None:
        """Let a call pass at once, or return the wait for room; a request for several samples has as many as the limits leave.

        Raises:
            NotSent: the run is ending, so no call is sent.
        """
        backend = attempt.backend
        if self.reservations.are_limited or backend.throttled_as is not None or backend.model.batches is not None:
            return self._acquire(attempt)
        if self._block is None:
            return self._acquire_block(attempt)
        self._take_of(self._block, attempt)
        return None

    async def _acquire_block(self, attempt: Attempt) -> None:
        reservations = self.reservations
        self._waiting += 1
        try:
            while self._block is None and reservations is self.reservations:
                if self._is_asking:
                    await self._asked.wait()
                else:
                    await self._ask_for_block(attempt)
        finally:
            self._waiting -= 1
        if self._block is not None:  # else the run got other limits, under which the call acquires anew
            self._take_of(self._block, attempt)

    async def _ask_for_block(self, attempt: Attempt) -> None:
        """Acquire a lease for the calls that wait, and a few of the next ones."""
        place = attempt.call.id
        calls = AT_ONCE if attempt.backend.answers_at_once else max(TOGETHER, self._waiting)
        self._is_asking, drops = True, self._drops
        try:
            # One is enough: a limit that the run gets as they wait may leave fewer than all.
            wanted = Acquire(path=place.election.path, seq=place.seq, amounts={CALLS: calls}, least={CALLS: 1})
            number, held = await self._leases.acquire(wanted)
            if drops == self._drops:
                self._block = Block(number, held[CALLS])
            else:
                self._leases.release(Ended(number=number))
        finally:
            self._is_asking = False
            self._asked.notify()

    def _take_of(self, block: Block, attempt: Attempt) -> None:
        attempt.permit = block
        block.open += 1
        block.left -= 1
        if not block.left:
            self._block = None

    def change(self, settings: Mapping[str, Any]) -> None:
        """Bound calls by other settings, also those that wait."""
        self.reservations = Reservations(settings)
        self.drop()

    def drop(self) -> None:
        """Give up the rest of the block, since the run is paused or ends, or its limits change."""
        self._drops += 1
        block, self._block = self._block, None
        if block is not None:
            block.left = 0
            self._end(block)

    def _end(self, block: Block) -> None:
        if not block.left and not block.open:
            self._leases.release(Ended(number=block.number, spent={CALLS: block.spent}))

    def dismiss(self) -> None:
        """Take nothing any more."""
        self._is_dismissed = True
        self.drop()

    async def _acquire(self, attempt: Attempt) -> None:
        backend, call, throttle = attempt.backend, attempt.call, attempt.backend.throttled_as
        batches = backend.model.batches
        if batches is not None and batches.has_bought(call):
            if self._is_dismissed:
                raise NotSent(call.id.election.path)
            if not batches.has_bought(call, earlier=True):  # these the limits count since the start of the sitting
                reserved = self._reserved(backend, call)
                attempt.most, attempt.permit = reserved.most, Permit(number=0, counted={}, reserved=reserved)
            return
        rates = {kind: each.shared(self._sharers) for kind, each in backend.model.rates.items()}
        in_flight = {} if throttle is None else {throttle: 1}
        reserved, counted = self._reserved(backend, call), _counted_by_provider(backend, call, rates)
        if call.samples == 1:
            least = reserved
        else:
            least = self._reserved(backend, structs.replace(call, samples=1))
        wanted = Acquire(
            path=call.id.election.path,
            seq=call.id.seq,
            amounts={**counted, **in_flight, **reserved.amounts},
            least=least.amounts,
            model=backend.spec,
            samples=call.samples,
            unstated=reserved.unstated,
            throttle=throttle,
            rates={_bound_of(backend, kind): rate for kind, rate in rates.items()},
            is_marked=batches is None,
        )
        number, held = await self._leases.acquire(wanted)
        while any(
            held[name] < amount for name, amount in reserved.amounts.items()
        ):  # the limits lack room for all samples
            call = structs.replace(call, samples=call.samples - 1)
            reserved, counted = self._reserved(backend, call), _counted_by_provider(backend, call, rates)
        reserved = reserved.granted(held)
        attempt.call, attempt.most = call, reserved.most
        attempt.permit = Permit(number=number, counted=counted, reserved=reserved)

    def release(self, attempt: Attempt) -> None:
        """Give back the unused rest, and report the call's ending to the throttle."""
        permit, error = attempt.permit, attempt.error
        if permit is None:
            return
        if isinstance(permit, Block):
            permit.open -= 1
            permit.spent += attempt.may_be_billed
            self._end(permit)
            return
        if attempt.is_in_batch:
            if permit.number:
                self._leases.release(Ended(number=permit.number, parked=permit.reserved.whole))
            return
        if not permit.number:
            self._leases.end_parked(permit.reserved.whole, permit.spent(attempt))
            return
        ended = Ended(
            number=permit.number,
            spent=permit.spent(attempt),
            unknown=permit.reserved.unknown(attempt.usage or Usage()),
            outcome=None if attempt.usage is None else "replied",
        )
        if error is not None:
            unread = str(error) if error.is_unread else ""
            outcome = OUTCOMES.get(error.kind)
            ended = structs.replace(ended, outcome=outcome, wait_s=error.retry_after_s, unread=unread)
        self._leases.release(ended)

    def _reserved(self, backend: Backend, call: Call) -> Reservation:
        return self.reservations.of(backend.model, call, backend.prices.largest_usd)


def _bound_of(backend: Backend, kind: str) -> str:
    return f"{backend.throttled_as}, {kind}{A_MINUTE}"


def _counted_by_provider(backend: Backend, call: Call, rates: Mapping[str, Rate]) -> dict[str, int]:
    """Estimated share of a call in the requests and tokens that its provider allows each minute."""
    if not rates:
        return {}
    read = call.prompt.size // CHARS_PER_TOKEN
    written = call.max_output_tokens * call.samples
    needed = {REQUESTS: 1, INPUT_TOKENS: read, OUTPUT_TOKENS: written, TOKENS: read + written}
    # A call that needs more than a minute gives is for the provider to refuse.
    return {_bound_of(backend, kind): min(needed[kind], rate.each_minute) for kind, rate in rates.items()}


def usage_of_all(samples: Sequence[Sample]) -> Usage:
    """Return the usage of a request for several samples: the sum of theirs."""
    usages = [each.usage for each in samples]
    return Usage(
        input_tokens=_total([each.input_tokens for each in usages]),
        output_tokens=_total([each.output_tokens for each in usages]),
        reasoning_tokens=_total([each.reasoning_tokens for each in usages]),
        cost_usd=total_usd([each.cost_usd for each in usages]),
        cached_tokens=sum(each.cached_tokens for each in usages),
        cache_write_tokens=sum(each.cache_write_tokens for each in usages),
        flaw=next((each.flaw for each in usages if each.flaw), ""),
    )


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    if len(known) != len(counts):
        return None
    return sum(known)


def _counted(name: str, estimate: int, usage: Usage) -> int:
    """Use of a bound by an answered call, by its usage if known."""
    read, written = usage.input_tokens, usage.output_tokens
    counted = {
        INPUT_TOKENS: read,
        OUTPUT_TOKENS: written,
        TOKENS: None if read is None or written is None else read + written,
    }
    found = counted.get(name.rpartition(", ")[2].removesuffix(A_MINUTE))
    if found is None:
        return estimate
    return found
