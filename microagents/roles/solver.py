"""The solver: the only role that talks to a model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from hashlib import blake2b

import structlog

from microagents.actors import Context, Messenger, Role
from microagents.aio import TaskScope
from microagents.chat import Reply, Sample, Usage
from microagents.elections.admission import FollowAdmission
from microagents.elections.election import Draw, SampleId
from microagents.errors import MicroagentsError, ModelUnavailable, NotSent, Stopped
from microagents.journal.messages import RecordCalls, RecordOutage
from microagents.messages import resolve
from microagents.models.model import Call, Model, checked_sample, open_model
from microagents.roles.limiter import Permit, Unbilled, is_limited

BACKOFF_S = (0.5, 60.0)
"""First and longest wait before a call is repeated, unless the provider asks for a longer one."""
WARN_EVERY_S = 60.0
"""Shortest interval of warnings about outages."""
MAY_BE_BILLED = ("timeout", "garbled")
"""Kinds of failure after which the provider may still charge for the call."""
NO_REPLY = Usage(cost_usd=0.0)
"""Usage of a call that may be billed although no reply arrived."""


class Solver(Role):
    """Takes samples. It repeats attempts that failed in transport: such failures are neither flags nor votes.

    Only the solver accounts for calls, so that the calls in flight of a dead replica are known.
    """

    asks = (RecordCalls, RecordOutage, FollowAdmission, Permit, Unbilled)

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._models: dict[str, Model] = {}
        self._is_limited = is_limited(context.settings)
        self._permits = 0
        """Number of permits requested so far."""
        self._is_out = False
        """Whether a provider is out."""
        self._warned_s: float | None = None
        """Time of the last warning about an outage."""
        self._max_outage_s: float = context.settings["max_outage_s"]
        self._scope = TaskScope()
        self._loop = asyncio.get_running_loop()
        self._may_send = True
        self._sent = 0
        """Number of calls sent since the last `RecordCalls`."""
        self._ended: list[Usage | None] = []
        """Usage of the calls that ended since then; None for a call that is not billed."""

    async def start(self) -> None:
        """Open every model of the run, so that a wrong name or a missing key is reported before the first call."""
        for pool in self.context.models.values():
            for spec in pool:
                self._model(spec)
        self._scope.start(self._follow_admission())

    async def stop(self) -> None:
        """Close the models."""
        await self._scope.close()
        self._send_accounts()
        for model in self._models.values():
            await model.close()

    async def draw(self, request: Draw) -> Sample:
        """Take one sample.

        Raises:
            NotSent: the run is ending, so no call is sent.
            Stopped: the provider was out for longer than ``--max-outage``.
            ModelUnavailable: the provider refuses the request for good.
        """
        model = self._model(request.model)
        call = Call(
            id=request.id,
            prompt=request.prompt,
            reply=resolve(request.reply, Reply),
            temperature=request.temperature,
            max_output_tokens=request.max_output_tokens,
        )
        outage = _Outage(request.id, self._max_outage_s)
        while True:
            if not self._may_send:
                raise NotSent(call.id.election.path)
            try:
                sample = await (self._attempt_with_permit(model, call) if self._is_limited else self._attempt(model, call))
            except ModelUnavailable as error:
                if error.retryable:
                    self._note_outage(str(error))
                await outage.wait(error)
            else:
                if self._is_out:
                    self._note_outage(None)
                return sample

    async def _attempt_with_permit(self, model: Model, call: Call) -> Sample:
        """Make one attempt as soon as the limiter grants a permit."""
        self._permits += 1
        permit = Permit(id=call.id, asker=self.context.name, number=self._permits)
        granted: asyncio.Future[bool] = self._loop.create_future()
        call_ended: asyncio.Future[None] = self._loop.create_future()
        self._scope.start(self._keep_permit(permit, granted, call_ended))
        counts = False
        try:
            # The permit may be granted in the same turn of the loop in which the run begins to end.
            if not (await granted and self._may_send):
                raise NotSent(call.id.election.path)
            counts = True
            return await self._attempt(model, call)
        except ModelUnavailable as error:
            counts = error.kind in MAY_BE_BILLED
            raise
        finally:
            # A draw that is cancelled before its call is sent must give the call back to --max-calls, whether the permit is granted or not.
            if not counts:
                await self.ask(Unbilled(permit=permit))
            call_ended.set_result(None)

    async def _keep_permit(self, permit: Permit, granted: asyncio.Future[bool], call_ended: asyncio.Future[None]) -> None:
        """Wait for a permit, and keep it until its call has ended.

        It runs in another task than the draw. If the draw itself read the stream, its cancellation could cross a grant on the way: the
        permit would be lost, and with it a call of ``--max-calls``.
        """
        if granted.cancelled():  # the draw was cancelled before this task began
            return
        try:
            async with aclosing(self.stream(permit)) as items:
                async for _ in items:
                    if not granted.done():
                        granted.set_result(True)
                    await call_ended
                    break
            if not granted.done():
                granted.set_result(False)
        except MicroagentsError as error:
            if not granted.done():
                granted.set_exception(error)

    async def _attempt(self, model: Model, call: Call) -> Sample:
        """Make one attempt, and account for it."""
        self._send_accounts_soon()
        self._sent += 1
        usage: Usage | None = NO_REPLY
        try:
            sample = checked_sample(await model.complete(call), type(model).__name__)
            usage = sample.usage
        except ModelUnavailable as error:
            if error.kind not in MAY_BE_BILLED:
                usage = None
            raise
        else:
            return sample
        finally:
            # A cancelled call is accounted for as well: the provider may bill it, so its usage is NO_REPLY.
            self._send_accounts_soon()
            self._ended.append(usage)

    async def _follow_admission(self) -> None:
        async with aclosing(self.stream(FollowAdmission())) as changes:
            async for admission in changes:
                if admission == "nothing":
                    self._may_send = False
                    break

    def _send_accounts_soon(self) -> None:
        """Send the accounts on the next turn of the loop, before a role can report a verdict that this turn's replies lead to."""
        if not self._sent and not self._ended:
            self._loop.call_soon(self._send_accounts)

    def _send_accounts(self) -> None:
        # One message for each turn of the loop: one for each call costs 3 microseconds a step.
        if self._sent or self._ended:
            billed = [usage for usage in self._ended if usage is not None]
            sent, ended, self._sent, self._ended = self._sent, len(self._ended), 0, []
            self.tell(RecordCalls(source=self.context.name, sent=sent, ended=ended, billed=len(billed), usage=_sum_usage(billed)))

    def _model(self, spec: str) -> Model:
        """The model of a spec, opened on first use. A model without a price makes the cost of the run unknown at once."""
        found = self._models.get(spec)
        if found is None:
            found = self._models[spec] = open_model(spec, self.context)
            if not found.priced:
                self.tell(RecordCalls(source=self.context.name, usage=Usage(cost_usd=None)))
        return found

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


