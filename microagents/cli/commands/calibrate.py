"""`microagents calibrate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.commands.study import SETTINGS
from microagents.cli.inputs import given_by
from microagents.cli.options import (
    DEFAULT_MODEL,
    RUNS,
    AsJson,
    Config,
    InputsFile,
    Options,
    RunPrefix,
    RunsDir,
    Seed,
    TaskName,
    Yes,
    model_option,
    with_settings,
)
from microagents.cli.reporting import EXIT_CODES, json_text
from microagents.cli.views.tables import closing_notes, table, wrapped
from microagents.cli.watching import Watched, kept_in_runs, run_in_terminal
from microagents.elections.laws import check_target
from microagents.runs.words.money import are_simulated, money, prices_of
from microagents.runs.words.summary import counted, options_text
from microagents.studies.agreement import UNKNOWN, AgreementReport, measure_agreement
from microagents.studies.analysis import Proportion
from microagents.studies.calibration import CalibrationReport, calibrate
from microagents.studies.measured import SHOWN_KS, ModelCalibration
from microagents.studies.sampling.calibration import FIRST
from microagents.studies.states import States, has_oracle, states_in_file, states_of_run
from microagents.task import Task

SHOWN = 10
"""Number of hard steps in a text; --json has all."""


@partial(with_settings, only=SETTINGS, short=None)
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
    states: Annotated[
        str | None,
        typer.Option(
            metavar="RUN|FILE.jsonl",
            help=(
                "Ask in the states of the decided steps of this run of the task, or in those of a file, a JSON object a line. Without an "
                "oracle, only agreement is told. [default: the states that the oracle leads to]"
            ),
        ),
    ] = None,
    inputs: InputsFile = None,
    seed: Seed = 0,
    runs_dir: RunsDir = RUNS,
    run_id: RunPrefix = None,
    as_json: AsJson = False,
    yes: Yes = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
    changed: dict[str, Any],
) -> None:
    """Calibrate models on random steps of a task, before a long run is paid for.

    Each step is asked twice in the state that the task's oracle leads to, and eight times more if a reply is wrong or flagged or the
    two differ. The report shows how often replies are right and valid, with exact intervals of 95 % over steps, which steps are hard,
    and three chances that a whole run is right: if errors were independent, with the errors as they differ from step to step, and by the
    half of the steps that no estimate has seen. Its last line is a verdict.

    With --inputs, of problems or of chains of one step, an input is a step: its only question, which is the direct answer to a problem.

    With --states the steps are asked in other states, such as an earlier run's. A task without an oracle needs them. Then the
    report shows at how many steps two draws agree, and what follows from it for p, which promises nothing of a whole run.

    The samples of a model are a run with its own journal, and the same command again continues where it ended. `microagents plan` reads
    it: --from RUN.

    Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 stopped by a limit, an outage or a full disk, 130 interrupted.
    """
    check_target(target)
    models = list(dict.fromkeys(model or [DEFAULT_MODEL]))
    work = given_by(task, option, inputs).work
    watched = Watched(task, "steps", models, kept_in_runs("calibration"))
    given = None if states is None else _states(states, runs_dir, work)
    shared: dict[str, Any] = {
        "models": models,
        "steps": steps,
        "seed": seed,
        "runs_dir": runs_dir,
        "run_id": run_id,
        **changed,
    }
    if given is not None and isinstance(work, Task) and not has_oracle(work, given):
        agreement = run_in_terminal(
            watched,
            lambda control, set_title: measure_agreement(work, states=given, on_model=set_title, **shared, **control),
            as_json=as_json,
            yes=yes,
        )
        typer.echo(json_text(agreement.as_json()) if as_json else "\n".join(_agreement_report(agreement)))
        raise typer.Exit(EXIT_CODES[agreement.outcome])
    report = run_in_terminal(
        watched,
        lambda control, set_title: calibrate(work, states=given, on_model=set_title, **shared, **control),
        as_json=as_json,
        yes=yes,
    )
    typer.echo(json_text(report.as_json(target)) if as_json else "\n".join(_report(report, target)))
    raise typer.Exit(EXIT_CODES[report.outcome])


def _states(given: str, runs_dir: Path, task: Task | Sequence[Task]) -> States:
    if not isinstance(task, Task):
        raise InvalidUsage("--states are for one chain; leave out --states or --inputs")
    return states_in_file(Path(given), task) if given.endswith(".jsonl") else states_of_run(runs_dir, given, task)


def _agreement_report(report: AgreementReport) -> Iterator[str]:
    yield from wrapped(_title(report))
    for each in report.models:
        yield ""
        price = prices_of([each.model])(each.cost_usd)
        yield from wrapped(
            f"{each.model}: {counted(len(each.steps), 'step')} of {each.total:,}, {FIRST * len(each.steps):,} draws, {price}"
        )
        yield from wrapped(
            f"two draws agree = {_within(each.agreement)}, valid = {_within(each.valid)} (95 % over steps)"
        )
        if each.differing:
            yield from wrapped(f"they differ at {counted(len(each.differing), 'step')}: {_named(each.differing)}")
        if each.as_decided is not None:
            yield from wrapped(f"as {report.source} decided, rightly or not = {_within(each.as_decided)}")
        yield from wrapped(
            f"p is at most {each.p_high:.4f}; at least {each.p_low:.4f} only if each step's most frequent reply is the right one"
        )
    if report.models:
        yield ""
        yield from wrapped(f"no oracle: {UNKNOWN}")
        if are_simulated(each.model for each in report.models):
            yield from wrapped("simulated: no real model was asked")
    yield from closing_notes(report.recorded_at, report.reason, "samples")


def _title(report: CalibrationReport | AgreementReport) -> str:
    return f"{report.task}{options_text(report.options)}: random steps of {report.source}; seed {report.seed}"


def _named(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:SHOWN])) + (", ..." if len(numbers) > SHOWN else "")


def _report(report: CalibrationReport, target: float) -> Iterator[str]:
    yield from wrapped(_title(report))
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
    yield from wrapped(f"--from {found.run_id} takes its samples")
    if found.latency is not None:
        p50, p95, p99 = found.latency.p50, found.latency.p95, found.latency.p99
        yield from wrapped(f"a call takes {p50:,.2g} s, {p95:,.2g} s in one of 20, {p99:,.2g} s in one of 100")
    yield from wrapped(f"p = {_within(found.p)}, valid = {_within(found.valid)} (95 % over steps)")
    yield from wrapped(f"correlation of two draws of a step: {found.rates.correlation:.2f}")
    named = f" (steps {_named(found.hard)})" if found.hard else ""
    yield from wrapped(
        f"hard steps: {len(found.hard):,}{named}; at most {found.most_hard(found.total):.3%} of all (95 %)"
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
