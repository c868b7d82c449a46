"""Traces of elections: which of them have spans, and the notes of the role that holds one for its span.

Spans are made in the driver's process, from the notes of roles: other processes need no provider of OpenTelemetry.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

from microagents.actors.role import Tracing
from microagents.elections.election import ESCALATED, ElectionId, Flagged, Verdict
from microagents.journal.messages import TracedCall, TracedElection
from microagents.replies.chat import Prompt, Sample

if TYPE_CHECKING:
    from opentelemetry.context import Context as OpenTelemetryContext

T = TypeVar("T")


TracedReply = tuple[int, str, float | None, Prompt, Sample, object, float, float]
"""An answered call: seq, model, temperature, prompt, sample, ballot, and the times of the loop of asking and of the answer.

The time of asking is 0 if the hash did not choose the election: `ElectionTrace` then has an estimate."""


class Tracer:
    """Chooses the elections of a role to trace. The strategy's ladder gives the names of rungs."""

    def __init__(self, tracing: Tracing, rungs: Iterable[str]) -> None:
        self.tracing = tracing
        self._seed, self._below = crc32(tracing.traceparent.encode()), tracing.share * 2**32
        self._climbs = (ESCALATED, *(f"/{rung}" for rung in rungs))
        """Endings of the paths of elections that others led to, which were undecided."""
        self.clock = asyncio.get_running_loop().time

    def is_sampled(self, election: ElectionId) -> bool:
        """Whether an election is among the share that is traced in any case: by a hash, so that all processes choose the same."""
        return crc32(election.path.encode(), self._seed) < self._below

    def is_climbed(self, election: ElectionId) -> bool:
        """Whether an undecided election has led to this one."""
        return election.path.endswith(self._climbs)


class ElectionTrace:
    """Notes of one election for its span. Most are thrown away, so they take the least time."""

    __slots__ = ("_began_s", "_election", "_tracer", "calls", "clock", "is_sampled")

    def __init__(self, tracer: Tracer, election: ElectionId) -> None:
        self._tracer = tracer
        self._election = election
        self.is_sampled = tracer.is_sampled(election)
        """Whether its hash has chosen it."""
        self.clock = tracer.clock
        self._began_s = tracer.clock()
        self.calls: list[TracedReply] = []

    @property
    def traceparent(self) -> str:
        """The run's trace context for the envelopes of a sampled election; empty for any other."""
        if not self.is_sampled:
            return ""
        return self._tracer.tracing.traceparent

    def is_wanted(self, *, hard: bool) -> bool:
        """Whether the election has a span: its hash chose it, it was hard, or an undecided one has led to it."""
        return self.is_sampled or hard or self._tracer.is_climbed(self._election)

    def message(self, verdict: Verdict) -> TracedElection:
        """Return the data of its span."""
        now_s, now_ns = self.clock(), time.time_ns()

        def at_ns(time_s: float) -> int:
            return now_ns + int((time_s - now_s) * 1e9)

        texts = self._tracer.tracing.with_content
        calls = tuple(
            [
                TracedCall(
                    seq=seq,
                    model=sample.fallback or model,
                    replied=sample.model,
                    temperature=temperature,
                    began_ns=at_ns(self._call_began_s(asked_s, ended_s, sample.took_s)),
                    ended_ns=at_ns(ended_s),
                    finish=sample.finish,
                    usage=sample.usage,
                    flag=ballot.flag if isinstance(ballot, Flagged) else None,
                    prompt=prompt if texts else None,
                    text=sample.text if texts else "",
                )
                for seq, model, temperature, prompt, sample, ballot, asked_s, ended_s in self.calls
            ]
        )
        share = 0.0
        if verdict.leader is not None and verdict.ballots:
            share = verdict.tally[verdict.leader][1] / len(verdict.ballots)
        return TracedElection(
            id=self._election,
            began_ns=at_ns(self._began_s),
            ended_ns=now_ns,
            outcome=verdict.outcome,
            share=share,
            is_sampled=self.is_sampled,
            calls=calls,
        )

    def _call_began_s(self, asked_s: float, ended_s: float, took_s: float) -> float:
        """Time at which a call was sent, without the wait for its turn if it is known how long it took."""
        earliest_s = asked_s or self._began_s
        if took_s:
            return max(earliest_s, ended_s - took_s)
        return earliest_s


async def in_trace(traceparent: str, work: Coroutine[Any, Any, T]) -> T:
    """Do work with a trace context, so that spans of its own code join the trace."""
    from opentelemetry import context  # noqa: PLC0415 - only calls of sampled elections need it

    token = context.attach(_context_of(traceparent))
    try:
        return await work
    finally:
        context.detach(token)


@lru_cache(maxsize=8)
def _context_of(traceparent: str) -> OpenTelemetryContext:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 - as above

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})
