"""The recorded state of a run, or of one of its decisions, on the terminal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec
import typer
from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.base.named_values import stated
from microagents.base.printing import printable
from microagents.cli.reporting import EXIT_CODES, FAILURE, echo, json_text, say
from microagents.cli.views.agent import draw_agent
from microagents.cli.views.climbs import draw_climbs
from microagents.cli.views.decision import print_decision
from microagents.cli.views.display import live_display
from microagents.cli.views.document import draw_document
from microagents.cli.views.swarm import draw_swarm
from microagents.cli.views.tree import draw_tree
from microagents.cli.watching import show_and_exit
from microagents.journal.reading import Reader
from microagents.journal.sharded import reader_of
from microagents.runs.inspection.climbs import Climb, climbs_of
from microagents.runs.inspection.control import request_text, status_of
from microagents.runs.inspection.decision import inspect_decision
from microagents.runs.inspection.export import look_up_rows
from microagents.runs.inspection.runs import inspect_run, recorded_result, solution_of
from microagents.runs.result import Result
from microagents.runs.words.batches import batch_lines
from microagents.runs.words.summary import summary
from microagents.runs.words.verdict import counted
from microagents.systems.agents.notes import AgentRecord
from microagents.systems.documents.notes import DocumentRecord
from microagents.systems.questions.tree import ProblemNode, fold
from microagents.systems.swarm.notes import SwarmRecord
from microagents.web.endpoint.agreement import Agreement, agreement_in

SHOWN_DEPTH = 2
"""Number of cuts down to which a tree is drawn; --json has all of it."""
LOOK_EVERY_S = 0.5


def show_run(run: str, runs_dir: Path, of_input: int | None, *, verify: bool, code: bool, as_json: bool) -> None:
    """Show the recorded state of a run.

    Args:
        run: its name.
        runs_dir: the folder of journals.
        of_input: number of one of many inputs; None for the whole run.
        verify: whether to check all records.
        code: whether to import the code that the journal names.
        as_json: whether to print one object.

    Raises:
        typer.Exit: the records are damaged.
    """
    with reader_of(runs_dir, run, trust=code, watched=True) as reader:
        climbs = _climbs(reader, of_input)
        tree, note = _tree(reader, of_input, is_wanted=of_input is not None and climbs is None)
        result = recorded_result(reader, imports=True)
        problems = reader.verify() if verify else []
        agreement = agreement_in(reader)
        told = list[str]()
        if not as_json:
            told += _told(reader, result)
    if as_json:
        more = {"solution": tree, "climbs": climbs, "agreement": msgspec.to_builtins(agreement)}
        if verify:
            more["verified"] = not problems
        known = stated(more)
        echo(json_text(result.as_json() | known))
    else:
        echo(summary(result, with_text=False))
        for each in told:
            say(each)
        if verify and not problems:
            echo("verified: every row was read, and the account and the digests match the rows")
        _print_work(result, tree)
        _print_agreement(agreement or ())
        if climbs:
            echo("\n" + draw_climbs(climbs, result.price))
    if note is not None:
        say(" ".join(note.split()), err=as_json)
    for problem in problems:
        typer.echo(f"microagents: {printable(problem)}; keep the file for inspection, and begin another run", err=True)
    if problems:
        raise typer.Exit(FAILURE)


def _told(reader: Reader, result: Result) -> Iterator[str]:
    """Write the first wrong step, the look-ups, the batches and the interventions of a run, below its summary."""
    run, wrong_at = result.run_id, result.account.wrong_at
    if wrong_at is not None:
        with suppress(InvalidUsage):
            shown = inspect_decision(reader, wrong_at)
            if shown.right is not None:
                values = f"{json_text(shown.value):.500}, right is {json_text(shown.right):.500}"
                yield f"wrong at {shown.path}: {values}; `microagents show {run} PATH` shows its votes"
    looked_up = Counter(row.tool for row in look_up_rows(reader))
    if looked_up:
        calls = [f"{number:,} of {tool}" for tool, number in sorted(looked_up.items())]
        yield f"looked up before replies: {', '.join(calls)} (microagents export {run} --actions)"
    yield from batch_lines(reader, result.price)
    for at, field, before, after in reader.changes():
        yield f"changed on purpose at {at}: {field} from {before} to {after}"
    for request in reader.requests():
        yield f"asked of the run: {request_text(request)}"


def _print_agreement(agreement: Sequence[Agreement]) -> None:
    """Print how often the samples of an endpoint agree, by tool and argument."""
    if agreement:
        echo("\nsamples that agree, by tool and argument (a low one leaves votes open: see `ignore` in a policy)")
    for each in agreement:
        named = f"{each.tool}.{each.argument}".rstrip(".")
        say(f"  {each.share:4.0%}  {named}  ({counted(each.elections, 'election')})")


def watch(run: str, runs_dir: Path, *, as_json: bool) -> NoReturn:
    """Show the progress of a run that another process does, until it ends."""
    try:
        result = status_of(runs_dir, run).result
        with live_display(run, unit=result.unit, price=result.price, loads=True) as display:
            while result.outcome == "running":
                display.show(result.account)
                time.sleep(LOOK_EVERY_S)
                result = status_of(runs_dir, run).result
    except KeyboardInterrupt:
        typer.echo(f"run {run} goes on", err=True)
        raise typer.Exit(EXIT_CODES["completed"]) from None
    show_and_exit(inspect_run(runs_dir, run), as_json=as_json)


def _print_work(result: Result, tree: Struct | None) -> None:
    drawing = ""
    match tree:
        case ProblemNode():
            drawing = draw_tree(fold(tree, SHOWN_DEPTH), result.price)
        case DocumentRecord():
            drawing = draw_document(tree)
        case SwarmRecord():
            drawing = draw_swarm(tree, result.price)
        case AgentRecord():
            drawing = draw_agent(tree, result.price)
    if drawing:
        echo(f"\n{drawing}")


def show_decision(run: str, path: str, runs_dir: Path, *, code: bool, as_json: bool) -> None:
    """Show one decision in full."""
    with reader_of(runs_dir, run, trust=code) as reader:
        shown = inspect_decision(reader, path)
    if as_json:
        echo(json_text(shown))
    else:
        print_decision(shown)


def _tree(reader: Reader, of_input: int | None, *, is_wanted: bool) -> tuple[Struct | None, str | None]:
    """Return the tree of sub-problems to show, and a note for the user if a tree exists but cannot be shown."""
    experiment = reader.experiment
    if is_wanted:
        return solution_of(reader, of_input or 0), None
    if not experiment.draws_solution:
        return None, None
    if experiment.listed and of_input is None:
        named = f"name one to see the work on it: show {experiment.run_id} --input N"
        return None, f"it has {experiment.inputs:,} inputs; {named}"
    try:
        return solution_of(reader, 0), None
    except InvalidUsage as error:  # no option asked for the tree, so the rest is shown without it
        return None, str(error)


def _climbs(reader: Reader, of_input: int | None) -> list[Climb] | None:
    """Return the steps that climbed a ladder; None in a run without one, and for many inputs if none is named."""
    if reader.experiment.listed and of_input is None:
        return None
    climbs = climbs_of(reader, of_input or 0)
    if climbs or reader.experiment.recipe.strategy_options.get("ladder"):
        return climbs
    return None
