"""`microagents plan`."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.options import (
    RUNS,
    AsJson,
    Confidence,
    GoldColumns,
    GoldFile,
    ModelSpecs,
    Options,
    RowsOut,
    RunsDir,
    Set,
    StrategyOptions,
    WrongAtMost,
    check_typed,
    models_of,
    pairs,
    task_of,
    with_output,
)
from microagents.elections.promises import CONFIDENCE

if TYPE_CHECKING:
    from microagents.cli.promising import Promising

OF_STEPS = ("p", "steps", "strategy", "repeat", "max_time", "concurrency")
"""Parameters of a plan of steps alone."""
NO_RUN = 1
"""Exit code if no run reaches the target."""
MAX_DIGITS = 31
"""Number of digits of the largest count, 10^30."""


def count(text: str) -> int:
    """A whole number, which may be written as 1e6."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or number.adjusted() >= MAX_DIGITS or number != int(number):
        raise typer.BadParameter(f"{text!r} is not a whole number up to 10^30")
    return int(number)


PlannedTask = Annotated[str | None, typer.Argument(metavar="[TASK]", help="Task; not needed with --p and --steps.")]
From = Annotated[
    list[str], typer.Option("--from", metavar="RUN", help="Run of a measurement. Repeatable: one for each model.")
]
GivenP = Annotated[
    float | None,
    typer.Option("--p", metavar="P", help="In place of --from: probability that a valid reply is right."),
]
Rows = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help="Plan votes on the rows of a table, in any form that `run` takes: chance, calls and cost by field, by row and in all.",
    ),
]
StepCount = Annotated[
    int | None, typer.Option(metavar="N", parser=count, help="Number of steps, such as 1e6. [default: the task's]")
]
Target = Annotated[float, typer.Option(metavar="T", help="Wanted probability that all steps are decided right.")]
OnlyK = Annotated[int | None, typer.Option("-k", metavar="K", min=1, help="Plan only this k.")]
Simulated = Annotated[
    str | None, typer.Option(metavar="NAME", help="Strategy that is simulated. [default: the marked row's]")
]
Repeat = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="Simulate N runs: the engine in virtual time with the measured errors."),
]
MaxCost = Annotated[
    float | None, typer.Option("--max-cost", metavar="USD", min=0, help="Expected cost that a run may have.")
]
MaxTime = Annotated[
    float | None,
    typer.Option("--max-time", metavar="S", min=0, help="Expected duration that a run may have, in seconds."),
]
Concurrency = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Maximum number of calls in flight, for the duration.")
]


