"""Judge rows by gold columns or an oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import NoneType
from typing import Any, NamedTuple

import msgspec

from microagents.base.user_code import called
from microagents.elections.laws import proportion
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import decoder_of
from microagents.runs.accuracy import Accuracy, Pair, confusions, wrong_pairs
from microagents.systems.chains.row_task import RowTask
from microagents.task import ChainTask, Task


class JudgedRow(NamedTuple):
    """The judged result of a row."""

    is_right: bool
    known: Mapping[str, Any] = {}
    """Right values of its fields, as far as they are known."""
    wrong: Sequence[Pair] = ()
    """Fields that have other ones."""


def accuracy_of(tasks: Sequence[Task], results: Iterable[Any]) -> Accuracy | None:
    """Judge the results of rows; None if nothing judges any, or code of the task fails.

    Args:
        tasks: the rows.
        results: their results as JSON-like values, in the order of the rows; None for a row without one.
    """
    first = tasks[0]
    if not isinstance(first, RowTask) or not _may_judge(first):
        return None
    try:
        found = [judged(task, result) for task, result in zip(tasks, results, strict=False) if result is not None]
    except Exception:  # noqa: BLE001 - a user's code may raise anything, and the run is done
        return None
    verdicts = [each for each in found if each is not None]
    if not verdicts:
        return None
    right = sum(each.is_right for each in verdicts)
    pairs = list(chain.from_iterable(each.wrong for each in verdicts))
    wrong = Counter(name for name, _, _ in pairs)
    of_fields = Counter(chain.from_iterable(each.known for each in verdicts))
    return Accuracy(
        judged=len(verdicts),
        right=right,
        rows=proportion(right, len(verdicts)),
        fields={name: proportion(count - wrong[name], count) for name, count in of_fields.items()},
        confused=confusions(pairs),
    )


def judge_result(task: Task, result: Any) -> bool | None:
    """Judge the result of a row, as JSON-like values; None if nothing judges it. A row with gold values needs a result to be right."""
    if result is None:
        return False if isinstance(task, RowTask) and task.gold_values else None
    verdict = judged(task, result)
    return None if verdict is None else verdict.is_right


def judged(task: Task, result: Any) -> JudgedRow | None:
    """Judge a result, as JSON-like values, by gold columns or the task's oracle; None if nothing does."""
    if not isinstance(task, RowTask):
        return None
    reply: Reply = decoder_of(task.reply_type()).decode(msgspec.json.encode(result))
    state = called(task.start)
    is_right = called(task.correct, state, reply, gives=(bool, NoneType))
    if is_right is None:
        return None
    known = called(task.right_fields, state, gives=dict)
    return JudgedRow(is_right, known, () if is_right else wrong_pairs(reply, known))


def _may_judge(task: RowTask) -> bool:
    kind = type(task)
    return bool(task.gold) or kind.oracle is not ChainTask.oracle or kind.correct is not RowTask.correct
