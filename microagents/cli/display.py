"""The display of a run for a person: live progress during the run, and the summary after it."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import exp, inf, log
from typing import Any, NamedTuple

import typer
from msgspec import Struct
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn
from rich.text import Text

from microagents.cli.document import live_lines, number_of
from microagents.cli.lines import one_line, shorten, wrapped_cells
from microagents.cli.options import specs_in
from microagents.cli.prices import Price, are_simulated, money, prices_of
from microagents.cli.reporting import printable, progress_text
from microagents.documents.recording import DocumentRecord
from microagents.journal.messages import Account
from microagents.runs.output import text_in
from microagents.runs.result import Result
from microagents.runs.voting import unvoted_success

MAX_RESULT_LINES = 12
MAX_DIGITS = 9
"""A number of tries with more digits is written as a power of ten."""
LINE_EVERY_S = 60.0
"""Interval of progress lines where stderr is not a terminal."""
MAX_TITLE = 32
"""Columns of the title in the live display."""
INDENT, GAP = 2, 3
"""Columns before the counts of the live display, and between two of them."""
ROWS_OF_PROGRESS = 6
"""Rows of a terminal that the live display leaves to the progress and to the cursor."""
MAX_SETTLED_SHOWN = 5
MAX_FAILED_SHOWN = 5


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
    draw: Callable[[Struct], bool] | None
    """Draw the recorded work on the input; returns whether there is something to draw. None without a terminal."""


@contextmanager
def live_display(title: str, *, unit: str = "step", price: Price = money) -> Iterator[Display]:
    """Show the progress of a run on stderr: live on a terminal, otherwise as one line a minute.

    Args:
        title: what is done.
        unit: name of a unit of progress.
        price: how costs are written.
    """
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
    counts, document = Text(), Text(no_wrap=True, overflow="ellipsis")

    with Live(Group(progress, counts, document), console=console, transient=True, refresh_per_second=8):

        def show(account: Account) -> None:
            done, total = _measured(account)
            progress.update(line, completed=done, total=total, done=_done_text(account, unit))
            cells = [*_pace(progress.tasks[line], account, unit), *_counts(account, unit, price)]
            indent = " " * INDENT
            counts.plain = "\n".join(
                indent + shorten(each, console.width - INDENT)
                for each in wrapped_cells(map(one_line, cells), console.width - INDENT, gap=" " * GAP, indent="")
            )

        def set_title(title: str) -> None:
            progress.reset(line, total=None, description=_shown_title(title), done="starting")
            counts.plain = ""

        def draw(solution: Struct) -> bool:
            if not isinstance(solution, DocumentRecord):
                return False
            width, height = console.size
            lines = live_lines(solution, width - INDENT, height - ROWS_OF_PROGRESS)
            document.plain = "".join(f"\n{' ' * INDENT}{each}" for each in lines)
            return True

        yield Display(
            show,
            lambda text: console.print(f"\r{text}", markup=False),
            lambda text: console.print(text, markup=False, soft_wrap=True),
            set_title,
            draw,
        )


def _shown_title(title: str) -> str:
    return shorten(one_line(title), MAX_TITLE)


def _measured(account: Account) -> tuple[int, int | None]:
    """What the bar measures: steps, if their number is known, else inputs; the done ones, and all."""
    if account.total_steps is None and account.inputs > 1:
        return account.inputs_done + account.inputs_failed, account.inputs
    return account.steps, account.total_steps


def _done_text(account: Account, unit: str) -> str:
    """The number of inputs or steps done, and their total."""
    if account.inputs > 1:
        return f"{account.inputs_done + account.inputs_failed:,}/{account.inputs:,} inputs"
    if account.total_steps is None and not account.steps:  # the number of steps is unknown: replies show that work is done
        return f"{account.valid:,} replies"
    return f"{account.steps:,}{'' if account.total_steps is None else f'/{account.total_steps:,}'} {unit}s"


def _pace(task: Task, account: Account, unit: str) -> Iterator[str]:
    """The rate, and the time so far and left."""
    is_of_inputs = account.total_steps is None and account.inputs > 1
    if account.inputs > 1 and account.steps:
        yield f"{account.steps:,} {unit}s"
    if task.speed:
        yield f"{_rate(task.speed, 'input' if is_of_inputs else unit)}"
    left = task.time_remaining
    yield f"{_duration(task.elapsed or 0)} elapsed" + ("" if left is None or task.total is None else f", {_duration(left)} left")


def _rate(a_second: float, unit: str) -> str:
    """A rate, by the second or for slow work by the minute."""
    if a_second >= 1:
        return f"{a_second:,.0f} {unit}s/s" if a_second >= 10 else f"{a_second:.1f} {unit}s/s"  # noqa: PLR2004 - two digits
    return f"{60 * a_second:.1f} {unit}s/min"


def _duration(seconds: float) -> str:
    """A duration as hours, minutes and seconds."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def _log_display(title: str, unit: str, price: Price) -> Display:
    """A display for logs: one line on stderr every `LINE_EVERY_S`."""
    printed_s = time.monotonic()

    def show(account: Account) -> None:
        nonlocal printed_s
        if time.monotonic() - printed_s >= LINE_EVERY_S:
            printed_s = time.monotonic()
            total = "" if account.total_steps is None else f" of {account.total_steps:,}"
            ended = account.inputs_done + account.inputs_failed
            inputs = f"{ended:,}/{account.inputs:,} inputs \N{MIDDLE DOT} " if account.inputs > 1 else ""
            typer.echo(f"{title}: {inputs}{account.steps:,}{total} {unit}s   {'   '.join(_counts(account, unit, price))}", err=True)

    def set_title(new: str) -> None:
        nonlocal title
        title = new

    return Display(show, lambda _: None, typer.echo, set_title, None)


