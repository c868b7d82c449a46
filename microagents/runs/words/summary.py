"""The text of a run for a person: its summary, and the line of its progress. The command line prints it, and so does ``print(result)``."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from math import exp, inf, lgamma, log
from typing import Any

import msgspec
from msgspec import Struct

from microagents.base.errors import agreement
from microagents.base.printing import printable, results
from microagents.journal.messages import Account
from microagents.journal.sharded import FOLDER
from microagents.models.model import without_options
from microagents.runs.accuracy import Accuracy, in_words
from microagents.runs.words.batches import batches_text, open_text
from microagents.runs.words.money import Price, money, prices_of
from microagents.runs.words.verdict import (
    RunFacts,
    above_limits_text,
    command_about,
    counted,
    decided_texts,
    done_text,
    outcome_text,
    progress_of,
    wrong_text,
)
from microagents.systems.documents.document import text_in

MAX_RESULT_LINES = 12
SILENT_S = 10.0
"""Time without a reply after which the progress of a run reports it."""
SELECTED_SHARE = 0.01
"""Timeouts per sample above which they matter to the vote: the slow answers to a question may be those to its hard cases."""
NEARLY_ALL = 0.95
"""Chance from which on a bound says next to nothing."""
UNLIKELY = 0.05
"""Chance below which a number of errors is more than was promised."""
MAX_SETTLED_SHOWN = 5
MAX_FAILED_SHOWN = 5
MAX_OPTION_CHARS = 60
"""For a longer option of a task only its length is shown."""
WHOLE = "whole"
"""Number of a document that has no subtasks, or was split into them."""


Fact = tuple[str, str]
"""A fact in a report: its name, and its words."""
Said = Callable[[RunFacts], str | None]
"""Says a fact of a run in words, or none."""
NOT_GIVEN = ("mcp_tools",)
"""Options that runs add on their own."""


def options_text(options: Mapping[str, object]) -> str:
    """Write the options of a task in parentheses; empty without options."""
    shown = ", ".join(f"{name}={_value_text(value)}" for name, value in options.items() if name not in NOT_GIVEN)
    if not shown:
        return ""
    return f" ({shown})"


def _value_text(value: object) -> str:
    text = str(value)
    if len(text) <= MAX_OPTION_CHARS and text.isprintable():
        return text
    return f"<{len(text):,} characters>"


def progress_line(title: str, account: Account, unit: str, price: Price) -> str:
    """Write the progress of a run on one line."""
    done = progress_of(account, unit, is_listed=account.inputs > 1)
    return "   ".join([f"{title}: {done}", *counts_of(account, unit, price)])


def counts_of(account: Account, unit: str, price: Price) -> Iterator[str]:
    """List the counts of a run so far, part by part."""
    flagged = sum(account.flagged.values())
    share = flagged / max(1, account.valid + flagged)
    if account.decided:
        yield _votes_text(account, unit)
    if account.samples:
        yield counted(account.samples, "sample")
    if account.climbed:
        yield f"{sum(account.climbed.values()):,} climbed"
    yield f"{share:.2%} flagged"
    yield counted(account.calls, "call") + (f", {in_flight_text(account)}" if account.in_flight > 0 else "")
    yield from open_text(account)
    yield price(account.cost_usd)
    if account.deaths:
        yield f"{deaths_text(account)} died"
    if account.inputs_failed:
        yield f"{account.inputs_failed:,} without a result"
    if account.errors:
        yield f"{account.errors} wrong"
    if account.silent_s >= SILENT_S:
        yield f"no reply for {account.silent_s:.0f} s"
    if account.paused is not None:
        yield f"paused {account.paused}"
    if account.outage is not None:
        yield f"waiting: {account.outage}"


def in_flight_text(account: Account) -> str:
    """Count the calls in flight; with several providers, those to each, too."""
    by_provider = Counter[str]()
    for by_spec in account.in_flight_by.values():
        for spec, calls in by_spec.items():
            by_provider[spec.partition(":")[0]] += calls
    parts = ", ".join(f"{calls:,} {provider}" for provider, calls in by_provider.items())
    return f"{account.in_flight:,} in flight{f' ({parts})' if len(by_provider) > 1 else ''}"


def deaths_text(account: Account) -> str:
    """List the actors that died, with the number of deaths of each."""
    return ", ".join(f"{role} x {count}" if count > 1 else role for role, count in account.deaths.items())


def _votes_text(account: Account, unit: str) -> str:
    """Write the votes that decisions took, by the step; by the decision in work that counts no steps yet."""
    if account.votes_per_step is None:
        return f"{account.votes_per_decision or 0:.3f} votes a decision"
    if account.decided == account.steps:
        elections = ""
    else:
        elections = f" ({account.votes:,} in {counted(account.decided, 'election')})"
    return f"{account.votes_per_step:.3f} votes {'an' if unit[0] in 'aeiou' else 'a'} {unit}{elections}"


def summary(result: RunFacts, *, with_text: bool = True) -> str:
    """Write the summary of a run, for a person. It has the arguments of `summary_rows`."""
    return facts_text(summary_rows(result, with_text=with_text))


def facts_text(rows: Sequence[Fact]) -> str:
    """Write facts below each other: their names, and beside these their words, on a terminal within its width."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(_wrapped(f"{name:<{width}}  ", text) for name, text in rows)