def _sum_usage(usages: Sequence[Usage]) -> Usage:
    input_tokens = output_tokens = 0
    cost_usd: float | None = 0.0
    for usage in usages:
        input_tokens += usage.input_tokens or 0
        output_tokens += usage.output_tokens or 0
        cost_usd = None if cost_usd is None or usage.cost_usd is None else cost_usd + usage.cost_usd
    return Usage(input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd)


class _Outage:
    """The failed attempts at one sample, and the waits between them."""

    def __init__(self, sample: SampleId, max_outage_s: float) -> None:
        self._sample = sample
        self._max_outage_s = max_outage_s
        self._tries = 0
        self._started_s: float | None = None
        """Time of the first failed attempt."""

    async def wait(self, error: ModelUnavailable) -> None:
        """Wait before the next attempt.

        Raises:
            ModelUnavailable: the error, if another attempt cannot help.
            Stopped: the outage lasted longer than ``--max-outage``.
        """
        if not error.retryable:
            raise error
        now_s = asyncio.get_running_loop().time()
        if self._started_s is None:
            self._started_s = now_s
        self._tries += 1
        left_s = self._started_s + self._max_outage_s - now_s
        wait_s = min(left_s, max(error.retry_after_s or 0.0, self._backoff_s()))
        if left_s <= 0:
            after = f"after {self._tries} tries in {now_s - self._started_s:.0f} s (--max-outage {self._max_outage_s:g})"
            raise Stopped(f"{error}; gave up {after}; all decisions so far are kept; resume once the provider delivers again")
        structlog.get_logger().info(
            "a call is tried again", path=self._sample.election.path, tries=self._tries, wait_s=wait_s, error=str(error)
        )
        await asyncio.sleep(wait_s)

    def _backoff_s(self) -> float:
        """A wait that doubles with each attempt. The sample's id spreads it: calls that failed together are not repeated together."""
        first_s, longest_s = BACKOFF_S
        spread = blake2b(self._sample.election.question_digest + f"{self._sample.seq}/{self._tries}".encode(), digest_size=2).digest()
        return min(longest_s, first_s * (1 << min(self._tries - 1, 20))) * (0.5 + int.from_bytes(spread) / 65536)