def _counts(account: Account, unit: str, price: Price) -> Iterator[str]:
    flagged = sum(account.flagged.values())
    if account.decided:
        yield _votes_text(account, unit)
    if account.samples:
        yield _number(account.samples, "sample")
    yield f"{_percentage(flagged, account.valid + flagged)} flagged"
    yield f"{account.calls:,} calls" + (f", {account.in_flight:,} in flight" if account.in_flight > 0 else "")
    yield price(account.cost_usd)
    if account.inputs_failed:
        yield f"{account.inputs_failed:,} failed"
    if account.errors:
        yield f"{account.errors} wrong"
    if account.outage is not None:
        yield f"waiting: {account.outage}"


def _votes_text(account: Account, unit: str) -> str:
    """The votes that decisions took, by the step; by the decision in work that counts no steps yet."""
    if account.votes_per_step is None:
        return f"{account.votes_per_decision or 0:.3f} votes a decision"
    elections = "" if account.decided == account.steps else f" ({account.votes:,} in {_number(account.decided, 'election')})"
    return f"{account.votes_per_step:.3f} votes a {unit}{elections}"


def summary(result: Result, options: str, go_on: str | None, *, with_text: bool = True) -> str:
    """The summary of a run, for a person.

    Args:
        result: the result of the run.
        options: the options of its task, as text.
        go_on: the command that continues it; None if there is nothing to continue.
        with_text: whether to print the text of a document that was not written into a file.
    """
    account = result.account
    rows: list[tuple[str, str]] = [(result.outcome, f"{result.task}{options}: {progress_text(result)}{_checked_text(result)}")]
    if result.reason is not None:
        rows.append(("why", result.reason))
    taken = [_votes_text(account, result.unit)] * bool(account.decided) + [_number(account.samples, "sample")] * bool(account.samples)
    replies = f"{account.calls:,} calls, {_by_name(account.flagged, 'red-flagged')}"
    rows.append(("how", f"{result.strategy}: {', '.join(taken) or 'no decision'}; {replies}"))
    if (voting := _voting_text(result)) is not None:
        rows.append(("voting", voting))
    models = specs_in(result.settings.models)
    rows.append(("model", ", ".join(models) + _cost_text(result, models)))
    if (calls := _calls_text(account, prices_of(models))) is not None:
        rows.append(("calls", calls))
    rate = account.steps / result.wall_s if result.wall_s else 0
    rows.append(("took", f"{result.wall_s:,.1f} s, {rate:,.0f} {result.unit}s a second; run {result.run_id}"))
    if result.failed_inputs:
        rows += [(each.outcome, f"input {each.input}: {each.reason}") for each in result.failed_inputs[:MAX_FAILED_SHOWN]]
        if (more := len(result.failed_inputs) - MAX_FAILED_SHOWN) > 0:
            rows.append(("", f"and {more:,} more inputs; --json lists all of them"))
    if account.settled_at:
        rows.append(("marked", _settled_text(account)))
    if account.lost_in_flight:
        lost = f"{account.lost_in_flight:,} calls were in flight when their process ended; they are made again, and may be paid twice"
        rows.append(("lost", lost))
    rows += _value_rows(result, with_text=with_text)
    if result.journal is not None:
        rows.append(("journal", str(result.journal)))
        if go_on is not None:
            rows.append(("go on", go_on))
    width = max(len(name) for name, _ in rows)
    return "\n".join(_wrapped(f"{name:<{width}}  ", printable(text)) for name, text in rows)


