"""Batches over real HTTP: files of OpenAI, batches of Anthropic and background windows, whose samples are those of single calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import microagents
from microagents import InvalidUsage, Result
from microagents.base.errors import ModelUnavailable
from microagents.elections.sample_batches import SampleBatch
from microagents.journal.messages import Account
from microagents.journal.reading import Reader
from microagents.journal.requests import EndRun
from microagents.models.http import batch_client as batches
from microagents.models.http import batch_wires
from microagents.roles import running_election
from microagents.runs.inspection.control import ask_run
from microagents.tasks.drift import Drift
from tests.doubles.simulated.batches import BatchFaults
from tests.doubles.simulated.server import Endpoint, Serving, serving
from tests.models.batch_rows import WIRES, note_keys, spec_at, table

ROWS = 12
MODEL = "sim:perfect@error=0.1,flag=0.05"


class Provider:
    """Endpoints whose lines draw the samples that single calls draw."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = folder / "keys"
        self.keys.touch()

    def endpoint(self, **faults: Any) -> Endpoint:
        """Return an endpoint with faults."""
        return Endpoint(
            model=MODEL, task=table(1)[0], batches=BatchFaults(**{"poll_s": 0.02, **faults}), keys=self.keys
        )

    async def filled(self, served: Serving, wire: str, *, batch: str | None = "", **given: Any) -> Result[Any]:
        """Fill a table at an endpoint."""
        kind = WIRES[wire][2] if batch == "" else batch
        options = {"models": spec_at(wire, served.url), "k": 2, "run_id": "rows", "runs_dir": self.folder / "runs"}
        options |= {"batch": kind}
        return await microagents.run(table(ROWS), **{**options, **given})


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Provider:
    found = Provider(tmp_path)
    monkeypatch.setattr(batches, "line_of", batches.line_of)
    note_keys(found.keys)
    for name, value in {"MOMENT_S": 0.05, "POLL_S": (0.02, 0.05), "LOOK_S": 0.05, "LOST_S": 1.0, "HOLD_S": 0.5}.items():
        monkeypatch.setattr(batches, name, value)
    monkeypatch.setattr(running_election, "PARK_S", 0.2)
    return found


async def alone(provider: Provider) -> Account:
    """Return the account of the same table by single calls."""
    async with serving(provider.endpoint()) as served:
        result = await provider.filled(served, "responses", batch=None, run_id="single", runs_dir=None)
    assert result.outcome == "completed"
    return result.account


def batches_of(provider: Provider, run_id: str) -> list[SampleBatch]:
    """Return the recorded batches of a run."""
    with Reader(provider.folder / "runs" / f"{run_id}.sqlite") as reader:
        return reader.last_batches(100)


def assert_equal(result: Result[Any], single: Account) -> None:
    """Check that a table has the decisions and ballots of single calls."""
    assert result.outcome == "completed", result.reason
    account = result.account
    assert (account.decisions_sha256, account.ballots_sha256) == (single.decisions_sha256, single.ballots_sha256)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("wire", WIRES)
async def test_batches_decide_as_single_calls_for_half_the_price(provider: Provider, wire: str) -> None:
    single = await alone(provider)
    async with serving(provider.endpoint(late_s=0.1)) as served:
        result = await provider.filled(served, wire)
    assert_equal(result, single)
    sums = result.account.batches
    assert (sums.lines, sums.open, sums.failed, sums.lost) == (single.calls, 0, 0, 0)
    assert served.samples == single.calls
    assert result.account.cost_usd is not None
    assert single.cost_usd is not None
    assert sums.unclaimed_usd == pytest.approx(0.0)
    if wire == "windows":  # the reply names the standard tier
        assert result.account.cost_usd == pytest.approx(single.cost_usd)
        assert served.desk.events["delete"] == single.calls
    else:
        assert result.account.cost_usd == pytest.approx(single.cost_usd / 2)
        assert sums.saved_usd == pytest.approx(single.cost_usd / 2)


