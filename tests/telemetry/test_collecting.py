"""What a run sends over OTLP/HTTP adds up to the journal's account: at a receiver of ours, and in a collector of another house, Phoenix."""

from __future__ import annotations

from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from opentelemetry import metrics
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from microagents import run
from microagents.journal.messages import Account
from microagents.runs.inspection.runs import inspect_run
from microagents.systems import Maker
from microagents.tasks.hanoi import Hanoi
from microagents.telemetry import names
from microagents.telemetry.metrics import METRICS
from tests.benchmarks.harness import served_by


async def account_of(folder: Path) -> Account:
    """Do a run with errors and flags; returns its account by the journal."""
    strategy, model = Maker(k=2, speculate=False), "sim:gpt-4.1-mini@error=0.1,flag=0.3,latency=0.001"
    await run(Hanoi(disks=5), models=model, strategy=strategy, runs_dir=folder, run_id="a", otel_sample=1)
    account = inspect_run(folder, "a").account
    assert account.flagged, "some replies are flagged"
    return account


class Receiver(BaseHTTPRequestHandler):
    """Keeps the totals of the last export."""

    def __init__(self, found: dict[tuple[str, str], float], *given: Any) -> None:
        self._found = found
        super().__init__(*given)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        sent = ExportMetricsServiceRequest.FromString(body)
        for metric in [each for r in sent.resource_metrics for scope in r.scope_metrics for each in scope.metrics]:
            for point in (*metric.sum.data_points, *metric.gauge.data_points):
                labels = {each.key: each.value.string_value for each in point.attributes}
                part = "".join(labels.get(name, "") for name in (names.REASON, names.FLAG, names.OUTCOME))
                assert (labels[names.SIMULATED], labels[names.PROVIDER]) == ("true", "sim")
                self._found[metric.name, part] = point.as_int or point.as_double
        self.send_response(200)
        self.end_headers()

    def log_message(self, *given: Any) -> None:
        """Say nothing."""


@pytest.mark.slow
async def test_what_is_sent_has_the_totals_of_the_journal(tmp_path: Path) -> None:
    found: dict[tuple[str, str], float] = {}
    with served_by(HTTPServer(("127.0.0.1", 0), partial(Receiver, found))) as address:
        meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=address))])
        with patch.object(metrics, "get_meter_provider", lambda: meters):
            account = await account_of(tmp_path)
        meters.shutdown()
    account.state = "completed"
    points = [(each.name, *point) for each in METRICS for point in each.points(account)]
    totals = {(name, "".join(label.values())): amount for name, label, amount in points}
    assert found == pytest.approx(totals)
