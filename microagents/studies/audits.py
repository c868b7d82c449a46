"""An audit of an output of rows: random decided rows, or one cell of each, which a person judges; and the bound that follows."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from microagents.base.errors import InvalidUsage
from microagents.base.files import is_there, replace_text
from microagents.elections.election import input_of
from microagents.elections.promises import OF_AUDITS, wrong_bound
from microagents.journal.reading import Reader
from microagents.runs.cells import OURS
from microagents.runs.inspection.runs import journals_in
from microagents.runs.row_files import ending_of, opened, read_rows, state_column
from microagents.runs.words.verdict import counted


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


def drawn(path: Path, sample: int, runs_dir: Path, *, of_cells: bool) -> tuple[Audit, list[dict[str, Any]]]:
    """Draw decided rows of an output, by a digest of it, so that nobody chooses them; returns its audit so far, and the rows to judge.

    Of cells each row has one field of its result. Rows that a person decided are not drawn: by --trust-columns, or by the journal of the
    run if it is in the folder.

    Raises:
        InvalidUsage: the file is no output with decided rows, or is not as it was when its audit began.
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
    begun = _file_of(path)
    if is_there(begun):
        audit.right = _begun(begun, audit)
    return audit, chosen


def _by_persons(path: Path, rows: int, runs_dir: Path) -> set[int]:
    """Return the numbers of the rows that a person decided, by the last run of a folder with this output; none without its journal."""
    output = os.path.abspath(path)  # noqa: PTH100 - as a run names it: a path without its links resolved
    for journal in reversed(journals_in(runs_dir)):
        with suppress(InvalidUsage), Reader(journal) as reader:
            if reader.experiment.recipe.settings.get("output") == output and reader.experiment.inputs == rows:
                return {input_of(each) for each in reader.persons()}
    return set()


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


def keep(audit: Audit, path: Path) -> None:
    """Write the judgments on an output beside it."""
    replace_text(_file_of(path), msgspec.json.encode(audit).decode())


def _results(row: dict[str, Any], state: str) -> list[str]:
    """Name the columns of the result: behind the state and the reason, without those of --trust-columns."""
    behind = list(row)[list(row).index(state) + 2 :]
    return [name for name in behind if name not in OURS and not name.endswith("_agreement")]


def _without(row: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _file_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.audit")