def command(
    task: PlannedTask = None,
    *,
    from_: From = [],  # noqa: B006 - typer copies it
    p: GivenP = None,
    option: Options = [],  # noqa: B006
    inputs: Rows = None,
    steps: StepCount = None,
    target: Target = 0.95,
    k: OnlyK = None,
    strategy: Simulated = None,
    set_: Set = [],  # noqa: B006
    repeat: Repeat = 0,
    wrong_at_most: WrongAtMost = None,
    confidence: Confidence = CONFIDENCE,
    model: ModelSpecs = [],  # noqa: B006
    gold: GoldColumns = [],  # noqa: B006
    gold_file: GoldFile = None,
    output: RowsOut = None,
    max_cost: MaxCost = None,
    max_time: MaxTime = None,
    concurrency: Concurrency = None,
    runs_dir: RunsDir = RUNS,
    as_json: AsJson = False,
    context: typer.Context,
) -> None:
    """Plan a run from measurements or from given rates: the chance, the calls, the cost and the duration of each k and strategy.

    It chooses among the measured models, pools of them, each k, certificates and the rule certify; of agents among measured margins. The
    cheapest run that is surely enough for the target is marked, with the command that begins it; a target above the ceiling is refused.
    The chance has a condition, which the plan shows: few samples exclude no rare hard steps. With --max-cost and --max-time only runs
    within them are marked.

    With --p every step has the same rate and one rival, the worst case for the chance (MAKER, equations 9 to 16); -s steps=M is as in
    `run`.

    With --inputs FILE it is the chance that all fields of a row are right, and --max-cost is of the whole table. Equal rows count once.

    With --wrong-at-most, and other words as for run, it says how many labels are missing, the calls and the cost, before anything is
    bought; with --from of the strong model also how many rows must stay open.

    --repeat simulates the marked row, or -k, --strategy and -s, in virtual time: each step has an error rate drawn from the measured ones.

    Exit codes: 0 a run reaches the target, 1 none does, 2 wrong usage.
    """
    if wrong_at_most is not None:
        check_typed(context, "without --wrong-at-most", "max_cost", *OF_STEPS)
        if task is None or inputs is None or len(from_) > 1:
            raise InvalidUsage("--wrong-at-most needs a task and --inputs FILE, and takes one --from at most")
        from microagents.cli.inputs import given_by
        from microagents.cli.promising import Promising
        from microagents.studies.promised import WantedPromise

        changed: dict[str, Any] = {"seed": 0}
        options = with_output(option, output, changed)
        asked = Promising(
            wanted=WantedPromise(wrong_at_most=wrong_at_most, confidence=confidence),
            given=given_by(task, options, inputs, gold, is_labelled=False),
            models=models_of(model),
            options=StrategyOptions(pairs("-s", set_) | ({"k": k} if k else {}), {}),
            gold_file=gold_file,
            runs_dir=runs_dir,
            changed=changed,
        )
        _plan_promise(asked, from_, as_json=as_json)
        return
    promised = "with --wrong-at-most (a plan goes by those of its measurement)"
    check_typed(context, promised, "gold", "gold_file", "model", "output")
    if (p is None) == (not from_):
        raise InvalidUsage(
            "give either a measurement, --from RUN (microagents measure TASK makes one), or rates: --p P"
        )
    if inputs is not None:
        check_typed(context, "without --inputs", "set_", *OF_STEPS)
        if task is None or len(from_) > 1:
            raise InvalidUsage("--inputs needs a task and one --from")
        wanted = {"target": target, "k": k, "max_cost_usd": max_cost}
        _plan_table(task, option, inputs, from_[0], runs_dir, as_json=as_json, **wanted)
        return
    from microagents.cli.views.planned import print_plan
    from microagents.studies.measure import measured_from
    from microagents.studies.planning import Rates, plan

    work = None if task is None else task_of(task, option)
    given: Any = [measured_from(runs_dir, each, work) for each in dict.fromkeys(from_)]
    found = plan(
        work,
        given if p is None else Rates(p=p),
        target=target,
        steps=steps,
        k=k,
        strategy=strategy,
        options=pairs("-s", set_),
        max_cost_usd=max_cost,
        max_time_s=max_time,
        concurrency=concurrency,
        repeat=repeat,
    )
    print_plan(found, task, work, option, concurrency, max_cost, max_time, as_json=as_json)
    if found.best is None:
        raise typer.Exit(NO_RUN)


def _plan_promise(asked: Promising, from_: list[str], *, as_json: bool) -> None:
    from microagents.cli.promising import promise_plan
    from microagents.cli.views.planned_promise import print_promise
    from microagents.studies.measure import model_measured

    asked.check()
    measured = model_measured(asked.runs_dir, from_[0], asked.given.first) if from_ else None
    found = promise_plan(asked, measured)
    print_promise(found, as_json=as_json)
    if found.missing:
        raise typer.Exit(NO_RUN)


def _plan_table(
    task: str, option: list[str], inputs: str, run: str, runs_dir: Path, *, as_json: bool, **wanted: Any
) -> None:
    from microagents.cli.inputs import given_by
    from microagents.cli.views.planned_rows import print_rows
    from microagents.runs.task_list import tasks_of
    from microagents.studies.measure import model_measured
    from microagents.studies.row_plans import plan_rows

    given = given_by(task, option, inputs)
    found = plan_rows(tasks_of(given.work), model_measured(runs_dir, run, given.first), **wanted)
    print_rows(found, task, inputs, option, as_json=as_json)
    if not found.is_sure:
        raise typer.Exit(NO_RUN)
