"""Accuracy of rows: the shares of right rows and fields by gold columns or an oracle, and the values that are confused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

import msgspec
from msgspec import Struct

from microagents.base.plain_values import jsonable
from microagents.base.user_code import called
from microagents.elections.laws import Proportion, proportion
from microagents.replies.chat import Reply, decoder_of, differs
from microagents.replies.turns import canonical
from microagents.systems.chains.row_task import RowTask
from microagents.task import ChainTask, Task

MOST_CONFUSED = 20
"""Number of confused pairs of values that are kept."""
Pair = tuple[str, str, str]
"""A field, its right value and the given one, both as JSON."""


class Confusion(Struct, frozen=True):
    """A wrong value in the place of a right one."""

    field: str
    right: Any
    given: Any
    count: int


class Accuracy(Struct, frozen=True, kw_only=True):
    """Shares of right rows and fields, among decided rows that something judges."""

    judged: int
    """Number of these rows."""
    right: int
    """Number of judged rows without a wrong field."""
    rows: Proportion
    fields: dict[str, Proportion]
    confused: tuple[Confusion, ...]
    """The most frequent ones."""


def wrong_pairs(reply: Reply, right: Mapping[str, Any]) -> list[Pair]:
    """List the fields of a reply that are not the right ones, with the right and the given value."""
    wrong = [name for name, value in right.items() if differs(reply, name, value)]
    return [(name, _written(right[name]), _written(getattr(reply, name))) for name in wrong]


def confusions(pairs: Iterable[Pair]) -> tuple[Confusion, ...]:
    """Count confused values; return the most frequent ones."""
    most, read = Counter(pairs).most_common(MOST_CONFUSED), msgspec.json.decode
    return tuple([Confusion(name, read(right), read(given), count) for (name, right, given), count in most])


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


def in_words(found: Iterable[Confusion]) -> str:
    """Write confused values, as ``kind: "city" -> "village" (2)``."""
    said = [
        f"{each.field}: {_written(each.right):.40} -> {_written(each.given):.40} ({each.count:,})" for each in found
    ]
    return ", ".join(said)


def _may_judge(task: RowTask[Any]) -> bool:
    kind = type(task)
    return bool(task.gold) or kind.oracle is not ChainTask.oracle or kind.correct is not RowTask.correct


def _written(value: object) -> str:
    return canonical(jsonable(value))
