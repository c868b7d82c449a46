"""`microagents ctl`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from microagents.actors.registry import unknown
from microagents.base.errors import InvalidUsage
from microagents.cli.options import RUNS, AsJson, RunName, RunsDir, pairs
from microagents.cli.reporting import EXIT_CODES, echo, json_text, say
from microagents.journal.requests import Ask, SetRun
from microagents.runs.settings import ADJUSTABLE

if TYPE_CHECKING:
    from microagents.runs.inspection.control import RunStatus

DONE = {
    "pause": "is paused",
    "resume": "goes on",
    "drain": "ends once its open elections are decided",
    "stop": "ends",
    "cancel": "ends",
    "set": "is changed",
}


def command(
    run: RunName,
    verb: Annotated[str, typer.Argument(metavar="VERB", help=f"{', '.join(DONE)} or status.")],
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=VALUE]...",
            help=f"What to set: {', '.join(ADJUSTABLE)}; `inf` lifts a limit.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.")] = "",
    now: Annotated[
        bool, typer.Option("--now", help="With pause and stop: cancel the calls in flight, which may still be billed.")
    ] = False,
    runs_dir: RunsDir = RUNS,
    as_json: AsJson = False,
) -> None:
    """Control a run that another process does, from any process of the same user that can open its journal.

    `pause`: send no more calls. Calls in flight finish, or are cancelled with `--now`. Lasts until `ctl RUN resume`, also across
    restarts.
    `drain` decides the open elections and ends the run; `stop` ends it after the calls in flight; `cancel` does, and cancels its open
    batches, whose results are taken later as far as they are there. `set` changes limits or lanes for this
    sitting and later ones. `status` shows how the run stands, and what was asked of it.

    Every request stands in the journal, with its time, its user and its reason, and takes effect once.

    Exit codes: 0 the run has taken it, 1 it has not answered within 5 s and takes it as soon as it can, 2 wrong usage.
    """
    from microagents.runs.inspection.control import ask_run, change_text, status_of

    ask = _asked(verb, values, now=now)
    if ask is None:
        _show(status_of(runs_dir, run), as_json=as_json)
        return
    asked = ask_run(runs_dir, run, ask, why=" ".join(reason.split()))
    if asked.is_taken:
        said = f"run {run} {DONE[verb]}"
        if isinstance(ask, SetRun):
            said += f": {change_text(asked.before, ask)}"
        say(said, err=as_json)
    else:
        why = asked.status.result.reason
        say(f"run {run} has not answered within 5 s; it takes the request as soon as it can ({why})", err=True)
    if as_json:
        echo(json_text(asked.status.as_json()))
    raise typer.Exit(EXIT_CODES["completed" if asked.is_taken else "failed"])


def _asked(verb: str, values: list[str], *, now: bool) -> Ask | None:
    """Return the request that the words make; None for `status`."""
    from microagents.runs.inspection.control import NOW, VERBS, setting_of

    if verb not in (*VERBS, "set", "status"):
        raise InvalidUsage(unknown("verb called", verb, [*VERBS, "set", "status"]))
    if values and verb != "set":
        raise InvalidUsage(f"{verb} takes no values, unlike {values[0]!r:.100}")
    if now and verb not in NOW:
        raise InvalidUsage(f"--now goes with {' and '.join(NOW)}, not with {verb}")
    if verb == "set":
        return setting_of(pairs("set", values))
    if now:
        return NOW[verb]
    return VERBS.get(verb)


def _show(status: RunStatus, *, as_json: bool) -> None:
    from microagents.runs.inspection.control import request_text
    from microagents.runs.words.summary import progress_line
    from microagents.runs.words.verdict import outcome_text

    if as_json:
        echo(json_text(status.as_json()))
        return
    result = status.result
    account = structs.replace(result.account, paused=None)  # the request says it
    say(progress_line(result.run_id, account, result.unit, result.price))
    say(f"{outcome_text(result)}{'' if result.reason is None else f': {result.reason}'}")
    for each in status.requests:
        say(f"  {request_text(each)}")
