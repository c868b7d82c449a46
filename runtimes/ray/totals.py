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
from microagents.telemetry.prometheus import name_of, plain

EVERY_S = 10.0
"""Seconds between two looks at the account; Ray itself reports as often."""
WAITING = "microagents_waiting_for_node"
_RUN = plain(names.RUN_ID)
_ACTOR = "microagents_actor"


def set_waiting(run_id: str, actor: str, *, is_waiting: bool) -> None:
    """Set the metric that an actor waits for a node. The account cannot have it: the keeper begins after the actors."""
    gauge = Gauge(WAITING, "1 while an actor waits for a node with room for it", (_RUN, _ACTOR))
    gauge.set(int(is_waiting), {_RUN: run_id, _ACTOR: actor})


async def export_totals(run_id: str, messenger: RoleMessenger) -> None:
    """Set Ray's metrics from the account until the run ends: ``ray_microagents_deaths_total`` and so on, with the run and the part."""
    tags = {each: (_RUN, *map(plain, filter(None, [each.label]))) for each in METRICS}
    gauges = [(each, Gauge(name_of(each), each.about, tags[each])) for each in METRICS]
    with suppress(MicroagentsError):  # a run without a keeper, or one that fails
        while True:
            account = await messenger.ask(Report())
            for metric, gauge in gauges:
                for label, amount in metric.points(account):
                    gauge.set(amount, {_RUN: run_id, **{plain(name): part for name, part in label.items()}})
            await asyncio.sleep(EVERY_S)
