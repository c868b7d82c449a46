"""Limits of calls, tokens, cost and time over several runs, such as the rows of a comparison."""

from __future__ import annotations

import time
from collections.abc import Mapping

from microagents.journal.ending import LimitName, RunEnding
from microagents.runs.result import Result
from microagents.runs.settings import LIMITS, Settings, limit_text


class Budget:
    """Limits over several runs. Each may use the part that the others leave."""

    def __init__(self, limits: Settings, results: Mapping[str, Result]) -> None:
        self._limits = limits
        self._began_s = time.monotonic()
        self._results = dict(results)
        """The result of every run so far, by the name of its run."""

    def take(self, result: Result) -> None:
        """Add the result of a run."""
        self._results[result.run_id] = result

    def spent_before(self, run_id: str) -> str | None:
        """Return the limit that the other runs have used up; None if this run may begin."""
        left = self.left_for(run_id)
        for name in LIMITS:
            amount = left[name]
            if amount is not None and amount <= 0:
                return self._text(name)
        return None

    def reached(self, result: Result) -> str | None:
        """Return the limit over all runs that a run has stopped at; None for none."""
        limit = result.limit
        if limit is None or not limit.enough:
            return None
        return self._text(limit.setting)

    def _text(self, name: LimitName) -> str:
        return limit_text(name, self._limits[name] or 0.0)

    def left_for(self, run_id: str) -> dict[str, float | None]:
        """Return the limits of one run."""
        # A run with a limit of cost asks no model without a price.
        others = [result.account.used_at_most for name, result in self._results.items() if name != run_id]
        left: dict[str, float | None] = {}
        for name in LIMITS:
            limit = self._limits[name]
            if limit is not None and name == "max_time_s":
                left[name] = limit - (time.monotonic() - self._began_s)
            elif limit is not None:
                left[name] = limit - sum(each[name] for each in others)
            else:
                left[name] = None
        return left


def stops_again(limits: Settings, ending: RunEnding | None) -> bool:
    """Whether a run was stopped by a limit that is still the same: then no call may be sent."""
    limit = None if ending is None else ending.limit
    if limit is None or not limit.enough or limit.setting == "max_time_s":  # which is anew in each sitting
        return False
    return limits[limit.setting] == limit.value
