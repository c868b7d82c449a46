"""What a person sees of a run: the live line while it goes on, the summary at its end."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from microagents.cli.reporting import how_far, printable
from microagents.journal.messages import Account
from microagents.runs.result import Result

RESULT_LINES = 12
LINE_EVERY_S = 60.0
SETTLED_SHOWN = 5
FAILED_SHOWN = 5


class Display(NamedTuple):
    """What follows a run."""

    show: Callable[[Account], None]
    """Show the account."""
    say: Callable[[str], None]
    """Say something to a person; nobody is there where stderr is no terminal."""
    name: Callable[[str], None]
    """Begin a new line, under another title."""


@contextmanager
def live(title: str) -> Iterator[Display]:
    """A line on stderr that follows the account of a run; a line a minute where stderr is no terminal."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _line_a_minute(title)
        return
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[done]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("gone"),
        _TimeLeft(),
        console=console,
    )
    line = progress.add_task(title, total=None, done="starting")
    counts = Text("  ")
    with Live(Group(progress, counts), console=console, transient=True, refresh_per_second=8):

        def show(account: Account) -> None:
            speed = progress.tasks[line].speed
            if account.inputs > 1:
                ended = account.inputs_done + account.inputs_failed
                done = f"{ended:,}/{account.inputs:,} inputs \N{MIDDLE DOT} {account.steps:,} steps"
                progress.update(line, completed=ended, total=account.inputs, done=done)
            elif account.total_steps is None and not account.steps:  # nobody knows how many there will be
                progress.update(line, done=f"{account.decided:,} votes decided")
            else:
                total = "" if account.total_steps is None else f"/{account.total_steps:,}"
                rate = f" \N{MIDDLE DOT} {speed:,.0f} steps/s" if speed else ""
                progress.update(line, completed=account.steps, total=account.total_steps, done=f"{account.steps:,}{total} steps{rate}")
            counts.plain = f"  {_counts(account)}"

        def name(title: str) -> None:
            progress.reset(line, total=None, description=title, rate="")
            counts.plain = "  "

        yield Display(show, lambda text: console.print(f"\r{text}", markup=False), name)


class _TimeLeft(TimeRemainingColumn):
    """The time left, where it can be told."""

    def render(self, task: Task) -> Text:
        """Nothing where nobody knows how much there is to do."""
        left = super().render(task)
        return Text() if task.total is None or "-" in left.plain else Text.assemble(left, " left")


def _line_a_minute(title: str) -> Display:
    """Progress for a log: a line on stderr a minute."""
    told_s = time.monotonic()

    def show(account: Account) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= LINE_EVERY_S:
            told_s = time.monotonic()
            total = "" if account.total_steps is None else f" of {account.total_steps:,}"
            ended = account.inputs_done + account.inputs_failed
            inputs = f"{ended:,}/{account.inputs:,} inputs \N{MIDDLE DOT} " if account.inputs > 1 else ""
            typer.echo(f"{title}: {inputs}{account.steps:,}{total} steps   {_counts(account)}", err=True)

    def name(new: str) -> None:
        nonlocal title
        title = new

    return Display(show, lambda _: None, name)


def _counts(account: Account) -> str:
    flagged = sum(account.flagged.values())
    votes = account.votes_per_step
    parts = [
        f"{votes:.3f} votes/step" if votes is not None else "no step decided yet",
        f"{_share(flagged, account.valid + flagged)} flagged",
        f"{account.calls:,} calls" + (f", {account.in_flight:,} in flight" if account.in_flight > 0 else ""),
        money(account.cost_usd),
    ]
    if account.inputs_failed:
        parts.append(f"{account.inputs_failed:,} failed")
    if account.errors:
        parts.append(f"{account.errors} wrong")
    if account.outage is not None:
        parts.append(f"waiting: {account.outage}")
    return "   ".join(parts)


def summary(result: Result, options: str, go_on: str | None) -> str:
    """What was done and how, for a person."""
    account = result.account
    checked = {None: ", not checked by an oracle", 0: ", none found wrong by the task's own oracle"}.get(
        account.errors, f", {account.errors} found WRONG by the task's own oracle"
    )
    if not (account.decided or account.errors):
        checked = ""
    rows: list[tuple[str, str]] = [
        (
            result.outcome,
            f"{result.task}{options}: {how_far(result)}, {account.decided:,} decisions{checked}",
        )
    ]
    if result.reason is not None:
        rows.append(("why", result.reason))
    flagged = sum(account.flagged.values())
    names = ", ".join(f"{name} {count:,}" for name, count in sorted(account.flagged.items(), key=lambda item: -item[1]))
    votes = f"{account.votes_per_step:.3f} votes a step" if account.votes_per_step is not None else "no decision"
    replies = f"{account.calls:,} calls, {flagged:,} red-flagged" + (f" ({names})" if names else "")
    rows.append(("how", f"{result.strategy}: {votes}; {replies}"))
    models = ", ".join(spec for pool in result.settings.models.values() for spec in pool)
    rows.append(("model", models + _origin(result, models)))
    rate = account.steps / result.wall_s if result.wall_s else 0
    rows.append(("took", f"{result.wall_s:,.1f} s, {rate:,.0f} steps a second; run {result.run_id}"))
    if result.failed_inputs:
        rows += [(each.outcome, f"input {each.input}: {each.reason}") for each in result.failed_inputs[:FAILED_SHOWN]]
        if (more := len(result.failed_inputs) - FAILED_SHOWN) > 0:
            rows.append(("", f"and {more:,} inputs more; --json names them all"))
    if account.settled_at:
        rows.append(("marked", _settled(account)))
    if account.lost_in_flight:
        rows.append(("lost", f"{account.lost_in_flight:,} calls were in flight when their process ended: made again, and maybe paid twice"))
    if result.value is not None and result.failed_inputs is None:
        rows.append(("result", shown(result.value)))
    if result.journal is not None:
        rows.append(("journal", str(result.journal)))
        if go_on is not None:
            rows.append(("go on", go_on))
    width = max(len(name) for name, _ in rows)
    return "\n".join(_wrapped(f"{name:<{width}}  ", printable(text)) for name, text in rows)


def _settled(account: Account) -> str:
    """What no vote decided, and who did."""
    first = ", ".join(f"{path} by {who}" for path, who in list(account.settled_at.items())[:SETTLED_SHOWN])
    more = len(account.settled_at) - SETTLED_SHOWN
    return f"not decided by the vote: {first}" + (f", and {more:,} more" if more > 0 else "")


def _wrapped(head: str, text: str) -> str:
    """A row, broken at words where it is shown on a terminal."""
    columns = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else sys.maxsize
    return textwrap.fill(text, columns, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False)


def _origin(result: Result, models: str) -> str:
    cost = money(result.cost_usd)
    if all(spec.startswith("sim:") for spec in models.split(", ")):
        return f" (simulated: no real model was asked; at list prices the real one would have cost {cost})"
    return f", {cost}"


def money(cost_usd: float | None) -> str:
    """An amount of US dollars; an unknown one is called so."""
    if cost_usd is None:
        return "cost unknown"
    return f"${cost_usd:,.4f}" if 0 < cost_usd < 0.1 else f"${cost_usd:,.2f}"  # noqa: PLR2004 - ten cents


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "0%"


def shown(value: object) -> str:
    """A result in a few lines, safe for a terminal; ``--json`` gives it whole."""
    width = shutil.get_terminal_size().columns * RESULT_LINES
    text = json.dumps(value)
    return text if len(text) <= width else f"{text[:width]} ... ({len(text):,} characters; --json gives them all)"