def summary_rows(result: RunFacts, *, with_text: bool = True) -> list[Fact]:
    """List the rows of the summary of a run: a name, and a text that is printable; maybe with the text of a document without a file."""
    done = f"{result.task}{options_text(result.options)}: {done_text(result)}"
    rows = [
        (outcome_text(result), "; ".join(filter(None, [done, wrong_text(result), above_limits_text(result)]))),
        *facts_of(result),
        *_failed_rows(result),
        *_value_rows(result, with_text=with_text),
    ]
    if result.journal is not None:
        rows.append(("journal", str(result.journal)))
    if result.go_on is not None:
        rows.append(("go on", result.go_on))
    return [(name, printable(text)) for name, text in rows]


def facts_of(result: RunFacts) -> Iterator[Fact]:
    """Yield the facts that hold of a run: their names, and their words."""
    for name, said in FACTS.items():
        if text := said(result):
            yield name, text


def accuracy_text(found: Accuracy | None) -> str | None:
    """Say how many rows and how many values of each field are right, and which ones are confused; None without a judge."""
    if found is None:
        return None
    shares = {f"{found.right:,} of {counted(found.judged, 'judged row')} right,": found.rows, **found.fields}
    parts = [f"{name} {each.share:.1%} ({each.low:.1%} to {each.high:.1%})" for name, each in shares.items()]
    if found.confused:
        parts.append(f"right -> given: {in_words(found.confused)}")
    return "; ".join(parts)


def _shared_text(result: RunFacts) -> str | None:
    account = result.account
    if not account.shared:
        return None
    return f"{counted(account.shared, 'row')} took the result of an earlier row that asks the same"


def _shards_text(result: RunFacts) -> str | None:
    if not result.shards or result.journal is None:
        return None
    states = ", ".join(f"{number:,} {state}" for state, number in Counter(result.shards.values()).items())
    return (
        f"{states}; each by itself: microagents list --runs-dir {shlex.quote(str(result.journal.with_suffix(FOLDER)))}"
    )


def _reused_text(result: RunFacts) -> str | None:
    account = result.account
    if not account.reused:
        return None
    saved = "" if account.saved_usd is None else f", which saved {money(account.saved_usd)}"
    return f"{counted(account.reused, 'sample')} that an earlier run has paid for{saved}"


def _how_text(result: RunFacts) -> str:
    account = result.account
    taken = [_votes_text(account, result.unit)] * bool(account.decided)
    taken += [counted(account.samples, "sample") + " of rungs" * bool(account.climbed)] * bool(account.samples)
    calls = counted(account.calls, "call")
    # Flags are counted when an election has ended: "0 red-flagged" would be untrue of a run without any.
    if account.valid or account.flagged or not account.calls:
        calls += f", {_by_name(account.flagged, 'red-flagged')}"
    return f"{result.strategy}: {', '.join(taken) or 'no decision'}; {calls}"


def rate_text(a_second: float, unit: str) -> str:
    """Write a rate by the second, or for slow work by the hour."""
    if a_second >= 1:
        return f"{a_second:,.0f} {unit}s a second"
    return f"{a_second * 3600:,.0f} {unit}s an hour"


def _failed_rows(result: RunFacts) -> Iterator[Fact]:
    failed = result.failed_inputs or ()
    for each in failed[:MAX_FAILED_SHOWN]:
        yield each.outcome, f"input {each.input}: {each.reason}"
    if (more := result.account.inputs_failed - MAX_FAILED_SHOWN) > 0:
        yield "", f"and {more:,} more inputs; --json lists all of them"


def _lost_text(result: RunFacts) -> str | None:
    account = result.account
    if not account.lost_in_flight or not result.price.is_billed:
        return None
    lost = counted(account.lost_in_flight, "call")
    return f"calls that were under way when the process ended may be paid twice: {lost} at most"


