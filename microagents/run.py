"""Settings in, result out: the only place where everything meets."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

import microagents.roles  # noqa: F401 - names the roles of an election
from microagents.account import Account, Report
from microagents.actors import Conduct, Context, Deployment, Strategy
from microagents.errors import InvalidUsage, Stopped, Undecided
from microagents.finding import TASKS, unknown
from microagents.roles.recorder import Recorder
from microagents.runtimes.dispatcher import Desk
from microagents.runtimes.local import LinkedRuntime, LocalRuntime
from microagents.scope import Scope
from microagents.settings import Models, RuntimeName, Settings, model_pools, strategy_of, validated
from microagents.task import Task

RUNTIMES: Mapping[RuntimeName, type[LocalRuntime]] = {"local": LocalRuntime, "linked": LinkedRuntime}
PROGRESS_EVERY_S = 0.2
OnProgress = Callable[[Account], None]


class Result(Struct, frozen=True, kw_only=True):
    """How a run ended, and what it took."""

    outcome: Literal["completed", "stopped", "undecided", "interrupted"]
    reason: str | None
    """Why it did not complete, in one sentence; None when it did."""
    value: Any
    """What the task's ``result`` gave, as JSON-like values; None when it did not complete."""
    run_id: str
    task: str
    strategy: str
    settings: Settings
    account: Account
    wall_s: float

    @property
    def calls(self) -> int:
        """Requests sent to models."""
        return self.account.calls

    @property
    def cost_usd(self) -> float | None:
        """What they cost; None where a price is unknown."""
        return self.account.cost_usd

    def as_json(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        account, settings = self.account, self.settings
        return {
            "run_id": self.run_id,
            "outcome": self.outcome,
            "reason": self.reason,
            "task": self.task,
            "strategy": self.strategy,
            "models": settings.models[""] if len(settings.models) == 1 else settings.models,
            "seed": settings.seed,
            "runtime": settings.runtime,
            "steps": account.steps,
            "decided": account.decided,
            "errors": account.errors,
            "calls": account.calls,
            "valid": account.valid,
            "flagged": account.flagged,
            "wasted_calls": account.wasted_calls,
            "votes_per_step": account.votes_per_step,
            "undecided_at": account.undecided_at,
            "input_tokens": account.input_tokens,
            "output_tokens": account.output_tokens,
            "cost_usd": account.cost_usd,
            "wall_s": round(self.wall_s, 3),
            "result": self.value,
            "journal": None,
            "decisions_sha256": account.decisions_sha256,
            "ballots_sha256": account.ballots_sha256,
        }


async def run(
    task: Task,
    *,
    models: Models,
    strategy: str | Strategy = "maker",
    k: int | None = None,
    seed: int = 0,
    runtime: RuntimeName = "local",
    run_id: str | None = None,
    known_inputs: bool = False,
    speculate: bool = True,
    concurrency: int | None = None,
    max_outage_s: float = 7200.0,
    on_progress: OnProgress | None = None,
    interrupt: asyncio.Event | None = None,
) -> Result:
    """Do a task without an error.

    Args:
        task: what is to be done.
        models: a spec, a pool of specs that samples rotate through, or pools by role.
        strategy: a shipped name or an instance.
        k: short for the strategy's option of that name.
        seed: seeds simulated models.
        runtime: where roles live.
        run_id: the run's name; made up when not given.
        known_inputs: feed every step the oracle's state, and run steps side by side.
        speculate: a chain opens its next steps on guesses, so that voting costs no waiting time; decisions do not depend on it.
        concurrency: calls open at a time; None for no bound but the provider's own.
        max_outage_s: how long a provider may be out before the run stops.
        on_progress: called a few times a second with the account so far.
        interrupt: ends the run as ``interrupted`` once it is set.

    Raises:
        InvalidUsage: something is wrong with what was given; nothing was started.
        RoleFailed: code of a task or of a role raised.
        ModelUnavailable: a provider refuses the request as such.
    """
    chosen = strategy_of(strategy, task, {} if k is None else {"k": k})
    given = {
        "models": model_pools(models),
        "seed": seed,
        "runtime": runtime,
        "run_id": _new_run_id(task) if run_id is None else run_id,
        "known_inputs": known_inputs,
        "speculate": speculate,
        "concurrency": concurrency,
        "max_outage_s": max_outage_s,
    }
    settings = validated(Settings, "the run", given)
    context = Context(
        run_id=settings.run_id,
        seed=seed,
        tasks=[task],
        strategy=chosen,
        models=settings.models,
        settings=settings.model_dump(),
    )
    deployments = [Deployment(role=chosen.conductor), *chosen.deployments(), Deployment(role=Recorder)]
    if known_inputs and not chosen.known_inputs:
        raise InvalidUsage(f"strategy {type(chosen).__name__} cannot run with known inputs; maker can")
    for name in settings.models:
        if name and name not in (there := [deployment.role.__name__.lower() for deployment in deployments]):
            raise InvalidUsage(unknown("role with a model called", name, there))
    started = time.monotonic()
    async with RUNTIMES[settings.runtime](context, deployments) as roles:
        outcome, reason, value = await _conduct(roles.desk, on_progress, interrupt)
        account = await roles.desk.ask(Report(digests=True))
    if account.undecided_at and known_inputs and outcome == "completed":
        outcome, reason = (
            "undecided",
            f"{len(account.undecided_at)} elections are undecided, the first at {account.undecided_at[0]}",
        )
    if outcome == "interrupted" and account.outage is not None:
        reason = f"{reason}, while calls were tried again: {account.outage}"
    return Result(
        outcome=outcome,
        reason=reason,
        value=value,
        run_id=settings.run_id,
        task=name_of(task),
        strategy=strategy if isinstance(strategy, str) else type(strategy).__name__,
        settings=settings,
        account=account,
        wall_s=time.monotonic() - started,
    )


def run_sync(task: Task, **options: Any) -> Result:
    """`run` for code that is not async: the same arguments, the same result."""
    return asyncio.run(run(task, **options))


def name_of(task: Task) -> str:
    """The task's shipped name, or that of its class."""
    address = f"{type(task).__module__}:{type(task).__qualname__}"
    return next((name for name, shipped in TASKS.items() if shipped == address), type(task).__name__)


def _new_run_id(task: Task) -> str:
    return f"{name_of(task).lower()}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


async def _conduct(
    desk: Desk, on_progress: OnProgress | None, interrupt: asyncio.Event | None
) -> tuple[Literal["completed", "stopped", "undecided", "interrupted"], str | None, Any]:
    scope = Scope()
    try:
        work = scope.start(desk.ask(Conduct(input=0)))
        waiting = {work} if interrupt is None else {work, scope.start(_set(interrupt))}
        watch = None if on_progress is None else scope.start(_watch(desk, on_progress))
        await asyncio.wait({*waiting, watch} if watch is not None else waiting, return_when=asyncio.FIRST_COMPLETED)
        if watch is not None and watch.done():
            await watch  # what the caller's on_progress raised
        if not work.done():
            return "interrupted", "interrupted before its end", None
        return "completed", None, msgspec.json.decode((await work).value)
    except Undecided as error:
        return "undecided", str(error), None
    except Stopped as error:
        return "stopped", str(error), None
    finally:
        await scope.close()


async def _set(event: asyncio.Event) -> None:
    await event.wait()


async def _watch(desk: Desk, on_progress: Callable[[Account], None]) -> None:
    while True:
        await asyncio.sleep(PROGRESS_EVERY_S)
        on_progress(await desk.ask(Report()))
