"""The display of a run for a person: live progress during the run, and the summary after it."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import typer
from msgspec import Struct
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

from microagents.cli.document import live_lines, number_of
from microagents.cli.reporting import printable, progress_text
from microagents.documents.recording import DocumentRecord
from microagents.journal.messages import Account
from microagents.runs.output import text_in
from microagents.runs.result import Result

MAX_RESULT_LINES = 12
LINE_EVERY_S = 60.0
"""Interval of progress lines where stderr is not a terminal."""
ROWS_OF_PROGRESS = 4
"""Rows of a terminal that the live display leaves to the progress and to the cursor."""
MAX_SETTLED_SHOWN = 5
MAX_FAILED_SHOWN = 5


class Display(NamedTuple):
    """Callbacks of a display of a run's progress."""

    show: Callable[[Account], None]
    """Show the account."""
    notify: Callable[[str], None]
    """Print a message on the terminal; without a terminal it does nothing."""
    set_title: Callable[[str], None]
    """Change the title, and show progress from 0 again."""
    draw: Callable[[Struct], bool] | None
    """Draw the recorded work on the input; returns whether there is something to draw. None without a terminal."""


@contextmanager
def live_display(title: str) -> Iterator[Display]:
    """Show the progress of a run on stderr: live on a terminal, otherwise as one line a minute."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _log_display(title)
        return
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[done]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("elapsed"),
        _TimeLeft(),
        console=console,
    )
    line = progress.add_task(title, total=None, done="starting")
    counts, document = Text("  "), Text(no_wrap=True, overflow="ellipsis")
    with Live(Group(progress, counts, document), console=console, transient=True, refresh_per_second=8):

        def show(account: Account) -> None:
            speed = progress.tasks[line].speed
            if account.inputs > 1:
                ended = account.inputs_done + account.inputs_failed
                done = f"{ended:,}/{account.inputs:,} inputs \N{MIDDLE DOT} {account.steps:,} steps"
                progress.update(line, completed=ended, total=account.inputs, done=done)
            elif account.total_steps is None and not account.steps:  # the number of steps is unknown: votes show that work is done
                progress.update(line, done=f"{account.decided:,} votes decided")
            else:
                total = "" if account.total_steps is None else f"/{account.total_steps:,}"
                rate = f" \N{MIDDLE DOT} {speed:,.0f} steps/s" if speed else ""
                progress.update(line, completed=account.steps, total=account.total_steps, done=f"{account.steps:,}{total} steps{rate}")
            counts.plain = f"  {_counts(account)}"

        def set_title(title: str) -> None:
            progress.reset(line, total=None, description=title, rate="")
            counts.plain = "  "

        def draw(solution: Struct) -> bool:
            if not isinstance(solution, DocumentRecord):
                return False
            width, height = console.size
            lines = live_lines(solution, width - 2, height - ROWS_OF_PROGRESS)
            document.plain = "".join(f"\n  {line}" for line in lines)
            return True

        yield Display(show, lambda text: console.print(f"\r{text}", markup=False), set_title, draw)


class _TimeLeft(TimeRemainingColumn):
    """The estimated time left; empty if it is unknown."""

    def render(self, task: Task) -> Text:
        """Render the time left; empty if the total is unknown."""
        left = super().render(task)
        return Text() if task.total is None or "-" in left.plain else Text.assemble(left, " left")


def _log_display(title: str) -> Display:
    """A display for logs: one line on stderr every `LINE_EVERY_S`."""
    printed_s = time.monotonic()

    def show(account: Account) -> None:
        nonlocal printed_s
        if time.monotonic() - printed_s >= LINE_EVERY_S:
            printed_s = time.monotonic()
            total = "" if account.total_steps is None else f" of {account.total_steps:,}"
            ended = account.inputs_done + account.inputs_failed
            inputs = f"{ended:,}/{account.inputs:,} inputs \N{MIDDLE DOT} " if account.inputs > 1 else ""
            typer.echo(f"{title}: {inputs}{account.steps:,}{total} steps   {_counts(account)}", err=True)

    def set_title(new: str) -> None:
        nonlocal title
        title = new

    return Display(show, lambda _: None, set_title, None)


def _counts(account: Account) -> str:
    flagged = sum(account.flagged.values())
    votes = account.votes_per_step
    parts = [
        f"{votes:.3f} votes/step" if votes is not None else "no step decided yet",
        f"{_percentage(flagged, account.valid + flagged)} flagged",
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
    """The summary of a run, for a person.

    Args:
        result: the result of the run.
        options: the options of its task, as text.
        go_on: the command that continues it; None if there is nothing to continue.
    """
    account = result.account
    checked = {None: ", not checked by an oracle", 0: ", none found wrong by the task's own oracle"}.get(
        account.errors, f", {account.errors} found WRONG by the task's own oracle"
    )
    if not (account.decided or account.errors):
        checked = ""
    rows: list[tuple[str, str]] = [
        (
            result.outcome,
            f"{result.task}{options}: {progress_text(result)}, {account.decided:,} decisions{checked}",
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
    rows.append(("model", models + _cost_text(result, models)))
    rate = account.steps / result.wall_s if result.wall_s else 0
    rows.append(("took", f"{result.wall_s:,.1f} s, {rate:,.0f} steps a second; run {result.run_id}"))
    if result.failed_inputs:
        rows += [(each.outcome, f"input {each.input}: {each.reason}") for each in result.failed_inputs[:MAX_FAILED_SHOWN]]
        if (more := len(result.failed_inputs) - MAX_FAILED_SHOWN) > 0:
            rows.append(("", f"and {more:,} more inputs; --json lists all of them"))
    if account.settled_at:
        rows.append(("marked", _settled_text(account)))
    if account.lost_in_flight:
        lost = f"{account.lost_in_flight:,} calls were in flight when their process ended; they are made again, and may be paid twice"
        rows.append(("lost", lost))
    rows += _value_rows(result)
    if result.journal is not None:
        rows.append(("journal", str(result.journal)))
        if go_on is not None:
            rows.append(("go on", go_on))
    width = max(len(name) for name, _ in rows)
    return "\n".join(_wrapped(f"{name:<{width}}  ", printable(text)) for name, text in rows)


def _value_rows(result: Result) -> list[tuple[str, str]]:
    """The rows that tell the result, or the file that it was written into."""
    if result.failed_inputs is not None:
        return [("written", f"{len(result.outputs):,} texts, the first into {result.outputs[0]}")] if result.outputs else []
    if result.value is None:
        return []
    return [("result", _written_text(result) if result.outputs else result_text(result.value))]


def _written_text(result: Result) -> str:
    """Where the text of a document is, how long it is, and its marks."""
    value: Mapping[str, Any] = result.value
    checks: Mapping[str, bool | None] = value.get("checks", {})
    marks = {
        "not agreed": [number_of(at) for at in value.get("not_agreed", ())],
        "incomplete": [number_of(at) for at in value.get("incomplete", ())],
        "summarized": [number_of(at) for at in value.get("summarized", ())],
        "checks FAILED": [name for name, met in checks.items() if met is False],
        "checks not made": [name for name, met in checks.items() if met is None],
    }
    text = text_in(value) or ""
    shown = "".join(f"; {mark}: {', '.join(names)}" for mark, names in marks.items() if names)
    return f"{result.outputs[0]}, {len(text):,} characters, {len(text.split()):,} words{shown}"


def _settled_text(account: Account) -> str:
    """The undecided elections that a leader, a person or another model settled."""
    first = ", ".join(f"{path} by {source}" for path, source in list(account.settled_at.items())[:MAX_SETTLED_SHOWN])
    more = len(account.settled_at) - MAX_SETTLED_SHOWN
    return f"not decided by the vote: {first}" + (f", and {more:,} more" if more > 0 else "")


def _wrapped(head: str, text: str) -> str:
    """A row of the summary; on a terminal wrapped at words to its width."""
    columns = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else sys.maxsize
    return textwrap.fill(text, columns, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False)


def _cost_text(result: Result, models: str) -> str:
    """The cost of a run, and whether its models were simulated."""
    cost = money(result.cost_usd)
    if all(spec.startswith("sim:") for spec in models.split(", ")):
        return f" (simulated: no real model was asked; at list prices the real one would have cost {cost})"
    return f", {cost}"


def money(cost_usd: float | None) -> str:
    """An amount in US dollars as text."""
    if cost_usd is None:
        return "cost unknown"
    return f"${cost_usd:,.4f}" if 0 < cost_usd < 0.1 else f"${cost_usd:,.2f}"  # noqa: PLR2004 - ten cents


def _percentage(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "0%"


def result_text(value: object) -> str:
    """A result as JSON text, cut to `MAX_RESULT_LINES` lines."""
    width = shutil.get_terminal_size().columns * MAX_RESULT_LINES
    text = json.dumps(value)
    return text if len(text) <= width else f"{text[:width]} ... ({len(text):,} characters; --json prints all of them)"
