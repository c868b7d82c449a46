"""Traces of elections: which of them have spans, and what the role that holds one notes for its span.

Spans are made in the driver's process, from what roles note: other processes need no provider of OpenTelemetry.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar
from zlib import crc32

from msgspec import Struct

from microagents.actors import Context
from microagents.elections.election import ESCALATED, Ballot, ElectionId, Flagged, Verdict
from microagents.messages import Request
from microagents.replies.chat import Prompt, Sample, Usage

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


class ElectionTrace:
    """Notes of one election for its span.

    Args:
        context: that of the role which holds it; its run is traced.
        election: the election.
        fewest: number of ballots with which it is decided if all agree.
    """

    def __init__(self, context: Context, election: ElectionId, fewest: int) -> None:
        assert context.tracing is not None
        self._tracing = context.tracing
        self._loop = asyncio.get_running_loop()
        self._id = election
        self._fewest = fewest
        self._is_sampled = is_sampled(election, self._tracing.share)
        self._is_climbed = election.path.endswith(ESCALATED) or any(
            election.path.endswith(f"/{rung.name}") for rung in context.strategy.rungs
        )
        self._began_s = self._loop.time()
        self._calls: list[tuple[int, str, float | None, Prompt, Sample, str | None, float, float]] = []

    @property
    def traceparent(self) -> str:
        """The run's trace context for the envelopes of a sampled election; empty for any other."""
        return self._tracing.traceparent if self._is_sampled else ""

    def now_s(self) -> float:
        """Return the time of the loop."""
        return self._loop.time()

    def add(
        self,
        seq: int,
        model: str,
        temperature: float | None,
        prompt: Prompt,
        sample: Sample,
        *,
        flag: str | None,
        began_s: float,
    ) -> None:
        """Note a call that was answered."""
        ended_s = self._loop.time()
        if sample.took_s:  # without the wait for its turn
            began_s = max(began_s, ended_s - sample.took_s)
        self._calls.append((seq, model, temperature, prompt, sample, flag, began_s, ended_s))

    def message(self, verdict: Verdict) -> TraceElection | None:
        """Return what its span is made of; None if it has none, since it was easy and its hash did not choose it."""
        ballots = verdict.ballots
        is_hard = len(ballots) > self._fewest or verdict.outcome in ("undecided", "person") or self._is_climbed
        if not (is_hard or self._is_sampled):
            return None
        now_s, now_ns = self._loop.time(), time.time_ns()

        def at_ns(time_s: float) -> int:
            return now_ns + int((time_s - now_s) * 1e9)

        texts = self._tracing.with_content
        calls = tuple(
            [
                TracedCall(
                    seq=seq,
                    model=sample.fallback or model,
                    replied=sample.model,
                    temperature=temperature,
                    began_ns=at_ns(began_s),
                    ended_ns=at_ns(ended_s),
                    finish=sample.finish,
                    usage=sample.usage,
                    flag=flag,
                    prompt=prompt if texts else None,
                    text=sample.text if texts else "",
                )
                for seq, model, temperature, prompt, sample, flag, began_s, ended_s in self._calls
            ]
        )
        return TraceElection(
            id=self._id,
            began_ns=at_ns(self._began_s),
            ended_ns=now_ns,
            outcome=verdict.outcome,
            share=_share_of_leader(verdict, ballots),
            is_sampled=self._is_sampled,
            calls=calls,
        )


def _share_of_leader(verdict: Verdict, ballots: Sequence[Ballot | Flagged]) -> float:
    return 0.0 if verdict.leader is None or not ballots else verdict.tally[verdict.leader][1] / len(ballots)


async def in_trace(traceparent: str, work: Coroutine[Any, Any, T]) -> T:
    """Do work with a trace context, so that spans of its own code join the trace; without OpenTelemetry's API just do it."""
    try:
        from opentelemetry import context  # noqa: PLC0415 - only calls of traced elections need it
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415
    except ImportError:
        return await work
    token = context.attach(TraceContextTextMapPropagator().extract({"traceparent": traceparent}))
    try:
        return await work
    finally:
        context.detach(token)