def _checked_text(result: Result) -> str:
    """The number of decisions or elections, and what the task's oracle says of them, or of the answers."""
    account = result.account
    decisions = (
        f", {account.decided:,} decisions" if result.unit == "step" else f", {_number(account.decided, 'election')}" * bool(account.decided)
    )
    if not (account.decided or account.steps or account.errors):
        return decisions
    match account.errors:
        case None:
            return f"{decisions}, not checked by an oracle"
        case 0:
            return f"{decisions}, none found wrong by the task's own oracle"
        case errors:
            return f"{decisions}, {errors:,} found WRONG by the task's own oracle"


def _calls_text(account: Account, price: Price) -> str | None:
    """The calls that did not go as they should; None if all did."""
    parts = []
    if account.repeated:
        parts.append(_by_name(account.repeated, "repeated"))
    if account.unanswered:
        estimated = f", for which the cost has an estimate of {price(account.estimated_usd)}" if account.estimated_usd else ""
        parts.append(f"{account.unanswered:,} cancelled or timed out{estimated}")
    if account.unmeasured:
        parts.append(f"{_number(account.unmeasured, 'reply', 'replies')} of unknown length, not flagged as too_long")
    return "; ".join(parts) or None


def _by_name(counts: Mapping[str, int], what: str) -> str:
    """A total, and what it consists of."""
    names = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    return f"{sum(counts.values()):,} {what}" + (f" ({names})" if names else "")


def _voting_text(result: Result) -> str | None:
    """What the vote outvoted, and how often the run would have succeeded without it; None in a run that held no vote."""
    account = result.account
    if result.k is None or result.k == 1 or not account.decided or account.outvoted is None:
        return None
    wrong = "wrong " if account.errors is not None and account.decided == account.steps else ""  # else it judges answers, not votes
    samples = _number(account.outvoted, f"{wrong}sample") if account.outvoted else "no sample was"
    parts = [f"k = {result.k}", f"{samples} outvoted"]
    unvoted = unvoted_success(account) if result.outcome == "completed" else None
    if unvoted is not None:
        middle, low, high = [_once_in(each) for each in (unvoted.ln_rate, unvoted.ln_high, unvoted.ln_low)]
        parts.append(f"without voting this would have succeeded once in {middle} (95 %: {low} to {high})")
    return "; ".join(parts)


def _once_in(ln_chance: float) -> str:
    """The number of tries to one success, as text."""
    digits = -ln_chance / log(10)
    if digits == inf:
        return "infinity"
    tries = exp(-ln_chance) if digits < MAX_DIGITS else inf
    return f"10^{digits:,.0f}" if tries == inf else f"{tries:,.0f}" if tries >= 10 else f"{tries:.1f}"  # noqa: PLR2004 - two digits


def _value_rows(result: Result, *, with_text: bool) -> list[tuple[str, str]]:
    """The rows that tell the result, or the file that it was written into."""
    if result.failed_inputs is not None:
        return [("written", f"{len(result.outputs):,} texts, the first into {result.outputs[0]}")] if result.outputs else []
    if result.value is None:
        return []
    if result.outputs:
        return [("result", f"{result.outputs[0]}, {_text_facts(result.value)}")]
    if not with_text and text_in(result.value) is not None:
        return [("result", f"a text of {_text_facts(result.value)}; --json prints it")]
    return [("result", result_text(result.value))]


def _text_facts(value: Mapping[str, Any]) -> str:
    """How long the text of a document is, and its marks."""
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
    return f"{len(text):,} characters, {len(text.split()):,} words{shown}"


def _settled_text(account: Account) -> str:
    """The undecided elections that a leader, a person or another model settled."""
    first = ", ".join(f"{path} by {source}" for path, source in list(account.settled_at.items())[:MAX_SETTLED_SHOWN])
    more = len(account.settled_at) - MAX_SETTLED_SHOWN
    return f"not decided by the vote: {first}" + (f", and {more:,} more" if more > 0 else "")


def _wrapped(head: str, text: str) -> str:
    """A row of the summary; on a terminal wrapped at words to its width."""
    columns = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else sys.maxsize
    return textwrap.fill(text, columns, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False)


def _cost_text(result: Result, models: Sequence[str]) -> str:
    """The cost of a run, and whether its models were simulated."""
    if are_simulated(models):
        return f" (simulated: no real model was asked; at list prices the real one would have cost {money(result.cost_usd)})"
    return f", {prices_of(models)(result.cost_usd)}"


def _number(count: int, what: str, plural: str | None = None) -> str:
    return f"{count:,} {what if count == 1 else plural or f'{what}s'}"


def _percentage(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "0%"


def result_text(value: object) -> str:
    """A result as JSON text, cut to `MAX_RESULT_LINES` lines."""
    width = shutil.get_terminal_size().columns * MAX_RESULT_LINES
    text = json.dumps(value)
    return text if len(text) <= width else f"{text[:width]} ... ({len(text):,} characters; --json prints all of them)"
