"""What became of a destructive call: what nobody can tell is asked of a person, and what is under way is never cancelled."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from microagents import InvalidUsage, Result, Stopped, run, run_sync
from microagents.journal.messages import Account, RecordDecision, Written
from microagents.journal.requests import EndRun, SetRun
from microagents.journal.store import Store
from microagents.runs.inspection.control import ask_run
from microagents.runs.inspection.runs import decide, inspect_run
from microagents.runtimes.virtual import run_virtual
from microagents.systems.agents.act import Act
from microagents.tools.effect_keys import MAKING
from microagents.tools.mcp_connections import McpConnections
from microagents.tools.mcp_servers import McpServer
from microagents.tools.observations import Called
from microagents.tools.tool import EffectKey, tool
from microagents.tools.toolbox import GivenTool
from tests.cli.commands import COMPLETED, UNDECIDED, microagents
from tests.systems.agents.shop import Script, Ticket, done, write

RUNS = Path("runs")
WAIT_S = 60.0


def sitting(task: Script | Ticket, run_id: str = "r", **given: Any) -> Result:
    strategy = Act(**{name: given.pop(name) for name in list(given) if name in Act.model_fields})
    return run_sync(task, models="sim:perfect", strategy=strategy, run_id=run_id, **given)


def test_no_call_is_made_whose_intention_could_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal can still be read, as after an error of the disk that has passed."""
    commit = Store.commit

    def failing(store: Store, records: Sequence[Written]) -> Account:
        if any(isinstance(each, RecordDecision) and each.id.path.endswith(f"{MAKING}1") for each in records):
            raise Stopped("an error of the disk")
        return commit(store, records)

    with monkeypatch.context() as failed:
        failed.setattr(Store, "commit", failing)
        assert sitting(Ticket()).outcome == "stopped"
    assert done() == []
    assert sitting(Ticket()).outcome == "completed"
    assert [each["what"] for each in done()] == ["label", "refund", "mail"]


# -- What it raised ---------------------------------------------------------------------------------------------------------------------


SERVER = f"{sys.executable} -S {Path(__file__).with_name('unruly_server.py')} 0"


async def test_an_error_of_a_server_is_unknown_unless_its_user_says_what_it_means() -> None:
    connections = McpConnections()

    async def outcome(server: McpServer, *, acts: bool) -> str:
        return (await connections.call(server, "pay", {}, {}, WAIT_S, acts=acts)).outcome

    try:
        assert await outcome(McpServer(server=SERVER), acts=True) == "unknown"
        assert await outcome(McpServer(server=SERVER, errors="not_made"), acts=True) == "error"
        assert await outcome(McpServer(server=SERVER), acts=False) == "error"
    finally:
        await connections.close()


@pytest.mark.slow
async def test_a_call_that_takes_too_long_does_not_end_the_server_of_one_that_acts() -> None:
    connections, server = McpConnections(), McpServer(server=SERVER)
    try:
        acting = asyncio.ensure_future(connections.call(server, "wait", {"seconds": 0.5}, {}, None, acts=True))
        assert (await connections.call(server, "doze", {"seconds": 9}, {}, 0.2, acts=False)).outcome == "unknown"
        assert not acting.done()
        assert await acting == Called(outcome="done", text="paid")
    finally:
        await connections.close()
    assert await asyncio.to_thread(Path("paid.txt").read_text) == "x"


def test_what_errors_mean_is_one_of_two_words() -> None:
    with pytest.raises(InvalidUsage, match="errors of x is unknown or not_made, not 'made'"):
        McpServer(server="x", errors="made")  # type: ignore[arg-type]


# -- Asked again ------------------------------------------------------------------------------------------------------------------------

CRASHING = '''
import os, signal
from microagents import Action, AgentTask, ToolCall, tool

@tool("destructive")
def refund(order: int) -> str:
    """Pay back."""
    if os.environ.get("CRASH") == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    with open("world.jsonl", "a") as world:
        world.write('{"what": "refund"}\\n')
    if os.environ.get("CRASH") == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid back"

class Refund(AgentTask):
    tools = (refund,)
    def statement(self): return "Pay order 7 back."
    def expert(self, prompt, reply):
        return Action(calls=[[ToolCall("refund", {"order": 7}), ToolCall("end", {"answer": "a"})][prompt.user.count("\\nAction ")]])
'''


def killed(*words: str, crash: str) -> None:
    """Run a command in a process that its tool kills."""
    child = os.fork()
    if not child:
        microagents(*words, env={"CRASH": crash})
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def last_call() -> dict[str, Any]:
    rows = [json.loads(line) for line in microagents("export", "r", "--actions").out.splitlines()]
    return next(each for each in rows if each["tool"] == "refund")


