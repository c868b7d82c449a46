"""The solver: what fails in transport is tried again under its seq, and every call that was sent is accounted for, however a run ends."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs

from microagents import Deployment, Result, Sample, run
from microagents.actors.role import Context, Messenger
from microagents.base.errors import ModelUnavailable
from microagents.elections.election import Ballot, Flagged, Screen, Wanted
from microagents.journal.messages import Report
from microagents.models.model import Call, Model
from microagents.models.simulation.scripted import ScriptLine
from microagents.replies.reply_forms import write
from microagents.roles import RedFlagger, Solver
from microagents.roles.solver import outages
from microagents.roles.solver.attempts import Attempts
from microagents.roles.solver.permits import Attempt
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift, Onward
from tests.roles.test_limiter import no_file
from tests.roles.voting import Say, a_line, a_question, elect, says, scripted, tally_of, turns, voting

both_runtimes = pytest.mark.parametrize("runtime", ["local", "linked"])
"""Those in one process: calls are counted in its memory."""
STEP = Drift(length=1)
"""A run of one election."""


def steps(numbers: Sequence[int | None], after_s: float = 0.0) -> list[ScriptLine]:
    """What the model replies to it, in order of launch; None is a reply that is flagged."""
    texts = ["" if number is None else write(Onward(number=number)) for number in numbers]
    return [ScriptLine(path="0/step/0", seq=seq, text=text, after_s=after_s) for seq, text in enumerate(texts)]


# -- failures in transport ---------------------------------------------------------------------------------------------


async def test_a_transport_error_is_tried_again_under_its_seq_and_is_neither_flag_nor_vote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "BACKOFF_S", (0.0, 0.0))  # inside: a test does not wait for a provider to come back
    lines = [a_line(0, Say(word="a")), a_line(1, Say(word="a"), fails=3), a_line(2, Say(word="a"), fails=1)]
    model = scripted(tmp_path / "script", lines)
    with capture_logs() as logs:
        async with voting(Deployment(role=Solver), model=model, max_outage_s=60.0) as messenger:
            verdict = await messenger.ask(elect(a_question(models=[model])))
            account = await messenger.ask(Report(when="written"))
    assert (verdict.outcome, tally_of(verdict), account.flagged) == ("decided", {"a": 3}, {})
    assert [ballot.seq for ballot in verdict.ballots] == [0, 1, 2]
    assert account.repeated == {"server": 4}
    assert [log["tries"] for log in logs if log["log_level"] == "debug"] == [1, 1, 2, 3]
    assert [log["log_level"] for log in logs if log["log_level"] != "debug"] == ["warning"], (
        "an outage is said once, not once a call"
    )
    assert account.calls == 3  # a provider does not bill a 503


class Dead(Model):
    """Fails, and is throttled, as a provider's model is."""

    throttled_as = "a provider"

    async def complete(self, call: Call) -> Sample:  # noqa: ARG002
        await asyncio.sleep(0.1)
        raise ModelUnavailable("network", "nobody listens")


@pytest.mark.parametrize(("inputs", "max_outage_s"), [(1, 1000.0), (50, 5.0)])
def test_an_outage_ends_the_run_at_its_time_however_many_calls_wait(inputs: int, max_outage_s: float) -> None:
    async def stopped() -> tuple[Result, float]:
        result = await run([STEP] * inputs, models=Dead(), runs_dir=None, max_outage_s=max_outage_s)
        return result, asyncio.get_running_loop().time()

    result, took_s = run_virtual(stopped())
    assert result.outcome == "stopped"
    assert max_outage_s <= took_s < max_outage_s + 3


# -- every call is accounted for -----------------------------------------------------------------------------------------


@both_runtimes
async def test_calls_that_are_cancelled_are_accounted_for(runtime: str, tmp_path: Path) -> None:
    model = scripted(tmp_path / "script", [a_line(seq, Say(word="a"), after_s=3600.0) for seq in range(3)])
    async with voting(Deployment(role=Solver), model=model, runtime=runtime) as messenger:
        asking = asyncio.create_task(messenger.ask(elect(a_question(models=[model]))))
        await turns()
        assert (await messenger.ask(Report(when="written"))).calls == 0
        asking.cancel()
        await turns()
        account = await messenger.ask(Report(when="written"))
    assert (account.calls, account.wasted_calls, account.valid) == (3, 3, 0)