def _promised_text(result: RunFacts) -> str | None:
    """Compare a run with the promise of its measurement; None without one."""
    account, promise = result.account, result.account.promise
    if promise is None:
        return None
    price = prices_of([promise.model])
    promised = None if promise.cost_usd is None else promise.cost_usd * account.inputs
    text = (
        f"{promise.calls * account.inputs:,.0f} calls, {price(promised)}, by the measurement {promise.measurement}; "
        f"taken {account.calls:,}, {price(account.cost_usd)}"
    )
    if account.errors is None:
        return text
    chance = f"a chance of {known(promise.low, promise.high)} that all steps are right"
    if _may_be(account.errors, inf if promise.low == 0 else -log(promise.low) * account.inputs):
        return f"{text}; {counted(account.errors, 'error')}, as {chance} allows"
    return f"{text}; {counted(account.errors, 'error')}, MORE than {chance} allows"


def _may_be(errors: int, expected: float) -> bool:
    """Whether this number of errors, or more, is likely enough given the expected number (Poisson)."""
    if not errors or expected == inf:
        return True
    if not expected:
        return False
    fewer = [exp(n * log(expected) - expected - lgamma(n + 1)) for n in range(errors)]
    return 1 - sum(fewer) >= UNLIKELY


def known(low: float, high: float) -> str:
    """Write the known part of a chance: its bounds, or one of them if the other one says next to nothing."""
    if high >= NEARLY_ALL and low < NEARLY_ALL:
        return f"at least {low:.4f}"
    if low <= 1 - NEARLY_ALL < high:
        return f"at most {high:.4f}"
    return f"{low:.4f} to {high:.4f}"


def _calls_text(result: RunFacts) -> str | None:
    """Write the calls that did not go as they should; None if all did."""
    account, price = result.account, result.price
    parts = []
    if account.repeated:
        parts.append(_by_name(account.repeated, "repeated"))
    if account.unanswered:
        if account.estimated_usd:
            estimated = f", for which the cost has an estimate of {price(account.estimated_usd)}"
        else:
            estimated = ""
        parts.append(f"{account.unanswered:,} cancelled or timed out{estimated}")
    if account.unsettled_usd > 0:
        most = price(account.unsettled_usd)
        parts.append(
            f"calls without a reply may have cost up to {most} more, which limits count until `resume --forget-unsettled`"
        )
    if account.unmeasured:
        parts.append(f"{counted(account.unmeasured, 'reply', 'replies')} of unknown length, not flagged as too_long")
    if account.miscounted:
        wrong = counted(account.miscounted, "reply", "replies")
        parts.append(f"{wrong} with a usage that cannot be right, counted at the most that the call can have used")
    return "; ".join(parts) or None


def _sampling_text(result: RunFacts) -> str | None:
    """Name the models whose temperature cannot be set; None if there are none."""
    account = result.account
    refusing = [spec for spec, refused in account.refused.items() if "temperature" in refused]
    names = list(dict.fromkeys(map(without_options, refusing)))
    if not names:
        return None
    takes = "takes" if len(names) == 1 else "take"
    return f"{', '.join(names)} {takes} no temperature: samples differ by the model's own sampling, and the first is not drawn at 0"


def _fallback_text(result: RunFacts) -> str | None:
    """Write the share of ballots that came from each fallback; None if none did."""
    account = result.account
    given = [f"{number:,} of {account.valid:,} replies came from {spec}" for spec, number in account.fallbacks.items()]
    if not given:
        return None
    return f"{', '.join(given)}, since the model before it was out or slow"


def _cached_text(result: RunFacts) -> str | None:
    """Write the share of the input that providers read from their caches; None if they report none."""
    account = result.account
    if not account.input_tokens or not (account.cached_tokens or account.cache_write_tokens):
        return None
    shares = [f"{count / account.input_tokens:.1%}" for count in (account.cached_tokens, account.cache_write_tokens)]
    return f"{shares[0]} of {account.input_tokens:,} input tokens read from the provider's cache, {shares[1]} written into it"


def _timeouts_text(result: RunFacts) -> str | None:
    """Warn if timeouts are numerous enough to choose among the answers; None if they are few."""
    account = result.account
    timeouts, samples = account.repeated.get("timeout", 0), account.valid + sum(account.flagged.values())
    if timeouts <= SELECTED_SHARE * samples:
        return None
    count = f"{counted(timeouts, 'call')} timed out for {counted(samples, 'sample')}"
    return f"{count}: slow answers are being selected out, and their votes may differ; set a longer timeout_s in the model's spec"


