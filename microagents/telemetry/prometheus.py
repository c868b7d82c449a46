"""Totals of runs as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from microagents.journal.messages import Account
from microagents.telemetry.metrics import METRICS, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def name_of(metric: Metric) -> str:
    """Return the name of a metric in Prometheus, the same as OpenTelemetry's exporters make of it."""
    return f"{plain(metric.name)}{'_total' if metric.grows else ''}"


def exposition(runs: Iterable[tuple[Mapping[str, str], Account]]) -> str:
    """Write the metrics of runs in Prometheus's text format, given their labels, see `labels_of`, and their accounts."""
    given = list(runs)
    return "".join(f"{line}\n" for metric in METRICS for line in _lines(metric, given))


def _lines(metric: Metric, runs: Sequence[tuple[Mapping[str, str], Account]]) -> Iterator[str]:
    name = name_of(metric)
    yield f"# HELP {name} {metric.about}."
    yield f"# TYPE {name} {'counter' if metric.grows else 'gauge'}"
    for labels, account in runs:
        for label, amount in metric.points(account):
            written = ",".join(f'{plain(name)}="{_escaped(text)}"' for name, text in {**labels, **label}.items())
            yield f"{name}{{{written}}} {float(amount)!r}"


def plain(name: str) -> str:
    """Return the name of a metric or a label, with underscores for dots."""
    return name.replace(".", "_")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
