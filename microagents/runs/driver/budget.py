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
        left = self.left_for(run_id)
        for name, (_, text) in _options(self._limits).items():
            if (left[name] or 0) <= 0:
                return text
        return None

    def reached(self, result: Result) -> str | None:
        """Return the limit over all runs that a run has stopped at; None for none."""
        reason = (result.reason or "") if result.outcome == "stopped" else ""
        options = _options(self._limits).values()
        is_reached = " is reached" in reason
        return next((text for option, text in options if is_reached and reason.startswith(f"{option} ")), None)

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
    reason = ending.reason or ""
    options = _options(limits).values()
    return any(reason.startswith(f"{text} is reached") for option, text in options if option != "--max-time")


def _options(limits: Settings) -> dict[str, tuple[str, str]]:
    """Each limit as an option: its name, and with its value."""
    found: dict[str, tuple[str, str]] = {}
    for name in LIMITS:
        if (value := limits[name]) is not None:
            option = option_of(name)
            found[name] = option, f"{option} {value:g}" if isinstance(value, float) else f"{option} {value}"
    return found
