"""Totals of runs as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from microagents.journal.messages import Account
from microagents.telemetry import names
from microagents.telemetry.metrics import METRICS, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def name_of(metric: Metric) -> str:
    """Return the name of a metric in Prometheus, the same as OpenTelemetry's exporters make of it."""
    return f"{_plain(metric.name)}{'_total' if metric.grows else ''}"


def exposition(runs: Iterable[tuple[str, Account]]) -> str:
    """Write the metrics of runs in Prometheus's text format.

    Args:
        runs: names of the runs, and their accounts.
    """
    given = list(runs)
    return "".join(f"{line}\n" for metric in METRICS for line in _lines(metric, given))


def _lines(metric: Metric, runs: Sequence[tuple[str, Account]]) -> Iterator[str]:
    name = name_of(metric)
    yield f"# HELP {name} {metric.about}."
    yield f"# TYPE {name} {'counter' if metric.grows else 'gauge'}"
    for run_id, account in runs:
        for part, amount in metric.read(account).items():
            label = f',{_plain(metric.label)}="{_escaped(part)}"' if metric.label else ""
            yield f'{name}{{{_plain(names.RUN_ID)}="{_escaped(run_id)}"{label}}} {float(amount)!r}'


def _plain(name: str) -> str:
    return name.replace(".", "_")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
