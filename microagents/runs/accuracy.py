"""Facts of the accuracy of rows: shares of right rows and fields, and the values that are confused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from microagents.base.plain_values import jsonable
from microagents.elections.laws import Proportion
from microagents.replies.reply import Reply, differs
from microagents.replies.turns import canonical

MOST_CONFUSED = 20
"""Number of confused pairs of values that are kept."""
Pair = tuple[str, str, str]
"""A field, its right value and the given one, both as JSON."""


class Confusion(Struct, frozen=True):
    """A wrong value, and the right one."""

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
    found = [Confusion(name, read(right), read(given), count) for (name, right, given), count in most]
    return tuple(found)


def in_words(found: Iterable[Confusion]) -> str:
    """Write confused values, as ``kind: "city" -> "village" (2)``."""
    said = [
        f"{each.field}: {_written(each.right):.40} -> {_written(each.given):.40} ({each.count:,})" for each in found
    ]
    return ", ".join(said)


def _written(value: object) -> str:
    return canonical(jsonable(value))
