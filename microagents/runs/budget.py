"""Limits of calls, cost and time over several runs, such as the rows of a comparison."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from microagents.runs.result import Result
from microagents.runs.settings import Settings


class Budget:
    """The limits over several runs. Each may use the part that the others leave.

    Args:
        limits: the limits.
        results: the results of earlier sittings, by the names of runs.
    """

    def __init__(self, limits: Settings, results: Mapping[str, Result]) -> None:
        self._limits = limits
        self._began_s = time.monotonic()
        self._results = dict(results)
        """The result of every run so far, by the name of its run."""

    def take(self, result: Result) -> None:
        """Add the result of a run."""
        self._results[result.run_id] = result

    def spent_before(self, run_id: str) -> str | None:
        """The limit that the other runs have used up; None where this run may begin."""
        return self._reached(self._others(run_id))

    def reached(self) -> str | None:
        """The limit that all runs together have reached; None for none."""
        return self._reached(list(self._results.values()))

    def left_for(self, run_id: str) -> dict[str, float | None]:
        """The limits of one run."""
        limits, others = self._limits, self._others(run_id)
        return {
            "max_calls": None if limits.max_calls is None else limits.max_calls - _calls(others),
            "max_cost_usd": None if limits.max_cost_usd is None else limits.max_cost_usd - _cost_usd(others),
            "max_time_s": None if limits.max_time_s is None else limits.max_time_s - self._elapsed_s(),
        }

    def _others(self, run_id: str) -> list[Result]:
        return [result for name, result in self._results.items() if name != run_id]

    def _reached(self, results: Sequence[Result]) -> str | None:
        limits = self._limits
        if limits.max_calls is not None and _calls(results) >= limits.max_calls:
            return f"--max-calls {limits.max_calls}"
        if limits.max_cost_usd is not None and _cost_usd(results) >= limits.max_cost_usd:
            return f"--max-cost {limits.max_cost_usd:g}"
        if limits.max_time_s is not None and self._elapsed_s() >= limits.max_time_s:
            return f"--max-time {limits.max_time_s:g}"
        return None

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s


def _calls(results: Sequence[Result]) -> int:
    return sum(result.calls for result in results)


def _cost_usd(results: Sequence[Result]) -> float:
    """Cost of all runs with known prices. A run with a limit of cost stops by itself at a call without a price."""
    return sum(result.cost_usd or 0.0 for result in results)
