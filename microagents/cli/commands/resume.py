"""`microagents resume`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from microagents.base.errors import InvalidUsage
from microagents.base.printing import printable
from microagents.cli.detaching import Detach, begin_detached
from microagents.cli.options import (
    RUNS,
    AcceptChange,
    AsJson,
    AsStream,
    RowsOut,
    RunName,
    RunsDir,
    StrategyOptions,
    Yes,
    check_stream,
    with_output,
    with_settings,
)
from microagents.cli.trusting import confirm_trust

OfExperiment = Annotated[list[str], typer.Option("-o", "--strategy", "--model", "-k", "--seed", hidden=True)]
"""Options of `run` that people give `resume`, too. The refusal names the right command."""


@partial(with_settings, short=("speculate",))
def command(
    run: RunName,
    *,
    runs_dir: RunsDir = RUNS,
    only: Annotated[
        list[int],
        typer.Option(
            "--input",
            metavar="N",
            help="Do only this one of many inputs, counted from 0. Repeatable. [default: all not completed]",
        ),
    ] = [],  # noqa: B006
    accept_change: AcceptChange = [],  # noqa: B006 - typer copies it
    forget_unsettled: Annotated[
        bool,
        typer.Option(
            "--forget-unsettled",
            help="Count no calls against the limits any more that were lost, or got no reply: you know what was billed.",
        ),
    ] = False,
    trust_journal: Annotated[
        bool,
        typer.Option(
            "--trust-journal",
            help="Continue a run that you did not begin here with the code and the hosts that its journal names. Else a terminal asks you.",
        ),
    ] = False,
    of_experiment: OfExperiment = [],  # noqa: B006
    output: RowsOut = None,
    stream: AsStream = False,
    as_json: AsJson = False,
    yes: Yes = False,
    detach: Detach = False,
    options: StrategyOptions,
    changed: dict[str, Any],
) -> None:
    """Continue a run from its journal.

    Options that are not given keep their recorded values; the defaults below do not apply. Exit codes are as for `run`.
    """
    from microagents.cli.watching import Watched, answered_in_terminal, kept_in, run_in_terminal, show_and_exit
    from microagents.journal.interventions import forget_unsettled as forget
    from microagents.journal.sharded import reader_of
    from microagents.runs.driver.begin import resume
    from microagents.runs.plan import settings_of, what_stranger_names
    from microagents.runs.words.money import specs_in

    of_experiment = with_output(of_experiment, output, changed)
    if of_experiment:
        raise InvalidUsage(
            f"resume keeps the task, the strategy, the models, k and the seed as recorded; to change one, write `microagents run TASK "
            f"... --run-id {run} --accept-change FIELD`, with all other options as they were"
        )
    with reader_of(runs_dir, run, trust=trust_journal) as reader:
        if (stranger := what_stranger_names(reader)) is not None:
            confirm_trust(stranger, "--trust-journal")
            reader.trust()
        experiment, journals = reader.experiment, reader.journals()
        check_stream(stream, as_json=as_json, is_listed=experiment.listed)
        options_of_strategy = options.fitting(experiment.recipe.strategy_options.__contains__)
        watched = Watched(run, experiment.unit, specs_in(settings_of(experiment)["models"]), kept_in(run, runs_dir))

    if detach:
        begin_detached(run, runs_dir)
    if forget_unsettled:
        forgotten = "; ".join(filter(None, map(forget, journals)))
        if forgotten:
            said = f"no longer counted: {forgotten}"
        else:
            said = "nothing of this run is unsettled"
        typer.echo(printable(said), err=True)
    result = run_in_terminal(
        watched,
        lambda control, _: resume(
            run,
            runs_dir=runs_dir,
            inputs=only or None,
            accept_changes=accept_change,
            **control,
            options=options_of_strategy,
            **changed,
        ),
        stream=stream,
        yes=yes,
    )
    result = answered_in_terminal(watched, result, runs_dir, stream=stream)
    show_and_exit(result, as_json=as_json, stream=stream)
