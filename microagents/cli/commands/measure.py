"""`microagents measure`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.options import (
    DEFAULT_MODEL,
    RUNS,
    AsJson,
    Config,
    GoldColumns,
    InputsFile,
    Options,
    RunPrefix,
    RunsDir,
    Seed,
    StrategyOptions,
    TaskName,
    Yes,
    model_option,
    with_settings,
)
from microagents.cli.reporting import EXIT_CODES
from microagents.runs.settings import SettingKeywords

if TYPE_CHECKING:
    from microagents.runs.task_list import Tasks
    from microagents.studies.states import States

SETTINGS = tuple(name for name in SettingKeywords.__annotations__ if name != "on_undecided")
Models = Annotated[
    list[str], model_option("Model, as provider:model[@key=value,...]. Repeatable: each is measured on its own.")
]
StepCount = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        envvar="MICROAGENTS_STEPS",
        help="Number of random steps or inputs, at most all; of an agent of trials. [default: 1000; 20 trials]",
    ),
]
Repeat = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        envvar="MICROAGENTS_REPEAT",
        help="Number of draws of every step. [default: 2, and 10 if they are not both right]",
    ),
]
StatesFrom = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="RUN",
        help=(
            "Ask in the states of the decided steps of this run of the task. Without an oracle, only agreement is measured. [default: the "
            "states that the oracle leads to]"
        ),
    ),
]
Rollouts = Annotated[
    int, typer.Option(metavar="N", min=0, help="Draw rollouts from each step, too: how right is a step ahead?")
]
Pilot = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Of a table: number of rows on which votes are held besides, for `plan`. [default: 20]",
    ),
]
PilotK = Annotated[
    int | None, typer.Option("-k", metavar="K", min=1, help="Lead that decides these votes. [default: 3]")
]


@partial(with_settings, only=SETTINGS, short=())
def command(
    task: TaskName,
    *,
    option: Options = [],  # noqa: B006 - typer copies it
    model: Models = [],  # noqa: B006
    steps: StepCount = None,
    repeat: Repeat = None,
    from_: StatesFrom = None,
    inputs: InputsFile = None,
    gold: GoldColumns = [],  # noqa: B006
    rollouts: Rollouts = 0,
    pilot: Pilot = None,
    k: PilotK = None,
    seed: Seed = 0,
    runs_dir: RunsDir = RUNS,
    run_id: RunPrefix = None,
    as_json: AsJson = False,
    yes: Yes = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
    options: StrategyOptions,
    changed: dict[str, Any],
) -> None:
    """Measure models on random steps of a task, before a long run is paid for.

    Each step is drawn twice in the state that the task's oracle leads to, and eight times more if a reply is wrong or flagged or the two
    differ. The report shows how often replies are right and valid, with exact intervals of 95 % over steps, and which steps are hard.

    With --inputs, of problems or of chains of one step, an input is a step; of a table votes are held on some rows, too. An agent is
    measured by trials, in which it acts as in a run and its `check` judges the end; -s k_write=3 sets a margin. -s horizon=3 is the number
    of steps in a rollout (8). With --from the steps are asked in other states, such as
    an earlier run's; a task without an oracle needs them, and then only agreement is measured.

    The samples of a model are a run with its own journal. The same command continues where it ended; more --steps, --repeat or --rollouts
    reuse its samples. `microagents plan` reads it: --from RUN.

    Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 stopped by a limit, an outage or a full disk, 130 interrupted.
    """
    from microagents.cli.inputs import given_by
    from microagents.cli.views.measurement import report_of
    from microagents.cli.views.tables import print_found
    from microagents.cli.watching import Watched, kept_in_runs, run_in_terminal
    from microagents.studies.measure import measure

    models = list(dict.fromkeys(model or [DEFAULT_MODEL]))
    work = given_by(task, option, inputs, gold).work
    given = None if from_ is None else _states(from_, runs_dir, work)
    of_strategy = {**options.defaults, **options.typed}
    of_rollouts = dict[str, Any]()
    if rollouts and "horizon" in of_strategy:
        of_rollouts["horizon"] = of_strategy.pop("horizon")
    report = run_in_terminal(
        Watched(task, "step", models, kept_in_runs("measurement")),
        lambda control, set_title: measure(
            work,
            models,
            steps=steps,
            draws=repeat,
            states=given,
            rollouts=rollouts,
            pilot=pilot,
            k=k,
            options=of_strategy,
            **of_rollouts,
            seed=seed,
            runs_dir=runs_dir,
            run_id=run_id,
            on_model=set_title,
            **changed,
            **control,
        ),
        yes=yes,
    )
    print_found(report.as_json(), report_of(report), as_json=as_json)
    raise typer.Exit(EXIT_CODES[report.outcome])


def _states(given: str, runs_dir: Path, task: Tasks) -> States:
    from microagents.studies.states import states_of_run
    from microagents.task import Task

    if not isinstance(task, Task):
        raise InvalidUsage("--from takes the states of one chain; leave out --from or --inputs")
    return states_of_run(runs_dir, given, task)
