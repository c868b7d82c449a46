"""The queue of items that wait for a person, one after the other in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.reporting import echo, json_text, say
from microagents.cli.views.agent import draw_agent
from microagents.cli.views.decision import cell_lines, tally_lines
from microagents.elections.election import input_of
from microagents.journal.sharded import reader_of
from microagents.runs.inspection.decision import InspectedDecision, inspect_decision
from microagents.runs.inspection.runs import WaitingPlace, decide, solution_of, waiting_in
from microagents.runs.result import calls_waiting_in
from microagents.runs.words.money import prices_of
from microagents.runs.words.verdict import counted, local_time
from microagents.systems.agents.notes import AgentRecord


def decide_one(runs_dir: Path, run: str, path: str, value: str, *, again: bool = False) -> tuple[str, str]:
    """Decide for a reply; returns the sentence about it, and the command that continues the run."""
    decided = decide(runs_dir, run, path, value, again=again)
    then = "the run continues with it"
    if decided.go_on is not None:
        then = f"go on: {decided.go_on}"
    said = f"{decided.path} of run {run} is decided by you: {value:.200}"
    if (before := decided.replaced) is not None:
        said += f"; it replaces {before.value:.200}, decided by {before.who} at {local_time(before.at)}"
    return said, then


def go_through(runs_dir: Path, run: str | None) -> None:
    """Show the waiting items one after the other, and take the person's decisions."""
    queue, decided = waiting_in(runs_dir, run), dict[str, str]()
    if not queue:
        echo("nothing waits for a person")
    for number, each in enumerate(queue, 1):
        say(f"\n{number} of {len(queue)}: {each.path} of run {each.run_id}, {each.task}")
        replies = _show(runs_dir, each)
        if ask_until_right(partial(_take, runs_dir, each, replies, decided)) in ("q", None):
            break
    for name, then in decided.items():
        say(f"run {name}: {then}")


def _take(runs_dir: Path, each: WaitingPlace, replies: Mapping[str, str], decided: dict[str, str], text: str) -> None:
    """Decide a waiting item by the words of a person, and note the command that continues its run."""
    said, decided[each.run_id] = decide_one(runs_dir, each.run_id, each.path, replies.get(text, text))
    say(said)


def ask_until_right(take: Callable[[str], object], *, err: bool = False) -> str | None:
    """Ask for words until they are taken without an `InvalidUsage`; returns the last ones: empty or ``q`` if the person takes nothing.

    At the end of the input it returns None.
    """
    while (text := said_by_person(err=err)) and text != "q":
        try:
            take(text)
        except InvalidUsage as error:
            say(str(error), err=err)
        else:
            break
    return text


def said_by_person(question: str = "", *, err: bool = False) -> str | None:
    """Read a line; None at the end of the input."""
    try:
        return str(typer.prompt(question, default="", show_default=False, prompt_suffix="> ", err=err)).strip()
    except typer.Abort:
        return None


def _show(runs_dir: Path, each: WaitingPlace) -> dict[str, str]:
    """Show a waiting item; returns the replies by the numbers that name them."""
    with reader_of(runs_dir, each.run_id) as reader:
        shown, (step, _, call) = inspect_decision(reader, each.path), each.path.partition("/call/")
        if not call:
            return _show_vote(shown)
        asked = inspect_decision(reader, step)
        waits = [found.call for found in calls_waiting_in(reader) if found.path == each.path]
        if reader.experiment.draws_solution:
            solution = solution_of(reader, input_of(each.path))
            if isinstance(solution, AgentRecord):
                echo(draw_agent(solution, prices_of(asked.models)))
    for line in tally_lines(asked.tally):
        say(line)
    for made in waits:
        say(f"{shown.asked[0]} {made.shown()}")
    echo(f"Say {' or '.join(shown.asked[1:])}; Enter leaves it open, q ends.")
    return {}


def _show_vote(shown: InspectedDecision) -> dict[str, str]:
    say(shown.user or shown.note or "")
    if shown.open_fields:
        return _show_cells(shown)
    for number, (value, votes) in enumerate(shown.tally, 1):
        reply = json_text(shown.behind(value))
        say(f"{number}: {counted(votes, 'vote')} for {reply}")
    other = " ".join(f"{name}=VALUE" for name in shown.fields) or "JSON"
    say(f"Say the number of a reply, or another reply as {other}; Enter leaves it open, q ends.")
    return {str(number): json_text(value) for number, (value, _) in enumerate(shown.tally, 1)}


def _show_cells(shown: InspectedDecision) -> dict[str, str]:
    for line in cell_lines(shown.cells, shown.open_fields):
        say(line)
    example = " ".join(f"{name}={shown.cells[name][0][0]}" for name in shown.open_fields)
    say(f"Say the open fields, such as {example}; the others stay as they lead.")
    echo("Enter leaves them open, q ends.")
    return {}
