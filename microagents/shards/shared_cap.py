"""One cap over many runs: a file of marks on shared storage, of which each run takes a part before it sends a call."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from microagents.base.named_values import stated
from microagents.journal.ending import LimitName, ReachedLimit, RunEnding
from microagents.journal.messages import Account
from microagents.journal.opening import BUSY_S
from microagents.roles.limits.loss_marks import part_of
from microagents.roles.limits.reservations import UNITS_PER_USD, units
from microagents.runs.settings import limit_text

MAX_CALLS: LimitName = "max_calls"
MAX_COST: LimitName = "max_cost_usd"
UNITS = {MAX_CALLS: 1, MAX_COST: UNITS_PER_USD}
_TABLE = """
CREATE TABLE IF NOT EXISTS marks (
    run TEXT, cap TEXT, used INTEGER NOT NULL, mark INTEGER NOT NULL, PRIMARY KEY (run, cap)
) WITHOUT ROWID
"""
_SUM = "SELECT coalesce(sum(mark), 0) FROM marks WHERE cap = ? AND run != ?"
_HOLDERS = "SELECT DISTINCT run FROM marks WHERE mark > used AND run != ?"
_SET = "INSERT INTO marks VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET used = excluded.used, mark = excluded.mark"
_SETTLE = "UPDATE marks SET used = ?, mark = ? WHERE run = ? AND cap = ?"


class CapPart(NamedTuple):
    """A part of a cap."""

    limits: dict[str, Any]
    """Settings of the run: its limits, over all its sittings. Empty if nothing is free."""
    is_last: bool
    """Whether no other run holds a part, so that nothing can come back."""
    spent: LimitName = MAX_CALLS
    """The cap of which nothing is free."""


class SharedCap:
    """Bounds the calls and the cost of all runs together.

    A run may use up to its mark, which is durable before the run learns of it, and the sum of all marks never passes the cap. The rest
    of a run that died stays reserved until it is settled. There is no process of the cap that could die: each run opens the file.

    Args:
        path: the file; its folder is there.
        max_calls: most calls of all runs; None for any number.
        max_cost_usd: most cost of all runs; None for any.
    """

    def __init__(self, path: Path, *, max_calls: int | None, max_cost_usd: float | None) -> None:
        self._path = path
        caps: dict[LimitName, float | None] = {MAX_CALLS: max_calls, MAX_COST: max_cost_usd}
        self._caps = stated(caps)
        self._totals = {name: int(most * UNITS[name]) for name, most in self._caps.items()}

    def take(self, run: str, account: Account) -> CapPart:
        """Take a part for a run that has used up the amounts of its account, and holds nothing else.

        Raises:
            OSError, sqlite3.Error: the file cannot be read or written; nothing was taken.
        """
        used, marks = self._used(account), dict[LimitName, int]()
        with self._writing() as db:
            others = db.execute(_HOLDERS, (run,)).fetchone()
            for cap, total in self._totals.items():
                (reserved,) = db.execute(_SUM, (cap, run)).fetchone()
                free = max(0, total - used[cap] - reserved)
                taken = free if others is None else part_of(free)
                marks[cap] = used[cap] + taken
            spent = [cap for cap, mark in marks.items() if mark <= used[cap]]
            for cap, mark in marks.items():
                db.execute(_SET, (run, cap, used[cap], used[cap] if spent else mark))
        if spent:
            return CapPart({}, others is None, spent[0])
        limits: Any = dict(marks)
        if MAX_COST in marks:
            limits[MAX_COST] = (marks[MAX_COST] - 0.5) / UNITS_PER_USD  # a run rounds its limit up
        return CapPart(limits, others is None)

    def settle(self, run: str, account: Account) -> None:
        """Give back the unused part of a run that has ended. Without a known cost it keeps its part of that.

        Raises:
            OSError, sqlite3.Error: the file cannot be read or written; the part stays reserved.
        """
        used = self._used(account)
        with self._writing() as db:
            for cap in self._totals:
                if cap != MAX_COST or account.bound_usd is not None:
                    db.execute(_SETTLE, (used[cap], used[cap], run, cap))

    def holders(self) -> list[str]:
        """Name the runs that hold a part, ended or not.

        Raises:
            OSError, sqlite3.Error: the file cannot be read.
        """
        with self._writing() as db:
            return [run for (run,) in db.execute(_HOLDERS, ("",))]

    def reached(self, name: LimitName) -> RunEnding:
        """Return the ending of a run for which nothing of a cap is free."""
        limit = ReachedLimit(setting=name, value=self._caps[name], enough=self._caps[name])
        reason = f"{limit_text(name, limit.value)} is reached over all runs that share it"
        return RunEnding(outcome="stopped", reason=reason, limit=limit)

    @staticmethod
    def _used(account: Account) -> dict[LimitName, int]:
        return {MAX_CALLS: account.calls_at_most, MAX_COST: units(account.bound_usd or 0.0)}

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction. The old form of SQLite's log works on shared storage, too."""
        with closing(sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            db.execute(_TABLE)
            yield db
            db.execute("COMMIT")
