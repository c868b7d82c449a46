"""The keeper: nobody waits for the disk, but nobody runs far ahead of it; and what ends a run early."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from microagents import Context, Deployment, InvalidUsage, Result, run
from microagents.base.errors import RoleFailed
from microagents.journal import writer
from microagents.journal.messages import (
    Account,
    Conditions,
    Record,
    RecordCalls,
    ReplicaEnded,
    Report,
    Subscribe,
)
from microagents.journal.reading import Reader
from microagents.journal.sitting import JournalConfig
from microagents.journal.store import Store
from microagents.roles import Keeper
from microagents.runs.driver import batch
from microagents.runtimes.local import LocalRuntime
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def commits_without_a_pause() -> None:
    """They pause here as they do for users."""


async def timed(**options: Any) -> tuple[float, Result]:
    """The virtual time of a run in seconds, and its result."""
    result = await run(Drift(length=60), models="sim:perfect@latency=0.01", k=1, **options)
    return asyncio.get_running_loop().time(), result


def test_what_is_shown_as_done_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "VIRTUAL_COMMIT_S", 0.3)
    shown: list[tuple[int, int]] = []

    def look(account: Account) -> None:
        with Reader(Path("runs/looked.sqlite")) as reader:
            shown.append((account.decided, reader.account().decided))

    run_virtual(timed(on_progress=look, run_id="looked"))
    assert all(told <= durable for told, durable in shown)
    assert shown[-1][0] > 0


async def test_the_end_waits_for_calls_in_flight_but_not_for_those_of_a_replica_that_has_died() -> None:
    context = Context(run_id="a", seed=0, tasks=[Drift(length=1)], strategy=Maker(), settings={})
    async with LocalRuntime(context, [Deployment(role=Keeper)]) as runtime:
        for source in ("Solver/0", "Solver/1"):
            sent = RecordCalls(source=source, in_flight={"x": 3})
            runtime.messenger.tell(Record.of(sent))
        draining = asyncio.create_task(runtime.messenger.ask(Report(when="drained")))
        runtime.messenger.tell(Record.of(RecordCalls(source="Solver/1", calls=3)))
        assert (await runtime.messenger.ask(Report(when="written"))).in_flight == 3
        assert not draining.done()
        runtime.messenger.tell(Record.of(ReplicaEnded(source="Solver/0")))
        await draining
        account = await runtime.messenger.ask(Report(when="written"))
    assert (account.calls, account.in_flight) == (3, 0)


async def test_a_subscriber_gets_all_conditions_at_once_and_after_each_change() -> None:
    context = Context(run_id="a", seed=0, tasks=[Drift(length=1)], strategy=Maker(), settings={})
    async with (
        LocalRuntime(context, [Deployment(role=Keeper)]) as runtime,
        aclosing(runtime.messenger.stream(Subscribe())) as changes,
    ):
        assert await anext(changes) == Conditions(holder=1)
        draining = asyncio.create_task(runtime.messenger.ask(Report(when="drained")))
        assert await anext(changes) == Conditions(holder=1, admission="nothing")
        await changes.aclose()
        await draining


async def test_a_run_whose_keeper_fails_ends_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, take = list[object](), Keeper.record

    def taken_once(self: Keeper, request: Record) -> None:
        taken.append(request)
        if len(taken) > 1:
            raise ValueError("told to")
        take(self, request)

    monkeypatch.setattr(Keeper, "record", taken_once)
    with pytest.raises(RoleFailed, match="Keeper/0 failed on Record: ValueError: told to"):
        async with asyncio.timeout(WAIT_S):
            await run(Drift(length=8), models="sim:perfect", runs_dir=None)


@pytest.mark.parametrize("journal", [True, False])
async def test_a_limit_of_calls_ends_the_run_after_those_in_flight(*, journal: bool) -> None:
    result = await run(
        Drift(length=500), models="sim:perfect@latency=0.001", max_calls=30, runs_dir=Path("runs") if journal else None
    )
    assert result.outcome == "stopped"
    assert result.reason is not None
    assert "--max-calls 30" in result.reason
    assert result.account.in_flight == 0
    assert result.calls == 30


async def test_a_limit_of_cost_cannot_be_kept_where_the_price_is_unknown(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(
        b"".join(b'{"path": "0/step/0", "seq": %d, "text": "number = 22", "after_s": 0.2}\n' % seq for seq in range(3))
    )
    with pytest.raises(
        InvalidUsage, match=r"the price of 'scripted:.*' is unknown, so --max-cost 1 cannot be kept; give the price"
    ):
        await run(Drift(length=1), models=f"scripted:{script}", max_cost_usd=1.0, runs_dir=tmp_path / "runs")
    assert not [*(tmp_path / "runs").glob("*.sqlite*")]


@pytest.mark.slow
async def test_a_limit_of_time_ends_the_run() -> None:
    result = await run(Drift(length=500), models="sim:perfect@latency=0.2", max_time_s=1.0)
    assert result.outcome == "stopped"
    assert result.reason is not None
    assert "--max-time 1" in result.reason
    assert 0 < result.account.decided < 500


@pytest.mark.slow
def test_an_input_begins_while_another_keeps_the_journal_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MAX_OPEN", 2)
    seen: list[Account] = []
    monkeypatch.setattr(writer, "VIRTUAL_COMMIT_S", 0.03)  # something is told during every commit
    walks = [Drift(length=1500), *[Drift(length=1) for _ in range(20)]]
    run_virtual(run(walks, models="sim:perfect@latency=0.001", k=1, on_progress=seen.append))
    assert max(account.inputs_done for account in seen if account.steps < 1000) > 3


async def test_a_keeper_whose_start_is_cut_off_gives_the_journal_back(monkeypatch: pytest.MonkeyPatch) -> None:
    may_open, opening = threading.Event(), threading.Event()

    def slowly(config: JournalConfig) -> Store:
        opening.set()
        may_open.wait(WAIT_S)
        return Store(config)

    monkeypatch.setattr(writer, "Store", slowly)
    running = asyncio.create_task(run(Drift(length=3), models="sim:perfect", run_id="cut"))
    await asyncio.to_thread(opening.wait, WAIT_S)
    running.cancel()
    asyncio.get_running_loop().call_later(0.1, may_open.set)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await run(Drift(length=3), models="sim:perfect", run_id="cut")).outcome == "completed"
