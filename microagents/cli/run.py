"""`microagents run`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, redirect_stdout
from typing import Annotated

import typer

from microagents.cli.options import (
    AsJson,
    Config,
    Margin,
    ModelSpecs,
    Options,
    Seed,
    StrategyName,
    StrategyOptions,
    TaskName,
    models_of,
    strategy_named,
    task_of,
)
from microagents.cli.reporting import EXIT_CODES, log_to_stderr, one_sentence
from microagents.run import OnProgress, Result, run
from microagents.settings import RuntimeName
from microagents.task import Task

SHOWN_CHARS = 60
"""A task's option that is longer is shown by its length."""


def command(
    task: TaskName,
    option: Options = [],  # noqa: B006 - typer copies it
    strategy: StrategyName = "maker",
    set_: StrategyOptions = [],  # noqa: B006
    model: ModelSpecs = [],  # noqa: B006
    k: Margin = None,
    seed: Seed = 0,
    runtime: Annotated[
        RuntimeName,
        typer.Option(envvar="MICROAGENTS_RUNTIME", help="Where roles live; `linked` encodes every message, as a cluster would."),
    ] = "local",
    run_id: Annotated[
        str | None, typer.Option(metavar="ID", envvar="MICROAGENTS_RUN_ID", help="The run's name; made up when not given.")
    ] = None,
    known_inputs: Annotated[
        bool,
        typer.Option(
            "--known-inputs",
            envvar="MICROAGENTS_KNOWN_INPUTS",
            help="Feed every step the oracle's state; steps run side by side, in rounds.",
        ),
    ] = False,
    speculate: Annotated[
        bool, typer.Option(envvar="MICROAGENTS_SPECULATE", help="Open next steps on guesses; decisions do not depend on it.")
    ] = True,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", envvar="MICROAGENTS_CONCURRENCY", help="Calls open at a time; no bound when not given."),
    ] = None,
    max_outage: Annotated[
        float, typer.Option(min=0, metavar="S", envvar="MICROAGENTS_MAX_OUTAGE", help="Stop once a provider was out for so many seconds.")
    ] = 7200.0,
    as_json: AsJson = False,
    config: Config = None,  # noqa: ARG001 - read by its callback
) -> None:
    """Do a task: every step an election.

    Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 stopped by an outage, 4 undecided, 130 interrupted.
    """
    log_to_stderr()
    # What a user's code prints must not get between the JSON and whoever reads it.
    with one_sentence(), redirect_stdout(sys.stderr) if as_json else nullcontext():
        work = task_of(task, option)
        chosen = strategy_named(strategy, set_, k, work)

        def start(on_progress: OnProgress | None, interrupt: asyncio.Event) -> Coroutine[None, None, Result]:
            return run(
                work,
                models=models_of(model),
                strategy=chosen,
                seed=seed,
                runtime=runtime,
                run_id=run_id,
                known_inputs=known_inputs,
                speculate=speculate,
                concurrency=concurrency,
                max_outage_s=max_outage,
                on_progress=on_progress,
                interrupt=interrupt,
            )

        result = asyncio.run(_watched(task, start))
    _show(result, _described(work), as_json=as_json)
    raise typer.Exit(EXIT_CODES[result.outcome])


async def _watched(title: str, start: Callable[[OnProgress | None, asyncio.Event], Coroutine[None, None, Result]]) -> Result:
    """The run, with a live line; the first Ctrl-C, or SIGTERM, ends it in order; a second Ctrl-C leaves at once."""
    from microagents.cli.display import live  # noqa: PLC0415 - rich, which --help does not need

    interrupt = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        interrupt.set()
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, _leave)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    with live(title) as show:
        return await start(show, interrupt)


def _leave(*_: object) -> None:
    """Leave at once, whatever a role is doing; the live line had hidden the cursor."""
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")
        sys.stderr.flush()
    os._exit(EXIT_CODES["interrupted"])


def _show(result: Result, options: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result.as_json()))
        return
    from microagents.cli.display import summary  # noqa: PLC0415 - rich, which --json does not need

    typer.echo(summary(result, options))


def _described(work: Task) -> str:
    shown = ", ".join(f"{name}={_short(value)}" for name, value in work.model_dump().items())
    return f" ({shown})" if shown else ""


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHOWN_CHARS and text.isprintable() else f"<{len(text):,} characters>"
