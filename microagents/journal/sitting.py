"""The beginning of a sitting: the state that it finds in the journal, and the changes of its first commit."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from microagents.base.errors import InvalidUsage
from microagents.base.packages import installed_version
from microagents.base.trust import JOURNALS
from microagents.journal.books import AccountRecord, Totals
from microagents.journal.ending import RunEnding
from microagents.journal.experiment import INPUTS, Change, Experiment, Recipe, RunRecord
from microagents.journal.lease import LeaseRecord, read_lease
from microagents.journal.messages import RecordSample
from microagents.journal.opening import connect_to_read, unreadable, watch_unclear
from microagents.journal.queries import (
    first_record,
    other_inputs,
    read_experiment,
    read_open_elections,
    read_totals,
)
from microagents.journal.requests import CHANGE, log_changes, now
from microagents.journal.rows import Rows
from microagents.journal.statements import OF_KIND, create_tables, number_of_tables, writing
from microagents.journal.tables import InputRow, LogRow
from microagents.journal.verifying import damage

INPUTS_PER_INSERT = 5000
IN_MEMORY = Path(":memory:")
"""SQLite's name for a database in memory."""


class JournalConfig(Struct, frozen=True, kw_only=True):
    """Location of the journal, and how it is written. A missing file is created."""

    path: Path | None
    """None of a run without a journal, whose store is in memory."""
    experiment: Experiment
    own: Sequence[str] = ()
    """For each input its options that differ from the first one's, as JSON; empty for a single input."""
    numbers: Sequence[int] = range(sys.maxsize)
    """Numbers of these inputs, in their order."""
    accepted: tuple[str, ...] = ()
    """Fields that may differ from the recorded experiment; the last part of a name is enough."""
    reused: tuple[RecordSample, ...] = ()
    """Samples that a new run takes over from an earlier one."""
    saved_usd: float | None = 0.0
    """What these cost the earlier run; None if a price is unknown."""
    full: bool = True
    """Whether a commit must survive a power cut, or only a kill of the process."""

    @classmethod
    def in_memory(cls, run_id: str, inputs: int) -> JournalConfig:
        """Return the configuration of a store in memory for roles without a plan."""
        recipe = Recipe(task="", options={}, strategy="", strategy_options={}, settings={})
        is_listed = inputs > 1
        experiment = Experiment(run_id=run_id, identity={}, recipe=recipe, inputs=inputs, listed=is_listed)
        return cls(path=None, experiment=experiment, own=["{}"] * inputs if is_listed else [])

    @property
    def location(self) -> Path:
        """Path as SQLite takes it."""
        return self.path or IN_MEMORY


class Found(Struct, frozen=True, kw_only=True):
    """Contents of a journal at opening."""

    epoch: int
    totals: Totals
    changes: list[Change]
    changed_inputs: list[int]
    """Numbers of the inputs that are new, or whose options changed by ``--accept-change inputs``."""
    is_changed: bool
    """Whether ``--accept-change`` altered the run, now or before."""
    wall_s: float


class Sitting:
    """One sitting of a run: its experiment, compared with the recorded one."""

    def __init__(self, config: JournalConfig) -> None:
        self._config = config
        self._experiment = config.experiment
        self._is_recorded = False

    def read_before_writing(self) -> Found:
        """Read and check all of a journal through a connection that changes no byte: every refusal comes here."""
        path = self._config.location
        watch_unclear([path])
        with closing(connect_to_read(path)) as db:
            rows = Rows(db)
            read_lease(rows, path).refuse_if_held(self._experiment.run_id)
            found = self.read(rows)
            if (problem := next(damage(rows), None)) is not None:
                raise unreadable(path, problem)
            read_open_elections(rows)  # what is wrong with them must be found now
            return found

    def read(self, rows: Rows) -> Found:
        """Read a journal.

        Raises:
            JournalMismatch: it belongs to another experiment.
        """
        given, recorded = self._experiment, read_experiment(rows)
        changes = recorded.changes(given, self._config.accepted)
        is_listed_anew = INPUTS in [field for field, _, _ in changes]
        others = other_inputs(rows, recorded, given, self._config.own) if is_listed_anew else ()
        changed_inputs = [number for number, _, _ in others]
        return Found(
            epoch=read_lease(rows, self._config.location).epoch,
            totals=read_totals(rows),
            changes=changes,
            changed_inputs=changed_inputs,
            is_changed=bool(changes) or rows.first(LogRow, OF_KIND, (CHANGE,)) is not None,
            wall_s=rows.only(AccountRecord).wall_s,
        )

    def create_tables(self, db: sqlite3.Connection) -> bool:
        """Make the tables of a new journal; False if another process was first."""
        with writing(db):
            if number_of_tables(db):
                return False
            create_tables(db)
            at, totals = now(), Totals()
            rows = Rows(db)
            run_id, version = self._experiment.run_id, installed_version()
            _refuse_other_encodings(self._experiment)
            rows.set_part(RunRecord(id=run_id, version=version, created_at=at, experiment=self._experiment))
            self._insert_inputs(rows, totals)
            rows.set_part(LeaseRecord(epoch=0, holder=None, renewals=0))
            rows.set_part(AccountRecord(totals=totals, wall_s=0.0, saved_at=at))
            self.put_on_list(rows)
        return True

    def put_on_list(self, rows: Rows) -> None:
        """Let the journal count as this user's, with its record of the run as it is now."""
        if self._config.path is not None:
            JOURNALS.add(self._config.path, first_record(rows))

    def _insert_inputs(self, rows: Rows, totals: Totals) -> None:
        config = self._config
        numbered = zip(config.numbers, config.own or ["{}"], strict=False)
        while some := list(islice(numbered, INPUTS_PER_INSERT)):  # there may be a million
            new = [InputRow(input=number, options=options) for number, options in some]
            rows.insert(new)
            totals.rows += sum(each.digest for each in new)

    def record(self, rows: Rows, totals: Totals, changes: Sequence[Change]) -> None:
        """Write the accepted changes with the first commit of a sitting: a run refused before that commit changes nothing."""
        if self._is_recorded:
            return
        self._is_recorded = True
        log_changes(rows, totals, changes)
        rows.set_part(structs.replace(rows.only(RunRecord), experiment=self._experiment))
        self.put_on_list(rows)
        rows.drop_part(RunEnding)


def _refuse_other_encodings(experiment: Experiment) -> None:
    try:
        msgspec.json.encode(experiment)
    except UnicodeEncodeError as error:
        raise InvalidUsage(
            f"{error.object!r} is not in UTF-8, as a journal needs it; nothing was started; rename it"
        ) from None
