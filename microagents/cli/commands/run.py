"""`microagents run`."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.detaching import Detach, begin_detached
from microagents.cli.options import (
    RUNS,
    AcceptChange,
    AsJson,
    AsStream,
    Confidence,
    Config,
    FromMeasurement,
    GoldColumns,
    GoldFile,
    InputsFile,
    LabelIn,
    ModelSpecs,
    Options,
    RowsOut,
    RunsDir,
    Seed,
    StrategyName,
    StrategyOptions,
    TaskName,
    Tools,
    WrongAtMost,
    Yes,
    check_stream,
    models_as_measured,
    strategy_named,
    with_output,
    with_settings,
    with_tools,
)
from microagents.cli.reporting import echo
from microagents.elections.promises import CONFIDENCE

if TYPE_CHECKING:
    from microagents.cli.inputs import Given
    from microagents.runs.driver.keywords import RunControl
    from microagents.runs.result import Result


Shards = Annotated[
    str | None,
    typer.Option(
        "--shards",
        metavar="N|auto",
        help="Deal many inputs to N runs, each a process or Ray actor with its own journal, under one --max-calls; `auto` is one a CPU.",
    ),
]


@with_settings
def command(
    task: TaskName,
    *,
    option: Options = [],  # noqa: B006 - typer copies it
    tool: Tools = [],  # noqa: B006
    strategy: StrategyName = None,
    model: ModelSpecs = [],  # noqa: B006
    from_: FromMeasurement = None,
    seed: Seed = 0,
    runs_dir: RunsDir = RUNS,
    run_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            envvar="MICROAGENTS_RUN_ID",
            help="Name of the run. An existing run is continued. [default: a new name]",
        ),
    ] = None,
    no_journal: Annotated[
        bool,
        typer.Option(
            "--no-journal", envvar="MICROAGENTS_NO_JOURNAL", help="Keep no journal: the run cannot be resumed."
        ),
    ] = False,
    accept_change: AcceptChange = [],  # noqa: B006
    inputs: InputsFile = None,
    shards: Shards = None,
    gold: GoldColumns = [],  # noqa: B006
    gold_file: GoldFile = None,
    label: Annotated[
        LabelIn | None,
        typer.Option(help="With --wrong-at-most: label the drawn rows now, in the terminal or in the browser."),
    ] = None,
    wrong_at_most: WrongAtMost = None,
    confidence: Confidence = CONFIDENCE,
    output: RowsOut = None,
    reuse: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Of a table: replies that this run has paid for are the first samples of rows that ask the same.",
        ),
    ] = None,
    stream: AsStream = False,
    as_json: AsJson = False,
    yes: Yes = False,
    detach: Detach = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
    options: StrategyOptions,
    changed: dict[str, Any],
) -> None:
    """Do a task; every step is an election. With the --run-id of an earlier run, continue that run.

    With --inputs, stdout gets one line of JSON for each input, in their order, once all have ended: its result, or null without one; or
    with --stream a line as each input ends.

    Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 stopped by a limit, an outage or a full disk, 4 undecided, 5 completed, and wrong
    by the task's own oracle, check or result, 6 refused by the provider for what an input says, 130 interrupted.
    """
    from microagents.cli.inputs import given_by
    from microagents.cli.promising import Promising, promised_strategy
    from microagents.cli.watching import (
        FirstRowsWanted,
        Watched,
        answered_in_terminal,
        kept_in,
        run_in_terminal,
        show_and_exit,
    )
    from microagents.runs.driver.begin import new_run_id, run
    from microagents.runs.words.money import specs_in
    from microagents.studies.promised import WantedPromise
    from microagents.systems.chains.row_task import FIRST_ROWS, RowTask

    check_stream(stream, as_json=as_json, is_listed=inputs is not None)
    if label is not None and wrong_at_most is None:
        raise InvalidUsage("--label goes with --wrong-at-most; give both, or neither")
    option = with_output(option, output, changed)
    given = given_by(task, with_tools(option, tool), inputs, gold, is_labelled=wrong_at_most is None)
    if reuse is not None:
        changed["reuse"] = reuse
    if "output" in changed:
        changed["output_dialect"] = given.dialect
    models = models_as_measured(model, runs_dir, from_, given.first, changed)
    if wrong_at_most is None:
        chosen = strategy_named(strategy, options, given.first)
        named = run_id or new_run_id(given.first)
    else:
        if strategy is not None or no_journal or detach or shards is not None:
            raise InvalidUsage(
                "--wrong-at-most names the strategy and needs one journal; leave out --strategy, --no-journal, --detach and --shards"
            )
        asked = Promising(
            wanted=WantedPromise(wrong_at_most=wrong_at_most, confidence=confidence),
            given=given,
            models=models,
            options=options,
            gold_file=gold_file,
            label=label,
            runs_dir=runs_dir,
            run_id=run_id,
            changed={**changed, "seed": seed},
            yes=yes,
        )
        asked.check()
        chosen, named, models = promised_strategy(asked), asked.name, {"": models["cheap"]}
    if detach:
        if no_journal or inputs == "-":
            raise InvalidUsage(
                "--detach needs a journal to be found again, and inputs from a file: leave --no-journal and `--inputs -` out"
            )
        begin_detached(named, runs_dir)

    with given.name_lines():
        kept = "" if no_journal else kept_in(named, runs_dir)
        watched = Watched(task, type(given.first).progress_unit, specs_in(models), kept)

        def start(only: Sequence[int] | None, control: RunControl) -> Coroutine[None, None, Result]:
            return run(
                given.work,
                models=models,
                strategy=chosen,
                seed=seed,
                runs_dir=None if no_journal else runs_dir,
                run_id=named,
                accept_changes=accept_change,
                inputs=only,
                shards=shards,
                **control,
                **changed,
            )

        many = not no_journal and shards is None and len(given.numbers) > FIRST_ROWS
        may_show = isinstance(given.first, RowTask) and many
        try:
            result = run_in_terminal(
                watched, lambda control, _: start(None, control), stream=stream, yes=yes, offers_rows=may_show
            )
        except FirstRowsWanted:
            result = run_in_terminal(
                watched, lambda control, _: start(range(FIRST_ROWS), control), stream=stream, yes=True
            )
            _show_first_rows(result, given, runs_dir)
            result = run_in_terminal(watched, lambda control, _: start(None, control), stream=stream)
    result = answered_in_terminal(watched, result, runs_dir, stream=stream)
    show_and_exit(result, as_json=as_json, stream=stream)


def _show_first_rows(result: Result, given: Given, runs_dir: Path) -> None:
    from microagents.cli.views.first_rows import done_rows
    from microagents.cli.views.tables import report_text
    from microagents.runs.words.verdict import resume_command
    from microagents.systems.chains.row_task import FIRST_ROWS

    assert isinstance(given.work, Sequence)
    echo(report_text([done_rows(result, given.work[:FIRST_ROWS])]), err=True)
    echo(f"microagents: these rows are kept; all others: {resume_command(result.run_id, runs_dir)}", err=True)
