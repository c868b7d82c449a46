"""The report of a try on the terminal: forms of reply, advice, and the settings that follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import typer

from microagents.cli.config import PROJECT, with_defaults, write_defaults
from microagents.cli.reporting import EXIT_CODES, echo, json_text
from microagents.cli.trusting import has_terminal
from microagents.cli.views.tables import Columns, report_text
from microagents.runs.words.money import Price, prices_of
from microagents.studies.preview import ShownStep
from microagents.studies.trying import USELESS, Tried, TriedForm

TEXT_CHARS, FIELD_CHARS = 40, 24
"""Characters of a prompt or a reply, and of a field, that a table of the first rows shows; --json has all."""


def report_tried(found: Tried, *, as_json: bool, write: bool) -> None:
    """Print what was found, and write the settings that follow if the user wants it.

    Raises:
        typer.Exit: the try was interrupted, or the model will not do.
    """
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
    if found.rows:
        yield from ("", first_rows(found.rows), "")
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


def first_rows(shown: Sequence[ShownStep]) -> Columns:
    """Lay out rows with their prompts, their first replies and the fields of these, each cut to a part of a line."""
    read = [(each, each.replies[0] if each.replies else None) for each in shown]
    names = dict.fromkeys(chain.from_iterable(reply.vote or () for _, reply in read if reply is not None))
    judged = any(each.leader_correct is not None for each in shown)
    cells = [["input", "prompt", "reply", *names, *(["right"] if judged else [])]]
    for number, (each, reply) in enumerate(read):
        said = "" if reply is None else reply.text
        if reply is not None and reply.flag is not None:
            said = f"[{reply.flag}] {said}"
        vote = {} if reply is None else reply.vote or {}
        fields = [_cut(json_text(vote[name]), FIELD_CHARS) if name in vote else "-" for name in names]
        right = {True: "yes", False: "WRONG", None: "-"}[each.leader_correct]
        row = [str(number), _cut(each.user, TEXT_CHARS), _cut(said, TEXT_CHARS), *fields, right]
        cells.append(row[: len(cells[0])])
    return Columns(cells, to_the_left=range(1, len(cells[0])))


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    if len(line) > most:
        return f"{line[: most - 3]}..."
    return line


def _row(form: TriedForm, price: Price) -> list[str]:
    found = form.found
    if found is None:
        return [form.name, *["-"] * 6]
    flags = ", ".join(f"{name} {count}" for name, count in found.flags.items()) or "-"
    seconds = "-" if found.latency is None else f"{found.latency.p50:.2g}"
    right = "-" if form.right is None else f"{form.right} of {form.valid}"
    valid = f"{form.valid} of {found.draws}"
    return [form.name, valid, right, flags, f"{form.tokens or 0:,.0f}", seconds, price(found.cost_usd)]
