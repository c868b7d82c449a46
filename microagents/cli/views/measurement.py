"""The report of a measurement on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from microagents.cli.views.tables import Columns, Facts, Part, closing_notes, figure
from microagents.elections.laws import Proportion
from microagents.runs.accuracy import in_words
from microagents.runs.words.money import money, prices_of
from microagents.runs.words.summary import Fact, options_text
from microagents.runs.words.verdict import counted
from microagents.studies.ceilings import WHAT_HELPS, Ceiling
from microagents.studies.measure import Measurement
from microagents.studies.measured import ModelMeasurement, Pilot, Threshold, proportion_of
from microagents.studies.measuring import FIRST
from microagents.studies.trials import AgentMeasurement
from microagents.systems.chains.maker import Maker

SHOWN = 10
"""Number of hard steps in a text; --json has all."""
UNKNOWN = (
    "no oracle: whether the replies are right is not known: a step that a model gets wrong the same way each time looks like an easy one. "
    "So there is no chance and no k; they need the task's `oracle`"
)


def report_of(report: Measurement) -> Iterator[Part]:
    """Yield the sentences, the facts and the tables of a measurement."""
    steps = f"{'random steps of ' * (not report.agents)}{report.source}"
    yield f"{report.task}{options_text(report.options)}: {steps}; seed {report.seed}; intervals of 95 %"
    for each in report.models:
        yield from ("", each.model, Facts([*_model(each, report.source)]))
        if each.fields:
            shares = [[name, within(share)] for name, share in each.fields.items()]
            yield Columns([["field", "right"], *shares], to_the_left=(0, 1))
        if each.lookahead:
            yield _lookahead(each.lookahead)
        yield from _thresholds(each.thresholds)
        if each.judged:
            yield Facts([("verdict", each.verdict()[1])])
    for agent in report.agents:
        yield from ("", agent.name, Facts([*_trials(agent)]))
    for pool in report.pools:
        yield from ("", " and ".join(pool.models), Facts([*_pool(pool)]))
    asked = [each.model for each in report.models]
    asked += chain.from_iterable(each.models for each in report.agents)
    note = prices_of(asked).note
    if asked and not all(each.judged for each in report.models):
        yield from ("", UNKNOWN)
    if asked and note:
        yield from ("", note)
    yield from closing_notes(report.recorded_at, report.reason, "samples")


def _model(found: ModelMeasurement, source: str) -> Iterator[Fact]:
    price, calls = prices_of([found.model]), max(1, found.calls)
    unit = ("step", "input")[found.of_inputs]
    sampled = counted(len(found.steps), unit)
    yield "asked", f"{sampled} of {found.total:,}: {counted(found.draws, 'draw')}, {price(found.cost_usd)}"
    read, written = found.input_tokens / calls, found.output_tokens / calls
    yield "a call", f"{read:,.0f} tokens in, {written:,.0f} out, {money(found.call_usd)}"
    if found.latency is not None:
        p50, p95, p99 = found.latency.p50, found.latency.p95, found.latency.p99
        yield "takes", f"{p50:,.2g} s, {p95:,.2g} s in one of 20, {p99:,.2g} s in one of 100"
    yield "samples", f"--from {found.run_id}"
    if found.pilot is not None:
        yield "votes", _held(found.pilot)
    if found.judged:
        yield from _judged(found)
    else:
        yield from _agreed(found, source)


def _agreed(found: ModelMeasurement, source: str) -> Iterator[Fact]:
    """Yield the facts of samples that nothing judges."""
    yield "agree", f"{within(found.agreement)} of the first two draws"
    yield "valid", within(found.valid)
    if found.differing:
        yield "differ", f"at {len(found.differing):,} of {len(found.steps):,}: {_named(found.differing)}"
    if found.as_decided is not None:
        yield "as decided", f"{within(found.as_decided)} are as {source} decided, rightly or not"
    low = found.agreement.low
    yield (
        "p",
        f"at most {found.p_high:.4f}; at least {low:.4f} only if each step's most frequent reply is the right one",
    )


def _judged(found: ModelMeasurement) -> Iterator[Fact]:
    rates, hard = found.rates(), found.hard
    yield "p", f"{within(found.p)} of valid replies are right"
    yield "valid", within(found.valid)
    yield from _by_fields(found)
    worth = 3 / (1 + 2 * rates.correlation)
    said = f"{rates.correlation:.2f} of two draws of a step: three votes are worth {worth:.1f} independent ones"
    yield "correlation", said
    yield from _ceiling(found.ceiling)
    most = f"at most {rates.hard.high:,.0f} of all {found.total:,}"
    if not hard:
        yield "hard steps", f"0; {most}"
    else:
        yield "hard steps", f"{len(hard):,} (steps {_named(hard)}); {most}"
        yield "others", f"p = {rates.p_ordinary:.4f}, for `-s p=` of a ladder"
    if found.trend:
        yield "trend", found.trend
    if found.by_length:
        yield "prompts", found.by_length
    if found.certified:
        yield "certain", f"{found.certified:.0%} of single replies decide by their probability, by -s certain=on"
    if found.mistakes:
        yield "wrong first", ", ".join(f"{name} {count:,}" for name, count in found.mistakes.items())
    if found.of_inputs and found.confused:
        yield "confused", f"right -> given (samples): {in_words(found.confused)}"


def _ceiling(found: Ceiling) -> Iterator[Fact]:
    said = f"each step has a right sample; without one are at most {found.most_missed:.4f} of all"
    if found.missed:
        said = f"{found.sentence()}: in {found.missed:,} of {found.steps:,} no sample is right; there can help {WHAT_HELPS}"
    yield "ceiling", said
    if found.unanimous.share:
        yield "unanimous", f"and wrong {within(found.unanimous)}: more votes do not show these steps"


def _pool(found: Ceiling) -> Iterator[Fact]:
    yield "asked", f"{counted(found.steps, 'step')} of all"
    if found.together is not None and found.independent is not None:
        yield "both wrong", f"at the same step in {found.together:.4%}; {found.independent:.4%} if independent"
    if found.effective is not None:
        yield "votes", f"{FIRST} of each are worth {found.effective:.1f} independent ones"
    yield from _ceiling(found)


def _by_fields(found: ModelMeasurement) -> Iterator[Fact]:
    """Yield the law of votes on each field."""
    if not found.fields:
        return
    k = Maker().k
    if found.pilot is not None:
        k = found.pilot.k
    law = found.law(k)
    if law is not None and law.right is not None:
        said = f"at k = {k} by field: {law.calls.mid:.2f} calls a row, all fields right in {law.right.share:.4f}"
        yield "law", f"{said}, if fields err independently and wrong values agree"


def _held(pilot: Pilot) -> str:
    """Say how the votes on some rows ended."""
    said = f"on {counted(pilot.rows, 'row')} at k = {pilot.k}: {within(proportion_of(pilot.calls))} calls a row"
    return f"{said}, open {within(pilot.open)}, all right {within(pilot.right)}"


def _trials(found: AgentMeasurement) -> Iterator[Fact]:
    price, failed = prices_of(found.models)(found.cost_usd), found.trials - found.succeeded
    yield "asked", f"{counted(found.trials, 'trial')}, {counted(found.calls, 'call')}, {price}"
    yield "trials", f"--from {found.run_id}"
    yield "margins", ", ".join(f"{kind} {k}" for kind, k in found.margins.items())
    yield "succeed", within(found.success)
    yield "unseen", f"in {found.unseen:,} of {failed:,} failed trials every vote agreed; no margin mends them"


def _lookahead(positions: Sequence[Proportion | None]) -> Columns:
    rows = [["position", "right", "95 % interval"]]
    for position, accuracy in enumerate(positions):
        name = f"+{position}"
        if not position:
            name = "alone"
        rows.append([name, *_cells(accuracy)])
    return Columns(rows)


def _thresholds(found: Sequence[Threshold]) -> Iterator[Part]:
    if not found:
        return
    rows = [["target error", "at_least", "decided", "wrong", "95 % interval"]]
    rows += map(_threshold, found)
    yield Columns(rows, to_the_left=())
    yield "at_least: fitted on one half of the steps; the rest of the row is of the other half"


def _threshold(each: Threshold) -> list[str]:
    return [f"{each.target:.1%}", figure(each.at_least, ".4f"), _cells(each.decided)[0], *_cells(each.wrong)]


def _named(numbers: Sequence[int]) -> str:
    shown = [*map(str, numbers[:SHOWN])]
    if len(numbers) > SHOWN:
        shown.append("...")
    return ", ".join(shown)


def within(share: Proportion | None) -> str:
    """Write a share or a mean with its interval."""
    if share is None:
        return "-"
    return f"{share.share:.4f} ({share.low:.4f} to {share.high:.4f})"


def _cells(share: Proportion | None) -> list[str]:
    if share is None:
        return ["-", "-"]
    return [f"{share.share:.1%}", f"{share.low:.1%} to {share.high:.1%}"]
