"""A collector of another house: what Prometheus receives over OTLP/HTTP adds up to the journal's account."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from opentelemetry import metrics
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from microagents import run
from microagents.runs.inspection.runs import inspect_run
from microagents.strategies import Maker
from microagents.tasks.hanoi import Hanoi
from microagents.telemetry.prometheus import exposition
from tests.runtimes.ray.ray_processes import until

pytestmark = pytest.mark.slow

DURATIONS = "gen_ai_client_inference_duration_seconds_count"


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that takes OTLP."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no Prometheus: apt-get install prometheus (Debian 13 or later)")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"version (\d+)\.(\d+)", said)
    assert version is not None
    if (found := (int(version[1]), int(version[2]))) < (2, 47):
        pytest.skip(f"Prometheus {version[1]}.{version[2]} takes no OTLP; 2.47 and later do")
    takes_otlp = "--web.enable-otlp-receiver" if found >= (3, 0) else "--enable-feature=otlp-write-receiver"
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = tmp_path / "prometheus.yml"
    config.write_text("scrape_configs: []\n")
    words = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address={address}"]
    with subprocess.Popen([program, *words, takes_otlp], stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: _is_ready(address))
            yield f"http://{address}"
        finally:
            process.kill()


def _is_ready(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False


def _collected(prometheus: str) -> dict[str, float]:
    """All that is there of the run ``a`` and of calls, as lines of the text format without their values."""
    selector = quote('{__name__=~"microagents_.+|gen_ai_.+_total|gen_ai_.+_count"}')
    with urlopen(f"{prometheus}/api/v1/query?query={selector}", timeout=5) as answer:
        found = json.load(answer)["data"]["result"]
    return {_line(each["metric"]): float(each["value"][1]) for each in found}


def _line(labels: dict[str, str]) -> str:
    ours = [f'{name}="{value}"' for name, value in sorted(labels.items()) if name.startswith("microagents_")]
    return f"{labels['__name__']}{{{','.join(sorted(ours, key=lambda each: 'run_id' not in each))}}}"


def test_a_collector_has_the_totals_of_the_journal(prometheus: str, tmp_path: Path) -> None:
    exporter = OTLPMetricExporter(endpoint=f"{prometheus}/api/v1/otlp/v1/metrics")
    meters = MeterProvider([PeriodicExportingMetricReader(exporter)])
    task, strategy = Hanoi(disks=5), Maker(k=2, speculate=False)
    model = "sim:gpt-4.1-mini@error=0.1,latency=0.001"
    with patch.object(metrics, "get_meter_provider", lambda: meters):
        asyncio.run(run(task, models=model, strategy=strategy, runs_dir=tmp_path, run_id="a"))
    assert meters.force_flush()
    meters.shutdown()
    account = inspect_run(tmp_path, "a").account
    assert account.flagged, "some replies are flagged"
    lines = (line.rpartition(" ") for line in exposition([("a", account)]).splitlines() if not line.startswith("#"))
    collected = _collected(prometheus)
    assert collected.pop(f"{DURATIONS}{{}}") == account.calls - account.unanswered
    assert collected == pytest.approx({name: float(value) for name, _, value in lines})