@pytest.mark.slow_after(1)
async def test_a_stored_reply_that_cannot_be_deleted_is_named_and_settled(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(_: Any, name: str) -> None:
        raise ModelUnavailable("server", f"cannot delete {name}", 500)

    monkeypatch.setattr(batch_wires.ResponseWindows, "delete", refuse)
    async with serving(provider.endpoint()) as served:
        result = await provider.filled(served, "windows")
    assert result.outcome == "completed", result.reason
    assert result.account.batches.unclaimed_usd == pytest.approx(0.0)
    assert {each.state for each in batches_of(provider, "rows")} == {"settled"}
    assert caplog.text.count("could not be deleted") == result.account.batches.made


FAULTS: dict[str, dict[str, Any]] = {
    "failed, expired and doubled lines": {"failed": 0.1, "expired": 0.1, "doubled": 0.3},
    "404 at first and again": {"unseen_s": 0.3, "flicker": 0.3},
    "a create that answers 500, and a list that lags": {"made_500": 1.0, "lag_s": 0.3},
}


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("fault", FAULTS)
async def test_faults_buy_no_line_twice_and_change_no_decision(provider: Provider, wire: str, fault: str) -> None:
    if wire == "windows" and "made_500" in FAULTS[fault]:
        pytest.skip("a response whose create has no answer is in no list: the named case")
    single = await alone(provider)
    async with serving(provider.endpoint(late_s=0.05, **FAULTS[fault])) as served:
        result = await provider.filled(served, wire)
    assert_equal(result, single)
    assert set(served.desk.bought.values()) == {1}
    assert result.account.batches.lost == 0


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_a_batch_that_vanished_is_sent_anew_named_and_counted(provider: Provider, wire: str) -> None:
    single = await alone(provider)
    async with serving(provider.endpoint(vanished=1)) as served:
        result = await provider.filled(served, wire)
    assert_equal(result, single)
    twice = sum(count - 1 for count in served.desk.bought.values())
    sums = result.account.batches
    assert 0 < twice <= sums.lost_lines
    assert sums.lost_usd > 0
    assert result.account.bound_usd == pytest.approx((result.account.cost_usd or 0) + sums.lost_usd)


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["chat", "messages"])
async def test_a_batch_that_says_in_words_when_it_was_made_is_found(provider: Provider, wire: str) -> None:
    async with serving(provider.endpoint(made_500=1.0, odd_times=True)) as served:
        result = await provider.filled(served, wire)
    assert result.outcome == "completed", result.reason
    assert set(served.desk.bought.values()) == {1}


@pytest.mark.slow
async def test_a_batch_without_marks_is_found_by_the_name_of_its_file(provider: Provider) -> None:
    async with serving(provider.endpoint(made_500=1.0, without_marks=True)) as served:
        result = await provider.filled(served, "chat")
    assert result.outcome == "completed", result.reason
    assert set(served.desk.bought.values()) == {1}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("wire", WIRES)
async def test_an_interrupted_run_leaves_its_batches_and_takes_them_up_again(provider: Provider, wire: str) -> None:
    single = await alone(provider)
    interrupt = asyncio.Event()
    async with serving(provider.endpoint(late_s=0.4)) as served:
        running = asyncio.create_task(provider.filled(served, wire, interrupt=interrupt))
        while not served.desk.events["poll"]:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.01)
        interrupt.set()
        first = await running
        assert (first.outcome, first.account.calls, first.account.lost_in_flight) == ("interrupted", 0, 0)
        assert first.account.batches.open_lines > 0
        sums = first.account.batches
        assert first.account.bound_usd == pytest.approx(sums.open_usd + sums.unclaimed_usd)
        result = await provider.filled(served, wire)
    assert_equal(result, single)
    assert set(served.desk.bought.values()) == {1}
    assert result.account.calls == single.calls
    assert result.account.batches.open == 0


