"""Traces of elections: which of them have spans, and what the role that holds one notes for its span.

Spans are made in the driver's process, from what roles note: other processes need no provider of OpenTelemetry.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

from msgspec import Struct

from microagents.actors import Tracing
from microagents.elections.election import ESCALATED, ElectionId, Verdict
from microagents.messages import Request
from microagents.replies.chat import Prompt, Sample, Usage

if TYPE_CHECKING:
    from opentelemetry.context import Context as OpenTelemetryContext

T = TypeVar("T")


class TracedCall(Struct, frozen=True, kw_only=True):
    """A call in a trace."""

    seq: int
    model: str
    """Spec of the model that was asked."""
    replied: str
    """Name of the model by the reply; empty where it does not tell."""
    temperature: float | None
    began_ns: int
    ended_ns: int
    finish: str
    usage: Usage
    flag: str | None
    """Name of its red flag; None without one."""
    prompt: Prompt | None
    """None unless texts are wanted."""
    text: str


class TraceElection(Request[None], frozen=True, kw_only=True):
    """Make the span of an election that is over, and those of its calls."""

    id: ElectionId
    began_ns: int
    ended_ns: int
    outcome: str
    share: float
    """Share of the ballots that the leading vote has."""
    is_sampled: bool
    """Whether its hash chose it; else it was hard."""
    calls: tuple[TracedCall, ...]


def is_sampled(election: ElectionId, share: float) -> bool:
    """Whether an election is among the share that is traced in any case: by a hash, so that all processes choose the same."""
    return crc32(election.path.encode(), crc32(election.question_digest)) < share * 2**32


class Tracer:
    """Begins the traces of the elections that a role holds.

    Args:
        tracing: how the run is traced.
        rungs: names of the rungs of its strategy's ladder.
    """

    def __init__(self, tracing: Tracing, rungs: Iterable[str]) -> None:
        self.tracing = tracing
        self._climbs = (ESCALATED, *(f"/{rung}" for rung in rungs))
        """Endings of the paths of elections that others led to, which were undecided."""
        self.clock = asyncio.get_running_loop().time

    def begin(self, election: ElectionId, fewest: int) -> ElectionTrace:
        """Begin the trace of an election that so many ballots decide if all agree."""
        is_chosen = is_sampled(election, self.tracing.share)
        return ElectionTrace(self, election, fewest, is_chosen, election.path.endswith(self._climbs))


class ElectionTrace:
    """Notes of one election for its span. Most are thrown away, so they are tuples, and cost 2 us a step of a chain."""

    __slots__ = (
        "_began_s",
        "_election",
        "_fewest",
        "_is_climbed",
        "_is_sampled",
        "_tracer",
        "calls",
        "clock",
        "traceparent",
    )

    def __init__(self, tracer: Tracer, election: ElectionId, fewest: int, is_sampled: bool, is_climbed: bool) -> None:  # noqa: FBT001
        self._tracer = tracer
        self._election = election
        self._fewest = fewest
        self._is_sampled = is_sampled
        self._is_climbed = is_climbed
        self.clock = tracer.clock
        self._began_s = self.clock()
        self.traceparent = tracer.tracing.traceparent if is_sampled else ""
        """The run's trace context for the envelopes of a sampled election; empty for any other."""
        self.calls: list[tuple[int, str, float | None, Prompt, Sample, str | None, float, float]] = []
        """Answered calls: seq, model, temperature, prompt, sample, flag, and the times of the loop of asking and of the answer."""

    def is_wanted(self, ballots: int, *, decided: bool) -> bool:
        """Whether the election has a span, now that so many ballots are counted: its hash chose it, or it was hard."""
        return self._is_sampled or self._is_climbed or ballots > self._fewest or not decided

    def message(self, verdict: Verdict) -> TraceElection:
        """Return what its span is made of."""
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
                    # Where the time from the sending to the reply is known, the wait for its turn is left out.
                    began_ns=at_ns(max(began_s, ended_s - sample.took_s) if sample.took_s else began_s),
                    ended_ns=at_ns(ended_s),
                    finish=sample.finish,
                    usage=sample.usage,
                    flag=flag,
                    prompt=prompt if texts else None,
                    text=sample.text if texts else "",
                )
                for seq, model, temperature, prompt, sample, flag, began_s, ended_s in self.calls
            ]
        )
        return TraceElection(
            id=self._election,
            began_ns=at_ns(self._began_s),
            ended_ns=now_ns,
            outcome=verdict.outcome,
            share=0.0 if verdict.leader is None else verdict.tally[verdict.leader][1] / max(1, len(verdict.ballots)),
            is_sampled=self._is_sampled,
            calls=calls,
        )


async def in_trace(traceparent: str, work: Coroutine[Any, Any, T]) -> T:
    """Do work with a trace context, so that spans of its own code join the trace; without OpenTelemetry's API just do it."""
    try:
        from opentelemetry import context  # noqa: PLC0415 - only calls of sampled elections need it
    except ImportError:
        return await work
    token = context.attach(_context_of(traceparent))
    try:
        return await work
    finally:
        context.detach(token)


@lru_cache(maxsize=8)
def _context_of(traceparent: str) -> OpenTelemetryContext:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 - as above

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})
