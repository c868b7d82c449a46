"""What a run sends over OTLP/HTTP adds up to the journal's account: at a receiver of ours, and in a collector of another house, Phoenix."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from microagents import run
from microagents.journal.messages import Account
from microagents.runs.inspection.runs import inspect_run
from microagents.systems import Maker
from microagents.tasks.hanoi import Hanoi
from microagents.telemetry import names
from microagents.telemetry.metrics import METRICS
from tests.runtimes.ray.ray_processes import until

SUMMED = (names.INPUT_TOKENS, names.OUTPUT_TOKENS, names.COST_USD)
"""Attributes of calls."""


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


@contextmanager
def receiver(found: dict[tuple[str, str], float]) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), partial(Receiver, found)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
async def test_what_is_sent_has_the_totals_of_the_journal(tmp_path: Path) -> None:
    found: dict[tuple[str, str], float] = {}
    with receiver(found) as address:
        meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=address))])
        with patch.object(metrics, "get_meter_provider", lambda: meters):
            account = await account_of(tmp_path)
        meters.shutdown()
    account.state = "completed"
    points = [(each.name, *point) for each in METRICS for point in each.points(account)]
    totals = {(name, "".join(label.values())): amount for name, label, amount in points}
    assert found == pytest.approx(totals)


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[str]:
    """The address of a Phoenix."""
    program = shutil.which("phoenix")
    if program is None:
        pytest.skip("no Phoenix: pip install arize-phoenix")
    with socket.create_server(("127.0.0.1", 0)) as http, socket.create_server(("127.0.0.1", 0)) as grpc:
        ports = {"PHOENIX_PORT": str(http.getsockname()[1]), "PHOENIX_GRPC_PORT": str(grpc.getsockname()[1])}
    address = f"http://127.0.0.1:{ports['PHOENIX_PORT']}"
    there = {**os.environ, **ports, "PHOENIX_HOST": "127.0.0.1", "PHOENIX_WORKING_DIR": str(tmp_path)}
    with subprocess.Popen(
        [program, "serve"], env=there, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            until(lambda: _answers(f"{address}/healthz"))
            yield address
        finally:
            server.kill()


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=5):
            return True
    except (URLError, OSError):
        return False


def _spans_in(phoenix: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        with urlopen(f"{phoenix}/v1/projects/default/spans?limit=1000&cursor={cursor}", timeout=30) as answer:
            page = json.load(answer)
        found += page["data"]
        cursor = page["next_cursor"]
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_collector_has_the_calls_of_the_journal(phoenix: str, tmp_path: Path) -> None:
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{phoenix}/v1/traces")))
    with patch.object(trace, "get_tracer_provider", lambda: tracers):
        account = await account_of(tmp_path / "runs")
    tracers.shutdown()
    calls = account.calls - account.unanswered
    until(lambda: len(_spans_in(phoenix)) == 1 + account.decided + calls)  # it takes them in after it has answered
    kinds, sums = Counter[str](), Counter[str]()
    for each in _spans_in(phoenix):
        kinds[each["name"].partition(" ")[0]] += 1
        if each["name"].startswith(names.CALL):
            sums.update({name: each["attributes"].get(name, 0) for name in SUMMED})
    assert kinds == {names.RUN: 1, names.ELECTION: account.decided, names.CALL: calls}
    assert account.unanswered == 0
    assert [sums[name] for name in SUMMED] == pytest.approx(
        [account.input_tokens, account.output_tokens, account.cost_usd]
    )
