"""Accuracy of rows: the shares of right rows and fields by gold columns or an oracle, and the values that are confused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from types import NoneType
from typing import Any

import msgspec
from msgspec import Struct

from microagents.base.errors import MicroagentsError
from microagents.base.user_code import called
from microagents.elections.laws import Proportion, proportion
from microagents.replies.chat import Reply, decoder_of, differs
from microagents.systems.chains.row_task import RowTask
from microagents.task import ChainTask, Task

MOST_CONFUSED = 5
"""Number of confused pairs of values that are kept for each field."""
MAX_SHOWN_CHARS = 40
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
    """The most frequent ones of each field."""


def wrong_pairs(reply: Reply, right: Mapping[str, Any]) -> list[Pair]:
    """List the fields of a reply that are not the right ones, with the right and the given value."""
    wrong = [name for name, value in right.items() if differs(reply, name, value)]
    return [(name, _written(right[name]), _written(getattr(reply, name))) for name in wrong]


def confusions(pairs: Iterable[Pair]) -> tuple[Confusion, ...]:
    """Count confused values: the most frequent ones of each field, in the order in which fields appear."""
    by_field: dict[str, Counter[Pair]] = {}
    for pair in pairs:
        by_field.setdefault(pair[0], Counter())[pair] += 1
    most = chain.from_iterable(counts.most_common(MOST_CONFUSED) for counts in by_field.values())
    return tuple(
        [
            Confusion(name, msgspec.json.decode(right), msgspec.json.decode(given), count)
            for (name, right, given), count in most
        ]
    )


def accuracy_of(tasks: Sequence[Task], results: Iterable[Any]) -> Accuracy | None:
    """Judge the results of rows; None if nothing judges any, or the task's results are not its replies.

    Args:
        tasks: the rows.
        results: their results as JSON-like values, in the order of the rows; None for a row without one.
    """
    first = tasks[0]
    if not isinstance(first, RowTask) or not _may_judge(first):
        return None
    judged, right, pairs = 0, 0, list[Pair]()
    of_fields: Counter[str] = Counter()
    with suppress(MicroagentsError, msgspec.MsgspecError):  # the user's code has another form of results, or fails here
        decoder = decoder_of(first.reply_type())
        for task, result in zip(tasks, results, strict=False):
            if result is None or not isinstance(task, RowTask):
                continue
            reply = decoder.decode(msgspec.json.encode(result))
            state = called(task.start)
            verdict = called(task.correct, state, reply, gives=(bool, NoneType))
            if verdict is None:
                continue
            known = called(task.right_fields, state, gives=dict)
            judged, right = judged + 1, right + verdict
            of_fields.update(known.keys())
            pairs += wrong_pairs(reply, known)
    if not judged:
        return None
    wrong = Counter(name for name, _, _ in pairs)
    return Accuracy(
        judged=judged,
        right=right,
        rows=proportion(right, judged),
        fields={name: proportion(count - wrong[name], count) for name, count in of_fields.items()},
        confused=confusions(pairs),
    )


def is_right_by_gold(task: RowTask[Any], result: Any) -> bool | None:
    """Judge the result of a row, as JSON-like values; None if it has no gold value. A row without a result is not right."""
    if not task.gold_values:
        return None
    if result is None:
        return False
    reply = decoder_of(task.reply_type()).decode(msgspec.json.encode(result))
    return task.correct(task.start(), reply) is True


def in_words(found: Sequence[Confusion]) -> Iterator[str]:
    """Yield for each field its confused values, as ``kind: "city" -> "village" (2)``."""
    for name in dict.fromkeys(each.field for each in found):
        pairs = [
            f"{_shown(each.right)} -> {_shown(each.given)} ({each.count:,})" for each in found if each.field == name
        ]
        yield f"{name}: {', '.join(pairs)}"


def _shown(value: object) -> str:
    text = _written(value)
    if len(text) > MAX_SHOWN_CHARS:
        return f"{text[:MAX_SHOWN_CHARS]}..."
    return text


def _may_judge(task: RowTask[Any]) -> bool:
    kind = type(task)
    return bool(task.gold) or kind.oracle is not ChainTask.oracle or kind.correct is not RowTask.correct


def _written(value: object) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
