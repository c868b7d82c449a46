"""The display of a run for a person: live progress during the run, and the summary after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import typer
from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn
from rich.text import Text

from microagents.cli.reporting import echo
from microagents.cli.views.lines import one_line, shorten
from microagents.journal.messages import Account
from microagents.runs.words.money import Price
from microagents.runs.words.summary import counts_of, progress_line, rate_text
from microagents.runs.words.verdict import clock, measured, progress_of

LINE_EVERY_S = 60.0
"""Interval of progress lines if stderr is not a terminal."""
MAX_TITLE = 32
"""Columns of the title in the live display."""
UNPRICED = Price()


class Display(NamedTuple):
    """Callbacks of a display of a run's progress."""

    show: Callable[[Account], None]
    """Show the account."""
    notify: Callable[[str], None]
    """Print a message on the terminal; without a terminal it does nothing."""
    print_above: Callable[[str], None]
    """Print a line of the output on the terminal, above the display."""
    set_title: Callable[[str], None]
    """Change the title, and show progress from 0 again."""
    paused: Callable[[], AbstractContextManager[None]]
    """Hide the display for a while, so that others can use the terminal."""


@contextmanager
def live_display(title: str, *, unit: str = "step", price: Price = UNPRICED, loads: bool = False) -> Iterator[Display]:
    """Show the progress of a run on stderr, and the loads of its roles if wanted: live on a terminal, otherwise as one line a minute."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _log_display(title, unit, price)
        return
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[done]}", markup=False),
        console=console,
        expand=True,
    )
    line = progress.add_task(_shown_title(title), total=None, done="starting")

    def drawn(cells: Iterable[str]) -> Group:
        texts = [Text(one_line(cell), no_wrap=True, overflow="ellipsis") for cell in cells]
        laid = Columns(texts, padding=(0, 3))
        return Group(progress, Padding(laid, (0, 0, 0, 2)))

    with Live(drawn(()), console=console, transient=True, refresh_per_second=8) as live:

        def show(account: Account) -> None:
            done, total = measured(account)
            said = progress_of(account, unit, is_listed=account.inputs > 1)
            progress.update(line, completed=done, total=total, done=said)
            cells = [*_pace(progress.tasks[line], account, unit), *counts_of(account, unit, price)]
            cells += [f"{role} {load}" for role, load in account.load_by_role.items() if loads]
            live.update(drawn(cells))

        def set_title(title: str) -> None:
            progress.reset(line, total=None, description=_shown_title(title), done="starting")
            live.update(drawn(()))

        @contextmanager
        def paused() -> Iterator[None]:
            live.stop()
            yield  # what it raises ends the run, and the display stays hidden
            live.start()

        yield Display(
            show,
            lambda text: console.print(f"\r{text}", markup=False),
            lambda text: console.print(text, markup=False, soft_wrap=True),
            set_title,
            paused,
        )


def _shown_title(title: str) -> str:
    return shorten(one_line(title), MAX_TITLE)


def _pace(task: Task, account: Account, unit: str) -> Iterator[str]:
    if task.speed:
        if account.total_steps is None and account.inputs > 1:
            unit = "input"
        yield rate_text(task.speed, unit)
    left, elapsed = task.time_remaining, f"{clock(task.elapsed or 0)} elapsed"
    if left is None or task.total is None:
        yield elapsed
    else:
        yield f"{elapsed}, {clock(left)} left"


def _log_display(title: str, unit: str, price: Price) -> Display:
    """Show progress for logs: one line on stderr every `LINE_EVERY_S`."""
    printed_s = time.monotonic()

    def show(account: Account) -> None:
        nonlocal printed_s
        if time.monotonic() - printed_s >= LINE_EVERY_S:
            printed_s = time.monotonic()
            typer.echo(progress_line(title, account, unit, price), err=True)

    def set_title(new: str) -> None:
        nonlocal title
        title = new

    return Display(show, lambda _: None, echo, set_title, nullcontext)
