"""`microagents compare`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from microagents.cli.options import (
    RUNS,
    STRATEGY_NAMES,
    AsJson,
    Config,
    FromMeasurement,
    GoldColumns,
    InputsFile,
    ModelSpecs,
    Options,
    RunPrefix,
    RunsDir,
    Seed,
    StrategyOptions,
    TaskName,
    Yes,
    complete_strategy,
    models_as_measured,
    with_settings,
)
from microagents.cli.reporting import EXIT_CODES


@partial(with_settings, short=("speculate",))
def command(
    task: TaskName,
    *,
    option: Options = [],  # noqa: B006 - typer copies it
    strategy: Annotated[
        list[str],
        typer.Option(
            "--strategy",
            metavar="NAME",
            envvar="MICROAGENTS_STRATEGY",
            help=f"{STRATEGY_NAMES} Options of only its row: NAME@OPTION=VALUE,... Repeatable. [default: the task's]",
            autocompletion=complete_strategy,
        ),
    ] = [],  # noqa: B006
    k: Annotated[
        list[int],
        typer.Option(
            "-k",
            metavar="K",
            envvar="MICROAGENTS_K",
            help="Compare with this k; strategies without a k ignore it. Repeatable.",
        ),
    ] = [],  # noqa: B006
    repeat: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            envvar="MICROAGENTS_REPEAT",
            help="Number of inputs of each row, or of the times that each of --inputs is done. [default: 20; once]",
        ),
    ] = None,
    inputs: InputsFile = None,
    gold: GoldColumns = [],  # noqa: B006
    model: ModelSpecs = [],  # noqa: B006
    from_: FromMeasurement = None,
    seed: Seed = 0,
    runs_dir: RunsDir = RUNS,
    run_id: RunPrefix = None,
    as_json: AsJson = False,
    yes: Yes = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
    options: StrategyOptions,
    changed: dict[str, Any],
) -> None:
    """Compare strategies on the same inputs.

    The table has a row for each strategy and each k. If the task is a problem, such as multiplication, every row does the same
    N variants of it. Any other task is done N times. With --inputs every row does the inputs of the file.

    `solved` is the number of inputs with a right result. A problem is judged by its `correct`, a chain by `solved` in its result. A
    chain or row whose result has no `solved` counts as solved if its oracle finds none of its decisions wrong. If code cannot judge
    results, `solved` is `?`. An undecided or failed input is not solved, and stops no other.

    If inputs are done several times, pass^k is the chance that all of k trials of one input succeed, with an interval of 95 %.

    Each row is a run with its own journal, and the same command again continues where it ended. Another N, seed, model or option of the
    task makes another comparison. --max-cost, --max-tokens, --max-calls and --max-time apply to all rows together.

    Exit codes: 0 all inputs of all rows have ended, 1 failed, 2 wrong usage, 3 stopped by a limit, an outage or a full disk,
    130 interrupted.
    """
    from microagents.cli.inputs import given_by
    from microagents.cli.views.comparison import report
    from microagents.cli.views.tables import print_found
    from microagents.cli.watching import Watched, kept_in_runs, run_in_terminal
    from microagents.runs.words.money import specs_in
    from microagents.studies.compare import compare

    given = given_by(task, option, inputs, gold)
    models = models_as_measured(model, runs_dir, from_, given.first, changed)
    watched = Watched(task, type(given.first).progress_unit, specs_in(models), kept_in_runs("comparison"))
    with given.name_lines():
        comparison = run_in_terminal(
            watched,
            lambda control, set_title: compare(
                given.work,
                models=models,
                strategies=strategy,
                k=k,
                options={**options.defaults, **options.typed},
                repeat=repeat,
                seed=seed,
                runs_dir=runs_dir,
                run_id=run_id,
                on_row=set_title,
                **control,
                **changed,
            ),
            yes=yes,
        )
    print_found(comparison.as_json(), report(comparison), as_json=as_json)
    raise typer.Exit(EXIT_CODES[comparison.outcome])
