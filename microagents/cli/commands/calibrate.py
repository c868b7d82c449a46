"""`microagents calibrate`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import typer

from microagents.cli.commands.study import SETTINGS
from microagents.cli.options import (
    DEFAULT_MODEL,
    RUNS,
    AsJson,
    Config,
    Options,
    RunsDir,
    Seed,
    TaskName,
    Yes,
    model_option,
    task_of,
    with_settings,
)
from microagents.cli.reporting import EXIT_CODES, json_text
from microagents.cli.views.tables import closing_notes, table, wrapped
from microagents.cli.watching import Watched, kept_in_runs, run_in_terminal
from microagents.elections.laws import check_target
from microagents.runs.studies.analysis import Proportion
from microagents.runs.studies.calibration import SHOWN_KS, CalibrationReport, ModelCalibration, calibrate
from microagents.words.prices import are_simulated, money, prices_of
from microagents.words.summary import counted, options_text

SHOWN = 10
"""Number of hard steps in a text; --json has all."""


@partial(with_settings, only=SETTINGS, short=())
def command(
    task: TaskName,
    *,
    option: Options = [],  # noqa: B006 - typer copies it
    model: Annotated[
        list[str], model_option("Model, as provider:model[@key=value,...]. Repeatable: each is calibrated on its own.")
    ] = [],  # noqa: B006
    steps: Annotated[
        int, typer.Option(metavar="N", envvar="MICROAGENTS_STEPS", help="Number of random steps, at most all.")
    ] = 1_000,
    target: Annotated[
        float, typer.Option(metavar="T", help="Wanted probability that all steps are decided right, for the verdict.")
    ] = 0.95,
    seed: Seed = 0,
    runs_dir: RunsDir = RUNS,
    run_id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar="MICROAGENTS_RUN_ID",
            help="Prefix of the names of the models' runs. [default: calibrate-...]",
        ),
    ] = None,
    as_json: AsJson = False,
    yes: Yes = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
    changed: dict[str, Any],
) -> None:
    """Calibrate models on random steps of a task, before a long run is paid for.

    Each step is asked twice in the state that the task's oracle leads to, and eight times more where a reply is wrong or flagged or the
    two differ. The report tells how often replies are right and valid, with exact intervals of 95 % over steps, which steps are hard,
    and three chances that a whole run is right: if errors were independent, with the errors as they differ from step to step, and by the
    half of the steps that no estimate has seen. Its last line is a verdict.

    The samples of a model are a run with its own journal, and the same command again continues where it ended. `microagents plan` reads
    it: --from RUN.

    Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 stopped by a limit, an outage or a full disk, 130 interrupted.
    """
    check_target(target)
    models = list(dict.fromkeys(model or [DEFAULT_MODEL]))
    work = task_of(task, option)
    watched = Watched(task, "steps", models, kept_in_runs("calibration"))
    report = run_in_terminal(
        watched,
        lambda control, set_title: calibrate(
            work,
            models=models,
            steps=steps,
            seed=seed,
            runs_dir=runs_dir,
            run_id=run_id,
            on_model=set_title,
            **control,
            **changed,
        ),
        as_json=as_json,
        yes=yes,
    )
    typer.echo(json_text(report.as_json(target)) if as_json else "\n".join(_report(report, target)))
    raise typer.Exit(EXIT_CODES[report.outcome])


def _report(report: CalibrationReport, target: float) -> Iterator[str]:
    yield from wrapped(f"{report.task}{options_text(report.options)}: random steps of the oracle; seed {report.seed}")
    for each in report.models:
        yield ""
        yield from _model(each, target)
    for pair in report.missed:
        yield ""
        names = " and ".join(pair.models)
        yield from wrapped(
            f"{names} miss the same step with a chance of {pair.together:.4%}; {pair.independent:.4%} if independent"
        )
    if report.models and are_simulated(each.model for each in report.models):
        yield ""
        yield from wrapped("simulated: no real model was asked")
    yield from closing_notes(report.recorded_at, report.reason, "samples")


def _model(found: ModelCalibration, target: float) -> Iterator[str]:
    price, call = prices_of([found.model])(found.cost_usd), money(found.call_usd)
    yield from wrapped(
        f"{found.model}: {counted(len(found.steps), 'step')} of {found.total:,}, {counted(found.draws, 'draw')}, {price}, {call} a call"
    )
    calls = max(1, found.calls)
    yield from wrapped(
        f"a call reads {found.input_tokens / calls:,.0f} tokens and writes {found.output_tokens / calls:,.0f}"
    )
    if found.latency is not None:
        p50, p95, p99 = found.latency.p50, found.latency.p95, found.latency.p99
        yield from wrapped(f"a call takes {p50:,.2g} s, {p95:,.2g} s in one of 20, {p99:,.2g} s in one of 100")
    yield from wrapped(f"p = {_within(found.p)}, valid = {_within(found.valid)} (95 % over steps)")
    yield from wrapped(f"correlation of two draws of a step: {found.rates.correlation:.2f}")
    named = ", ".join(map(str, found.hard[:SHOWN])) + (", ..." if len(found.hard) > SHOWN else "")
    yield from wrapped(
        f"hard steps: {len(found.hard):,}{f' (steps {named})' if named else ''}; at most {found.most_hard(found.total):.3%} of all (95 %)"
    )
    if found.mistakes:
        yield from wrapped(
            "wrong first in: " + ", ".join(f"{name} {count:,}" for name, count in found.mistakes.items())
        )
    rows = [["k", "if independent", "as measured", "", "held out", "", "calls"]]
    for k in SHOWN_KS:
        each = found.chances(k)
        rows.append(
            [str(k), f"{each.independent:.4f}", *_cells(each.measured), *_cells(each.held_out), f"{each.calls:,.0f}"]
        )
    yield f"chance that all {found.total:,} steps are right:"
    yield from table(rows)
    yield from wrapped(f"as measured: {found.condition(found.total)}")
    yield from wrapped(f"verdict: {found.verdict(target)[1]}")


def _within(share: Proportion) -> str:
    return f"{share.share:.4f} ({share.low:.4f} to {share.high:.4f})"


def _cells(share: Proportion) -> list[str]:
    return [f"{share.share:.4f}", f"{share.low:.4f} to {share.high:.4f}"]
