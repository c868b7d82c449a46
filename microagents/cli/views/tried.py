"""The report of a try on the terminal: forms of reply, advice, and the settings that follow."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from microagents.cli.config import PROJECT, with_defaults, write_defaults
from microagents.cli.reporting import EXIT_CODES
from microagents.cli.trusting import has_terminal
from microagents.cli.views.first_rows import tried_rows
from microagents.cli.views.tables import Columns, Part, print_found
from microagents.runs.words.money import Price, prices_of
from microagents.studies.trying import USELESS, Tried, TriedForm


def report_tried(found: Tried, *, as_json: bool, write: bool) -> None:
    """Print the findings, and write the settings that follow if the user wants it.

    Raises:
        typer.Exit: the try was interrupted, or the model will not do.
    """
    print_found(found.as_json(), _report(found), as_json=as_json)
    if found.is_interrupted:
        raise typer.Exit(EXIT_CODES["interrupted"])
    if found.advice in USELESS:
        raise typer.Exit(EXIT_CODES["failed"])
    if write or (not as_json and has_terminal() and typer.confirm(f"Write them into {PROJECT}?", err=True)):
        write_defaults(found.settings)
        typer.echo(f"microagents: wrote {', '.join(found.settings)} into {PROJECT}", err=True)


def _report(found: Tried) -> Iterator[Part]:
    price = prices_of([found.model])
    if found.forms:
        rows = [["form", "valid", "right", "flags", "tokens a reply", "seconds", "cost"]]
        yield Columns([*rows, *[_row(each, price) for each in found.forms]], to_the_left=(0, 3))
    for each in found.forms:
        if each.reason is not None:
            yield f"{each.name}: {each.reason}"
    if found.rows:
        yield from ("", tried_rows(found.rows), "")
    will_do = found.advice not in USELESS
    if found.calls is not None and will_do:
        yield f"at k = {found.k} the task takes about {found.calls:,.0f} calls, {price(found.cost_usd)}"
    if found.served:
        yield f"the model {found.served}"
    if found.hard:
        yield f"hard steps: {', '.join(map(str, found.hard))}"
    yield found.said
    if found.settings and will_do:
        yield f"settings for {PROJECT}, which --write puts there:"
        lines = with_defaults("", found.settings).splitlines()
        yield Columns([[line] for line in lines])


def _row(form: TriedForm, price: Price) -> list[str]:
    found = form.found
    if found is None:
        return [form.name, *["-"] * 6]
    flags = [f"{name} {count}" for name, count in found.flags.items()] or ["-"]
    seconds = right = "-"
    if found.latency is not None:
        seconds = f"{found.latency.p50:.2g}"
    if form.right is not None:
        right = f"{form.right} of {form.valid}"
    valid = f"{form.valid} of {found.draws}"
    return [form.name, valid, right, ", ".join(flags), f"{form.tokens or 0:,.0f}", seconds, price(found.cost_usd)]
