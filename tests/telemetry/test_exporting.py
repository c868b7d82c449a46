"""Telemetry: what a run exports adds up to its journal's account, and without a provider nothing is done."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from microagents import Result, run
from microagents.actors.role import Tracing
from microagents.base.errors import InvalidUsage, TaskFailed
from microagents.elections.election import ElectionId
from microagents.journal.messages import RecordedDecision
from microagents.models.model import Call, Model
from microagents.replies.chat import Sample, Usage
from microagents.replies.reply_forms import write
from microagents.systems import Maker
from microagents.tasks.drift import Drift, Onward
from microagents.tasks.hanoi import Hanoi
from microagents.telemetry import names
from microagents.telemetry.tracing import Tracer
from tests.telemetry.exported import Exported, exporting, of

ROUGH = "sim:gpt-4.1-mini@error=0.1,flag=0.3,latency=0.001"
K = 2


@pytest.fixture
def exported() -> Iterator[Exported]:
    with exporting() as found:
        yield found


async def rough(path: Path, **settings: Any) -> Result:
    strategy = Maker(k=K, speculate=False)
    return await run(Hanoi(disks=4), models=ROUGH, strategy=strategy, runs_dir=path, run_id="a", **settings)


@pytest.mark.parametrize("runtime", ["local", "linked", "ray"])
async def test_exported_spans_and_counters_add_up_to_the_account(
    exported: Exported, runtime: str, tmp_path: Path
) -> None:
    account = (await rough(tmp_path, runtime=runtime, otel_sample=1)).account
    assert account.flagged, "some replies are flagged"
    elections, calls = exported.spans(names.ELECTION), exported.spans(names.CALL)
    assert len(exported.spans()) == 1 + len(elections) + len(calls)
    assert len(elections) == account.decided
    assert len(calls) == account.valid + sum(account.flagged.values())
    assert exported.events(names.CALL) == {f"{flag} flagged": count for flag, count in account.flagged.items()}
    assert exported.events(names.ELECTION) == {"election decided": account.decided}
    sums = (
        account.calls,
        account.input_tokens,
        account.output_tokens,
        pytest.approx(account.cost_usd),
    )
    if account.unanswered == 0:
        by_span = (
            exported.total(names.INPUT_TOKENS),
            exported.total(names.OUTPUT_TOKENS),
            exported.total(names.COST_USD),
        )
        assert (len(calls), *by_span) == sums
    counted = exported.metrics("a")
    by_counter = [counted[f"{names.USAGE}.{name}"] for name in ("input_tokens", "output_tokens")]
    assert (counted["microagents.calls"], *by_counter, counted["microagents.cost_usd"]) == sums
    assert counted["microagents.decisions"] == account.decided
    assert {flag: counted[f"microagents.flags {flag}"] for flag in account.flagged} == account.flagged
    assert counted[names.DURATION] == account.calls - account.unanswered
    assert (counted["microagents.calls.in_flight"], counted["microagents.undecided"]) == (0, 0)


async def test_a_run_is_one_trace_of_elections_with_calls_in_them(exported: Exported, tmp_path: Path) -> None:
    await rough(tmp_path, otel_sample=1)
    run_span = exported.run
    assert (run_span.name, of(run_span)[names.OUTCOME]) == ("invoke_workflow Hanoi", "completed")
    assert run_span.context is not None
    parents = {each.context.span_id: each for each in exported.spans() if each.context is not None}
    for election in exported.spans(names.ELECTION):
        assert election.parent is not None
        assert election.parent.span_id == run_span.context.span_id
    for call in exported.spans(names.CALL):
        assert call.parent is not None
        assert (call.name, call.kind) == ("chat gpt-4.1-mini", trace.SpanKind.CLIENT)
        parent = parents[call.parent.span_id]
        assert parent.name == names.ELECTION
        began, ended = (parent.start_time or 0, parent.end_time or 0)
        assert began <= (call.start_time or 0) <= (call.end_time or 0) <= ended


@pytest.mark.parametrize("runtime", ["local", "ray"])
async def test_hard_elections_are_traced_and_of_the_rest_those_that_a_hash_chooses(
    exported: Exported, runtime: str, tmp_path: Path
) -> None:
    drawn: dict[str, int] = {}

    def note(decision: RecordedDecision) -> None:
        drawn[decision.path] = sum(votes for _, votes in decision.votes) + sum(decision.flags.values())

    await rough(tmp_path, runtime=runtime, otel_sample=0.3, on_decision=note)
    hard = {path for path, draws in drawn.items() if draws > K}
    traced = {of(each)[names.PATH]: of(each)[names.IS_SAMPLED] for each in exported.spans(names.ELECTION)}
    chosen = {path for path, is_chosen in traced.items() if is_chosen}
    assert hard
    assert chosen
    assert hard <= set(traced)
    assert set(traced) == hard | chosen
    assert len(chosen) < len(drawn) * 0.7


async def test_all_processes_choose_the_same_share_of_elections() -> None:
    def tracer(share: float) -> Tracer:
        return Tracer(Tracing(traceparent="", share=share, with_content=False), ())

    ids = [ElectionId(path=f"0/step/{number}", question_digest=number.to_bytes(16)) for number in range(20_000)]
    chosen = [*filter(tracer(0.01).is_sampled, ids)]
    assert 140 < len(chosen) < 260  # 4.2 deviations of the mean of 200
    assert not any(map(tracer(0.0).is_sampled, ids))
    assert all(map(tracer(1.0).is_sampled, ids))


class Follows(Model):
    """Notes in which trace its calls are made."""

    spec = "follows"

    def __init__(self) -> None:
        self.traces: dict[str, tuple[str, int]] = {}

    async def complete(self, call: Call) -> Sample:
        inside = trace.get_current_span().get_span_context()
        self.traces[call.id.election.path] = (call.traceparent, inside.span_id)
        text = write(Drift(length=1).expert(call.prompt, Onward))
        return Sample(text=text, usage=Usage(input_tokens=1, output_tokens=1))


@pytest.mark.parametrize("runtime", ["local", "linked"])
async def test_the_code_of_a_model_is_in_the_trace_for_sampled_elections_only(exported: Exported, runtime: str) -> None:
    model = Follows()
    strategy = Maker(k=1, speculate=False)
    await run(Drift(length=30), models=model, strategy=strategy, runtime=runtime, runs_dir=None, otel_sample=0.3)
    context = exported.run.context
    assert context is not None
    sampled = {of(each)[names.PATH] for each in exported.spans(names.ELECTION)}
    assert 0 < len(sampled) < 30
    for path, (traceparent, inside) in model.traces.items():
        assert (f"{context.trace_id:032x}" in traceparent) == (path in sampled)
        assert (inside == context.span_id) == (path in sampled)


@pytest.mark.parametrize("opt_in", ["NO_CONTENT", "SPAN_ONLY"])
async def test_prompts_and_replies_are_exported_only_when_asked_for(
    exported: Exported, opt_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.CONTENT_OPT_IN, opt_in)
    await rough(tmp_path, otel_sample=1)
    for each in exported.spans(names.CALL):
        given = of(each)
        assert [name in given for name in (names.SYSTEM_TEXT, names.INPUT_MESSAGES, names.OUTPUT_MESSAGES)] == [
            opt_in == "SPAN_ONLY"
        ] * 3
    assert ("peg" in str([of(each) for each in exported.spans()])) == (opt_in == "SPAN_ONLY")


async def test_the_span_of_a_run_that_raises_says_so(exported: Exported) -> None:
    class Breaks(Model):
        spec = "breaks"

        async def complete(self, call: Call) -> Sample:
            raise ValueError(call.id.seq)

    with pytest.raises(TaskFailed):
        await run(Drift(length=3), models=Breaks(), k=1, runs_dir=None)
    assert exported.run.status.status_code is trace.StatusCode.ERROR


async def test_an_undecided_election_is_traced_with_its_verdict(exported: Exported) -> None:
    strategy = Maker(k=3, max_draws=3, speculate=False)
    await run(Drift(length=3), models="sim:gpt-4.1-mini@error=0.9", strategy=strategy, runs_dir=None, otel_sample=0)
    assert exported.events(names.ELECTION) == {"election undecided": 1}
    assert exported.metrics(of(exported.run)[names.RUN_ID])["microagents.undecided"] == 1


async def test_a_share_beyond_1_is_refused() -> None:
    with pytest.raises(InvalidUsage, match="otel_sample"):
        await run(Drift(length=3), models="sim:perfect", k=1, runs_dir=None, otel_sample=1.5)


async def test_a_program_whose_sampler_drops_the_run_gets_no_span_and_all_totals(
    exported: Exported, tmp_path: Path
) -> None:
    exported.tracers.sampler = ALWAYS_OFF
    account = (await rough(tmp_path, otel_sample=1)).account
    assert exported.spans() == []
    assert exported.metrics("a")["microagents.calls"] == account.calls


@pytest.mark.slow
def test_without_a_provider_nothing_of_opentelemetry_is_imported() -> None:
    program = """
import asyncio, json, sys
from microagents import run
from microagents.tasks.drift import Drift
asyncio.run(run(Drift(length=3), models="sim:perfect", k=1, runs_dir=None))
print(json.dumps([name for name in sys.modules if name.startswith("opentelemetry")]))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(ran.stdout) == []
