"""Totals of a run for telemetry, all of them read from its account, for OpenTelemetry's instruments and Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from microagents.journal.messages import Account
from microagents.models.model import without_options
from microagents.telemetry import names


class Metric(NamedTuple):
    """One metric of a run."""

    name: str
    """Its name in OpenTelemetry. In Prometheus it has underscores for dots, and one that grows ends with ``_total``."""
    about: str
    unit: str
    read: Callable[[Account], float | Mapping[str, float] | None]
    """Finds its amount, or its amounts by the value of the label; None while it is unknown."""
    label: str = ""
    grows: bool = True
    """Whether it is a counter, and not a gauge."""

    def points(self, account: Account) -> Iterator[tuple[Mapping[str, str], float]]:
        """Yield its amounts, each with its label."""
        found = self.read(account)
        if isinstance(found, Mapping):
            yield from (({self.label: part}, amount) for part, amount in found.items())
        elif found is not None:
            yield {}, found


def labels_of(run_id: str, task: str, models: Iterable[str]) -> dict[str, str]:
    """Return the labels of a run's metrics. Its totals are of all its models together, each named once."""
    specs = [without_options(each).partition(":") for each in dict.fromkeys(models)]
    providers = [provider for provider, _, _ in specs]
    requested = [name or provider for provider, _, name in specs]
    names_of = {
        names.RUN_ID: run_id,
        names.WORKFLOW: task,
        names.PROVIDER: ",".join(dict.fromkeys(providers)),
        names.REQUEST_MODEL: ",".join(dict.fromkeys(requested)),
        names.SIMULATED: str({*providers} == {"sim"}).lower(),
    }
    return {name: text for name, text in names_of.items() if text}


def _open(account: Account) -> Mapping[str, float]:
    return {role: load.open for role, load in account.load_by_role.items()}


METRICS = (
    Metric(f"{names.USAGE}.input_tokens", "Tokens of prompts", "{token}", lambda a: a.input_tokens),
    Metric(f"{names.USAGE}.output_tokens", "Tokens of replies", "{token}", lambda a: a.output_tokens),
    Metric(f"{names.USAGE}.cache_read.input_tokens", "Tokens read from caches", "{token}", lambda a: a.cached_tokens),
    Metric(
        f"{names.USAGE}.cache_write.input_tokens", "Tokens written to caches", "{token}", lambda a: a.cache_write_tokens
    ),
    Metric("microagents.cost_usd", "Cost of all calls in US dollars", "{USD}", lambda a: a.cost_usd),
    Metric("microagents.calls", "Calls that may be billed", "{call}", lambda a: a.calls),
    Metric("microagents.calls.unanswered", "Calls without a reply", "{call}", lambda a: a.unanswered),
    Metric("microagents.calls.repeated", "Calls sent again", "{call}", lambda a: a.repeated, names.REASON),
    Metric("microagents.ballots", "Valid replies", "{reply}", lambda a: a.valid),
    Metric("microagents.flags", "Replies that were flagged", "{reply}", lambda a: a.flagged, names.FLAG),
    Metric("microagents.decisions", "Decided elections", "{election}", lambda a: a.decided),
    Metric("microagents.steps", "Steps done", "{step}", lambda a: a.steps),
    Metric("microagents.errors", "Decisions that the oracle calls wrong", "{election}", lambda a: a.errors),
    Metric("microagents.steps.planned", "Steps in all", "{step}", lambda a: a.total_steps, grows=False),
    Metric("microagents.calls.in_flight", "Calls in flight", "{call}", lambda a: a.in_flight, grows=False),
    Metric("microagents.requests.open", "Requests not answered yet", "{request}", _open, names.ROLE, grows=False),
    # One series from the beginning: Prometheus does not see the rise of one that begins with the first death.
    Metric("microagents.deaths", "Actors that died", "{actor}", lambda a: sum(a.deaths.values())),
    Metric("microagents.state", "1 for its outcome so far", "1", lambda a: {a.state: 1}, names.OUTCOME, grows=False),
    Metric("microagents.lease.renewals", "Renewals of its journal's lease", "{renewal}", lambda a: a.renewals),
    Metric("microagents.undecided", "Undecided elections", "{election}", lambda a: len(a.undecided_at), grows=False),
    Metric("microagents.paused", "1 while it is paused", "1", lambda a: int(a.paused is not None), grows=False),
    Metric("microagents.outage", "1 while a provider is out", "1", lambda a: int(a.outage is not None), grows=False),
)
