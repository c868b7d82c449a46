"""`microagents resume`."""

from __future__ import annotations

from microagents.cli.options import (
    RUNS,
    AcceptChange,
    AsJson,
    Concurrency,
    Durable,
    MaxCalls,
    MaxCost,
    MaxOutage,
    MaxTime,
    OnUndecided,
    RunName,
    RunsDir,
    Runtime,
    Speculate,
    given,
)
from microagents.cli.reporting import log_to_stderr, one_sentence
from microagents.cli.watching import leave, watch
from microagents.driver import Watched
from microagents.journal.reading import reader_of
from microagents.planning import plan_of
from microagents.result import Result
from microagents.run import resume


def command(
    run: RunName,
    runs_dir: RunsDir = RUNS,
    runtime: Runtime = None,
    durability: Durable = None,
    accept_change: AcceptChange = [],  # noqa: B006 - typer copies it
    on_undecided: OnUndecided = None,
    speculate: Speculate = None,
    concurrency: Concurrency = None,
    max_calls: MaxCalls = None,
    max_cost: MaxCost = None,
    max_time: MaxTime = None,
    max_outage: MaxOutage = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run from its journal; options that are not given are what they were.

    Exit codes are those of `run`.
    """
    log_to_stderr()
    with one_sentence():
        with reader_of(runs_dir, run) as reader:
            task = plan_of(reader.experiment).task
        changed = given(
            runtime=runtime,
            durability=durability,
            on_undecided=on_undecided,
            speculate=speculate,
            concurrency=concurrency,
            max_calls=max_calls,
            max_cost_usd=max_cost,
            max_time_s=max_time,
            max_outage_s=max_outage,
        )

        async def start(watched: Watched) -> Result:
            return await resume(
                run,
                runs_dir=runs_dir,
                accept_changes=accept_change,
                on_progress=watched.on_progress,
                interrupt=watched.interrupt,
                terminate=watched.terminate,
                **changed,
            )

        result = watch(run, start, as_json=as_json)
    leave(result, task, runs_dir, as_json=as_json)
