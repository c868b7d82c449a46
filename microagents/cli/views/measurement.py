"""The report of a measurement on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from microagents.cli.views.tables import Columns, closing_notes
from microagents.elections.laws import Proportion
from microagents.runs.accuracy import in_words
from microagents.runs.words.money import are_simulated, money, prices_of
from microagents.runs.words.summary import options_text
from microagents.runs.words.verdict import counted
from microagents.studies.analysis import PositionAccuracy
from microagents.studies.ceilings import WHAT_HELPS, Ceiling
from microagents.studies.flags import FlagFindings
from microagents.studies.measure import Measurement
from microagents.studies.measured import ModelMeasurement, Threshold, proportion_of
from microagents.studies.measuring import FIRST
from microagents.studies.trials import AgentMeasurement
from microagents.systems.chains.maker import Maker

SHOWN = 10
"""Number of hard steps in a text; --json has all."""
UNKNOWN = (
    "no oracle: whether the replies are right is not known: a step that a model gets wrong the same way each time looks like an easy one. "
    "So there is no chance and no k; they need the task's `oracle`"
)


def report_of(report: Measurement) -> Iterator[str | Columns]:
    """Yield the sentences and the tables of a measurement."""
    steps = report.source if report.agents else f"random steps of {report.source}"
    yield f"{report.task}{options_text(report.options)}: {steps}; seed {report.seed}"
    for number, each in enumerate(report.models):
        yield ""
        yield from _model(each, report.source)
        if report.lookahead:
            yield from _lookahead(report.lookahead[number])
        if report.flags:
            yield from _flags(report.flags[number])
        yield from _thresholds(each.thresholds)
        if each.judged:
            yield f"verdict: {each.verdict()[1]}"
    for agent in report.agents:
        yield ""
        yield from _agent(agent)
    for pool in report.pools:
        yield ""
        yield from _pool(pool)
    asked = [each.model for each in report.models]
    asked += chain.from_iterable(each.models for each in report.agents)
    if asked and not all(each.judged for each in report.models):
        yield from ("", UNKNOWN)
    if asked and are_simulated(asked):
        yield from ("", "simulated: no real model was asked")
    yield from closing_notes(report.recorded_at, report.reason, "samples")


def _model(found: ModelMeasurement, source: str) -> Iterator[str | Columns]:
    price, call, calls = prices_of([found.model])(found.cost_usd), money(found.call_usd), max(1, found.calls)
    unit = "input" if found.of_inputs else "step"
    yield f"{found.model}: {counted(len(found.steps), unit)} of {found.total:,}, {counted(found.draws, 'draw')}, {price}, {call} a call"
    yield f"a call reads {found.input_tokens / calls:,.0f} tokens and writes {found.output_tokens / calls:,.0f}"
    yield f"--from {found.run_id} takes its samples"
    if found.latency is not None:
        p50, p95, p99 = found.latency.p50, found.latency.p95, found.latency.p99
        yield f"a call takes {p50:,.2g} s, {p95:,.2g} s in one of 20, {p99:,.2g} s in one of 100"
    yield from _pilot(found)
    if not found.judged:
        yield f"two draws agree = {within(found.agreement)}, valid = {within(found.valid)} (95 % over steps)"
        if found.differing:
            yield f"they differ at {counted(len(found.differing), unit)}: {_named(found.differing)}"
        if found.as_decided is not None:
            yield f"as {source} decided, rightly or not = {within(found.as_decided)}"
        low = found.agreement.low
        yield f"p is at most {found.p_high:.4f}; at least {low:.4f} only if each step's most frequent reply is the right one"
        return
    yield f"p = {within(found.p)}, valid = {within(found.valid)} (95 % over steps)"
    if found.fields:
        yield from _fields(found)
    correlation = found.rates().correlation
    worth = f"three votes are worth {3 / (1 + 2 * correlation):.1f} independent ones"
    yield f"correlation of two draws of a step: {correlation:.2f}; {worth}"
    yield from _ceiling(found.ceiling)
    named = f" (steps {_named(found.hard)})" if found.hard else ""
    yield f"hard steps: {len(found.hard):,}{named}; at most {found.rates().hard.high:,.0f} of all {found.total:,} (95 %)"
    if found.hard:
        yield f"p at the other steps = {found.rates().p_ordinary:.4f}, for `-s p=` of a ladder"
    yield from filter(None, (found.trend, found.if_certain(Maker().k, found.total)))
    if found.mistakes:
        yield "wrong first in: " + ", ".join(f"{name} {count:,}" for name, count in found.mistakes.items())
    if found.of_inputs and found.confused:
        yield f"right -> given (samples): {in_words(found.confused)}"


def _ceiling(found: Ceiling) -> Iterator[str]:
    if found.missed:
        yield f"ceiling: {found.sentence()}: in {found.missed:,} of {found.steps:,} no sample is right; there can help {WHAT_HELPS}"
    else:
        yield f"ceiling: each step has a right sample; without one are at most {found.most_missed:.4f} of all (95 %)"
    if found.unanimous.share:
        yield f"unanimous and wrong = {within(found.unanimous)}: more votes do not show these steps"


def _pool(found: Ceiling) -> Iterator[str]:
    yield f"{' and '.join(found.models)}: {counted(found.steps, 'step')} of all"
    if found.together is not None and found.independent is not None:
        yield f"both miss the same step with a chance of {found.together:.4%}; {found.independent:.4%} if independent"
    if found.effective is not None:
        yield f"{FIRST} votes of each are worth {found.effective:.1f} independent ones"
    yield from _ceiling(found)


def _fields(found: ModelMeasurement) -> Iterator[str | Columns]:
    """Yield the shares of right values by field, and the law of votes on each."""
    yield Columns(
        [["field", "right"], *[[name, within(share)] for name, share in found.fields.items()]], to_the_left=(0, 1)
    )
    k = Maker().k if found.pilot is None else found.pilot.k
    law = found.law(k)
    if law is not None and law.right is not None:
        said = f"votes by field at k = {k}: {law.calls.mid:.2f} calls a row, all fields right in {law.right.share:.4f}"
        yield f"{said}, if fields err independently and wrong values agree"


def _pilot(found: ModelMeasurement) -> Iterator[str]:
    """Say how the votes on some rows ended."""
    if (pilot := found.pilot) is None:
        return
    said = (
        f"votes held on {counted(pilot.rows, 'row')} at k = {pilot.k}: {within(proportion_of(pilot.calls))} calls a row"
    )
    yield f"{said}, open = {within(pilot.open)}, all right = {within(pilot.right)}"


def _agent(found: AgentMeasurement) -> Iterator[str | Columns]:
    price = prices_of(found.models)(found.cost_usd)
    yield f"{found.name}: {counted(found.trials, 'trial')}, {found.draws} draws of each action, {counted(found.calls, 'call')}, {price}"
    yield f"--from {found.run_id} takes its trials"
    yield f"trials that succeed, by the plurality of the draws = {within(found.success)} (95 %)"
    rows = [["kind", "actions", "right", "95 % interval", "wrong in one way"]]
    rows += [[each.kind, f"{len(each.seen):,}", *_cells(each.p), f"{each.same_wrong:.1%}"] for each in found.actions]
    if len(rows) > 1:
        yield Columns(rows)
        yield (
            "right: the share of the draws that are the right action; of a trial that fails, the action with the least lead counts as "
            "wrong"
        )
    yield f"trials that fail though every vote agreed: {found.unseen:,} of {found.trials - found.succeeded:,}; no margin mends them"


def _lookahead(positions: Sequence[PositionAccuracy]) -> Iterator[str | Columns]:
    rows = [["position", "right", "95 % interval", "first right", "hardest step"]]
    for each in positions:
        name, hardest = f"+{each.position}" if each.position else "alone", each.at_hardest
        first = _cells(each.given_first)[0]
        rows.append([name, *_cells(each.accuracy), first, "-" if hardest is None else f"{hardest:.1%}"])
    yield Columns(rows)


def _flags(found: FlagFindings) -> Iterator[str | Columns]:
    rows = [["reading", "valid", "wrong", "first two wrong", "right flagged", "nats a call"]]
    for each in found.readings:
        wrong = f"{each.wrong / each.valid:.2%}" if each.valid else "-"
        gained = f"{each.information:.3f}{' +' * each.gains}"
        valid, both = f"{each.valid / found.replies:.1%}", f"{each.collisions:,}"
        rows.append([each.name, valid, wrong, both, f"{each.right_flagged:,}", gained])
    yield Columns(rows, to_the_left=(0, 5))
    rows = [["characters", "replies", "wrong or unreadable"]]
    rows += [
        [f"to {each.most_chars:,}", f"{each.replies:,}", f"{each.wrong / each.replies:.2%}"] for each in found.lengths
    ]
    yield Columns(rows, to_the_left=())
    yield f"advice: {found.advice}"


def _thresholds(found: Sequence[Threshold]) -> Iterator[str | Columns]:
    if not found:
        return
    rows = [["target error", "at_least", "decided", "wrong", "95 % interval"]]
    for each in found:
        at_least = "-" if each.at_least is None else f"{each.at_least:.4f}"
        rows.append([f"{each.target:.1%}", at_least, _cells(each.decided)[0], *_cells(each.wrong)])
    yield Columns(rows, to_the_left=())
    yield "at_least: fitted on one half of the steps; the rest of the row is of the other half"


def _named(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:SHOWN])) + (", ..." if len(numbers) > SHOWN else "")


def within(share: Proportion | None) -> str:
    """Write a share or a mean with its interval."""
    if share is None:
        return "-"
    return f"{share.share:.4f} ({share.low:.4f} to {share.high:.4f})"


def _cells(share: Proportion | None) -> list[str]:
    if share is None:
        return ["-", "-"]
    return [f"{share.share:.1%}", f"{share.low:.1%} to {share.high:.1%}"]
