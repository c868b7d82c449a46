"""The first rows of a table with their prompts, replies and fields, before the others are paid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from microagents.base.user_code import called
from microagents.cli.reporting import json_text
from microagents.cli.views.tables import Columns
from microagents.replies.chat import Prompt
from microagents.runs.judging import judge_result
from microagents.runs.result import Result
from microagents.studies.preview import ShownStep
from microagents.systems.chains.row_task import RowTask
from microagents.task import Task

MOST_CHARS = 40
"""Characters of a text that the table shows."""


class _Shown(NamedTuple):
    """A row in the table."""

    prompt: str
    said: str
    fields: Mapping[str, Any]
    is_right: bool | None


def tried_rows(shown: Sequence[ShownStep]) -> Columns:
    """Lay out rows with one reply each."""
    return _table("reply", [*map(_tried, shown)])


def done_rows(result: Result, tasks: Sequence[Task]) -> Columns:
    """Lay out the first rows of a run, as it decided them."""
    return _table("state", [*_done(result, tasks)])


def _tried(shown: ShownStep) -> _Shown:
    if not shown.replies:
        return _Shown(shown.user, shown.reason or "", {}, None)
    reply = shown.replies[0]
    said = f"[{reply.flag}] " * (reply.flag is not None) + reply.text
    return _Shown(shown.user, said, reply.vote or {}, shown.leader_correct)


def _done(result: Result, tasks: Sequence[Task]) -> Iterator[_Shown]:
    states = {each.input: each.outcome for each in result.failed_inputs or ()}
    for number, task in enumerate(tasks):
        value = result.recorded[number]
        if isinstance(task, RowTask):
            asked: Prompt = called(task.prompt, called(task.start), gives=Prompt)
            state = states.get(number, ("decided", "not done")[value is None])
            yield _Shown(asked.user, state, value or {}, judge_result(task, value))


def _table(said: str, rows: Sequence[_Shown]) -> Columns:
    names = [*dict.fromkeys(chain.from_iterable(each.fields for each in rows))]
    cells = [["input", "prompt", said, *names, "right"]]
    for number, each in enumerate(rows):
        right = {True: "yes", False: "WRONG", None: "-"}[each.is_right]
        texts = [each.prompt, each.said, *[json_text(each.fields.get(name)) for name in names]]
        cells.append([str(number), *[f"{' '.join(text.split()):.{MOST_CHARS}}" for text in texts], right])
    return Columns(cells, to_the_left=range(1, len(cells[0])))
