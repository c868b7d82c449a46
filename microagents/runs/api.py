"""Settings in, result out: `run` begins a run or goes on with it, `resume` goes on with one from its journal alone."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import structs

from microagents.actors import Strategy
from microagents.journal.reading import reader_of
from microagents.messages import address_of
from microagents.registry import TASKS, name_of
from microagents.runs.execute import OnProgress, RunControl, execute_plan
from microagents.runs.inspection import recorded_result
from microagents.runs.plan import Plan, plan_of
from microagents.runs.result import Result
from microagents.runs.settings import Durability, Models, RuntimeName, Settings, check_address, model_pools, strategy_of, validated
from microagents.runs.task_list import tasks_of
from microagents.task import Task


async def run(
    task: Task | Sequence[Task],
    *,
    models: Models,
    strategy: str | Strategy | None = None,
    k: int | None = None,
    seed: int = 0,
    runtime: RuntimeName = "local",
    address: str | None = None,
    insecure: bool = False,
    deploy: Mapping[str, Mapping[str, Any]] | None = None,
    runs_dir: str | Path | None = "runs",
    run_id: str | None = None,
    durability: Durability = "full",
    accept_changes: Sequence[str] = (),
    on_undecided: str = "stop",
    known_inputs: bool = False,
    speculate: bool = True,
    concurrency: int | None = None,
    max_calls: int | None = None,
    max_cost_usd: float | None = None,
    max_time_s: float | None = None,
    max_outage_s: float = 7200.0,
    on_progress: OnProgress | None = None,
    interrupt: asyncio.Event | None = None,
    terminate: asyncio.Event | None = None,
) -> Result:
    """Do a task without an error, or go on with it: what a journal of this ``run_id`` holds is not done again.

    Args:
        task: what is to be done; or a list of tasks of one class, which are done side by side: one that fails does not stop the others.
        models: a spec, a pool of specs that samples rotate through, or pools by role.
        strategy: a shipped name or an instance; None for the task's own.
        k: short for the strategy's option of that name.
        seed: seeds simulated models.
        runtime: where roles live.
        address: the Ray cluster's; None for $RAY_ADDRESS, else a Ray of the run's own.
        insecure: use a cluster on other machines although whoever reaches it may run programs there.
        deploy: `Deployment` options by role, such as ``{"solver": {"num_replicas": 4}}``, instead of the strategy's.
        runs_dir: the folder of journals; None for a run that cannot be resumed.
        run_id: the run's name; made up when not given.
        durability: ``full`` survives a power cut, ``normal`` the process.
        accept_changes: fields that may differ from what the journal was begun with.
        on_undecided: what is done where an election ends undecided: ``stop``, ``leader``, or a model's spec.
        known_inputs: feed every step the oracle's state, and run steps side by side.
        speculate: a chain opens its next steps on guesses, so that voting costs no waiting time; decisions do not depend on it.
        concurrency: calls open at a time over the whole run; None for no bound but the provider's own.
        max_calls: stop after so many calls.
        max_cost_usd: stop once they cost so much.
        max_time_s: stop after so many seconds of this sitting.
        max_outage_s: how long a provider may be out before the run stops.
        on_progress: called a few times a second with the account as far as it is durable.
        interrupt: ends the run as ``interrupted`` once it is set, after the calls in flight.
        terminate: the same at once.

    Raises:
        InvalidUsage: something is wrong with what was given; nothing was started.
        JournalMismatch: the journal belongs to another experiment; nothing was changed.
        TakenOver: another process goes on with the run.
        RoleFailed: code of a task or of a role raised.
        PeerLost: a role's process died too often, or there is no room for it.
        ModelUnavailable: a provider refuses the request as such.
    """
    check_address(address, runtime)
    tasks = tasks_of(task)
    chosen = strategy_of(strategy, tasks[0], {} if k is None else {"k": k})
    given = {
        "models": model_pools(models, [chosen]),
        "seed": seed,
        "runtime": runtime,
        "address": address,
        "insecure": insecure,
        "deploy": deploy or {},
        "run_id": _new_run_id(tasks[0]) if run_id is None else run_id,
        "known_inputs": known_inputs,
        "speculate": speculate,
        "concurrency": concurrency,
        "max_outage_s": max_outage_s,
        "durability": durability,
        "on_undecided": on_undecided,
        "max_calls": max_calls,
        "max_cost_usd": max_cost_usd,
        "max_time_s": max_time_s,
    }
    settings = validated(Settings, "the run", given)
    plan = Plan(tasks=tasks, listed=not isinstance(task, Task), strategy=chosen, settings=settings)
    watched = RunControl(on_progress=on_progress, interrupt=interrupt, terminate=terminate)
    return await execute_plan(plan, runs_dir=runs_dir, accepted=accept_changes, watched=watched)


async def resume(
    run_id: str,
    *,
    runs_dir: str | Path = "runs",
    inputs: Sequence[int] | None = None,
    accept_changes: Sequence[str] = (),
    on_progress: OnProgress | None = None,
    interrupt: asyncio.Event | None = None,
    terminate: asyncio.Event | None = None,
    **changed: Any,
) -> Result:
    """Go on with a run from its journal alone. ``changed`` are settings that may differ this time, such as ``on_undecided="leader"``.

    Of a list of inputs all that are not completed are done, also those that failed; or only ``inputs``, by their numbers from 0.

    Raises:
        InvalidUsage: there is no such run or input, or its task cannot be imported.
    """
    with reader_of(Path(runs_dir), run_id) as reader:
        reader.experiment.check_there(inputs or ())
        ending = reader.ending()
        if ending is not None and ending.outcome == "completed" and not accept_changes:
            return recorded_result(reader)
        plan = plan_of(reader)
    settings = validated(Settings, "the run", {**plan.settings.model_dump(), **changed})
    check_address(changed.get("address"), settings.runtime)
    watched = RunControl(on_progress=on_progress, interrupt=interrupt, terminate=terminate)
    plan = structs.replace(plan, settings=settings)
    return await execute_plan(plan, runs_dir=runs_dir, only=inputs, accepted=accept_changes, watched=watched)


def run_sync(task: Task | Sequence[Task], **options: Any) -> Result:
    """`run` for code that is not async: the same arguments, the same result."""
    return asyncio.run(run(task, **options))


def _new_run_id(task: Task) -> str:
    return f"{name_of(address_of(type(task)), TASKS).lower()}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
