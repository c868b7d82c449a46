"""Spans and instruments of OpenTelemetry, for the providers that the user's program has configured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from os import environ
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import structs
from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from microagents.actors.role import Tracing
from microagents.base.named_values import stated
from microagents.base.packages import installed_version
from microagents.journal.messages import Account, TracedCall, TracedElection
from microagents.models.model import without_options
from microagents.telemetry import names
from microagents.telemetry.metrics import METRICS, Metric, labels_of

SPANS_EVERY_S = 1.0
"""Longest time from the end of an election until its spans are made."""
MAX_ENDED = 100
"""Number of ended runs of this process whose totals are exported on."""

_accounts: dict[str, tuple[Mapping[str, str], Callable[[], Account]]] = {}
"""For each run of this process that is exported, its labels, and its account as it is now."""


class Telemetry:
    """Spans of a run and its elections, a share of the easy ones, and its totals. A context manager, which ends the span."""

    def __init__(self, run_id: str, task: str, models: Sequence[str], share: float, *, has_metrics: bool) -> None:
        self._tracer = trace.get_tracer(names.SCOPE, installed_version())
        self._run_id = run_id
        self._share = share
        self._labels = labels_of(run_id, task, models)
        given: dict[str, AttributeValue] = {names.OPERATION: names.RUN, **self._labels}
        self._span = self._tracer.start_span(f"{names.RUN} {task}", attributes=given)
        self._inside = trace.set_span_in_context(self._span)
        self._durations = _instruments(metrics.get_meter_provider()) if has_metrics else None
        self._ended: list[TracedElection] = []
        """Elections whose spans are not made yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._state = "running"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._make_spans()
        if kind is not None:
            self._span.set_attribute(names.ERROR, kind.__qualname__)
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()

    def tracing(self) -> Tracing | None:
        """Return the facts that roles need; None if the span of the run is not recorded, and so no other."""
        if not self._span.is_recording():
            return None
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, self._inside)
        with_content = environ.get(names.CONTENT_OPT_IN, "").lower() in names.CONTENT_IN_SPANS
        return Tracing(traceparent=carrier["traceparent"], share=self._share, with_content=with_content)

    def watch(self, account_of: Callable[[], Account]) -> None:
        """Export the totals of the run's account from now on, which is read whenever they are exported."""
        _accounts.pop(self._run_id, None)
        while len(_accounts) >= MAX_ENDED:
            del _accounts[next(iter(_accounts))]
        _accounts[self._run_id] = self._labels, lambda: structs.replace(account_of(), state=self._state)

    def end(self, outcome: str, account: Account) -> None:
        """Note how the run ended in its span."""
        totals: dict[str, AttributeValue] = {
            names.OUTCOME: outcome,
            names.INPUT_TOKENS: account.input_tokens,
            names.OUTPUT_TOKENS: account.output_tokens,
        }
        if account.cost_usd is not None:
            totals[names.COST_USD] = account.cost_usd
        self._span.set_attributes(totals)
        self._state = outcome

    def add_durations(self, durations: Mapping[str, Sequence[float]]) -> None:
        """Add the times that calls took, by the spec of their model."""
        if self._durations is not None:
            for spec, times_s in durations.items():
                given = {names.OPERATION: names.CALL, **_model_attributes(spec)}
                for time_s in times_s:
                    self._durations.record(time_s, given)

    def add_election(self, request: TracedElection) -> None:
        """Take in an election that is over. Its spans are made soon: many together take less time than one by one."""
        self._ended.append(request)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SPANS_EVERY_S, self._make_spans)

    def _make_spans(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ended, self._ended = self._ended, []
        for each in ended:
            self._make_span(each)

    def _make_span(self, request: TracedElection) -> None:
        """Make the span of an election, with its calls as children."""
        given: dict[str, AttributeValue] = {names.PATH: request.id.path, names.IS_SAMPLED: request.is_sampled}
        span = self._tracer.start_span(names.ELECTION, self._inside, attributes=given, start_time=request.began_ns)
        inside = trace.set_span_in_context(span, self._inside)
        for call in request.calls:
            name = f"{names.CALL} {_model_attributes(call.model)[names.REQUEST_MODEL]}"
            of_call = self._tracer.start_span(
                name, inside, trace.SpanKind.CLIENT, _attributes_of(call), start_time=call.began_ns
            )
            if call.flag is not None:
                event = {names.EVALUATION_NAME: call.flag, names.EVALUATION_LABEL: "flagged"}
                of_call.add_event(names.EVALUATION, event, call.ended_ns)
            of_call.end(call.ended_ns)
        verdict: dict[str, AttributeValue] = {
            names.EVALUATION_NAME: "election",
            names.EVALUATION_LABEL: request.outcome,
            names.EVALUATION_SCORE: request.share,
        }
        span.add_event(names.EVALUATION, verdict, request.ended_ns)
        span.end(request.ended_ns)


def _attributes_of(call: TracedCall) -> dict[str, Any]:
    usage = call.usage
    known = {
        names.REQUEST_TEMPERATURE: call.temperature,
        names.RESPONSE_MODEL: call.replied or None,
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ_TOKENS: usage.cached_tokens or None,
        names.CACHE_WRITE_TOKENS: usage.cache_write_tokens or None,
        names.COST_USD: usage.cost_usd,
    }
    given = {
        names.OPERATION: names.CALL,
        **_model_attributes(call.model),
        names.SIMULATED: call.model.startswith("sim:"),
        names.SEQ: call.seq,
        names.FINISH_REASONS: [call.finish],
        **stated(known),
    }
    if call.prompt is not None:
        given[names.SYSTEM_TEXT] = _json([_text(call.prompt.flat.system)])
        given[names.INPUT_MESSAGES] = _json([{"role": "user", "parts": [_text(call.prompt.flat.user)]}])
        said = {"role": "assistant", "parts": [_text(call.text)], "finish_reason": call.finish}
        given[names.OUTPUT_MESSAGES] = _json([said])
    return given


def _text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode("utf-8", "replace")


@lru_cache(maxsize=256)
def _model_attributes(spec: str) -> dict[str, str]:
    provider, _, name = without_options(spec).partition(":")
    return {names.PROVIDER: provider, names.REQUEST_MODEL: name or provider}


@lru_cache(maxsize=8)
def _instruments(provider: MeterProvider) -> Histogram:
    """Create the instruments of a provider: observers of the totals of all runs, and the histogram of durations."""
    meter = provider.get_meter(names.SCOPE, installed_version())
    for each in METRICS:
        create = meter.create_observable_counter if each.grows else meter.create_observable_gauge
        create(each.name, [partial(_observe, each)], each.unit, each.about)
    return meter.create_histogram(
        names.DURATION, "s", "Duration of calls", explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS_S
    )


def _observe(metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
    for labels, account_of in list(_accounts.values()):
        for label, amount in metric.points(account_of()):
            yield Observation(amount, {**labels, **label})