def _by_name(counts: Mapping[str, int], what: str) -> str:
    most_first = Counter(counts).most_common()
    names = ", ".join(f"{name} {count:,}" for name, count in most_first)
    return f"{sum(counts.values()):,} {what}" + (f" ({names})" if names else "")


def _voting_text(result: RunFacts) -> str | None:
    """Count the outvoted replies, and how often one sample in its place would have been wrong; None without a vote."""
    account = result.account
    if result.k == 1 or not account.decided or (result.k is None and not account.unanimous_errors):
        return None
    # Of other work the oracle judges answers, not votes.
    wrong = "wrong " if account.errors is not None and account.decided == account.steps else ""
    samples = counted(account.outvoted, f"{wrong}sample") if account.outvoted else "no sample was"
    parts = [f"{samples} outvoted"]
    if result.k is not None:
        parts.insert(0, f"k = {result.k}{' or certified' * bool(account.masses or account.certified)}")
    misled = account.outvoted + account.misled
    if account.fields and account.outvoted:
        parts[-1] += f" in some field, by {counted(account.outvoted_fields, 'vote')} on fields"
    if account.composed:
        parts.append(f"{account.composed:,} composed of the fields of several samples")
    if account.errors and not account.fields and 2 * misled >= account.votes:
        share = f"at least {misled:,} of {account.votes:,} votes were for wrong replies"
        parts.append(
            f"{share}: voting does not help a model that is wrong more often than right; make the steps smaller, or ask another"
        )
    if account.unanimous_errors:
        wrongly = counted(account.errors or 0, "wrong decision")
        parts.append(
            f"{account.unanimous_errors:,} of {wrongly} unanimous: more votes do not mend that; smaller steps, a check by code "
            "(`verify`), or another model do"
        )
    elif account.errors:
        parts.append("no wrong decision was unanimous")
    if account.first_wrong:
        firsts = f"{account.first_wrong:,} of {counted(account.decided, 'election')}"
        if account.fields:
            firsts += f", in {account.first_wrong_fields:,} of {counted(account.fields, 'field')}"
        parts.append(f"one sample would have been {'wrong' if wrong else 'another reply'} or flagged in {firsts}")
    return "; ".join(parts)


def _certified_text(result: RunFacts) -> str | None:
    """Write how many decisions the masses of replies took, and whether the draws after them agree; None if no reply had a mass."""
    account = result.account
    if not (account.certified or account.masses):
        return None
    parts = [f"{100 * account.certified / max(1, account.decided):.0f} % of decisions by the model's own probabilities"]
    for spec, audit in account.masses.items():
        seen = f"{audit.repeated:,} of {audit.draws:,} further draws repeated the likeliest reply"
        if audit.is_false:
            parts.append(
                f"the probabilities of {spec} DO NOT HOLD: {seen}, by its numbers at least {audit.claimed:,.1f}; since then its votes "
                "decide, and what it certified before may not be what it says most often"
            )
        else:
            parts.append(f"{seen}, by the numbers of {spec} at least {audit.claimed:,.1f}")
    return "; ".join(parts)


def _contested_text(result: RunFacts) -> str | None:
    """Count the elections in which the models of a pool contradict each other; None without one."""
    account = result.account
    found = account.contested_at
    if not found:
        return None
    path, votes = next(iter(found.items()))
    return f"{counted(len(found), 'election')}, the first at {path}: each model gave one reply only, in {agreement(votes)} votes"


def _climbed_text(result: RunFacts) -> str | None:
    """Write the steps that a ladder decided, and the command that lists them; None if it decided none."""
    climbed = result.account.climbed
    if not climbed:
        return None
    most_first = Counter(climbed).most_common()
    rungs = ", ".join(f"{count:,} by {rung}" for rung, count in most_first)
    text = f"{counted(sum(climbed.values()), 'step')}: {rungs}"
    if result.journal is None:
        return text
    of_input = "" if result.failed_inputs is None else " --input N"
    return f"{text}; {command_about('show', result.run_id, result.journal.parent)}{of_input} lists them"


def _value_rows(result: RunFacts, *, with_text: bool) -> list[Fact]:
    if result.failed_inputs is not None:
        first, others = next(iter(result.outputs), None), len(result.outputs) - 1
        more = f" and {counted(others, 'more file')}" if others > 0 else ""
        return [] if first is None else [("written", f"{first}{more}")]
    if result.recorded is None:
        return []
    if result.outputs:
        return [("result", f"{result.outputs[0]}, {_text_facts(result.recorded)}")]
    if not with_text and text_in(result.recorded) is not None:
        return [("result", f"a text of {_text_facts(result.recorded)}; --json prints it")]
    return [("result", result_text(result.recorded))]


