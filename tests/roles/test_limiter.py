"""The limiter: how many calls are open at a time, how many there are at all, and who is next; over all replicas of the solver."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from microagents import Context, Deployment, Prompt, Result, Sample, run
from microagents.actors.role import Messenger
from microagents.base.aio import TaskScope
from microagents.base.errors import ModelUnavailable
from microagents.base.messages import address_of
from microagents.elections.election import Draw, ElectionId, SampleId
from microagents.journal.messages import Account
from microagents.models.model import Call, Model
from microagents.replies.media import Media
from microagents.roles import Keeper, Solver
from microagents.roles.limits.leases import Acquire, Leases
from microagents.roles.limits.limiter import Limiter
from microagents.roles.solver.attempts import Attempts
from microagents.roles.solver.backends import Backend, Backends
from microagents.roles.solver.call_accounts import CallAccounts
from microagents.roles.solver.permits import Attempt, Permits
from microagents.runs.driver.execute import runtime_of
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift, Onward

both_runtimes = pytest.mark.parametrize("runtime", ["local", "linked"])
"""Those in one process: how many calls are open is counted in its memory."""
SLOW = "sim:perfect@error=0.4,flag=0.1,latency=1.0,sigma=0.7"


class GaugedSolver(Solver):
    """Sees what is sent at a time, by all its replicas."""

    sent: ClassVar[list[tuple[str, int]]] = []
    replicas: ClassVar[set[str]] = set()
    open: ClassVar[int] = 0
    most: ClassVar[int] = 0

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._attempts = GaugedAttempts(context, self._accounts, self._permits)


async def no_file(_: Media) -> None:
    """Recall none."""


class GaugedAttempts(Attempts):
    """The attempts of such a solver."""

    def __init__(self, context: Context, accounts: CallAccounts, permits: Permits) -> None:
        super().__init__(context, accounts, permits, no_file)
        self._name = context.name

    async def _send(self, attempt: Attempt) -> Sequence[Sample]:
        own = GaugedSolver
        own.replicas.add(self._name)
        own.sent.append((attempt.call.id.election.path, attempt.call.id.seq))
        own.open += 1
        own.most = max(own.most, own.open)
        try:
            return await super()._send(attempt)
        finally:
            own.open -= 1


class Busy(Model):
    """A provider that turns the first attempt at every other sample away, and bills nothing for it."""

    priced = True

    def __init__(self, model: Model) -> None:
        self._model = model
        self._turned_away: set[SampleId] = set()

    async def complete(self, call: Call) -> Sample:
        if call.id.seq % 2 and call.id not in self._turned_away:
            self._turned_away.add(call.id)
            await asyncio.sleep(0.5)
            raise ModelUnavailable("busy", "try later", 429)
        return await self._model.complete(call)

    async def close(self) -> None:
        await self._model.close()


class Unthrottled(Busy):
    """Such a provider without a throttle."""

    throttled_as = None


def call_of(seq: int) -> Call:
    return Call(
        id=SampleId(election=ElectionId(path="0/q", question_digest=b""), seq=seq),
        prompt=Prompt(user="?"),
        reply=Onward,
        temperature=None,
        max_output_tokens=9,
    )


class Sent(Attempts):
    """Counts calls, and sends none."""

    def __init__(self, permits: Permits) -> None:
        context: Any = SimpleNamespace(run_id="r", tracing=None)
        super().__init__(context, cast("CallAccounts", None), permits, no_file)
        self.sent = 0

    async def _send(self, attempt: Attempt) -> Sequence[Sample]:
        self.sent += 1
        attempt.may_be_billed = True
        return [Sample(text="x")]


class BusyBackends(Backends):
    """Such providers in front of the run's models."""

    def of(self, spec: str) -> Backend:
        found = super().of(spec)
        if not isinstance(found.model, Busy):
            found = self._opened[spec] = Backend(Busy(found.model), spec)
        return found


