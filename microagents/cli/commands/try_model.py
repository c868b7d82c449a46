"""`microagents try`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.config import PROJECT
from microagents.cli.options import (
    DEFAULT_MODEL,
    OF_ONE_STEP,
    RUNS,
    TASK,
    AsJson,
    Config,
    GoldColumns,
    InputsFile,
    ModelSpecs,
    Options,
    RunsDir,
    Seed,
    StrategyName,
    StrategyOptions,
    Tools,
    Yes,
    check_typed,
    models_of,
    strategy_named,
    with_settings,
    with_tools,
)
from microagents.cli.reporting import EXIT_CODES, echo, json_text

if TYPE_CHECKING:
    from microagents.actors.role import Strategy
    from microagents.runs.task_list import Tasks
    from microagents.task import Task

OF_TRY = ("steps", "write", "yes")
"""Parameters of a try that --one and --setup do not have."""
OF_QUESTION = ("strategy", "set_", "k", "step", "number", "format", "reasoning", "reading")
"""Parameters of --one alone."""
OF_BOTH = (
    "task",
    "option",
    "tool",
    "inputs",
    "gold",
    "seed",
    "max_output_tokens",
    "flag_above_tokens",
    "max_outage_s",
    "prices",
)
"""Parameters that only --setup lacks."""


@partial(with_settings, only=(*OF_ONE_STEP, "runtime"), short=("k",))
def command(
    task: Annotated[str | None, TASK] = None,
    *,
    option: Options = [],  # noqa: B006 - typer copies it
    tool: Tools = [],  # noqa: B006
    one: Annotated[
        bool,
        typer.Option("--one", help="Ask one question, and show it in full: prompt, replies, flags, votes and price."),
    ] = False,
    setup: Annotated[
        bool,
        typer.Option(
            "--setup", help="Check keys, endpoints, models, prices, open files, Ray, disk and clock. No TASK is needed."
        ),
    ] = False,
    strategy: StrategyName = None,
    inputs: InputsFile = None,
    gold: GoldColumns = [],  # noqa: B006
    model: ModelSpecs = [],  # noqa: B006
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of steps in the best form, each sampled twice. [default: 3]"),
    ] = None,
    step: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="With --one: number of a chain's step, from 0. The task's oracle does the steps before it.",
        ),
    ] = 0,
    number: Annotated[
        int,
        typer.Option("--input", min=0, metavar="N", help="With --one and --inputs: number of the input, from 0."),
    ] = 0,
    seed: Seed = 0,
    write: Annotated[
        bool, typer.Option("--write", help=f"Write the settings that follow into {PROJECT}. [default: a terminal asks]")
    ] = False,
    runs_dir: RunsDir = RUNS,
    as_json: AsJson = False,
    yes: Yes = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
    context: typer.Context,
    options: StrategyOptions,
    changed: dict[str, Any],
) -> None:
    """Try a model on a task for a minute: which form of reply, how many errors, at which cost.

    Three steps whose right replies the oracle knows are sampled twice in each form. It ends in one sentence of advice and in the settings
    that follow; `microagents plan` reads its samples: --from RUN.

    With --one it shows one question in full: of a chain step N, of other work the first question that its strategy asks. With --setup it
    checks this machine and the models, a line each; each model that answers is asked for one call of a tool, or two, which may be billed.

    Exit codes: 0 the model will do, or more samples are needed, 1 not with this model, 2 wrong usage, 130 interrupted. With --one: 0
    decided, 1 failed, 3 stopped by an outage or since all replies are flagged, 4 undecided. With --setup: 1 if something is missing.
    """
    if one and setup:
        raise InvalidUsage("--one asks a question, and --setup checks what is needed for it; give one of them")
    if setup:
        check_typed(context, "without --setup", *OF_TRY, *OF_QUESTION, *OF_BOTH)
        _check_setup(model or [DEFAULT_MODEL], runs_dir, on_ray=changed.get("runtime") == "ray", as_json=as_json)
    check_typed(context, "with --setup", "runtime")
    if task is None:
        raise InvalidUsage("name the task to try, such as microagents try hanoi; or give --setup")
    changed.pop("runtime", None)
    words = with_tools(option, tool)
    from microagents.cli.inputs import given_by

    given_inputs = given_by(task, words, inputs, gold)
    if one:
        check_typed(context, "without --one", *OF_TRY)
        asked = _numbered(given_inputs.work, number)
        chosen = strategy_named(strategy, options, asked)
        _show_question(asked, chosen, model, step, {"seed": seed, **changed}, as_json=as_json)
    check_typed(context, "with --one", *OF_QUESTION)
    if len(model) > 1:
        raise InvalidUsage("a try is of one model; give one --model, or --one to ask them in turn")
    from microagents.cli.views.tried import report_tried
    from microagents.cli.watching import Watched, kept_in_runs, run_in_terminal
    from microagents.studies.trying import try_model

    work = given_inputs.work
    spec = model[0] if model else DEFAULT_MODEL
    given = {name: value for name, value in changed.items() if name in OF_BOTH}
    found = run_in_terminal(
        Watched(task, "step", [spec], kept_in_runs("try")),
        lambda control, set_title: try_model(
            work, spec, steps=steps, seed=seed, runs_dir=runs_dir, on_form=set_title, **given, **control
        ),
        yes=yes,
    )
    report_tried(found, as_json=as_json, write=write)


def _numbered(work: Tasks, number: int) -> Task:
    """Return one of many inputs; of a single task itself."""
    inputs = work if isinstance(work, Sequence) else [work]
    if number >= len(inputs):
        raise InvalidUsage(f"input {number} is not there; inputs are numbered from 0 to {len(inputs) - 1:,}")
    return inputs[number]


def _check_setup(models: list[str], runs_dir: Path, *, on_ray: bool, as_json: bool) -> NoReturn:
    from microagents.cli.views.tables import Columns, print_found
    from microagents.runs.doctor import examine

    findings = asyncio.run(examine(models, runs_dir, on_ray=on_ray, asks_calls=True))
    rows = [[each.state, each.subject, " ".join(each.said.split())] for each in findings]
    print_found(findings, [Columns(rows, to_the_left=(0, 1, 2))], as_json=as_json)
    is_missing = any(each.state == "missing" for each in findings)
    raise typer.Exit(EXIT_CODES["failed" if is_missing else "completed"])


def _show_question(
    work: Task, strategy: Strategy, model: list[str], step: int, given: dict[str, Any], *, as_json: bool
) -> NoReturn:
    from microagents.cli.views.question import print_question
    from microagents.elections.election import OPEN_OUTCOMES
    from microagents.runs.driver.begin import new_plan
    from microagents.studies.preview import show_step

    wanted: Any = {"strategy": strategy, "run_id": "one", **given}
    plan = new_plan(work, models_of(model), wanted)
    shown = asyncio.run(show_step(plan, step))
    if as_json:
        echo(json_text(shown))
    else:
        print_question(shown)
    ending = "completed"
    if shown.outcome == "stopped":
        ending = "stopped"
    elif shown.outcome in (*OPEN_OUTCOMES, "argmax"):
        ending = "undecided"
    raise typer.Exit(EXIT_CODES[ending])
