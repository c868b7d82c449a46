"""A plan of a table on the terminal: votes by the law and as they were held, and the command that fills the table."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from microagents.cli.views.measurement import within
from microagents.cli.views.planned import run_command
from microagents.cli.views.tables import Columns, Part, print_found
from microagents.runs.words.money import money, prices_of
from microagents.runs.words.verdict import counted
from microagents.studies.measured import proportion_of
from microagents.studies.row_plans import PlannedTable, PlannedVotes

HEAD = ["", "k", "by", "field right", "row right", "open", "calls a row", "a field", "a row", "calls", "cost"]
LEAST = ["a field", "field right", "a row", "calls a row", "calls"]
"""Columns that a narrow terminal loses, in this order."""


def print_rows(found: PlannedTable, task: str, file: str, options: list[str], *, as_json: bool) -> None:
    """Print a plan.

    Args:
        found: the plan.
        task: name of the task.
        file: the file of rows.
        options: words NAME=VALUE of the task.
        as_json: whether to print one object.
    """
    command_line = None
    if found.best is not None:
        best = ["--inputs", file, "--model", found.model, "-k", str(found.best.votes.k)]
        command_line = run_command(task, options, best)
    facts = {**structs.asdict(found), "is_sure": found.is_sure, "command": command_line}
    print_found(facts, [*_report(found, file), _end(found, command_line)], as_json=as_json)


def _report(found: PlannedTable, file: str) -> Iterator[Part]:
    once = ""
    if found.asked != found.rows:
        once = f", {found.asked:,} asked: equal rows are asked once"
    yield f"{file}: {counted(found.rows, 'row')}{once}; {counted(found.fields, 'field')} a row; {found.model}"
    yield Columns([HEAD, *[_cells(each, found) for each in found.votes]], to_the_left=(0, 1, 2), least=LEAST)
    yield from found.notes
    note = prices_of([found.model]).note
    if note:
        yield note


def _cells(planned: PlannedVotes, of: PlannedTable) -> list[str]:
    votes, row_usd = planned.votes, planned.row_usd
    by = "law"
    if votes.rows:
        by = f"{counted(votes.rows, 'row')} held"
    seen = [within(each) for each in (votes.fields, votes.right, votes.open, proportion_of(votes.calls))]
    field_usd = row_usd and row_usd / of.fields
    costs = [money(field_usd), money(row_usd), f"{planned.calls:,.0f}", money(planned.cost_usd)]
    is_marked = of.is_sure and planned is of.best
    return ["*" * is_marked, str(votes.k), by, *seen, *costs]


def _end(found: PlannedTable, command_line: str | None) -> str:
    if found.is_sure:
        return f"* the cheapest whose rows are right in {found.target:g}: {command_line}"
    said = f"no votes that were held make {found.target:g} of the rows right for sure"
    if found.best is None:
        return said
    return f"{said}; k = {found.best.votes.k} is enough if the law holds: {command_line}"
