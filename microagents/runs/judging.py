"""Judge rows by gold columns or an oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any

import msgspec

from microagents.base.user_code import called
from microagents.elections.laws import proportion
from microagents.replies.chat import Reply, decoder_of
from microagents.runs.accuracy import Accuracy, Pair, confusions, wrong_pairs
from microagents.systems.chains.row_task import RowTask
from microagents.task import ChainTask, Task


def accuracy_of(tasks: Sequence[Task], results: Iterable[Any]) -> Accuracy | None:
    """Judge the results of rows; None if nothing judges any, or code of the task fails.

    Args:
        tasks: the rows.
        results: their results as JSON-like values, in the order of the rows; None for a row without one.
    """
    first = tasks[0]
    if not isinstance(first, RowTask) or not _may_judge(first):
        return None
    verdicts, of_fields, pairs = Counter[bool](), Counter[str](), list[Pair]()
    try:
        for task, result in zip(tasks, results, strict=False):
            is_right = None if result is None else verdict_on(task, result)
            if is_right is None or not isinstance(task, RowTask):
                continue
            known = called(task.right_fields, called(task.start), gives=dict)
            verdicts[is_right] += 1
            of_fields.update(known.keys())
            if not is_right:
                pairs += wrong_pairs(_reply_in(task, result), known)
    except Exception:  # noqa: BLE001 - a user's code may raise anything, and the run is done
        return None
    judged, wrong = verdicts.total(), Counter(name for name, _, _ in pairs)
    if not judged:
        return None
    return Accuracy(
        judged=judged,
        right=verdicts[True],
        rows=proportion(verdicts[True], judged),
        fields={name: proportion(count - wrong[name], count) for name, count in of_fields.items()},
        confused=confusions(pairs),
    )


def verdict_on(task: Task, result: Any) -> bool | None:
    """Judge the result of a row, as JSON-like values; None if nothing judges it. A row with gold values needs a result to be right."""
    if not isinstance(task, RowTask) or (result is None and not task.gold_values):
        return None
    if result is None:
        return False
    verdict: bool | None = called(task.correct, called(task.start), _reply_in(task, result), gives=(bool, NoneType))
    return verdict


def _reply_in(task: RowTask[Any], result: Any) -> Reply:
    reply: Reply = decoder_of(task.reply_type()).decode(msgspec.json.encode(result))
    return reply


def _may_judge(task: RowTask[Any]) -> bool:
    kind = type(task)
    return bool(task.gold) or kind.oracle is not ChainTask.oracle or kind.correct is not RowTask.correct
