"""`microagents decide`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from microagents.base.errors import InvalidUsage
from microagents.base.printing import printable
from microagents.cli.options import RUNS, RunsDir, complete_run
from microagents.cli.reporting import EXIT_CODES, echo, json_text
from microagents.elections.election import input_of
from microagents.journal.reading import reader_of
from microagents.runs.inspection.decision import InspectedDecision, inspect_decision
from microagents.runs.inspection.runs import WaitingPlace, decide, solution_of, waiting_in
from microagents.runs.words.money import prices_of
from microagents.runs.words.verdict import counted
from microagents.systems.agents.notes import AgentRecord


def command(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="Name of the run. [default: all]", autocompletion=complete_run),
    ] = None,
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH]",
            help="Path of what is undecided, such as 0/step/17; `show` names it. step/17 will do if one waits there. [default: all]",
        ),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VALUE]...",
            help="The reply to decide for, as a JSON object. Of an agent's call: approve, reject TEXT, done VALUE or not-done.",
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Replace what a person has decided before.")] = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Decide an undecided election yourself, or say what an agent waits for; without PATH and VALUE go through all that waits.

    An action that waits for an approval takes `approve` or `reject TEXT`. A call that may or may not have been made takes `done VALUE`,
    with what it returned, or `not-done`: then it is made.

    The next `resume` continues with this decision. A run that is under way continues with it at once, also if the election is open. It
    is marked as the decision of a person.
    """
    if run is None or path is None:
        _go_through(runs_dir, run)
    elif not value:
        raise InvalidUsage(f"say what is decided: microagents decide {run} {path} VALUE")
    else:
        said, then = _decide(runs_dir, run, path, " ".join(value), again=again)
        echo(printable(f"{said}; {then}"))
    raise typer.Exit(EXIT_CODES["completed"])


def _decide(runs_dir: Path, run: str, path: str, value: str, *, again: bool = False) -> tuple[str, str]:
    at, reply, go_on = decide(runs_dir, run, path, value, again=again)
    then = "the run continues with it" if go_on is None else f"go on: {go_on}"
    return f"{at} of run {run} is decided by you: {reply}", then


def _go_through(runs_dir: Path, run: str | None) -> None:
    """Show the waiting items one after the other, and take the person's decisions."""
    queue, decided = waiting_in(runs_dir, run), dict[str, str]()
    if not queue:
        echo("nothing waits for a person")
    for number, each in enumerate(queue, 1):
        echo(printable(f"\n{number} of {len(queue)}: {each.path} of run {each.run_id}, {each.task}"))
        replies = _show(runs_dir, each)
        while text := _said():
            if text == "q":
                break
            try:
                said, then = _decide(runs_dir, each.run_id, each.path, replies.get(text, text))
            except InvalidUsage as error:
                echo(printable(str(error)))
            else:
                echo(printable(said))
                decided[each.run_id] = then
                break
        if text in ("q", None):
            break
    for name, then in decided.items():
        echo(printable(f"run {name}: {then}"))


def _said() -> str | None:
    """Read a line; None at the end of the input."""
    try:
        return str(typer.prompt("", default="", show_default=False, prompt_suffix="> ")).strip()
    except typer.Abort:
        return None


def _show(runs_dir: Path, each: WaitingPlace) -> dict[str, str]:
    """Show a waiting item; returns the replies by the numbers that name them."""
    from microagents.cli.views.agent import call_text, draw_agent

    with reader_of(runs_dir, each.run_id) as reader:
        shown, (step, _, call) = inspect_decision(reader, each.path), each.path.partition("/call/")
        if not call:
            return _show_vote(shown)
        solution = solution_of(reader, input_of(each.path))
        asked = inspect_decision(reader, step)
        if isinstance(solution, AgentRecord):
            echo(draw_agent(solution, prices_of(asked.models)))
    for value, votes in asked.tally:
        echo(printable(f"{counted(votes, 'vote')} for {json_text(value)}"))
    if asked.action is not None:
        waits = asked.action.calls[int(call.partition("/")[0])]
        echo(printable(f"{shown.asked[0]} {call_text(waits.tool, waits.arguments)}"))
    echo(f"Say {' or '.join(shown.asked[1:])}; Enter leaves it open, q ends.")
    return {}


def _show_vote(shown: InspectedDecision) -> dict[str, str]:
    echo(printable(shown.user or shown.note or ""))
    for number, (value, votes) in enumerate(shown.tally, 1):
        echo(printable(f"{number}: {counted(votes, 'vote')} for {json_text(value)}"))
    echo("Say the number of a reply, or another reply as JSON; Enter leaves it open, q ends.")
    return {str(number): json_text(value) for number, (value, _) in enumerate(shown.tally, 1)}
