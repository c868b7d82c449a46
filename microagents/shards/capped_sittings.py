"""Sittings of runs in one folder under one cap: each gets a part of it, and takes another when that is used up."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from microagents.base.errors import MicroagentsError
from microagents.journal.ending import RunEnding
from microagents.journal.messages import Account
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import Reader, journal_of
from microagents.shards.file_locks import LOCK, locked
from microagents.shards.shared_cap import SharedCap

CAP = "cap.marks"
"""Name of the file of marks."""
NO_LIMITS = {"max_calls": None, "max_cost_usd": None}
"""Keywords of the limits that runs share."""
WAIT_S = 0.2
"""Interval between checks whether other runs have given back a part of the cap."""
Sit = Callable[[dict[str, Any]], RunEnding]
"""Holds a sitting of a run under its limits; returns how it ended."""


class CappedSittings:
    """Sittings of runs under one cap, from any process that has their folder.

    Args:
        folder: the folder of the runs. Each holds the lock beside its journal while it is under way.
        max_calls: most calls of all runs; None for any number.
        max_cost_usd: most cost of all runs; None for any.
    """

    def __init__(self, folder: Path, *, max_calls: int | None, max_cost_usd: float | None) -> None:
        self._folder = folder
        self._cap: SharedCap | None = None
        if max_calls is not None or max_cost_usd is not None:
            self._cap = SharedCap(folder / CAP, max_calls=max_calls, max_cost_usd=max_cost_usd)

    def hold(self, place: str, sit: Sit, is_ended: Callable[[], bool] = lambda: False) -> RunEnding:
        """Hold sittings until one ends by itself, or the cap is reached.

        Between two of them a run holds no part, so none waits for it.

        Args:
            place: path of the run's journal in the folder, without its ending.
            sit: holds a sitting.
            is_ended: whether the caller ends the run, while no part is free.

        Returns:
            The ending of the last sitting; one by the cap if that is reached.
        """
        cap = self._cap
        if cap is None:
            return sit({})
        while True:
            before = self._account(place)
            part = cap.take(place, before)
            ending = sit(part.limits) if part.limits else cap.reached(part.spent)
            after = self._account(place)
            cap.settle(place, after)
            if ending.limit is None or is_ended():
                return ending
            if after.calls > before.calls:
                continue
            if part.is_last:
                return cap.reached(ending.limit.setting)
            self._settle_dead(cap)
            time.sleep(WAIT_S)

    def _settle_dead(self, cap: SharedCap) -> None:
        """Give back the parts of runs whose process has died."""
        for place in cap.holders():
            with suppress(MicroagentsError, OSError), locked(self._folder / f"{place}{LOCK}", waits=False) as is_free:
                if is_free:
                    cap.settle(place, self._account(place))

    def _account(self, place: str) -> Account:
        """Return the account of a run that is not under way. Calls that were in flight when it was killed count.

        Raises:
            InvalidUsage: its journal cannot be read.
        """
        path = self._folder / place
        journal = journal_of(path.parent, path.name)
        if holds_nothing(journal):
            return Account()
        with Reader(journal) as reader:
            return reader.account(is_cut_off=True)
