"""Rows that a person judges one after the other: the same in the terminal and on a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.runs.inspection.row_table import ShownRow


class QueuedRow(Struct, frozen=True, kw_only=True):
    """A row that waits for a person."""

    number: int
    """Its place in the queue, from 0."""
    of: int
    """Number of rows of the queue."""
    row: dict[str, Any]
    """The columns that the person sees."""
    asked: dict[str, str]
    """The answers that it takes by name, each with its form."""
    choices: tuple[str, ...] = ()
    """The possible answers; empty if any text may be one."""


class RowQueue(Protocol):
    """Rows in a random order, each of which is judged once. Answers are kept at once, in a file that all sittings share."""

    title: str
    """Name of the queue for its page."""

    def waiting(self) -> QueuedRow | None:
        """Return the next row by the file as it is now; None if all are judged."""

    def judge(self, row: QueuedRow, answers: Mapping[str, str]) -> ShownRow | None:
        """Keep the answers on a row; returns the samples of models for it, if there are some: never before.

        Raises:
            InvalidUsage: an answer has not its form.
        """

    def said(self) -> str:
        """Return the sentence on all judgments so far."""


def judge_next(queue: RowQueue, number: int, answers: Mapping[str, str]) -> ShownRow | None:
    """Judge the row at a place of a queue.

    Raises:
        InvalidUsage: another row waits, since this one was judged elsewhere; or an answer has not its form.
    """
    row = queue.waiting()
    if row is None or row.number != number:
        raise InvalidUsage(f"row {number + 1} of the queue was judged meanwhile; this answer was not kept")
    return queue.judge(row, answers)
