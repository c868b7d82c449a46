"""Rows that a person judges one after the other, in the terminal or in the browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from microagents.base.errors import InvalidUsage
from microagents.base.printing import printable
from microagents.cli.browsing import browse
from microagents.cli.reporting import json_text, say
from microagents.cli.views.decision import cell_lines
from microagents.cli.views.waiting import said_by_person
from microagents.runs.inspection.row_queue import QueuedRow, RowQueue, judge_next


def judge_rows(queue: RowQueue, runs_dir: Path, *, in_browser: bool) -> None:
    """Let the person judge the rows of a queue, up to the last or until the person leaves it, and end with its sentence."""
    if in_browser:
        browse(runs_dir, "/judge", queue=queue)
    else:
        _judge_in_terminal(queue)
    say(queue.said())


def _judge_in_terminal(queue: RowQueue) -> None:
    while (row := queue.waiting()) is not None:
        say(f"\n{row.number + 1} of {row.of}")
        for name, value in row.row.items():
            say(f"{name}: {value if isinstance(value, str) else json_text(value)}")
        answers = dict(_answers(row))
        if len(answers) < len(row.asked):
            return
        try:
            shown = judge_next(queue, row.number, answers)
        except InvalidUsage as error:
            say(str(error))
            continue
        for line in () if shown is None else cell_lines(shown.cells):
            say(f"samples of {line}")


def _answers(row: QueuedRow) -> Iterator[tuple[str, str]]:
    """Ask for the answers on a row, up to one that the person leaves out."""
    for name, form in row.asked.items():
        said = said_by_person(printable(f"{name} {form}; Enter ends"))
        if not said:
            return
        yield name, said
