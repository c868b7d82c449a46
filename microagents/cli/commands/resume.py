"""`microagents resume`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from microagents.cli.options import RUNS, AcceptChange, AsJson, AsStream, RunName, RunsDir, Yes, check_stream, fitting, with_settings
from microagents.cli.reporting import exit_on_error, log_to_stderr
from microagents.cli.watching import Watched, kept_in, run_in_terminal, show_and_exit
from microagents.errors import InvalidUsage
from microagents.journal.reading import reader_of
from microagents.runs.driver.begin import resume
from microagents.runs.driver.execute import RunControl
from microagents.runs.plan import settings_of
from microagents.runs.result import Result
from microagents.words.prices import specs_in

OfExperiment = Annotated[list[str], typer.Option("-o", "--option", "--strategy", "-s", "--set", "--model", "-k", "--seed", hidden=True)]
"""Options of `run` that people give `resume`, too. They are refused with what to write."""


@partial(with_settings, short=("max_draws", "speculate"))
def command(
    context: typer.Context,
    run: RunName,
    *,
    runs_dir: RunsDir = RUNS,
    only: Annotated[
        list[int],
        typer.Option(
            "--input", metavar="N", help="Do only this one of many inputs, counted from 0. Repeatable. [default: all not completed]"
        ),
    ] = [],  # noqa: B006
    accept_change: AcceptChange = [],  # noqa: B006 - typer copies it
    of_experiment: OfExperiment = [],  # noqa: B006
    stream: AsStream = False,
    as_json: AsJson = False,
    yes: Yes = False,
    short: dict[str, Any],
    changed: dict[str, Any],
) -> None:
    """Continue a run from its journal.

    Options that are not given keep their recorded values; the defaults below do not apply. Exit codes are those of `run`.
    """
    log_to_stderr()
    with exit_on_error():
        if of_experiment:
            raise InvalidUsage(
                f"resume keeps the task, the strategy, the models, k and the seed as recorded; to change one, write `microagents run TASK "
                f"... --run-id {run} --accept-change FIELD`, with all other options as they were"
            )
        with reader_of(runs_dir, run) as reader:
            experiment = reader.experiment
            check_stream(stream, as_json=as_json, is_listed=experiment.listed)
            options_of_strategy = fitting(context, short, experiment.recipe.strategy_options.__contains__)
            options = {} if experiment.listed else experiment.recipe.options
            watched = Watched(run, experiment.unit, specs_in(settings_of(experiment).models), kept_in(run, runs_dir))

        async def start(control: RunControl) -> Result:
            return await resume(
                run,
                runs_dir=runs_dir,
                inputs=only or None,
                accept_changes=accept_change,
                on_progress=control.on_progress,
                on_solution=control.on_solution,
                on_ending=control.on_ending,
                on_forecast=control.on_forecast,
                interrupt=control.interrupt,
                terminate=control.terminate,
                **options_of_strategy,
                **changed,
            )

        result = run_in_terminal(watched, start, as_json=as_json, stream=stream, yes=yes)
    show_and_exit(result, options, runs_dir, as_json=as_json, stream=stream)
