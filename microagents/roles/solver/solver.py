"""The solver: the only role that talks to a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from msgspec import structs

from microagents.actors.role import Context, Messenger, Role, eager
from microagents.base.aio import TaskScope
from microagents.base.errors import ModelUnavailable
from microagents.base.messages import Request, resolve
from microagents.elections.admission import PAUSES
from microagents.elections.election import CallTerms, Draw
from microagents.elections.sample_batches import SampleBatch
from microagents.journal.messages import (
    CANCEL_BATCHES,
    Conditions,
    Entry,
    KeepBatch,
    Recall,
    Record,
    Subscribe,
)
from microagents.models.latencies import LEAST_STRAGGLER_S
from microagents.models.model import SEVERAL_AT_ONCE, Call
from microagents.replies.chat import Sample
from microagents.replies.media import Media
from microagents.replies.reply import Reply
from microagents.roles.limits.leases import Acquire, Leases
from microagents.roles.solver.attempts import Attempts, Halted, Unsent
from microagents.roles.solver.backends import Backend, Backends
from microagents.roles.solver.call_accounts import CallAccounts
from microagents.roles.solver.outages import TRIAL_S, Outage, OutageReports
from microagents.roles.solver.permits import Permits

STRAGGLER = "straggler"
"""The reason of such a second call in the account."""
HALTED = "paused"
"""The reason of a call that is sent again after a pause which cancelled it."""


class AwaitBatch(Request[None], frozen=True, kw_only=True):
    """Wait until a batch has ended at its provider, for which inputs are parked."""

    name: str
    """Name in `Parked`."""


class Solver(Role):
    """Takes samples. It repeats attempts that failed in transport: such failures are neither flags nor votes.

    Only the solver accounts for calls, so that the calls in flight of a dead replica are known.
    """

    asks = (Acquire, KeepBatch, Recall, Record, Subscribe)
    handles_no_message = ("keep", "content")

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._accounts = CallAccounts(context.name, self._record, self._in_flight)
        self._backends = Backends(context, self._accounts.report_unpriced)
        self._replaces: bool = context.settings.get("resend_stragglers", True)
        """Whether stragglers are sent again."""
        self._max_outage_s: float = context.settings["max_outage_s"]
        self._scope = TaskScope()
        self._loop = asyncio.get_running_loop()
        self._outages = OutageReports(self._max_outage_s, self._record)
        self._leases = Leases(self.ask, self._accounts.end_lease)
        self._permits = Permits(context.settings, self._leases, context.sharers)
        self._attempts = Attempts(context, self._accounts, self._permits, self.content)
        self._conditions = Conditions()

    async def start(self) -> None:
        """Open every model of the run, so that a wrong name or a missing key is reported before the first call."""
        self._backends.open_all()
        for backend in self._backends:
            await backend.model.prepare()
            if backend.model.batches is not None:
                await backend.model.batches.attach(self)
        changes = self.stream(Subscribe())
        conditions = await anext(changes)
        self._backends.refuse(conditions.refused)
        self._leases.holder = conditions.holder
        self._take(conditions)
        self._scope.start(self._follow_conditions(changes))

    async def stop(self) -> None:
        """Close the models."""
        self._permits.dismiss()
        self._accounts.report()  # before the subscription ends, and with it the leases
        await self._scope.close()
        self._accounts.report()
        await self._backends.close()

    async def keep(self, batch: SampleBatch) -> int:
        """Record a batch, or its change; returns its number once it is durable."""
        return await self.ask(KeepBatch(batch=batch))

    async def content(self, file: Media) -> bytes | None:
        """Ask for the bytes of a picture or a file; None if they are not beside the journal."""
        return (await self.ask(Recall(file=file.digest))).content

    async def recall(self) -> Sequence[SampleBatch]:
        """Return the batches of earlier sittings whose lines may still be asked for."""
        return (await self.ask(Recall(with_batches=True))).batches

    async def await_batch(self, request: AwaitBatch) -> None:
        """Wait until a batch has ended; returns at once for one that nothing is parked for.

        Raises:
            NotSent: the run is ending.
            MicroagentsError: the provider does not say.
        """
        for backend in self._backends:
            if backend.model.batches is not None:
                await backend.model.batches.end_of(request.name)

    @eager
    async def draw(self, request: Draw) -> tuple[Sample, ...]:
        """Take samples in one request, by another model while the first one does not deliver.

        Fewer are given than asked for if the model or the limits have room for fewer.

        Raises:
            NotSent: the run is ending, so no call is sent.
            Stopped: the provider was out for longer than ``--max-outage``.
            ModelUnavailable: the provider refuses the request for good.
        """
        backend, call = self._backends.delivering(request.model), _call_of(request)
        outage: Outage | None = None
        while True:
            call = backend.fitting(call)
            try:
                if backend.answers_at_once or backend.model.batches is not None:
                    samples = await self._attempts.make(backend, call)
                else:
                    outage = outage or Outage(request.id, self._max_outage_s)
                    samples, backend = await self._first_reply(
                        backend, self._backends.substitute_of(backend, request), call, outage
                    )
            except Unsent as unsent:
                backend = self._backends.delivering(request.model)
                if isinstance(unsent, Halted):
                    self._accounts.repeat(HALTED)
                    call = structs.replace(call, attempt=call.attempt + 1)
            except ModelUnavailable as error:
                if backend.refuses_several(call, error):
                    backend.is_refused_several = True
                    continue
                other = self._backends.one_that_delivers(request.model)
                if other is None or other is backend:
                    if error.retryable:
                        self._outages.begin(str(error))
                    outage = outage or Outage(request.id, self._max_outage_s)
                    await outage.wait(error, backend.health)
                backend = self._backends.delivering(request.model)
                self._accounts.repeat(error.kind)
                call = structs.replace(call, attempt=call.attempt + 1)
            else:
                return self._given(request, backend, samples)

    def _given(self, request: Draw, backend: Backend, samples: Sequence[Sample]) -> tuple[Sample, ...]:
        """Note that a model delivers; returns its samples, marked with it if another one was asked."""
        self._outages.end()
        backend.most_given = max(backend.most_given, len(samples))
        if backend.is_refused_several and request.samples > 1:  # only now is it known that one alone is accepted
            self._accounts.refuse(backend.spec, {**backend.model.refused, SEVERAL_AT_ONCE: None})
        if backend.spec == request.model:
            return tuple(samples)
        return tuple([structs.replace(each, fallback=backend.spec) for each in samples])

    async def _first_reply(
        self, backend: Backend, substitute: Backend, call: Call, outage: Outage
    ) -> tuple[Sequence[Sample], Backend]:
        """Make one attempt. If it is a straggler, make another one beside it; the first reply counts, and the other call is cancelled.

        Returns:
            The samples, and the model that gave them.

        Raises:
            ModelUnavailable: no attempt gave a reply.
            Unsent: another model has to be asked.
        """
        sent: asyncio.Future[float] = self._loop.create_future()
        attempts = TaskScope()
        try:
            first = attempts.start(self._attempts.make(backend, call, sent))
            if await self._straggles(first, sent, backend, outage):
                again: asyncio.Future[float] = self._loop.create_future()
                again.add_done_callback(lambda _: self._accounts.repeat(STRAGGLER))
                repeated = structs.replace(substitute.fitting(call), attempt=call.attempt + 1)
                second = attempts.start(self._attempts.make(substitute, repeated, again))
                running = {first, second}
                while running:
                    _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for each, asked in ((first, backend), (second, substitute)):
                        if each.done() and each.exception() is None:
                            return each.result(), asked
            return await first, backend
        finally:
            await attempts.close()

    async def _straggles(
        self, attempt: asyncio.Task[Sequence[Sample]], sent: asyncio.Future[float], backend: Backend, outage: Outage
    ) -> bool:
        """Wait until an attempt is over, or a straggler; returns whether it is one.

        Raises:
            Unsent: the model is out before it is sent, and a fallback has to be asked.
            Stopped: the outage lasted longer than ``--max-outage``.
        """
        with backend.health.waiting() as out:
            ends: list[asyncio.Future[Any]] = [attempt, sent, out]
            is_trial = backend.health.is_out and self._backends.is_replaceable(backend)
            while not any(each.done() for each in ends):
                within_s = TRIAL_S if is_trial else outage.left_s(backend.health)
                done, _ = await asyncio.wait(ends, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
                if not done and is_trial:
                    raise Unsent
                if not done:
                    outage.check(backend.health)
            if not attempt.done() and not sent.done():
                raise Unsent

        # The limit changes with every reply of the model, and before the first ones there is none.
        while not attempt.done():
            limit_s = backend.straggler_s if self._replaces else None
            if limit_s is None:
                left_s = LEAST_STRAGGLER_S
            else:
                left_s = sent.result() + limit_s - self._loop.time()
            if left_s <= 0:
                backend.replaced += 1
                return True
            await asyncio.wait([attempt], timeout=left_s)
        return False

    def _record(self, entry: Entry) -> None:
        self.tell(Record.of(entry))

    def _in_flight(self) -> dict[str, int]:
        return {each.spec: each.in_flight for each in self._backends if each.in_flight}

    async def _follow_conditions(self, changes: AsyncGenerator[Conditions]) -> None:
        async with aclosing(changes):
            async for conditions in changes:
                self._take(conditions)
                if conditions.admission == "nothing":
                    self._permits.dismiss()
                    for backend in self._backends:
                        if backend.slots is not None:
                            backend.slots.dismiss()
                        if backend.model.batches is not None:
                            backend.model.batches.let_go(cancels=bool(conditions.settings.get(CANCEL_BATCHES)))
                    await self._leases.all_released()
                    self._accounts.report()  # before the subscription ends, and with it the leases
                    break

    def _take(self, conditions: Conditions) -> None:
        before, self._conditions = self._conditions, conditions
        for name in before.outages:
            if name not in conditions.outages:
                self._backends.note_outage(name, None)
        for name, out_s in conditions.outages.items():
            if name not in before.outages:
                self._backends.note_outage(name, out_s)
        if conditions.settings != before.settings:
            self._change_settings({**self.context.settings, **conditions.settings})
        if conditions.admission in PAUSES:
            self._permits.drop()
        if conditions.admission == "halted":
            self._attempts.halt()

    def _change_settings(self, settings: Mapping[str, Any]) -> None:
        self._replaces, self._max_outage_s = settings.get("resend_stragglers", True), settings["max_outage_s"]
        self._permits.change(settings)


def _call_of(request: Draw) -> Call:
    terms: dict[str, Any] = {name: getattr(request, name) for name in CallTerms.__struct_fields__}
    return Call(**terms, reply=resolve(request.reply, Reply))
