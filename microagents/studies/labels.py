"""Labels of a random sample of rows: which rows are drawn, in which order, and the file in which a person labels them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from random import Random

import msgspec

from microagents.base.errors import InvalidUsage, refusing
from microagents.base.files import is_there, replace_text
from microagents.base.text_digests import digest_of
from microagents.journal.reading import Reader
from microagents.replies.reply_forms import forms_of
from microagents.runs.inspection.row_queue import QueuedRow, RowQueue
from microagents.runs.inspection.row_table import ShownRow, table_rows
from microagents.runs.inspection.runs import journal_into
from microagents.runs.row_files import opened, read_rows
from microagents.runs.row_forms import cell, ending_of
from microagents.runs.settings import validated
from microagents.runs.words.verdict import counted
from microagents.systems.chains.row_task import Row, RowTask

MARK = "drawn_row"
"""Column of the mark of a row: its number from 1, and a digest of its columns."""


class DrawnRows:
    """The rows of a table in a random order, which their columns alone decide, with the labels of the first of them.

    The rows from the first one to any other are a random sample of the table.

    Args:
        rows: the rows, with their gold columns; cells of these may be empty.
        source: name of their file in messages.
    """

    def __init__(self, rows: Sequence[RowTask], source: str) -> None:
        self.rows, self.source, self.gold = rows, source, list(rows[0].gold)
        digests = [digest_of(msgspec.json.encode(each.start()), 6).hex() for each in rows]
        self._marks = [f"row{number}_{each}" for number, each in enumerate(digests, 1)]
        self._numbers = {mark: number for number, mark in enumerate(self._marks)}
        self.digest = digest_of(" ".join(self._marks)).hex()
        self.order = Random(self.digest).sample(range(len(rows)), len(rows))  # noqa: S311 - no secret
        self._cells: dict[int, Row] = {}
        """Gold cells of a file of labels, by input."""

    def read(self, path: Path) -> None:
        """Read a file of labels.

        Raises:
            InvalidUsage: it cannot be read, or was drawn from other rows.
        """
        with opened(str(path)) as stream:
            for line, row in read_rows(stream, repr(str(path)), ending_of(path)).rows:
                mark = str(row.get(MARK))
                if mark not in self._numbers or not {*self.gold} <= {*row}:
                    raise InvalidUsage(
                        f"line {line} of the labels {str(path)!r} is not as it was drawn from {self.source}: {mark!r:.40} must be its "
                        f"{MARK}, beside {', '.join(self.gold)}; nothing was asked; if the rows have changed, move the labels away"
                    )
                self._cells[self._numbers[mark]] = {name: row[name] for name in self.gold}

    def write(self, path: Path, count: int) -> None:
        """Write the first rows of the order into a file of labels, with the labels that they have; as many as it had at least.

        Raises:
            InvalidUsage: it cannot be written.
        """
        text = io.StringIO()
        lines = csv.writer(text)
        columns = [*self.rows[0].start(), *self.gold]
        lines.writerow([MARK, *columns])
        for number in self.order[: max(count, len(self._cells))]:
            row = self._labelled(number).row
            lines.writerow([self._marks[number], *[cell(row.get(name), may_act=True) for name in columns]])
        with refusing(f"the labels cannot be written into {str(path)!r}", "; nothing was asked"):
            replace_text(path, f"\ufeff{text.getvalue()}")  # some spreadsheets need the mark

    @property
    def listed(self) -> int:
        """Number of rows of the file of labels."""
        return len(self._cells)

    def label(self, number: int, cells: Row) -> None:
        """Label a row.

        Raises:
            InvalidUsage: a gold column has no cell, or one that its field does not allow.
        """
        given = {name: cells.get(name) for name in self.gold}
        label = _with_row(self.rows[number], self.rows[number].row | given, f"the label of {self._marks[number]}")
        if label.judging_columns != self.gold:
            raise InvalidUsage(f"a label needs a value for {', '.join(self.gold)}; nothing was kept")
        self._cells[number] = given

    def _labelled(self, number: int) -> RowTask:
        """Return a row with its label from the file, if it has one there.

        Raises:
            InvalidUsage: it is no value of its field.
        """
        task = self.rows[number]
        if number not in self._cells:
            return task
        return _with_row(task, task.row | self._cells[number], f"the label of {self._marks[number]}")

    def labelled(self, most: int) -> list[RowTask]:
        """Return the first rows of the order, with labels, up to the first that lacks one, and at most so many."""
        drawn = map(self._labelled, self.order[: max(most, len(self._cells))])
        return list(takewhile(lambda task: task.judging_columns == self.gold, drawn))

    def changes(self, asked: Iterable[RowTask]) -> tuple[list[str], list[str]]:
        """Compare labels with those that rows had when they were asked.

        Args:
            asked: rows of the order from the first one on, as they were asked.

        Returns:
            The marks of rows whose label has changed, with both labels, and of rows whose label is gone.
        """
        changed, removed = [], []
        for number, before in zip(self.order, asked, strict=False):
            now, mark = self._labelled(number), self._marks[number]
            if now.judging_columns != self.gold:
                removed.append(mark)
            elif now.gold_values != before.gold_values:
                changed.append(f"{mark} ({_gold_of(before)} -> {_gold_of(now)})")
        return changed, removed


class LabelQueue(RowQueue):
    """The drawn rows of a table, for a person who labels each before its samples are shown.

    Args:
        rows: the rows.
        file: file of their labels; it is made if it is not there.
        count: number of rows to label; more, if the file has more.
        output: output of the table. Samples come from the last run with it, if this user began or continued it here.
        runs_dir: folder of the runs.
    """

    def __init__(self, rows: DrawnRows, file: Path, count: int, output: Path, runs_dir: Path) -> None:
        self.title = f"Labels of {rows.source}"
        self._rows, self._file = rows, file
        self._journal = journal_into(output, len(rows.order), runs_dir)
        if is_there(file):
            rows.read(file)
        else:
            rows.write(file, count)
        self._count = min(max(count, rows.listed), len(rows.order))

    def waiting(self) -> QueuedRow | None:
        """Return the first row without a label."""
        self._rows.read(self._file)
        number = len(self._rows.labelled(self._count))
        if number >= self._count:
            return None
        task = self._rows.rows[self._rows.order[number]]
        forms = forms_of(task.reply_type())
        asked = {column: forms[field] for column, field in task.gold.items()}
        return QueuedRow(number=number, of=self._count, row=task.start(), asked=asked)

    def judge(self, row: QueuedRow, answers: Mapping[str, str]) -> ShownRow | None:
        """Keep a label; returns the samples of the row, if it was asked about.

        Raises:
            InvalidUsage: it is no value of its field.
        """
        number = self._rows.order[row.number]
        self._rows.label(number, dict(answers))
        self._rows.write(self._file, self._count)
        if self._journal is None:
            return None
        with Reader(self._journal) as reader:
            if not reader.is_known:
                return None
            (shown,) = table_rows(reader, [number])
        if not shown.samples or any(shown.row.get(name) != value for name, value in row.row.items()):
            return None
        return shown

    def said(self) -> str:
        """Return the number of labels."""
        done = len(self._rows.labelled(self._count))
        return f"{done:,} of {counted(self._count, 'row')} labelled in {self._file}"


def _gold_of(task: RowTask) -> str:
    return ", ".join(str(task.row.get(name)) for name in task.gold)


def _with_row(task: RowTask, row: Row, subject: str) -> RowTask:
    options = {name: getattr(task, name) for name in type(task).model_fields}
    return validated(type(task), subject, {**options, "row": row})
