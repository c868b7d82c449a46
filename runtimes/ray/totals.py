"""Totals of a run as metrics of Ray, for an operator who watches clusters of Ray."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ray.util.metrics import Gauge

from microagents.base.errors import MicroagentsError
from microagents.journal.messages import Report
from microagents.runtimes.dispatcher import RoleMessenger
from microagents.telemetry import names
from microagents.telemetry.metrics import METRICS
from microagents.telemetry.prometheus import name_of

EVERY_S = 10.0
"""Seconds between two looks at the account; Ray itself reports as often."""
_RUN = names.RUN_ID.replace(".", "_")


async def export_totals(run_id: str, messenger: RoleMessenger) -> None:
    """Set Ray's metrics from the account until the run ends: ``ray_microagents_deaths_total`` and so on, with the run and the part."""
    gauges = [
        (each, Gauge(name_of(each), each.about, (_RUN, *([_tag(each.label)] if each.label else ()))))
        for each in METRICS
    ]
    with suppress(MicroagentsError):  # a run without a recorder, or one that fails
        while True:
            account = await messenger.ask(Report())
            for metric, gauge in gauges:
                for part, amount in metric.read(account).items():
                    gauge.set(amount, {_RUN: run_id, **({_tag(metric.label): part} if metric.label else {})})
            await asyncio.sleep(EVERY_S)


def _tag(label: str) -> str:
    return label.replace(".", "_")
