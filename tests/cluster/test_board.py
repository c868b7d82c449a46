"""The Grafana board: every query asks for metrics and labels that runs have, and each metric is on it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from microagents.telemetry.metrics import METRICS
from microagents.telemetry.prometheus import name_of

WATCH = Path(__file__).parent.parent.parent / "cluster" / "watch"
BOARD: dict[str, Any] = json.loads((WATCH / "grafana.json").read_text(encoding="utf-8"))
QUERIES = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
LABELS = {"microagents_run_id", *(metric.label.replace(".", "_") for metric in METRICS if metric.label)}


def test_the_board_asks_for_all_metrics_that_runs_have_and_for_no_others() -> None:
    asked = {name for query in QUERIES for name in re.findall(r"(?:microagents|gen_ai)_\w+", query)}
    assert asked - LABELS == {name_of(metric) for metric in METRICS}


def test_every_query_keeps_to_the_chosen_runs() -> None:
    for query in QUERIES:
        named = set(re.findall(r"(?:microagents|gen_ai)_\w+", query)) - LABELS
        assert query.count('{microagents_run_id=~"$run"}') >= len(named)


def test_prometheus_asks_a_port_of_this_machine() -> None:
    given = msgspec.yaml.decode((WATCH / "prometheus.yml").read_bytes())
    (job,) = given["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["127.0.0.1:8787"]}]
