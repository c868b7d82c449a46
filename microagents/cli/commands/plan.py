"""`microagents plan`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from types import NoneType
from typing import Annotated, Any

import typer

from microagents.cli.options import RUNS, AsJson, Options, RunsDir, TaskName, task_of
from microagents.cli.reporting import json_text
from microagents.cli.views.tables import table, wrapped
from microagents.errors import InvalidUsage
from microagents.runs.studies.calibration import ModelCalibration, calibration_from
from microagents.runs.studies.planning import PlannedRun, plan_runs
from microagents.task import ChainTask
from microagents.user_code import called
from microagents.words.prices import are_simulated, money
from microagents.words.summary import options_text

NO_RUN = 1
"""Exit code where no run reaches the target."""


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
    runs_dir: RunsDir = RUNS,
    as_json: AsJson = False,
) -> None:
    """Plan a run from calibrations: the chance, the calls and the cost of each model and k, for a task of any size.

    The cheapest run whose lower bound reaches the target is marked, with the command that begins it. The chance has a condition, which
    the plan tells: few samples exclude no rare hard steps.

    Exit codes: 0 a run reaches the target, 1 none does, 2 wrong usage.
    """
    work = task_of(task, option)
    total = called(work.steps, gives=(int, NoneType)) if isinstance(work, ChainTask) else None
    if total is None:
        raise InvalidUsage(f"{task} does not know its number of steps, so its chance cannot be planned")
    found = [calibration_from(runs_dir, each, work) for each in dict.fromkeys(from_)]
    runs = plan_runs(found, total, target, budget_usd=budget)
    best = next((run for run in runs if run.is_best), None)
    command_line = None if best is None else _command(task, option, best)
    if as_json:
        plan: dict[str, Any] = {"steps": total, "target": target, "runs": runs, "command": command_line}
        conditions = {each.model: each.condition(total) for each in found}
        typer.echo(json_text({**plan, "conditions": conditions}))
    else:
        typer.echo(
            "\n".join(
                [
                    *_report(task, work.model_dump(exclude_defaults=True), found, runs, total),
                    *_end(best, command_line, target),
                ]
            )
        )
    raise typer.Exit(NO_RUN if best is None else 0)


def _report(
    task: str, options: dict[str, Any], found: list[ModelCalibration], runs: list[PlannedRun], total: int
) -> Iterator[str]:
    yield from wrapped(f"{task}{options_text(options)}: {total:,} steps")
    rows = [["", "model", "k", "chance", "interval", "calls", "cost"]]
    for run in runs:
        mark = "*" if run.is_best else ""
        chance = [f"{run.chance.share:.4f}", f"{run.chance.low:.4f} to {run.chance.high:.4f}"]
        rows.append([mark, run.model, str(run.k), *chance, f"{run.calls:,.0f}", money(run.cost_usd)])
    yield from table(rows, to_the_left=(0, 1))
    for each in found:
        yield from wrapped(f"{each.model}: {each.condition(total)}")
        if each.hard:
            yield from wrapped(
                f"{each.model}: {len(each.hard):,} of {len(each.steps):,} steps are hard; votes decide them wrong, take a ladder"
            )
    if are_simulated(each.model for each in found):
        yield from wrapped("simulated: costs are what the real model would have cost at list prices")


def _end(best: PlannedRun | None, command_line: str | None, target: float) -> Iterator[str]:
    if best is None:
        yield from wrapped(
            f"no run reaches {target:g}: each lower bound is below it, or its cost above the budget or unknown"
        )
    else:
        yield from wrapped(f"* the cheapest whose lower bound reaches {target:g}: {command_line}")


def _command(task: str, options: list[str], run: PlannedRun) -> str:
    given = [word for each in options for word in ("-o", each)]
    return shlex.join(["microagents", "run", task, *given, "--model", run.model, "-k", str(run.k)])