@pytest.mark.slow
def test_a_person_is_asked_as_often_as_a_making_is_killed_until_it_is_made_once() -> None:
    Path("refund.py").write_text(CRASHING)
    killed("run", "refund.py", "--run-id", "r", "--model", "sim:perfect", crash="before")
    for number in (1, 2, 3):
        assert microagents("resume", "r").code == UNDECIDED
        call = last_call()
        assert (call["outcome"], call["makings"], done()) == ("unknown", number, [])
        place = f"0/step/0/call/0/making/{number}/found"
        said = microagents("decide", "r", "step/0", "not-done")
        assert (said.code, place in said.out) == (COMPLETED, True), said
        killed("resume", "r", crash="before" if number < 3 else "after")
    assert microagents("resume", "r").code == UNDECIDED
    assert microagents("decide", "r", "step/0", "done", "paid back").code == COMPLETED
    assert microagents("resume", "r").code == COMPLETED
    assert done() == [{"what": "refund"}]
    call = last_call()
    assert (call["outcome"], call["observation"], call["makings"]) == ("done", "paid back", 4)
    assert call["person"] == "was not made, was not made, was not made, was made"
    assert "(begun 4 times; a person: was not made, " in microagents("show", "r").out


class Failing(Script):
    """Its payment fails, and nobody can tell how far it came."""

    @staticmethod
    @tool("destructive")
    def pay() -> str:
        """Pay."""
        write("pay")
        raise ValueError("the card is expired")

    tools: ClassVar[tuple[GivenTool, ...]] = (pay,)


def test_a_person_can_tell_the_agent_why_a_call_was_not_made() -> None:
    task = Failing(calls=(("pay", {}),))
    assert sitting(task).outcome == "undecided"
    assert microagents("decide", "r", "step/0", "not-done", "the", "card", "is", "expired").code == COMPLETED
    result = sitting(task)
    assert (result.outcome, result.value["errors"], len(done())) == ("completed", 1, 1)
    assert "-> error (a person: was not made): the card is expired" in microagents("show", "r").out


# -- Under way --------------------------------------------------------------------------------------------------------------------------


BEGUN, MAY_END = threading.Event(), threading.Event()
PAYING = threading.Lock()
"""Held by a payment, so that none outlives its test."""
CALLS: list[None] = []
"""One for each payment that was begun in this test."""


@tool("destructive")
def pay() -> str:
    """Pay."""
    CALLS.append(None)
    with PAYING:
        BEGUN.set()
        MAY_END.wait(WAIT_S)
        write("pay")
    return "paid"


@tool("destructive")
async def pay_async() -> str:
    """Pay."""
    return await asyncio.to_thread(pay)


@tool("destructive")
async def nap(seconds: float) -> str:
    """Pay slowly."""
    await asyncio.sleep(seconds)
    return "paid"


def find_none(key: EffectKey) -> str | None:  # noqa: ARG001 - the server has heard of no call yet
    return None


@tool("destructive", lookup=find_none)
async def pay_later(seconds: float) -> str:
    """Pay slowly, at a server that knows a payment once it is made."""
    CALLS.append(None)
    await asyncio.sleep(seconds)
    return "paid"


class Slow(Script):
    """Its payments take as long as a test wants."""

    tools: ClassVar[tuple[GivenTool, ...]] = (pay, pay_async, nap, pay_later)


PAY = Slow(calls=(("pay", {}),))


@pytest.fixture(autouse=True)
def slow_calls() -> Iterator[None]:
    CALLS.clear()
    BEGUN.clear()
    MAY_END.clear()
    yield
    MAY_END.set()
    assert PAYING.acquire(timeout=WAIT_S)
    PAYING.release()


async def unknown_at(run_id: str = "r") -> str:
    """Wait until a call waits for a person; returns its place."""
    while True:
        with suppress(InvalidUsage):  # it has no journal yet
            for each in await asyncio.to_thread(lambda: inspect_run(RUNS, run_id).waiting):
                return each.path
        await asyncio.sleep(0.02)


async def test_a_call_that_ends_after_its_time_out_lets_its_run_go_on() -> None:
    task = Slow(calls=(("pay_async", {}),))
    running = asyncio.ensure_future(run(task, models="sim:perfect", strategy=Act(tool_timeout=0.05), run_id="r"))
    assert await unknown_at() == "0/step/0/call/0/making/1/found"
    assert not running.done()
    MAY_END.set()
    result = await running
    assert (result.outcome, result.reason, len(done())) == ("completed", None, 1)
    assert result.account.undecided_at == ()
    (call, _) = [json.loads(line) for line in microagents("export", "r", "--actions").out.splitlines()]
    assert (call["outcome"], call["observation"], call["person"]) == ("done", "paid", None)


