"""An audit of an output of rows: random decided rows, or one cell of each, which a person judges; and the bound that follows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from random import Random

import msgspec
from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.base.files import is_there, replace_text
from microagents.elections.election import input_of
from microagents.elections.promises import OF_AUDITS, wrong_bound
from microagents.journal.sharded import open_run
from microagents.runs.cells import OURS
from microagents.runs.inspection.row_queue import QueuedRow, RowQueue
from microagents.runs.inspection.runs import journal_into
from microagents.runs.row_files import opened, read_rows
from microagents.runs.row_forms import ending_of, state_column
from microagents.runs.words.verdict import counted
from microagents.systems.chains.row_task import Row

ANSWERS = {"y": True, "n": False}
"""Whether a row is right, by the answer of the person."""


class Audit(Struct):
    """The judgments on an output so far, in the order of its draw, as the file beside it keeps them."""

    digest: str
    """Digest of the rows of the output, and of the unit that is judged."""
    of_cells: bool
    """Whether one cell of each drawn row is judged, and not the whole row."""
    population: int
    """Number of decided rows, or of their cells."""
    right: list[bool] = []

    def __str__(self) -> str:
        """The sentence with which it ends."""
        unit, wrong = "cell" if self.of_cells else "row", self.right.count(False)
        bound = wrong_bound(wrong, len(self.right), self.population)
        return (
            f"{wrong} of {counted(len(self.right), f'random decided {unit}')} wrong: at most {100 * bound:.1f} % of "
            f"{counted(self.population, unit)} are wrong ({100 * OF_AUDITS:g} %)"
        )


def drawn(path: Path, sample: int, runs_dir: Path, *, of_cells: bool) -> tuple[Audit, list[Row]]:
    """Draw decided rows of an output, by a digest of it, so that no person chooses them; returns its audit, and the rows to judge.

    Of cells each row has one field of its result. Rows that a person decided are not drawn: by --trust-columns, or by the journal of the
    run if it is in the folder.

    Raises:
        InvalidUsage: the file is no output with decided rows.
    """
    with opened(str(path)) as stream:
        rows = [row for _, row in read_rows(stream, repr(str(path)), ending_of(path)).rows]
    state, by_persons = state_column(rows[0]) if rows else "", _by_persons(path, len(rows), runs_dir)
    named = [row for number, row in enumerate(rows) if number not in by_persons and row.get("settled_by") != "a person"]
    decided = [row for row in named if row.get(state) == "decided"]
    if not decided:
        raise InvalidUsage(f"{str(path)!r} has no row that a run decided, so there is nothing to audit")
    digest = blake2b(msgspec.json.encode([of_cells, rows, sorted(by_persons)]), digest_size=16).hexdigest()
    draw, cells = Random(digest), _results(decided[0], state)  # noqa: S311 - no secret
    chosen = draw.sample(decided, len(decided))[:sample]  # of a larger sample the first rows are the same
    audit = Audit(digest, of_cells, len(decided))
    if of_cells:
        chosen = [_without(row, {*cells} - {draw.choice(cells)}) for row in chosen]
        audit.population *= len(cells)
    return audit, chosen


def _by_persons(path: Path, rows: int, runs_dir: Path) -> set[int]:
    """Return the numbers of the rows that a person decided, by the last run of a folder with this output; none without its journal."""
    journal = journal_into(path, rows, runs_dir)
    if journal is None:
        return set()
    with open_run(journal) as reader:
        return {input_of(each) for each in reader.persons()}


def _begun(file: Path, audit: Audit) -> list[bool]:
    """Return the judgments of an earlier sitting."""
    with suppress(msgspec.MsgspecError):
        before = msgspec.json.decode(file.read_bytes(), type=Audit)
        if before.digest == audit.digest:
            return before.right
    raise InvalidUsage(
        f"the output has changed since its audit began, or other units were judged; these judgments are kept: move {str(file)!r} away for "
        "another audit"
    )


class AuditQueue(RowQueue):
    """The drawn rows of an output, for a person who says of each whether it is right; its arguments are as in `drawn`.

    Raises:
        InvalidUsage: as in `drawn`, or the output is not as it was when its audit began.
    """

    def __init__(self, path: Path, sample: int, runs_dir: Path, *, of_cells: bool) -> None:
        self.title = f"Audit of {path.name}"
        self._file = path.with_name(f"{path.name}.audit")
        self._audit, self._rows = drawn(path, sample, runs_dir, of_cells=of_cells)
        self.waiting()  # refuses judgments on other rows before a page is opened

    def waiting(self) -> QueuedRow | None:
        """Return the first drawn row without a judgment."""
        if is_there(self._file):
            self._audit.right = _begun(self._file, self._audit)
        number = len(self._audit.right)
        if number >= len(self._rows):
            return None
        asked = {"is it right?": "y or n"}
        return QueuedRow(number=number, of=len(self._rows), row=self._rows[number], asked=asked, choices=tuple(ANSWERS))

    def judge(self, row: QueuedRow, answers: Mapping[str, str]) -> None:
        """Keep whether a row is right.

        Raises:
            InvalidUsage: the answer is neither y nor n.
        """
        (question,) = row.asked
        answer = answers.get(question, "")
        if answer not in ANSWERS:
            raise InvalidUsage(f"{answer!r:.80} is neither y nor n")
        self._audit.right.append(ANSWERS[answer])
        replace_text(self._file, msgspec.json.encode(self._audit).decode())

    def said(self) -> str:
        """Return the bound."""
        return str(self._audit)


def _results(row: Row, state: str) -> list[str]:
    """Name the columns of the result: behind the state and the reason, without those of --trust-columns."""
    behind = list(row)[list(row).index(state) + 2 :]
    return [name for name in behind if name not in OURS and not name.endswith("_agreement")]


def _without(row: Row, names: Collection[str]) -> Row:
    return {name: value for name, value in row.items() if name not in names}
