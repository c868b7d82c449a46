"""`microagents study`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import typer

from microagents.actors.registry import unknown
from microagents.base.errors import InvalidUsage
from microagents.cli.options import (
    DEFAULT_MODEL,
    RUNS,
    AsJson,
    Config,
    Options,
    RunPrefix,
    RunsDir,
    Seed,
    Svg,
    TaskName,
    Yes,
    check_picture,
    draw_picture,
    model_option,
    task_of,
    with_settings,
)
from microagents.cli.reporting import EXIT_CODES, json_text
from microagents.cli.views.tables import closing_notes, table, wrapped
from microagents.cli.watching import Watched, kept_in_runs, run_in_terminal
from microagents.runs.settings import Settings
from microagents.runs.words.money import are_simulated, prices_of
from microagents.runs.words.summary import counted, options_text
from microagents.studies.analysis import Distances, Errors, FieldAccuracies, Proportion, RolloutAccuracy
from microagents.studies.flags import FlagFindings
from microagents.studies.study import KINDS, Kind, StudyReport, study

SHOWN = 10
"""Number of hardest steps in a text; --json has all steps."""
SETTINGS = tuple(name for name in Settings.model_fields if name != "on_undecided")


@partial(with_settings, only=SETTINGS, short=None)
def command(
    task: TaskName,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help=f"What is studied: {', '.join(KINDS)}.",
            autocompletion=lambda incomplete: [each for each in KINDS if each.startswith(incomplete)],
        ),
    ],
    *,
    option: Options = [],  # noqa: B006 - typer copies it
    model: Annotated[
        list[str], model_option("Model, as provider:model[@key=value,...]. Repeatable: each is studied on its own.")
    ] = [],  # noqa: B006
    samples: Annotated[
        int,
        typer.Option(
            metavar="N",
            envvar="MICROAGENTS_SAMPLES",
            help="Number of samples of each step; of lookahead also of rollouts from each.",
        ),
    ] = 20,
    horizon: Annotated[
        int | None,
        typer.Option(
            metavar="N", envvar="MICROAGENTS_HORIZON", help="Number of steps in a rollout, for lookahead. [default: 8]"
        ),
    ] = None,
    svg: Svg = None,
    seed: Seed = 0,
    runs_dir: RunsDir = RUNS,
    run_id: RunPrefix = None,
    as_json: AsJson = False,
    yes: Yes = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
    changed: dict[str, Any],
) -> None:
    """Study which steps of a task a model gets wrong: every step is asked many times, in the state that the task's oracle leads to.

    errors: the error rate of each step, and the hardest steps. lookahead: how right steps are when asked singly, and as the
    first, second, ... step of a rollout. distance: how differently the errors of two or more models are spread over the steps. parts:
    how right each field of the reply is when the fields before it are right, by single samples and by their majority. flags: what red
    flags gain and cost: the same replies read leniently, strictly, and with caps of their length.

    The samples of a model are a run with its own journal, and the same command again continues where it ended. errors, distance and
    parts use the same samples, so the second of them asks nothing. --max-cost, --max-tokens, --max-calls and --max-time apply to all
    models together.

    Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 stopped by a limit, an outage or a full disk, 130 interrupted.
    """
    models = list(dict.fromkeys(model or [DEFAULT_MODEL]))
    studied = _kind_named(kind, task)
    check_picture(svg)
    if svg is not None and studied == "flags":
        raise InvalidUsage("the study flags has no picture; leave --svg out")
    work = task_of(task, option)

    watched = Watched(task, type(work).progress_unit, models, kept_in_runs("study"))
    report = run_in_terminal(
        watched,
        lambda control, set_title: study(
            work,
            studied,
            models=models,
            samples=samples,
            horizon=horizon,
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
    draw_picture(report, svg)
    typer.echo(json_text(report) if as_json else "\n".join(_report(report)))
    raise typer.Exit(EXIT_CODES[report.outcome])


def _kind_named(kind: str, task: str) -> Kind:
    found: Kind | None = next((each for each in KINDS if each == kind), None)
    if found is None and task in KINDS:
        raise InvalidUsage(f"TASK comes first, then KIND: microagents study {kind} {task}")
    if found is None:
        raise InvalidUsage(unknown("study", kind, KINDS))
    return found


def _report(report: StudyReport) -> Iterator[str]:
    drawn = f"{counted(report.samples, 'sample')} of each step" + (
        f", and rollouts of {counted(report.horizon, 'step')}" if report.horizon else ""
    )
    yield from wrapped(f"{report.task}{options_text(report.options)}: {drawn}; seed {report.seed}")
    for each in report.models:
        price, flagged = prices_of([each.model])(each.cost_usd), counted(each.flagged, "reply", "replies")
        yield ""
        yield from wrapped(
            f"{each.model}: {counted(each.steps, 'step')}, {counted(each.calls, 'call')}, {price}, {flagged} flagged"
        )
        if report.kind == "errors" and each.errors is not None:
            yield from _errors(each.errors)
        if each.lookahead is not None:
            yield from _lookahead(each.lookahead)
        if each.parts is not None:
            yield from _parts(each.parts)
        if each.flags is not None:
            yield from _flags(each.flags)
    if report.distances is not None:
        yield ""
        yield from _distances(report.distances)
    if report.models and are_simulated(each.model for each in report.models):
        yield ""
        yield from wrapped("simulated: no real model was asked")
    yield from closing_notes(report.recorded_at, report.reason, "samples")


def _errors(found: Errors) -> Iterator[str]:
    yield from wrapped(f"mean error rate {_share(found.mean)} (95 % over steps)")
    yield from wrapped(
        f"{counted(found.hard, 'step errs', 'steps err')} in more than half of the samples; "
        f"of {found.surely_hard:,} the whole interval is above it"
    )
    if found.p is not None:
        p, other = found.p, "other " * bool(found.hard)
        steps = f"at the {other}{counted(found.ordinary, 'step')}"
        yield from wrapped(f"{steps}: p = {p.share:.4f} ({p.low:.4f} to {p.high:.4f}), for `-s p=` of a ladder")
    if hardest := found.hardest(SHOWN):
        rows = [[str(each.step), f"{each.wrong:,} of {each.valid:,}", *_cells(each.rate)] for each in hardest]
        yield from table([["step", "wrong", "rate", "95 % interval"], *rows])


def _lookahead(found: RolloutAccuracy) -> Iterator[str]:
    hardest = found.hardest
    at_hardest = (
        [None] * (len(found.positions) + 1) if hardest is None else [hardest.alone, *hardest.ahead, hardest.pooled]
    )
    names = ["alone", *[f"+{each.position}" for each in found.positions[1:]], "all positions"]
    given = [*[each.given_first for each in found.positions], None]
    rows = [
        [
            name,
            *_cells(each.accuracy),
            _cells(first)[0],
            f"{each.ranked[0]:.1%}" if each.ranked else "-",
            _cells(tenth)[0],
        ]
        for name, each, first, tenth in zip(names, [*found.positions, found.pooled], given, at_hardest, strict=True)
    ]
    yield from table(
        [["position", "right", "95 % interval", "first right", "hardest step", "hardest tenth"], *rows],
        to_the_left=(0,),
    )
    if hardest is not None:
        steps = ", ".join(map(str, hardest.steps[:SHOWN])) + (", ..." if len(hardest.steps) > SHOWN else "")
        yield from wrapped(
            f"the hardest tenth by one half of the samples alone, measured by the other half: steps {steps}"
        )


def _parts(found: FieldAccuracies) -> Iterator[str]:
    rows = []
    for number, each in enumerate([*found.fields, found.whole]):
        given = ", given those before" if 0 < number < len(found.fields) else ""
        rows.append(
            [f"{each.name}{given}", *_cells(each.single), *_cells(each.majority), f"{each.errors_per_walk:.2f}"]
        )
    head = ["field", "right", "95 % interval", "by majority", "95 % interval", "errors in all steps"]
    yield from table([head, *rows], to_the_left=(0,))


def _flags(found: FlagFindings) -> Iterator[str]:
    head = ["reading", "valid", "wrong", "right flagged", "both wrong", "if independent", "same wrong", "nats a call"]
    rows = [
        [
            each.name,
            f"{each.valid / found.replies:.1%}",
            f"{each.wrong / each.valid:.2%}" if each.valid else "-",
            f"{each.right_flagged:,}",
            f"{each.both_wrong:,}",
            f"{each.both_if_independent:.1f}",
            f"{each.collisions:,}",
            f"{each.information:.3f}{' +' * each.gains}",
        ]
        for each in found.readings
    ]
    yield from table([head, *rows], to_the_left=(0, 7))
    yield from wrapped(f"advice: {found.advice}")


def _distances(found: Distances) -> Iterator[str]:
    yield from wrapped("total variation distance between halves of samples; of one model between its own two halves:")
    numbers = [str(number) for number in range(1, len(found.models) + 1)]
    rows = []
    for number, spec, errors, cells in zip(numbers, found.models, found.errors, found.matrix, strict=True):
        rows.append([f"{number} {spec}", f"{errors:,}", *("-" if each is None else f"{each:.3f}" for each in cells)])
    yield from table([["model", "errors", *numbers], *rows], to_the_left=(0,))


def _cells(share: Proportion | None) -> list[str]:
    return ["-", "-"] if share is None else [f"{share.share:.1%}", f"{share.low:.1%} to {share.high:.1%}"]


def _share(share: Proportion | None) -> str:
    return "unknown" if share is None else f"{share.share:.2%}, {share.low:.2%} to {share.high:.2%}"