def test_a_call_that_does_not_end_is_left_and_its_outcome_unknown(caplog: pytest.LogCaptureFixture) -> None:
    result = sitting(PAY, tool_timeout=0.05, max_wait_effects_s=0.1)
    assert result.outcome == "undecided"
    assert "no result within 0.05 s" in str(result.reason)
    assert "waiting for calls of tools that are under way" in caplog.text
    assert "at_most_s=0.1" in caplog.text
    assert "calls of tools are left under way" in caplog.text
    assert "-> unknown" in microagents("show", "r").out


@pytest.mark.slow
async def test_one_that_is_left_before_its_time_out_is_unknown_in_the_journal_too() -> None:
    terminate = asyncio.Event()
    given: Any = {"models": "sim:perfect", "strategy": Act(), "run_id": "r", "max_wait_effects_s": 0.1}
    running = asyncio.ensure_future(run(PAY, terminate=terminate, **given))
    await asyncio.to_thread(BEGUN.wait, WAIT_S)
    terminate.set()
    assert (await running).outcome == "interrupted"
    result = await run(PAY, **given)
    assert (result.outcome, "(the run ended before it did)" in str(result.reason)) == ("undecided", True)
    assert done() == []


def broken(_: Any) -> None:
    if BEGUN.is_set():
        raise LookupError("of the caller")


ENDS = ("terminate", "cancel", "stop --now", "limit", "callback")


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDS)
async def test_however_a_run_ends_it_waits_for_what_is_under_way(how: str) -> None:
    events = {each: asyncio.Event() for each in ("terminate",)}
    options: dict[str, Any] = {"callback": {"on_progress": broken}}
    given: Any = {"models": "sim:perfect", "strategy": Act(), "run_id": "r"}
    options = {**given, **events, **options.get(how, {})}
    running = asyncio.ensure_future(run(PAY, **options))
    await asyncio.to_thread(BEGUN.wait, WAIT_S)
    match how:
        case "terminate":
            events[how].set()
        case "cancel":
            running.cancel()
            await asyncio.sleep(0.05)
            running.cancel()  # impatient callers do it twice
        case "limit":
            await asyncio.to_thread(ask_run, RUNS, "r", SetRun(max_time_s=0.1))
        case "stop --now":
            await asyncio.to_thread(ask_run, RUNS, "r", EndRun(after="nothing"))
    await asyncio.sleep(0.6 if how == "callback" else 0.15)  # a callback comes at a time of its own
    assert not running.done()
    MAY_END.set()
    with suppress(asyncio.CancelledError, LookupError):
        assert (await running).outcome in ("interrupted", "stopped")
    assert len(done()) == 1
    result = await run(PAY, **given, max_time_s=None)
    assert (result.outcome, len(done())) == ("completed", 1)


@pytest.mark.slow
async def test_a_call_that_was_said_not_to_be_made_and_was_is_not_made_again() -> None:
    running = asyncio.ensure_future(run(PAY, models="sim:perfect", strategy=Act(tool_timeout=0.05), run_id="r"))
    path = await unknown_at()
    await asyncio.to_thread(decide, RUNS, "r", path, "not-done")
    MAY_END.set()
    assert ((await running).outcome, len(done())) == ("completed", 1)


@pytest.mark.slow
async def test_nor_is_one_that_still_is_under_way_made_a_second_time() -> None:
    given: Any = {"models": "sim:perfect", "strategy": Act(tool_timeout=0.05), "run_id": "r"}
    running = asyncio.ensure_future(run(PAY, **given, max_wait_effects_s=1.0))
    await asyncio.to_thread(decide, RUNS, "r", await unknown_at(), "not-done")
    result = await running
    assert result.outcome == "undecided"
    assert "0/step/0/call/0/making/2/found" in str(result.reason)
    assert len(CALLS) == 1
    assert "a person: was not made" in microagents("show", "r").out


def test_a_call_that_is_still_alive_and_that_no_look_up_finds_is_not_made_again() -> None:
    task = Slow(calls=(("pay_later", {"seconds": 30.0}),))
    result = run_virtual(run(task, models="sim:perfect", strategy=Act(tool_timeout=1), run_id="r"))
    assert (result.outcome, len(CALLS)) == ("completed", 1)


@pytest.mark.slow
def test_digests_do_not_depend_on_when_a_late_call_ends() -> None:
    model = "sim:perfect@error=0.1,alternatives=9,latency=1,sigma=1"
    found = set()
    for seed in range(6):
        task = Slow(calls=tuple(("nap", {"seconds": seconds}) for seconds in (30.0, 90.0, 5.0)))
        result = run_virtual(run(task, models=model, strategy=Act(), run_id=f"r{seed}"), seed=seed)
        found.add((result.outcome, result.account.decisions_sha256))
    assert [outcome for outcome, _ in found] == ["completed"]
