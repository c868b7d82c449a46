"""Attempts at calls: each waits for a connection and a permit, is sent, and is accounted for, whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import structs

from microagents.actors.role import Context
from microagents.base.aio import is_cancellation
from microagents.base.errors import OWN_FAILURES, MicroagentsError, ModelUnavailable, TaskFailed
from microagents.base.user_code import described, traceback_of
from microagents.journal.digests import in_order
from microagents.models.model import Call, as_taken, checked_samples, keyed_by_sample
from microagents.replies.chat import Prompt, Sample
from microagents.replies.media import HELD, Media
from microagents.roles.solver.backends import Backend
from microagents.roles.solver.call_accounts import CallAccounts
from microagents.roles.solver.permits import Attempt, Permits, usage_of_all
from microagents.telemetry.tracing import in_trace

T = TypeVar("T")


class Attempts:
    """Makes attempts at the calls of one solver.

    Args:
        context: the context of the solver.
        accounts: the account of its calls.
        permits: permits of its calls.
        recall: asks for the bytes of a file that this process does not hold.
    """

    def __init__(
        self,
        context: Context,
        accounts: CallAccounts,
        permits: Permits,
        recall: Callable[[Media], Awaitable[bytes | None]],
    ) -> None:
        self._recall = recall
        self._run_id = context.run_id
        self._is_traced = context.tracing is not None
        self._accounts, self._permits = accounts, permits
        self._loop = asyncio.get_running_loop()
        self._halts: dict[asyncio.Timeout, None] = {}
        """For each call in flight what cancels it."""

    def halt(self) -> None:
        """Cancel the calls in flight."""
        for halt in self._halts:
            halt.reschedule(self._loop.time())

    async def make(self, backend: Backend, call: Call, sent: asyncio.Future[float] | None = None) -> Sequence[Sample]:
        """Make one attempt, once there is room for it. ``sent`` gets the time at which the call is sent."""
        slots, place = backend.slots, call.id
        if slots is None:
            return await self._make(backend, call, sent)
        # Before the permit, the timeout and the account: with timeouts that ran in a queue, 19,393 calls were booked, and the server
        # received 9,773 (1,024 inputs on a model that takes 40 s).
        await slots.acquire(lambda: (in_order(place.election.path), place.seq))
        try:
            return await self._make(backend, call, sent)
        finally:
            slots.release()

    async def _make(self, backend: Backend, call: Call, sent: asyncio.Future[float] | None) -> Sequence[Sample]:
        while True:
            attempt, reservations = Attempt(backend, call, sent), self._permits.reservations
            try:
                wait = self._permits.acquire(attempt)
                if wait is not None:
                    await wait
                if reservations is self._permits.reservations:  # else the run got other bounds as it waited
                    return await self._send(attempt)
            finally:
                self._permits.release(attempt)

    async def _send(self, attempt: Attempt) -> Sequence[Sample]:
        """Send one call, and account for it."""
        backend, call, sent = attempt.backend, attempt.call, attempt.sent
        if call.prompt.all_files:
            call = structs.replace(call, contents=await self._contents_of(call.prompt))
        # A line is counted with its batch until its result is there.
        attempt.may_be_billed = backend.model.batches is None
        if sent is not None:
            sent.set_result(self._loop.time())
        self._accounts.report_soon()
        backend.health.in_flight += 1
        try:
            with keyed_by_sample(call, self._run_id):
                ask: Callable[[Call], Awaitable[Sample | Sequence[Sample]]]
                ask = backend.model.complete if call.samples == 1 else backend.model.complete_several
                reply = _given(ask, as_taken(call, backend.model), backend.spec)
                if call.traceparent:
                    reply = in_trace(call.traceparent, reply)
                given = await (reply if sent is None else self._until_halted(reply))
            samples = checked_samples(given, call.samples, backend.spec)
            attempt.usage = samples[0].usage if len(samples) == 1 else usage_of_all(samples)
            self._accounts.join(len(samples) - 1)
            if len(refused := backend.model.refused) != backend.reported_refusals:
                backend.reported_refusals = len(refused)
                self._accounts.refuse(backend.spec, refused)
            if (rates := backend.model.rates) and not backend.has_reported_limits:
                backend.has_reported_limits = True
                self._accounts.limit(backend.spec, rates)
            if sent is not None:
                samples = self._timed(samples, backend, self._loop.time() - sent.result())
            backend.health.delivered()
        except ModelUnavailable as error:
            attempt.fail(error)
            backend.health.failed(error)
            raise
        else:
            return samples
        finally:
            backend.health.in_flight -= 1
            self._account_for(attempt)

    async def _contents_of(self, prompt: Prompt) -> dict[str, bytes]:
        """Return the bytes of the files of a prompt, by their digests.

        Raises:
            TaskFailed: they are neither here nor beside the journal.
        """
        contents = {}
        for file in prompt.all_files:
            if file.address or file.digest in contents:
                continue
            data = HELD.get(file.digest) or await self._recall(file)
            if data is None:
                raise TaskFailed(
                    "a prompt",
                    f"has a {file.shown}, whose bytes are not beside the journal any more; all decisions are kept",
                )
            HELD.put(file.digest, data)
            contents[file.digest] = data
        return contents

    def _account_for(self, attempt: Attempt) -> None:
        """Account for the end of a call, also of a cancelled one: the provider may bill it."""
        backend, call = attempt.backend, attempt.call
        usage = attempt.usage
        if usage is None:
            if attempt.may_be_billed:
                self._accounts.end_unanswered(backend.prices, attempt.most)
            else:
                self._accounts.report_soon()
            return
        is_measured = not call.needs_length or usage.visible_tokens is not None
        if usage.flaw:
            backend.warn_of_usage(usage.flaw)
            stated = backend.model.at_most(call) if attempt.most is None else None
            if stated is not None:
                usage = structs.replace(usage, cost_usd=stated.cost_of(usage))
        self._accounts.end_answered(usage, backend.prices, measured=is_measured, most=attempt.most)

    def _timed(self, samples: Sequence[Sample], backend: Backend, took_s: float) -> Sequence[Sample]:
        backend.latencies.add(took_s)
        self._accounts.time(backend.spec, took_s)
        if not self._is_traced:
            return samples
        return [structs.replace(each, took_s=took_s) for each in samples]

    async def _until_halted(self, reply: Awaitable[T]) -> T:
        """Await a reply, unless a pause cancels the calls in flight.

        Raises:
            Halted: it does.
        """
        halt = asyncio.timeout(None)
        self._halts[halt] = None
        try:
            async with halt:
                return await reply
        except TimeoutError:
            if halt.expired():
                raise Halted from None
            raise
        finally:
            del self._halts[halt]


class Unsent(Exception):
    """A call was not sent, since its model is out and another one has to be asked."""


class Halted(Unsent):
    """A pause cancelled a call in flight, which is sent again after it."""


async def _given(ask: Callable[[Call], Awaitable[T]], call: Call, model: str) -> T:
    """Await the reply to a call.

    Raises:
        TaskFailed: the model's own code raised an error that is none of this package.
    """
    try:
        return await ask(call)
    except MicroagentsError:
        raise
    except OWN_FAILURES as error:
        if is_cancellation(error):
            raise
        raise TaskFailed(f"the model {model}", f"raised {described(error)}", traceback_of(error)) from error
