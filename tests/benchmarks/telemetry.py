"""What telemetry costs a chain: ``python -m tests.benchmarks.telemetry``.

Runs without a provider of OpenTelemetry and runs with the SDK's, at a share of 1 %, take turns in this process. Spans go through the SDK's
batches into an exporter that counts and drops them, so that no collector is measured. The chain is that of ``tests.benchmarks.chain``.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from contextlib import nullcontext
from statistics import median
from unittest.mock import patch

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from microagents import run
from tests.benchmarks.first_steps import FirstSteps
from tests.benchmarks.harness import options_of


class Counted(SpanExporter):
    """Counts spans, and drops them."""

    spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += len(spans)
        return SpanExportResult.SUCCESS


def _us_a_step(
    task: FirstSteps, model: str, share: float | None, providers: tuple[TracerProvider, MeterProvider]
) -> float:
    tracers, meters = providers
    gc.collect()
    with (
        nullcontext() if share is None else patch.object(trace, "get_tracer_provider", lambda: tracers),
        nullcontext() if share is None else patch.object(metrics, "get_meter_provider", lambda: meters),
    ):
        started = time.process_time()
        asyncio.run(run(task, models=model, k=3, speculate=False, runs_dir=None, otel_sample=share or 0.0))
        if share is not None:
            tracers.force_flush()
        return (time.process_time() - started) / task.length * 1e6


def main() -> None:
    """Print microseconds of the processor a step without and with telemetry, and the ratio turn by turn."""
    options = options_of(__doc__, steps=10000, turns=9, share=0.01, model="sim:perfect")
    task, exporter = FirstSteps(disks=20, length=options.steps), Counted()
    tracers, meters = TracerProvider(), MeterProvider([InMemoryMetricReader()])
    tracers.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=100_000))
    providers = tracers, meters
    sides = {"off": None, "off again": None, "on": options.share}
    for share in sides.values():  # warm-up
        _us_a_step(task, options.model, share, providers)
    exporter.spans = 0
    turns = [
        {name: _us_a_step(task, options.model, share, providers) for name, share in sides.items()}
        for _ in range(options.turns)
    ]
    for name in sides:
        us = [turn[name] for turn in turns]
        least = min(us) / min(turn["off"] for turn in turns)
        ratio = median(turn[name] / turn["off"] for turn in turns)
        print(
            f"{name:<10} median {median(us):6.1f}, least {min(us):6.1f} us a step; to off: median {ratio:.3f}, least {least:.3f}"
        )
    print(f"{exporter.spans / options.turns:,.0f} spans a run of {options.steps:,} steps")
    tracers.shutdown()


if __name__ == "__main__":
    main()
