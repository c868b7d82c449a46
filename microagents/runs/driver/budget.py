"""Limits of calls, tokens, cost and time over several runs, such as the rows of a comparison."""

from __future__ import annotations

import time
from collections.abc import Mapping

from microagents.journal.ending import RunEnding
from microagents.runs.result import Result
from microagents.runs.settings import LIMITS, Settings, option_of


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
        left, given = self.left_for(run_id), _limits_given(self._limits)
        return next((text for name, text in given.items() if (left[name] or 0) <= 0), None)

    def reached(self, result: Result) -> str | None:
        """Return the limit over all runs that a run has stopped at; None for none."""
        reason = result.reason or ""
        if result.outcome != "stopped" or " is reached" not in reason:
            return None
        given = {option_of(name): text for name, text in _limits_given(self._limits).items()}
        return given.get(reason.partition(" ")[0])

    def left_for(self, run_id: str) -> dict[str, float | None]:
        """Return the limits of one run."""
        others = [result for name, result in self._results.items() if name != run_id]
        used = {
            "max_calls": sum(result.calls + result.account.lost_in_flight for result in others),
            "max_tokens": sum(result.account.tokens_at_most for result in others),
            # A run with a limit of cost asks no model without a price.
            "max_cost_usd": sum(result.account.cost_at_most_usd or 0.0 for result in others),
            "max_time_s": time.monotonic() - self._began_s,
        }
        left: dict[str, float | None] = {}
        for name in LIMITS:
            limit = self._limits[name]
            left[name] = None if limit is None else limit - used[name]
        return left


def stops_again(limits: Settings, ending: RunEnding | None) -> bool:
    """Whether a run was stopped by a limit that is still the same: then no call may be sent."""
    if ending is None or ending.outcome != "stopped":
        return False
    given = _limits_given(limits)
    given.pop("max_time_s", None)  # it is anew in each sitting
    return any((ending.reason or "").startswith(f"{text} is reached") for text in given.values())


def _limits_given(limits: Settings) -> dict[str, str]:
    """Write each limit as an option with its value, by its name."""
    given: dict[str, str] = {}
    for name in LIMITS:
        value = limits[name]
        shown = f"{value:g}" if isinstance(value, float) else value
        if value is not None:
            given[name] = f"{option_of(name)} {shown}"
    return given
