"""Execution of a run for the terminal: the live display, Ctrl-C and SIGTERM, the summary and the exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

import typer
from msgspec import structs

from microagents.base.printing import printable, results
from microagents.cli.options import ASKED_FROM_USD
from microagents.cli.reporting import EXIT_CODES, WRONG, echo, json_text, say, warn
from microagents.cli.trusting import has_terminal
from microagents.cli.views.display import Display, live_display
from microagents.cli.views.waiting import ask_until_right
from microagents.journal.messages import InputEnding
from microagents.runs.driver.begin import resume
from microagents.runs.driver.forecast import Forecast
from microagents.runs.driver.keywords import RunControl
from microagents.runs.inspection.runs import decide
from microagents.runs.result import Result, Results, WaitingCall
from microagents.runs.words.money import prices_of
from microagents.runs.words.summary import summary
from microagents.runs.words.verdict import is_wrong, resume_command
from microagents.systems.chains.row_task import FIRST_ROWS

ALL_ENDED = ("completed", "undecided", "failed", "refused")
"""Outcomes with which all of many inputs have ended. The list of results is printed only then: otherwise most of it is missing."""
STDERR = 2
RESULTS_PER_WRITE = 1000
_RESULTS = "\0 results \0"
"""Stands for the results of many inputs in an object whose other values are encoded at once."""
T = TypeVar("T")
Start = Callable[[RunControl, Callable[[str], None]], Coroutine[None, None, T]]
"""Starts a run, or several, with its control and a function that changes the title of the live display."""


class Watched(NamedTuple):
    """Facts of a run that the live display shows beside its progress."""

    title: str
    """The first title."""
    unit: str
    """Name of a unit of progress."""
    models: Iterable[str]
    """Specs of all models."""
    kept: str
    """One sentence on the work that is kept at an exit at once, and how to continue it; empty without a journal."""


class FirstRowsWanted(Exception):
    """The first rows are to be done and shown before the others are begun."""


def run_in_terminal(
    watched: Watched,
    start: Start[T],
    *,
    stream: bool = False,
    yes: bool = False,
    offers_rows: bool = False,
) -> T:
    """Execute a run, or several, with a live display.

    Args:
        watched: the run.
        start: starts the run.
        stream: whether to print the ending of each of many inputs.
        yes: whether to begin without a question, whatever it is expected to cost.
        offers_rows: whether the question offers to do the first rows before.

    Raises:
        FirstRowsWanted: the person chose that; nothing was started.
    """
    ask = None if yes else partial(_ask_to_begin, offers_rows=offers_rows)
    return asyncio.run(_run_with_display(watched, start, stream=stream, ask=ask))


def answered_in_terminal(watched: Watched, result: Result, runs_dir: Path, *, stream: bool = False) -> Result:
    """Ask the person at a terminal about the calls that wait, and continue the run, until none is left."""
    run_id = result.run_id
    while result.outcome == "undecided" and result.journal is not None and has_terminal():
        said = [_ask_person(each, run_id, runs_dir) for each in result.waiting]
        if not any(said):
            break
        result = run_in_terminal(
            watched,
            lambda control, _: resume(run_id, runs_dir=runs_dir, **control),
            stream=stream,
            yes=True,
        )
    return result


def _ask_person(waiting: WaitingCall, run_id: str, runs_dir: Path) -> bool:
    """Ask about a call that waits; returns whether something was decided."""
    step = waiting.path.partition("/call/")[0]
    say(f"{step}: {waiting.asked.question} {waiting.call.shown(1000)}", err=True)
    say(f"Say {', or '.join(waiting.asked.words)}; or press Enter to leave it open.", err=True)
    return ask_until_right(partial(decide, runs_dir, run_id, waiting.path), err=True) not in ("", "q", None)


def kept_in(run_id: str, runs_dir: Path) -> str:
    """Return the sentence about a run that was left at once."""
    return (
        f"run {run_id} was left at once, and its recorded decisions are kept; go on: {resume_command(run_id, runs_dir)}"
    )


def kept_in_runs(work: str) -> str:
    """Return the sentence about the runs of a comparison or a measurement that was left at once."""
    return f"the {work} was left at once, and its recorded decisions are kept; the same command continues, and reuses finished runs"


def show_and_exit(result: Result, *, as_json: bool, stream: bool = False) -> NoReturn:
    """Print the result of a run, and exit with its code. The results of inputs that were streamed are not printed again."""
    if as_json:
        _print_json(result)
    else:
        is_listed = result.failed_inputs is not None
        echo(summary(result), err=is_listed)
        if is_listed and result.outcome in ALL_ENDED and not stream and result.settings["output"] is None:
            _print_results(result.recorded, "\n")
            echo()
    if is_wrong(result):
        raise typer.Exit(WRONG)
    raise typer.Exit(EXIT_CODES[result.outcome])


def _print_json(result: Result) -> None:
    """Print the object of ``--json``. The results of many inputs are not held in memory."""
    if not isinstance(result.recorded, Results):
        echo(json_text(result.as_json()))
        return
    marked = structs.replace(result, recorded=_RESULTS).as_json()
    before, after = json_text(marked).split(json_text(_RESULTS))
    echo(f"{before}[", nl=False)
    _print_results(result.recorded, ", ")
    echo(f"]{after}")


def _print_results(results: Results, between: str) -> None:
    for start in range(0, len(results), RESULTS_PER_WRITE):
        some = [json_text(each) for each in results[start : start + RESULTS_PER_WRITE]]
        echo(between * bool(start) + between.join(some), nl=False)


async def _run_with_display(watched: Watched, start: Start[T], *, stream: bool, ask: Callable[[], None] | None) -> T:
    """Execute a run, and end it on signals.

    The first Ctrl-C ends it after the calls in flight, SIGTERM and SIGHUP end it at once; its journal is complete in both cases. A second
    Ctrl-C exits at once.
    """
    interrupt, terminate = asyncio.Event(), asyncio.Event()
    loop, stdout = asyncio.get_running_loop(), results()

    with live_display(watched.title, unit=watched.unit, price=prices_of(watched.models)) as display:

        def stop() -> None:
            interrupt.set()
            display.notify("interrupted: waiting for the calls in flight; Ctrl-C again leaves at once")

        def on_ctrl_c(*_: object) -> None:
            # A plain handler: the loop's do not run while something blocks the loop, and then neither the first nor the second
            # Ctrl-C would do anything.
            signal.signal(signal.SIGINT, partial(_exit_at_once, watched.kept))
            loop.call_soon_threadsafe(stop)

        def print_ending(ending: InputEnding) -> None:
            try:
                if stdout.isatty():
                    display.print_above(_ending_text(ending))
                else:
                    echo(_ending_text(ending))
            except BrokenPipeError:  # the reader has left, as `head` does: end in order, without a word
                os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
                interrupt.set()

        handlers = {signal.SIGTERM: terminate.set, signal.SIGHUP: terminate.set}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup ignores SIGHUP, and the run must survive it
            del handlers[signal.SIGHUP]

        signals = _Signals(loop, on_ctrl_c, handlers)
        signals.follow()
        control = RunControl(
            on_start=partial(_tell, display),
            on_progress=display.show,
            on_ending=print_ending if stream else None,
            on_forecast=partial(_tell_forecast, display=display, signals=signals, ask=ask),
            interrupt=interrupt,
            terminate=terminate,
        )
        try:
            return await start(control, display.set_title)
        finally:
            if not interrupt.is_set():  # else a second Ctrl-C still leaves at once, whatever the end waits for
                signals.leave()


class _Signals(NamedTuple):
    """Signals that end a run, and the effect of each."""

    loop: asyncio.AbstractEventLoop
    on_ctrl_c: Callable[..., None]
    handlers: Mapping[signal.Signals, Callable[[], None]]

    def follow(self) -> None:
        signal.signal(signal.SIGINT, self.on_ctrl_c)
        for each, handler in self.handlers.items():
            self.loop.add_signal_handler(each, handler)

    def leave(self) -> None:
        """Let them end the process, as they do by default: the loop handles nothing while a person is asked."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for each in self.handlers:
            self.loop.remove_signal_handler(each)


