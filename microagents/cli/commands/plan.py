"""`microagents plan`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from msgspec import structs

from microagents.base.errors import InvalidUsage
from microagents.cli.options import RUNS, AsJson, Options, RunsDir, TaskName, task_of
from microagents.cli.reporting import json_text
from microagents.cli.views.tables import clock, table, wrapped
from microagents.runs.step_counts import steps_of
from microagents.runs.words.money import are_simulated, money
from microagents.runs.words.summary import options_text
from microagents.studies.calibration import calibration_from
from microagents.studies.planning import EXTRAPOLATED, PlannedRun, PlannedRuns, plan_runs
from microagents.task import ChainTask

ALPHABET = 26
NO_RUN = 1
"""Exit code if no run reaches the target."""


def command(
    task: TaskName,
    *,
    from_: Annotated[
        list[str], typer.Option("--from", metavar="RUN", help="Run of a calibration. Repeatable: one for each model.")
    ],
    option: Options = [],  # noqa: B006 - typer copies it
    target: Annotated[
        float, typer.Option(metavar="T", help="Wanted probability that all steps are decided right.")
    ] = 0.95,
    budget: Annotated[
        float | None, typer.Option(metavar="USD", min=0, help="Expected cost that a run may have.")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(metavar="S", min=0, help="Expected duration that a run may have, in seconds.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Maximum number of calls in flight, for the duration.")
    ] = None,
    runs_dir: RunsDir = RUNS,
    as_json: AsJson = False,
) -> None:
    """Plan a run from calibrations: the chance, calls, cost and duration of each strategy, for a task of any size.

    There are rows for each model and k, for pools of two models, for a ladder and for lead.

    The cheapest run whose lower bound reaches the target is marked, with the command that begins it. The chance has a condition, which
    the plan shows: few samples exclude no rare hard steps. With --budget and --deadline only runs within them are marked. Beside the cost
    as measured stands its range: from one with the prompt cache, the half-price tier and several votes a request, as far as the provider
    has them, up to one without any cache at the upper end of the calls.

    Exit codes: 0 a run reaches the target, 1 none does, 2 wrong usage.
    """
    work = task_of(task, option)
    total = steps_of(work) if isinstance(work, ChainTask) else None
    if total is None:
        raise InvalidUsage(
            f"{task} has neither steps() nor an oracle that counts them, so its chance cannot be planned"
        )
    found = [calibration_from(runs_dir, each, work) for each in dict.fromkeys(from_)]
    plan = plan_runs(work, found, total, target, budget_usd=budget, deadline_s=deadline, concurrency=concurrency)
    command_line = (
        None if plan.best is None else command_of(task, work.default_strategy, option, plan.best, concurrency)
    )
    if as_json:
        notes = {" + ".join(models): said for models, said in plan.notes.items()}
        typer.echo(json_text({**structs.asdict(plan), "notes": notes, "command": command_line}))
    else:
        options = work.model_dump(exclude_defaults=True)
        typer.echo("\n".join([*_report(task, options, plan), *_end(plan, command_line)]))
    raise typer.Exit(NO_RUN if plan.best is None else 0)


def _report(task: str, options: dict[str, Any], plan: PlannedRuns) -> Iterator[str]:
    yield from wrapped(f"{task}{options_text(options)}: {plan.steps:,} steps")
    models = list(dict.fromkeys(model for run in plan.runs for model in run.models))
    letters = dict(zip(models, models if len(models) == 1 else map(_letter, range(len(models))), strict=True))
    for model, letter in letters.items():
        if letter != model:
            yield from wrapped(f"{letter} is {model}")
    rows = [["", "model", "strategy", "chance", "interval", "calls", "cost", "range", "time"]]
    for run in plan.runs:
        mark = "*" if run.is_best else ""
        named = " + ".join(letters[each] for each in run.models)
        chance = [f"{run.chance.share:.4f}", f"{run.chance.low:.4f} to {run.chance.high:.4f}"]
        cost = run.cost_usd
        spread = "" if cost.mid is None else f"{money(cost.low)} to {money(cost.high)}"
        time = "-" if run.duration_s is None else clock(run.duration_s)
        rows.append([mark, named, _named(run), *chance, f"{run.calls:,.0f}", money(cost.mid), spread, time])
    yield from table(rows, to_the_left=(0, 1, 2))
    for names, notes in plan.notes.items():
        for note in notes:
            yield from wrapped(f"{' + '.join(letters[each] for each in names)}: {note}")
    yield from wrapped(EXTRAPOLATED)
    if are_simulated(models):
        yield from wrapped("simulated: costs are what the real model would have cost at list prices")


def _end(plan: PlannedRuns, command_line: str | None) -> Iterator[str]:
    if command_line is None:
        yield from wrapped(
            f"no run reaches {plan.target:g}: each lower bound is below it, or the cost or the duration above its limit or unknown"
        )
    else:
        yield from wrapped(f"* the cheapest whose lower bound reaches {plan.target:g}: {command_line}")


def command_of(task: str, default: str, options: list[str], run: PlannedRun, concurrency: int | None) -> str:
    """Write the command that begins a planned run.

    Args:
        task: name of the task.
        default: its default strategy.
        options: its options.
        run: the planned run.
        concurrency: maximum number of calls in flight.
    """
    given = [word for each in options for word in ("-o", each)]
    limit = [] if concurrency is None else ["--concurrency", str(concurrency)]
    models = [word for each in run.models for word in ("--model", each)]
    k = [] if run.k is None else ["-k", str(run.k)]
    chosen = [word for name, value in run.options.items() for word in ("-s", f"{name}={value}")]
    strategy = [] if run.strategy == default else ["--strategy", run.strategy]
    return shlex.join(["microagents", "run", task, *given, *models, *strategy, *k, *chosen, *limit])


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < ALPHABET else f"model {number + 1}"


def _named(run: PlannedRun) -> str:
    words = [run.strategy if run.k is None else f"k = {run.k}"]
    return ", ".join([*words, *[f"{name} {value}" for name, value in run.options.items() if name == "ladder"]])
