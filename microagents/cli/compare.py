"""`microagents compare`."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from microagents.cli.options import (
    RUNS,
    STRATEGY_NAMES,
    AsJson,
    Config,
    ModelSpecs,
    Options,
    RunsDir,
    Seed,
    TaskName,
    models_of,
    pairs,
    task_of,
    with_settings,
)
from microagents.cli.reporting import EXIT_CODES, log_to_stderr, one_sentence, printable
from microagents.cli.watching import TerminalControl, described, watch
from microagents.runs.compare import compare
from microagents.runs.comparison import Comparison, Row

HEADS = ("strategy", "k", "solved", "rate", "95 % interval", "undecided", "failed", "argmax", "calls/input", "cost/input", "time")
WORDS = (0,)
"""Columns of words: they begin at the left."""


@with_settings
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
            help=f"{STRATEGY_NAMES} Repeatable. [default: the task's own]",
        ),
    ] = [],  # noqa: B006
    set_: Annotated[
        list[str],
        typer.Option("-s", "--set", metavar="NAME=VALUE", help="An option of all strategies that have one of this name. Repeatable."),
    ] = [],  # noqa: B006
    k: Annotated[
        list[int],
        typer.Option("-k", metavar="K", envvar="MICROAGENTS_K", help="A row for each, of strategies that have a k. Repeatable."),
    ] = [],  # noqa: B006
    repeat: Annotated[int, typer.Option(metavar="N", envvar="MICROAGENTS_REPEAT", help="How many inputs every row does.")] = 20,
    model: ModelSpecs = [],  # noqa: B006
    seed: Seed = 0,
    runs_dir: RunsDir = RUNS,
    run_id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", envvar="MICROAGENTS_RUN_ID", help="What the names of the rows' runs begin with. [default: compare-...]"
        ),
    ] = None,
    as_json: AsJson = False,
    config: Config = None,  # noqa: ARG001 - read by its callback
    changed: dict[str, Any],
) -> None:
    """Compare strategies: a row for each, and for each k, all on the same inputs.

    A task that is a problem (multiplication, sorting) is varied: every row does the same N problems of its kind. Any other task is done
    N times. `solved` counts inputs whose result is right by the task's own check: `correct` of a problem, `solved` in the result of a
    chain. A chain whose result does not tell is solved where its oracle finds no decision of the whole row wrong. Where code cannot
    tell, solved is `?`. An input that is undecided or fails is not solved, and stops nothing.

    Each row is a run with a journal of its own, and the same command goes on where it ended. Another N, seed, model or option of the
    task is another comparison. --max-cost, --max-calls and --max-time hold for all rows together.

    Exit codes: 0 all rows came to their end, 1 failed, 2 wrong usage, 3 stopped by a limit, an outage or a full disk, 130 interrupted.
    """
    log_to_stderr()
    with one_sentence():
        work, options = task_of(task, option), pairs("-s", set_)

        async def start(control: TerminalControl) -> Comparison:
            return await compare(
                work,
                models=models_of(model),
                strategies=strategy,
                k=k,
                options=options,
                repeat=repeat,
                seed=seed,
                runs_dir=runs_dir,
                run_id=run_id,
                on_row=control.name,
                on_progress=control.on_progress,
                interrupt=control.interrupt,
                terminate=control.terminate,
                **changed,
            )

        comparison = watch(task, start, as_json=as_json)
    typer.echo(json.dumps(comparison.as_json()) if as_json else "\n".join(_shown(comparison)))
    raise typer.Exit(EXIT_CODES[comparison.outcome])


def _shown(comparison: Comparison) -> Iterator[str]:
    """What was compared, a row a line, and what is to be known of them."""
    models = ", ".join(spec for pool in comparison.models.values() for spec in pool)
    what = f"{comparison.task}{described(comparison.options)}: {comparison.repeat:,} inputs; {models}, seed {comparison.seed}"
    yield from _wrapped(what)
    if comparison.rows:
        yield ""
        yield from _table([HEADS, *(_cells(row) for row in comparison.rows)])
        yield ""
    if all(spec.startswith("sim:") for spec in models.split(", ")):
        yield from _wrapped("simulated: no real model was asked; costs are what the real one would have cost at list prices")
    for row in comparison.rows:
        if row.failed:
            yield from _wrapped(f"{row.run_id}: {row.reason}")
    if comparison.reason is not None:
        higher = ", with a higher limit," if " is reached" in comparison.reason else ""
        yield from _wrapped(f"{comparison.reason}; what was decided holds, and the same command{higher} goes on")


def _cells(row: Row) -> tuple[str, ...]:
    solved = f"{row.solved:,} of {row.repeat:,}" if row.solved is not None else f"? ({row.completed:,} completed)"
    rate = "-" if row.rate is None else f"{row.rate:.1%}"
    between = "-" if row.low is None or row.high is None else f"{row.low:.1%} to {row.high:.1%}"
    cost = "unknown" if row.cost_usd is None else "-" if row.cost_per_input is None else f"${row.cost_per_input:,.4f}"
    return (
        row.strategy,
        "-" if row.k is None else str(row.k),
        solved,
        rate,
        between,
        f"{row.undecided:,}",
        f"{row.failed:,}",
        "-" if row.argmax is None else f"{row.argmax:,}",
        "-" if row.calls_per_input is None else f"{row.calls_per_input:,.1f}",
        cost,
        f"{row.wall_s:,.1f} s",
    )


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            f"{cell:<{width}}" if number in WORDS else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield printable("  ".join(cells))


def _wrapped(text: str) -> list[str]:
    """A sentence, broken at words where it is shown on a terminal."""
    columns = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else sys.maxsize
    return textwrap.wrap(printable(" ".join(text.split())), columns, subsequent_indent="  ", break_long_words=False)