class TurnedAwaySolver(GaugedSolver):
    """Asks such a provider."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._backends = BusyBackends(context, self._accounts.report_unpriced)


class Gauged(Maker):
    """MAKER with such solvers."""

    replicas: int = 3
    is_busy: bool = False

    def deployments(self) -> list[Deployment]:
        role = TurnedAwaySolver if self.is_busy else GaugedSolver
        return [
            Deployment(role=role, num_replicas=self.replicas) if each.role is Solver else each
            for each in super().deployments()
        ]


def gauged(
    runtime: str, seed: int = 0, *, is_busy: bool = False, replicas: int = 3, length: int = 40, **options: Any
) -> Result:
    """A run in virtual time, and what its solvers saw."""
    GaugedSolver.sent, GaugedSolver.replicas, GaugedSolver.open, GaugedSolver.most = [], set(), 0, 0
    strategy = Gauged(k=2, is_busy=is_busy, replicas=replicas)
    running = run(
        Drift(length=length), models=SLOW, strategy=strategy, seed=seed, runtime=runtime, runs_dir=None, **options
    )
    return run_virtual(running, seed=seed)


@pytest.mark.slow
def test_never_are_more_calls_open_than_allowed_however_many_replicas_send_them() -> None:
    result = gauged("linked", concurrency=4)
    assert (result.outcome, result.calls) == ("completed", len(GaugedSolver.sent))
    assert GaugedSolver.most == 4, "all that is allowed is used"
    assert len(GaugedSolver.replicas) == 3


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"concurrency": 3}, {"is_busy": True}], ids=str)
def test_a_limit_of_calls_is_kept_exactly_however_many_replicas_send_them(more: dict[str, Any]) -> None:
    result = gauged("linked", max_calls=50, **more)
    assert (result.outcome, result.calls, result.account.in_flight) == ("stopped", 50, 0)
    assert result.reason == (
        "--max-calls 50 is reached; nothing is kept, since it ran without a journal; begin it again with a higher limit"
    )
    turned_away = len(GaugedSolver.sent) - result.calls
    assert turned_away > 0 if "is_busy" in more else turned_away == 0


@pytest.mark.slow
def test_a_call_that_waits_to_be_tried_again_holds_no_permit_meanwhile() -> None:
    gauged("linked", length=10, is_busy=True, concurrency=1, known_inputs=True)
    sent = GaugedSolver.sent
    turned_away = next(place for place, each in enumerate(sent) if sent.count(each) > 1)
    assert sent.index(sent[turned_away], turned_away + 1) > turned_away + 1
    assert GaugedSolver.most == 1


@both_runtimes
@pytest.mark.parametrize("turns_later", [0, 1, 4])
def test_a_draw_that_is_cancelled_before_it_is_sent_uses_up_no_call(
    runtime: str, turns_later: int, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_bytes(b'{"path": "0/q", "seq": 0, "text": "a", "after_s": 1}\n')
    draw = Draw(
        id=SampleId(election=ElectionId(path="0/q", question_digest=b""), seq=0),
        prompt=Prompt(user="?"),
        reply=address_of(Onward),
        temperature=None,
        max_output_tokens=9,
        model=f"scripted:{script}",
    )

    async def drawn() -> str:
        settings = {"max_calls": 1, "max_outage_s": 0.0}
        context = Context(run_id="a", seed=0, tasks=[Drift(length=1)], strategy=Maker(), settings=settings)
        async with runtime_of(runtime, context, [Deployment(role=role) for role in (Keeper, GaugedSolver)]) as opened:
            first = asyncio.create_task(opened.messenger.ask(draw))
            for _ in range(turns_later):
                await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            return "sent" if GaugedSolver.sent else (await opened.messenger.ask(draw))[0].text

    outcomes = []
    for seed in range(5):
        GaugedSolver.sent = []
        outcomes.append(run_virtual(drawn(), seed=seed))
    assert set(outcomes) <= {"sent", "a"}
    assert turns_later or outcomes == ["a"] * 5


@pytest.mark.parametrize(("number", "limits", "leases"), [(10, None, [4, 6]), (2, {"max_calls": 30}, [4, 1, 1])])
async def test_calls_that_nothing_limits_share_leases_until_the_run_gets_a_limit(
    number: int, limits: dict[str, int] | None, leases: list[int]
) -> None:
    opened, asked = asyncio.Event(), list[int]()

    async def ask(wanted: Acquire) -> dict[str, int]:
        asked.append(wanted.amounts["calls"])
        await opened.wait()
        return dict(wanted.amounts)

    held = Leases(ask, lambda _: None)
    permits = Permits({}, held)
    attempts, backend = Sent(permits), Backend(Unthrottled(cast("Model", None)), "m")
    calls = [asyncio.create_task(attempts.make(backend, call_of(seq))) for seq in range(number)]
    await asyncio.sleep(0)
    if limits is not None:
        permits.change(limits)
    opened.set()
    await asyncio.gather(*calls)
    async with asyncio.timeout(1):
        await held.all_released()
    assert asked == leases


async def test_calls_that_waited_together_in_a_pause_use_up_the_limit_that_the_run_got_meanwhile() -> None:
    stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    limiter = Limiter(
        {},
        on_stop=lambda why, *_: stopped.set_result(why),
        on_outage=lambda: None,
        on_settled=lambda _, __: None,
        on_short=None,
    )
    limiter.begin(Account())
    limiter.pause(is_paused=True)
    leases = Leases(limiter.acquire, limiter.release)
    leases.holder = limiter.admit()
    permits = Permits({}, leases)
    attempts, backend = Sent(permits), Backend(Unthrottled(cast("Model", None)), "m")
    async with TaskScope() as scope:
        for seq in range(10):
            scope.start(attempts.make(backend, call_of(seq)))
        await asyncio.sleep(0)
        limiter.change({"max_calls": 3}, Account())
        permits.change({"max_calls": 3})
        limiter.pause(is_paused=False)
        async with asyncio.timeout(1):
            why = await stopped
    assert (attempts.sent, why) == (3, "--max-calls 3 is reached")


async def test_a_call_that_waited_while_the_run_got_a_limit_passes_the_limit_before_it_is_sent() -> None:
    opened, asked = asyncio.Event(), list[dict[str, int]]()

    async def ask(wanted: Acquire) -> dict[str, int]:
        asked.append(dict(wanted.amounts))
        await opened.wait()
        return dict(wanted.amounts)

    leases = Leases(ask, lambda _: None)
    permits = Permits({}, leases)
    attempts = Sent(permits)
    waiting = asyncio.create_task(attempts.make(Backend(Busy(cast("Model", None)), "m"), call_of(0)))
    await asyncio.sleep(0)
    permits.change({"concurrency": 3})
    opened.set()
    await waiting
    await leases.all_released()
    assert asked == [{"m": 1, "calls": 1}, {"m": 1, "concurrency": 1, "calls": 1}]
    assert attempts.sent == 1
