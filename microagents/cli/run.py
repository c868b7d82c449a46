"""`microagents run`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from microagents.cli.options import (
    RUNS,
    AcceptChange,
    AsJson,
    Config,
    Margin,
    ModelSpecs,
    Options,
    RunsDir,
    Seed,
    StrategyName,
    StrategyOptions,
    TaskName,
    models_of,
    strategy_named,
    task_of,
    with_changeable_settings,
)
from microagents.cli.reporting import log_to_stderr, one_sentence
from microagents.cli.watching import leave, watch
from microagents.driver import Watched
from microagents.result import Result
from microagents.run import run


@with_changeable_settings
def command(
    task: TaskName,
    *,
    option: Options = [],  # noqa: B006 - typer copies it
    strategy: StrategyName = "maker",
    set_: StrategyOptions = [],  # noqa: B006
    model: ModelSpecs = [],  # noqa: B006
    k: Margin = None,
    seed: Seed = 0,
    runs_dir: RunsDir = RUNS,
    run_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID", envvar="MICROAGENTS_RUN_ID", help="The run's name; made up if not given. One that exists is gone on with."
        ),
    ] = None,
    no_journal: Annotated[
        bool, typer.Option("--no-journal", envvar="MICROAGENTS_NO_JOURNAL", help="Record nothing: the run cannot be resumed.")
    ] = False,
    accept_change: AcceptChange = [],  # noqa: B006
    known_inputs: Annotated[
        bool,
        typer.Option(
            "--known-inputs",
            envvar="MICROAGENTS_KNOWN_INPUTS",
            help="Feed every step the oracle's state; steps run side by side, in rounds.",
        ),
    ] = False,
    as_json: AsJson = False,
    config: Config = None,  # noqa: ARG001 - read by its callback
    changed: dict[str, Any],
) -> None:
    """Do a task: every step an election. With the --run-id of an earlier run, go on with it.

    Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 stopped by a limit, an outage or a full disk, 4 undecided, 130 interrupted.
    """
    log_to_stderr()
    with one_sentence():
        work = task_of(task, option)
        chosen = strategy_named(strategy, set_, k, work)

        async def start(watched: Watched) -> Result:
            return await run(
                work,
                models=models_of(model),
                strategy=chosen,
                seed=seed,
                runs_dir=None if no_journal else runs_dir,
                run_id=run_id,
                known_inputs=known_inputs,
                accept_changes=accept_change,
                on_progress=watched.on_progress,
                interrupt=watched.interrupt,
                terminate=watched.terminate,
                **changed,
            )

        result = watch(task, start, as_json=as_json)
    leave(result, work.model_dump(), runs_dir, as_json=as_json)