@pytest.mark.slow
@both_runtimes
def test_nobody_hears_of_a_verdict_before_what_it_cost_is_told(runtime: str, tmp_path: Path) -> None:
    words = says("a.b.aaba.a.aaaa")

    async def held() -> tuple[int, int]:
        model = scripted(tmp_path / "script", [a_line(seq, word) for seq, word in enumerate(words)])
        async with voting(Deployment(role=Solver), model=model, runtime=runtime, concurrency=None) as messenger:
            verdict = await messenger.ask(elect(a_question(models=[model])))
            return len(verdict.ballots), (await messenger.ask(Report(when="written"))).calls

    for seed in range(20):
        counted, calls = run_virtual(held(), seed=seed)
        assert counted == calls, seed


class CountingSolver(Solver):
    """Counts what it sends."""

    sent: ClassVar[int] = 0

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._attempts = CountedAttempts(context, self._accounts, self._permits, no_file)


class CountedAttempts(Attempts):
    """The attempts of such a solver."""

    async def _send(self, attempt: Attempt) -> Sequence[Sample]:
        CountingSolver.sent += 1
        return await super()._send(attempt)


class Counted(Maker):
    """MAKER with such a solver."""

    def deployments(self) -> list[Deployment]:
        return [Deployment(role=CountingSolver) if each.role is Solver else each for each in super().deployments()]


@both_runtimes
async def test_calls_that_a_termination_cancels_are_in_the_result(runtime: str, tmp_path: Path) -> None:
    CountingSolver.sent = 0
    model, terminate = scripted(tmp_path / "script", steps([1, 1, 1], after_s=3600.0)), asyncio.Event()
    running = asyncio.create_task(
        run(STEP, models=model, strategy=Counted(), runtime=runtime, runs_dir=None, terminate=terminate)
    )
    while CountingSolver.sent < 3:  # noqa: ASYNC110 - iterations of the loop are what passes here
        await asyncio.sleep(0)
    terminate.set()
    result = await running
    assert (result.outcome, result.calls) == ("interrupted", 3)


@both_runtimes
def test_an_interrupt_waits_for_the_calls_in_flight_and_launches_no_more(runtime: str, tmp_path: Path) -> None:
    CountingSolver.sent = 0

    async def interrupted() -> tuple[Result, float]:
        interrupt = asyncio.Event()
        asyncio.get_running_loop().call_later(0.5, interrupt.set)
        model = scripted(tmp_path / "script", steps([1, 2, 1, 2], after_s=1.0))
        result = await run(STEP, models=model, strategy=Counted(), runtime=runtime, runs_dir=None, interrupt=interrupt)
        return result, asyncio.get_running_loop().time()

    result, took_s = run_virtual(interrupted())
    assert (result.outcome, result.calls, result.account.in_flight) == ("interrupted", 3, 0)
    assert CountingSolver.sent == 3
    assert took_s >= 1.0, "all three were answered"


class UnhurriedRedFlagger(RedFlagger):
    """Reads a reply long after it came."""

    async def screen(self, request: Screen) -> Ballot | Flagged | Wanted:
        await asyncio.sleep(5)
        return await super().screen(request)


class Unhurried(Maker):
    """MAKER with such a red-flagger."""

    def deployments(self) -> list[Deployment]:
        return [
            Deployment(role=UnhurriedRedFlagger) if each.role is RedFlagger else each for each in super().deployments()
        ]


@both_runtimes
def test_an_interrupt_waits_until_what_was_bought_is_read(runtime: str, tmp_path: Path) -> None:
    async def interrupted() -> Result:
        interrupt = asyncio.Event()
        asyncio.get_running_loop().call_later(0.5, interrupt.set)
        model = scripted(tmp_path / "script", steps([1, 2, 1, 2], after_s=1.0))
        return await run(
            STEP, models=model, strategy=Unhurried(), runtime=runtime, runs_dir=tmp_path, interrupt=interrupt
        )

    result = run_virtual(interrupted())
    assert (result.outcome, result.calls, result.journal is None) == ("interrupted", 3, False)
    with closing(sqlite3.connect(str(result.journal))) as db:
        assert db.execute("SELECT count(*) FROM sample").fetchone() == (3,)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["interrupt", "terminate"])
async def test_whenever_a_run_is_ended_early_every_call_is_accounted_for_once(by: str, tmp_path: Path) -> None:
    model = scripted(tmp_path / "script", steps([1, 2, None, 2, 2, 1, 1, 1, 1, 1]))
    missed: dict[int, tuple[int, int]] = {}
    for turn in range(0, 60, 6):
        CountingSolver.sent = 0
        event = asyncio.Event()
        ending: dict[str, Any] = {by: event}
        running = asyncio.create_task(
            run(STEP, models=model, strategy=Counted(), runtime="linked", runs_dir=None, **ending)
        )
        for _ in range(turn):
            await asyncio.sleep(0)
        event.set()
        result = await running
        if result.calls != CountingSolver.sent:
            missed[turn] = (result.calls, CountingSolver.sent)
    assert missed == {}
