"""What a run exports to OpenTelemetry's SDK, held in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from microagents.telemetry import names


class Exported:
    """Spans and metrics that were exported."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader])

    def spans(self, operation: str = "") -> list[ReadableSpan]:
        """The spans of an operation of the conventions, or those whose name begins so; without one all."""
        return [each for each in self._spans.get_finished_spans() if each.name.startswith(operation)]

    @property
    def run(self) -> ReadableSpan:
        """The span of the only run."""
        (run,) = self.spans(names.RUN)
        return run

    def events(self, of_kind: str) -> Counter[str]:
        """Labels of the evaluations in spans whose name begins so, by name of the evaluation and label."""
        found: Counter[str] = Counter()
        for each in self.spans(of_kind):
            for event in each.events:
                attributes = event.attributes or {}
                found[" ".join(str(attributes[name]) for name in (names.EVALUATION_NAME, names.EVALUATION_LABEL))] += 1
        return found

    def total(self, attribute: str) -> Any:
        """Sum of an attribute over all calls."""
        return sum(of(each)[attribute] for each in self.spans(names.CALL))

    def metrics(self, run_id: str) -> dict[str, Any]:
        """The values of a run by the name of the metric; by label where it has one; the count of a histogram."""
        found: dict[str, Any] = {}
        data = self._reader.get_metrics_data()
        assert data is not None
        for metric in [each for r in data.resource_metrics for s in r.scope_metrics for each in s.metrics]:
            for point in metric.data.data_points:
                given = dict(point.attributes or {})
                if isinstance(point, HistogramDataPoint):
                    found[metric.name] = found.get(metric.name, 0) + point.count
                elif isinstance(point, NumberDataPoint) and given[names.RUN_ID] == run_id:
                    parts = [given[label] for label in (names.REASON, names.FLAG) if label in given]
                    name = " ".join([metric.name, *map(str, parts)])
                    found[name] = point.value
        return found


def of(span: ReadableSpan) -> dict[str, Any]:
    """Attributes of a span."""
    return dict(span.attributes or {})


@contextmanager
def exporting() -> Iterator[Exported]:
    """A program that has configured OpenTelemetry."""
    exported = Exported()
    with (
        patch.object(trace, "get_tracer_provider", lambda: exported.tracers),
        patch.object(metrics, "get_meter_provider", lambda: exported.meters),
    ):
        yield exported
