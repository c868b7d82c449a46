"""`microagents try`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import typer

from microagents.cli.config import PROJECT, with_defaults, write_defaults
from microagents.cli.inputs import given_by
from microagents.cli.options import (
    DEFAULT_MODEL,
    RUNS,
    AsJson,
    Config,
    InputsFile,
    Options,
    RunsDir,
    Seed,
    TaskName,
    Tools,
    Yes,
    model_option,
    with_settings,
    with_tools,
)
from microagents.cli.reporting import EXIT_CODES, echo, json_text
from microagents.cli.trusting import has_terminal
from microagents.cli.views.tables import Columns, report_text
from microagents.cli.watching import Watched, kept_in_runs, run_in_terminal
from microagents.runs.words.money import prices_of
from microagents.studies.trying import KNOWN_STEPS, USELESS, Tried, TriedForm, try_model

SETTINGS = ("max_output_tokens", "flag_above_tokens", "max_outage_s", "prices")


@partial(with_settings, only=SETTINGS, short=None)
def command(
    task: TaskName,
    *,
    option: Options = [],  # noqa: B006 - typer copies it
    tool: Tools = [],  # noqa: B006
    inputs: InputsFile = None,
    model: Annotated[str, model_option("Model to try, as provider:model[@key=value,...].")] = DEFAULT_MODEL,
    steps: Annotated[
        int,
        typer.Option(min=KNOWN_STEPS, metavar="N", help="Number of steps in the best form, each sampled twice."),
    ] = KNOWN_STEPS,
    seed: Seed = 0,
    write: Annotated[
        bool, typer.Option("--write", help=f"Write the settings that follow into {PROJECT}. [default: a terminal asks]")
    ] = False,
    runs_dir: RunsDir = RUNS,
    as_json: AsJson = False,
    yes: Yes = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
    changed: dict[str, Any],
) -> None:
    """Try a model on a task for a minute: which form of reply, which k, at which cost.

    Three steps whose right replies the oracle knows are sampled twice in each form. It ends in one sentence of advice and in the settings
    that follow. With fewer than 30 samples no k is advised.

    Exit codes: 0 the model will do, or more samples will tell, 1 not with this model, 2 wrong usage, 130 interrupted.
    """
    work = given_by(task, with_tools(option, tool), inputs).work
    found = run_in_terminal(
        Watched(task, "step", [model], kept_in_runs("try")),
        lambda control, set_title: try_model(
            work, model, steps=steps, seed=seed, runs_dir=runs_dir, on_form=set_title, **changed, **control
        ),
        yes=yes,
    )
    echo(json_text(found.as_json()) if as_json else report_text(_report(found)))
    if found.is_interrupted:
        raise typer.Exit(EXIT_CODES["interrupted"])
    if found.advice in USELESS:
        raise typer.Exit(EXIT_CODES["failed"])
    if write or (not as_json and has_terminal() and typer.confirm(f"Write them into {PROJECT}?", err=True)):
        write_defaults(found.settings)
        typer.echo(f"microagents: wrote {', '.join(found.settings)} into {PROJECT}", err=True)


def _report(found: Tried) -> Iterator[str | Columns]:
    price = prices_of([found.model])
    if found.forms:
        rows = [["form", "valid", "right", "flags", "tokens a reply", "seconds", "cost"]]
        yield Columns([*rows, *[_row(each, price) for each in found.forms]], to_the_left=(0, 3))
    for each in found.forms:
        if each.reason is not None:
            yield f"{each.name}: {each.reason}"
    will_do = found.advice not in USELESS
    if found.calls is not None and will_do:
        yield f"at k = {found.k} the task takes about {found.calls:,.0f} calls, {price(found.cost_usd)}"
    if found.certain and will_do:
        yield found.certain
    if found.hard:
        yield f"hard steps: {', '.join(map(str, found.hard))}"
    yield found.said
    if found.settings and will_do:
        yield ""
        yield Columns([[line] for line in with_defaults("", found.settings).splitlines()])


def _row(form: TriedForm, price: Any) -> list[str]:
    found = form.found
    if found is None:
        return [form.name, *["-"] * 6]
    flags = ", ".join(f"{name} {count}" for name, count in found.flags.items()) or "-"
    seconds = "-" if found.latency is None else f"{found.latency.p50:.2g}"
    right = "-" if form.right is None else f"{form.right} of {form.valid}"
    valid = f"{form.valid} of {found.draws}"
    return [form.name, valid, right, flags, f"{form.tokens or 0:,.0f}", seconds, price(found.cost_usd)]
