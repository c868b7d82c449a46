"""The solver: the only role that talks to a model."""

from __future__ import annotations

import asyncio
from hashlib import blake2b

import structlog

from microagents.account import RecordCall
from microagents.actors import Context, Post, Role
from microagents.chat import Reply, Sample
from microagents.elections import Draw, SampleId
from microagents.errors import ModelUnavailable, Stopped
from microagents.messages import resolve
from microagents.models.model import Call, Model
from microagents.models.registry import open_model

BACKOFF_S = (0.5, 60.0)
"""First and longest wait before a call is tried again, where the provider names none."""
MAY_BE_BILLED = ("timeout", "garbled")
"""Failures after which the provider may still ask for money."""


class Solver(Role):
    """Takes samples, and tries again what failed in transport: such failures are neither flags nor votes."""

    asks = (RecordCall,)

    def __init__(self, context: Context, post: Post) -> None:
        super().__init__(context, post)
        self._models: dict[str, Model] = {}
        self._permits = asyncio.Semaphore(context.settings["concurrency"])
        self._max_outage_s: float = context.settings["max_outage_s"]

    async def start(self) -> None:
        """Open every model of the run, so that a wrong name or a missing key shows before the first call."""
        for pool in self.context.models.values():
            for spec in pool:
                self._model(spec)

    async def stop(self) -> None:
        """Close the models."""
        for model in self._models.values():
            await model.close()

    async def draw(self, request: Draw) -> Sample:
        """One sample.

        Raises:
            Stopped: when the provider was out for longer than ``--max-outage``.
            ModelUnavailable: when it refuses the request as such.
        """
        model = self._model(request.model)
        call = Call(
            id=request.id,
            prompt=request.prompt,
            reply=resolve(request.reply, Reply),
            temperature=request.temperature,
            max_output_tokens=request.max_output_tokens,
        )
        async with self._permits:
            try:
                return await self._attempt(model, call)
            except ModelUnavailable as error:
                return await self._again(model, call, error)

    def _model(self, spec: str) -> Model:
        found = self._models.get(spec)
        if found is None:
            found = self._models[spec] = open_model(spec, self.context.tasks, self.context.seed)
        return found

    async def _attempt(self, model: Model, call: Call) -> Sample:
        try:
            sample = await model.complete(call)
        except asyncio.CancelledError:
            self.tell(RecordCall(id=call.id, usage=None))
            raise
        except ModelUnavailable as error:
            if error.kind in MAY_BE_BILLED:
                self.tell(RecordCall(id=call.id, usage=None))
            raise
        self.tell(RecordCall(id=call.id, usage=sample.usage))
        return sample

    async def _again(self, model: Model, call: Call, error: ModelUnavailable) -> Sample:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._max_outage_s
        tries = 0
        while error.retryable:
            tries += 1
            wait_s = max(error.retry_after_s or 0.0, _backoff_s(call.id, tries))
            if loop.time() + wait_s > give_up:
                raise Stopped(f"{error}; gave up after {tries} tries in {self._max_outage_s:g} s (--max-outage); nothing decided is lost")
            structlog.get_logger().info("a call is tried again", path=call.id.election.path, tries=tries, wait_s=wait_s, error=str(error))
            await asyncio.sleep(wait_s)
            try:
                return await self._attempt(model, call)
            except ModelUnavailable as again:
                error = again
        raise error


def _backoff_s(sample: SampleId, tries: int) -> float:
    """Doubling waits, spread by the sample's id so that calls that failed together do not come back together."""
    first_s, longest_s = BACKOFF_S
    spread = blake2b(sample.election.fork + f"{sample.seq}/{tries}".encode(), digest_size=2).digest()
    return min(longest_s, first_s * (1 << min(tries - 1, 20))) * (0.5 + int.from_bytes(spread) / 65536)