def _tell(display: Display, text: str) -> None:
    with display.paused():
        warn(text)


def _tell_forecast(forecast: Forecast, *, display: Display, signals: _Signals, ask: Callable[[], None] | None) -> None:
    """Print the expected cost, and ask whether to begin if it is high and a person is there."""
    _tell(display, str(forecast))
    with display.paused():
        if ask is not None and has_terminal() and forecast.is_billed and (forecast.cost_usd or 0.0) > ASKED_FROM_USD:
            signals.leave()
            ask()
            signals.follow()


def _ask_to_begin(*, offers_rows: bool) -> None:
    try:
        if offers_rows:
            may_begin = _begins_or_shows()
        else:
            may_begin = typer.confirm("Begin?", err=True)
    except typer.Abort:  # Ctrl-C, or the end of the input
        may_begin = False
    if not may_begin:
        typer.echo("microagents: nothing was started", err=True)
        raise typer.Exit(EXIT_CODES["interrupted"])


def _begins_or_shows() -> bool:
    """Ask whether to begin with all rows.

    Raises:
        FirstRowsWanted: the first rows are wanted before.
    """
    words = f"Begin? y or n; {FIRST_ROWS} does the first {FIRST_ROWS} rows and shows them"
    answer = typer.prompt(words, default="n", err=True).strip().lower()
    if answer == str(FIRST_ROWS):
        raise FirstRowsWanted
    return answer in ("y", "yes")


def _ending_text(ending: InputEnding) -> str:
    result = None if ending.result is None else json.loads(ending.result)
    return json_text({"input": ending.input, "outcome": ending.outcome, "reason": ending.reason, "result": result})


def _exit_at_once(kept: str, *_: object) -> None:
    """Exit without cleanup, even if a role blocks the event loop. Only the cursor, which the live display hides, is shown again."""
    with suppress(OSError):  # not through the live display: this handler may have interrupted one of its writes
        if os.isatty(STDERR):
            os.write(STDERR, b"\x1b[?25h\n")
        if kept:
            os.write(STDERR, f"microagents: {printable(kept)}\n".encode())
    os._exit(EXIT_CODES["interrupted"])