async def test_another_key_is_refused_while_a_batch_is_open(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt = asyncio.Event()
    async with serving(provider.endpoint(late_s=60.0)) as served:
        running = asyncio.create_task(provider.filled(served, "chat", interrupt=interrupt))
        while not served.desk.made:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        interrupt.set()
        await running
        monkeypatch.setenv("OPENAI_API_KEY", "another")
        with pytest.raises(
            InvalidUsage, match=r"batch 1 of this run .* was made with another address, key or workspace"
        ):
            await provider.filled(served, "chat")
        assert served.desk.events["create"] == 1


async def test_results_that_cannot_be_read_stop_the_run_with_a_sentence_and_are_read_again(provider: Provider) -> None:
    single = await alone(provider)
    async with serving(provider.endpoint(broken=True)) as served:
        result = await provider.filled(served, "chat")
        assert result.outcome == "stopped"
        assert (
            "(batch_2) cannot be read: the model's provider answered 'garbled': 1 lines of its results are not readable; nothing is lost"
            in str(result.reason)
        )
        served.desk.faults = structs.replace(served.desk.faults, broken=False)
        result = await provider.filled(served, "chat")
    assert_equal(result, single)
    assert set(served.desk.bought.values()) == {1}


@pytest.mark.parametrize("at", ["poll", "results"])
async def test_an_unforeseen_error_amid_a_batch_stops_the_run_with_a_sentence(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    single = await alone(provider)

    async def fails(*_: object) -> None:
        raise KeyError("a field that nobody foresaw")

    async with serving(provider.endpoint()) as served:
        with monkeypatch.context() as broken:
            broken.setattr(batch_wires.OpenAIFiles, at, fails)
            async with asyncio.timeout(10):
                result = await provider.filled(served, "chat")
        assert result.outcome == "stopped"
        assert "(batch_2) cannot be followed: KeyError: 'a field that nobody foresaw'" in str(result.reason)
        assert_equal(await provider.filled(served, "chat"), single)
    assert set(served.desk.bought.values()) == {1}


async def test_a_provider_without_batches_is_told_in_one_sentence(provider: Provider) -> None:
    async with serving(provider.endpoint(refused=404)) as served:
        with pytest.raises(microagents.ModelUnavailable, match=r"takes no batch: .* leave --batch and @batch=... out"):
            await provider.filled(served, "chat")
    assert not served.desk.made


@pytest.mark.parametrize(
    ("model", "batch", "said"),
    [
        ("sim:perfect", "file", "sim:perfect has no batches; leave --batch out"),
        ("openai:gpt-6-luna@base_url=http://localhost:1", "window", "takes batch=file, not batch='window'"),
        (
            "openai-decisions:gpt-6-luna@base_url=http://localhost:1,batch=file",
            None,
            "has no batches, not batch='file'",
        ),
    ],
)
async def test_a_model_without_batches_is_refused(model: str, batch: Any, said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        await microagents.run(table(2), models=model, batch=batch, runs_dir=None)


async def test_a_chain_is_refused_unless_each_step_may_wait() -> None:
    chain, model = Drift(length=3), "openai:gpt-6-luna@base_url=http://localhost:1,batch=file"
    with pytest.raises(InvalidUsage, match="each step of Drift waits for the one before it"):
        await microagents.run(chain, models=model, runs_dir=None)


@pytest.mark.slow
async def test_the_last_calls_go_singly_if_asked_to(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "SMALL_SHARE", 0.5)
    single = await alone(provider)
    async with serving(provider.endpoint()) as served:
        result = await provider.filled(served, "chat", batch_then="single")
    assert_equal(result, single)
    assert served.desk.events["create"] == 1
    assert 0 < served.requests == single.calls - result.account.batches.lines


async def test_an_old_batch_is_cancelled_and_its_results_are_taken(provider: Provider) -> None:
    async with serving(provider.endpoint(late_s=60.0)) as served:
        result = await provider.filled(served, "chat", batch_within="0.01m", batch_then="single")
    assert result.outcome == "completed"
    assert served.desk.events["cancel"] == served.desk.events["create"] > 0
    assert not served.desk.bought


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("wire", ["windows", "messages"])
async def test_a_stopped_run_cancels_its_batches_if_asked_to(provider: Provider, wire: str) -> None:
    async with serving(provider.endpoint(late_s=60.0)) as served:
        running = asyncio.create_task(provider.filled(served, wire))
        while served.desk.events["poll"] < (2 * ROWS if wire == "windows" else 1):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        ask = EndRun(after="calls", cancels_batches=True)
        asked = await asyncio.to_thread(ask_run, provider.folder / "runs", "rows", ask)
        assert asked.is_taken
        assert (await running).outcome == "stopped"
        assert served.desk.events["cancel"] == served.desk.events["create"] > 0
        served.desk.faults = structs.replace(served.desk.faults, late_s=0.0)
        result = await provider.filled(served, wire)
    assert result.outcome == "completed", result.reason
    assert set(served.desk.bought.values()) == {1}


async def test_rows_beyond_the_concurrency_go_in_one_batch_since_waiting_rows_are_parked(provider: Provider) -> None:
    single = await alone(provider)
    async with serving(provider.endpoint(late_s=0.1)) as served:
        result = await provider.filled(served, "chat", concurrency=3)
    assert_equal(result, single)
    assert max(len(each.lines) for each in served.desk.made.values()) == 2 * ROWS
    assert result.account.calls == single.calls


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [None, 3])
async def test_a_provider_that_takes_uploads_slowly_has_few_batches_in_memory(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, concurrency: int | None
) -> None:
    monkeypatch.setattr(batches, "MOST_LINES", 4)
    single = await alone(provider)
    async with serving(provider.endpoint(upload_s=0.1)) as served:
        result = await provider.filled(served, "chat", concurrency=concurrency)
    assert_equal(result, single)
    assert served.desk.most_unsent == batches.MOST_UNSENT
    assert set(served.desk.bought.values()) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["max_cost_usd", "max_calls", "max_tokens"])
async def test_a_parked_row_counts_at_its_most_until_its_result_is_there(provider: Provider, limit: str) -> None:
    single = await alone(provider)
    assert single.calls > 2 * ROWS
    async with serving(provider.endpoint()) as served:
        whole = await provider.filled(served, "chat", run_id="whole")
        most_usd = sum(each.most_usd or 0.0 for each in batches_of(provider, "whole")[:1])
        tokens = round(most_usd / 0.5 * 1e6)
        enough: dict[str, Any] = {"max_cost_usd": most_usd, "max_calls": single.calls, "max_tokens": tokens}
        result = await provider.filled(served, "chat", **{limit: enough[limit]})
        assert_equal(result, single)
        assert whole.account.cost_usd == result.account.cost_usd
        scarce: dict[str, Any] = {"max_cost_usd": most_usd / 4, "max_calls": ROWS, "max_tokens": tokens // 4}
        made = len(served.desk.made)
        less = await provider.filled(served, "chat", run_id="less", **{limit: scarce[limit]})
    batches_made, account = [*served.desk.made.values()][made:], less.account
    used = {"max_cost_usd": account.bound_usd, "max_calls": account.calls, "max_tokens": account.tokens_at_most}
    assert (used[limit] or 0) <= scarce[limit]
    assert max(len(each.lines) for each in batches_made) <= ROWS
    assert less.account.calls >= ROWS, less.reason


@pytest.mark.slow
async def test_a_run_that_ends_after_its_elections_counts_the_batch_of_parked_rows_and_leaves_its_results(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "HOLD_S", 0.2)
    single = await alone(provider)
    async with serving(provider.endpoint(late_s=1.0)) as served:
        running = asyncio.create_task(provider.filled(served, "chat"))
        while not served.desk.events["poll"]:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        await asyncio.to_thread(ask_run, provider.folder / "runs", "rows", EndRun(after="elections"))
        async with asyncio.timeout(20):
            first = await running
        assert (first.outcome, first.account.batches.open) == ("stopped", 0)
        assert first.account.bound_usd == pytest.approx(first.account.batches.unclaimed_usd)
        assert_equal(await provider.filled(served, "chat"), single)
    assert set(served.desk.bought.values()) == {1}


@pytest.mark.slow
async def test_a_limit_of_cost_that_leaves_only_the_open_batch_takes_its_results(provider: Provider) -> None:
    interrupt = asyncio.Event()
    async with serving(structs.replace(provider.endpoint(late_s=0.6), model="sim:perfect")) as served:
        running = asyncio.create_task(provider.filled(served, "chat", interrupt=interrupt, max_cost_usd=1.0))
        while not served.desk.events["poll"]:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        interrupt.set()
        bound_usd = (await running).account.bound_usd
        assert bound_usd
        result = await provider.filled(served, "chat", max_cost_usd=bound_usd)
    assert (result.outcome, result.account.calls) == ("completed", 2 * ROWS)
    assert (result.account.cost_usd or 0) < bound_usd
