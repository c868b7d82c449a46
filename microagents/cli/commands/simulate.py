"""`microagents simulate`."""

from __future__ import annotations

from typing import Annotated

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.options import RUNS, AsJson, Options, RunsDir, Set, TaskName, pairs, task_of
from microagents.cli.reporting import json_text
from microagents.cli.views.tables import wrapped
from microagents.runs.settings import strategy_of
from microagents.runs.words.summary import counted, options_text
from microagents.studies.calibration import calibration_from
from microagents.studies.simulation import simulate


def command(
    task: TaskName,
    *,
    option: Options = [],  # noqa: B006 - typer copies it
    model: Annotated[
        str | None, typer.Option("--model", metavar="SPEC", help="Simulated model, as sim:PROFILE[@key=value,...].")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="RUN", help="Run of a calibration, in place of --model.")
    ] = None,
    strategy: Annotated[str | None, typer.Option(metavar="NAME", help="Strategy. [default: the task's]")] = None,
    set_: Set = [],  # noqa: B006
    k: Annotated[int | None, typer.Option("-k", metavar="K", min=1, help="Margin of the elections.")] = None,
    runs: Annotated[int, typer.Option(metavar="N", help="Number of runs, each with another seed.")] = 20,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Maximum number of calls in flight.")
    ] = None,
    runs_dir: RunsDir = RUNS,
    as_json: AsJson = False,
) -> None:
    """Simulate runs of a task: the engine itself in virtual time, with a simulated model, over many seeds.

    With --from the model has the error rates of a calibration: its hard steps, their rate, the rate of the others, and the red flags. All
    wrong replies to a question are one, the worst case. Nothing is recorded, and no real model is asked. -s hedge=1, --strategy lead and
    --concurrency show what each changes.
    """
    if (model is None) == (from_ is None):
        raise InvalidUsage("give either a simulated model, --model sim:PROFILE, or a calibration, --from RUN")
    work = task_of(task, option)
    spec = calibration_from(runs_dir, from_, work).simulated if from_ is not None else model or ""
    chosen = strategy_of(strategy, work, pairs("-s", set_) | ({} if k is None else {"k": k}))
    found = simulate(work, model=spec, strategy=chosen, runs=runs, concurrency=concurrency)
    if as_json:
        typer.echo(json_text(found))
        return
    share, size = found.success, options_text(work.model_dump(exclude_defaults=True))
    typer.echo("\n".join(wrapped(f"{task}{size}: {counted(runs, 'run')} in virtual time, {spec}")))
    typer.echo(f"  all steps right    {share.share:.3f} ({share.low:.3f} to {share.high:.3f} with 95 %)")
    typer.echo(f"  undecided          {found.undecided:,} of {runs:,}")
    typer.echo(f"  calls of a run     {found.calls:,.0f}")
    typer.echo(f"  duration of a run  {found.duration_s:,.1f} s")
    typer.echo(f"  wrong decisions    at most {found.most_errors:,} in a run")
