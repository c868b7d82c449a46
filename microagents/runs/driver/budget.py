"""Limits of calls, tokens, cost and time over several runs, such as the rows of a comparison."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from microagents.journal.reading import RunEnding
from microagents.runs.result import Result
from microagents.runs.settings import LIMITS, Settings


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
        left = self.left_for(run_id)
        options = [text for _, text in _options(self._limits)]
        limited = [amount for amount in left.values() if amount is not None]
        return next((text for text, amount in zip(options, limited, strict=True) if amount <= 0), None)

    def reached(self, result: Result) -> str | None:
        """The limit over all runs that a run has stopped at; None for none."""
        reason = result.reason or ""
        return next((text for name, text in _options(self._limits) if result.outcome == "stopped" and reason.startswith(f"{name} ")), None)

    def left_for(self, run_id: str) -> dict[str, float | None]:
        """The limits of one run."""
        limits, others = self._limits, self._others(run_id)
        return {
            "max_calls": None if limits.max_calls is None else limits.max_calls - _calls(others),
            "max_tokens": None if limits.max_tokens is None else limits.max_tokens - _tokens(others),
            "max_cost_usd": None if limits.max_cost_usd is None else limits.max_cost_usd - _cost_usd(others),
            "max_time_s": None if limits.max_time_s is None else limits.max_time_s - self._elapsed_s(),
        }

    def _others(self, run_id: str) -> list[Result]:
        return [result for name, result in self._results.items() if name != run_id]

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_s


def stops_again(limits: Settings, ending: RunEnding | None) -> bool:
    """Whether a run was stopped by a limit that is still the same: then no call may be sent."""
    if ending is None or ending.outcome != "stopped":
        return False
    reason = ending.reason or ""
    return any(reason.startswith(f"{text} is reached") for name, text in _options(limits) if name != "--max-time")


def _options(limits: Settings) -> Iterator[tuple[str, str]]:
    """Each limit as an option: its name, and with its value."""
    for name in LIMITS:
        if (value := getattr(limits, name)) is not None:
            option = f"--{name.removesuffix('_usd').removesuffix('_s').replace('_', '-')}"
            yield option, f"{option} {value:g}" if isinstance(value, float) else f"{option} {value}"


def _calls(results: Sequence[Result]) -> int:
    return sum(result.calls + result.account.lost_in_flight for result in results)


def _tokens(results: Sequence[Result]) -> int:
    return sum(result.account.tokens_at_most for result in results)


def _cost_usd(results: Sequence[Result]) -> float:
    """The most that the calls of all runs can have cost. A run with a limit of cost asks no model without a price."""
    return sum(result.account.cost_at_most_usd or 0.0 for result in results)