class _Marks(Struct):
    """Part of the result of a document."""

    checks: dict[str, bool | None] = {}
    not_agreed: list[str] = []
    incomplete: list[str] = []
    summarized: list[str] = []


def _text_facts(value: Mapping[str, Any]) -> str:
    try:
        found = msgspec.convert(value, _Marks)
    except msgspec.ValidationError:  # a result of another task, which has a text as well
        found = _Marks()
    failed = [name for name, met in found.checks.items() if met is False]
    not_made = [name for name, met in found.checks.items() if met is None]
    marks = {
        "not agreed": list(map(number_of, found.not_agreed)),
        "incomplete": list(map(number_of, found.incomplete)),
        "summarized": list(map(number_of, found.summarized)),
        "checks FAILED": failed,
        "checks not made": not_made,
    }
    text = text_in(value) or ""
    shown = "".join(f"; {mark}: {', '.join(names)}" for mark, names in marks.items() if names)
    return f"{len(text):,} characters, {len(text.split()):,} words{shown}"


def _settled_text(result: RunFacts) -> str | None:
    """List the undecided elections that a leader, a person or another model settled."""
    account = result.account
    if not account.settled_at:
        return None
    shown = islice(account.settled_at.items(), MAX_SETTLED_SHOWN)
    first = ", ".join(f"{path} by {source}" for path, source in shown)
    more = len(account.settled_at) - MAX_SETTLED_SHOWN
    return f"not decided by the vote: {first}" + (f", and {more:,} more" if more > 0 else "")


def _wrapped(head: str, text: str) -> str:
    """Write a row of the summary; on a terminal wrapped at words to its width."""
    return textwrap.fill(
        text,
        columns_of_stdout(sys.maxsize),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
    )


def columns_of_stdout(otherwise: int = 100) -> int:
    """Measure the width of the terminal; return ``otherwise`` if stdout is not one."""
    is_terminal = sys.stdout is not None and results().isatty()
    if is_terminal:
        return shutil.get_terminal_size().columns
    return otherwise


def _model_text(result: RunFacts) -> str:
    """Name the models, and write the cost."""
    account, text = result.account, ", ".join(result.models)
    text += f", {money(account.cost_usd)}"
    if account.expected_usd is not None:
        text += f" (expected: {money(account.expected_usd)})"
    return f"{text} {result.price.note}".rstrip()


def _took_text(result: RunFacts) -> str:
    took = f"{result.wall_s:,.1f} s"
    if result.account.steps and result.wall_s:
        took += f", {rate_text(result.account.steps / result.wall_s, result.unit)}"
    return f"{took}; run {result.run_id}"


def _died_text(result: RunFacts) -> str | None:
    return f"{deaths_text(result.account)}; others took their places" if result.account.deaths else None


def _why_text(result: RunFacts) -> str | None:
    said = {"decided": None, "paused": f"paused {result.account.paused}"}
    return said.get(outcome_text(result), result.reason)


def result_text(value: object) -> str:
    """Write a result as JSON text, cut to `MAX_RESULT_LINES` lines."""
    width = shutil.get_terminal_size().columns * MAX_RESULT_LINES
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= width:
        return text
    return f"{text[:width]} ... ({len(text):,} characters; --json prints all of them)"


def number_of(at: str) -> str:
    """Write the number of a subtask for a person, such as 1.2 for ``write/part/1/part/2``."""
    return ".".join(at.split("/part/")[1:]) or WHOLE


FACTS: dict[str, Said] = {
    "why": _why_text,
    "decided": lambda result: "; ".join(decided_texts(result)),
    "how": _how_text,
    "accuracy": lambda result: accuracy_text(result.accuracy),
    "shared": _shared_text,
    "reused": _reused_text,
    "voting": _voting_text,
    "certified": _certified_text,
    "contested": _contested_text,
    "climbed": _climbed_text,
    "model": _model_text,
    "promised": _promised_text,
    "promise": lambda result: result.promise,
    "sampling": _sampling_text,
    "fallback": _fallback_text,
    "cached": _cached_text,
    "batches": lambda result: batches_text(result.account, result.price),
    "calls": _calls_text,
    "shards": _shards_text,
    "timeouts": _timeouts_text,
    "took": _took_text,
    "marked": _settled_text,
    "died": _died_text,
    "lost": _lost_text,
}
"""All facts about a run, in the order in which terminal, notebook, page, report and JSON have them."""
