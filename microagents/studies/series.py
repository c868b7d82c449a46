"""Series of runs, as of a comparison or a measurement: one after the other, under limits that all share, and none done twice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import structs

from microagents.base.errors import InvalidUsage, JournalMismatch, MicroagentsError
from microagents.base.named_values import stated
from microagents.base.text_digests import digest_of
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import journal_of
from microagents.journal.sharded import reader_of
from microagents.runs.driver.budget import Budget
from microagents.runs.driver.execute import execute_plan
from microagents.runs.driver.forecast import forecast_of, total_of
from microagents.runs.driver.keywords import RunControl, is_ended_by_caller
from microagents.runs.inspection.runs import recorded_result
from microagents.runs.plan import RunPlan, experiment_of
from microagents.runs.result import Result

SeriesOutcome = Literal["completed", "stopped", "interrupted"]


class SeriesEnd(NamedTuple):
    """End of a series."""

    outcome: SeriesOutcome
    reason: str | None
    """Why it ended early, in one sentence; None if it is completed."""
    results: list[Result]
    """Results of the runs that were begun, in their order. The last one may have stopped early."""


class _Recorded(NamedTuple):
    """Result of a run in earlier sittings."""

    result: Result
    left: list[int] | None
    """Numbers of the inputs that have not ended; None for a run with one task and no list."""
    is_changed: bool
    """Whether more is asked for now."""


class Series:
    """Runs that are done one after the other, until one is stopped. All their journals are checked before the first begins.

    An undecided input may have sub-problems that were cancelled with it: to continue them would buy calls that change nothing.

    Args:
        kind: its name in messages: a comparison or a measurement.
        runs: the runs by their names in messages, in their order. All have the limits of the whole series.
        runs_dir: the folder of journals.
        ended: outcomes of a run that needs no more work.
        accepted: names of fields in which a recorded run may differ: it is then continued.

    Raises:
        JournalMismatch: a journal belongs to another series; nothing was started.
    """

    def __init__(
        self,
        kind: str,
        runs: Mapping[str, RunPlan],
        runs_dir: Path,
        *,
        ended: Collection[str],
        accepted: Sequence[str] = (),
    ) -> None:
        if any(plan.settings["reuse"] is not None for plan in runs.values()):
            raise InvalidUsage(f"a {kind} draws its own samples; leave out reuse")
        self._runs = runs
        self._runs_dir = runs_dir
        self._ended = ended
        self._accepted = accepted
        recorded = {title: _recorded(kind, title, plan, runs_dir, accepted) for title, plan in runs.items()}
        self._recorded = stated(recorded)
        self._done = {
            title: each.result
            for title, each in self._recorded.items()
            if each.result.outcome in ended and not each.left and not each.is_changed
        }

    @property
    def recorded_at(self) -> str | None:
        """When the first of the recorded runs began that give all results; None if a part of the work is left."""
        began = [result.created_at for result in self._done.values() if result.created_at is not None]
        if len(began) != len(self._runs):
            return None
        return min(began)

    async def do(self, control: RunControl, on_run: Callable[[str], None] | None) -> SeriesEnd:
        """Do the runs that are left."""
        self._forecast(control)
        first = next(iter(self._runs.values())).settings
        budget = Budget(
            first, {self._runs[title].settings["run_id"]: each.result for title, each in self._recorded.items()}
        )
        results: list[Result] = []
        for title, plan in self._runs.items():
            if title in self._done:
                results.append(self._done[title])
                continue
            if is_ended_by_caller(control):
                return SeriesEnd("interrupted", f"interrupted before {title}", results)
            if (limit := budget.spent_before(plan.settings["run_id"])) is not None:
                return SeriesEnd("stopped", f"{limit} is reached before {title}", results)
            if on_run is not None:
                on_run(title)
            try:
                results.append(await self._execute(title, plan, budget, control))
            except MicroagentsError as error:
                if results:
                    error.add_note(f"this happened in {title}; the results of the runs before it are kept")
                raise
            result = results[-1]
            budget.take(result)
            if result.outcome == "interrupted":
                return SeriesEnd("interrupted", f"interrupted in {title}", results)
            if result.outcome not in self._ended:
                limit = budget.reached(result)
                why = f"{limit} is reached in {title}" if limit else f"stopped in {title}: {result.reason}"
                return SeriesEnd("stopped", why, results)
        return SeriesEnd("completed", None, results)

    def _forecast(self, control: RunControl) -> None:
        on_forecast, measurement = control.get("on_forecast"), control.get("measurement")
        left = [plan for title, plan in self._runs.items() if title not in self._done]
        total = total_of([forecast_of(plan, self._journal(plan), measurement) for plan in left])
        if on_forecast is not None and total is not None:
            on_forecast(total)

    def _journal(self, plan: RunPlan) -> Path:
        return journal_of(self._runs_dir, plan.settings["run_id"])

    async def _execute(self, title: str, plan: RunPlan, budget: Budget, control: RunControl) -> Result:
        left = budget.left_for(plan.settings["run_id"])
        limited = structs.replace(plan, settings=plan.settings | left)
        only = self._recorded[title].left if title in self._recorded else None
        silent: RunControl = {**control, "on_forecast": None}  # one forecast of all runs was reported
        return await execute_plan(limited, self._journal(plan), only=only, accepted=self._accepted, control=silent)


def _recorded(kind: str, title: str, plan: RunPlan, runs_dir: Path, accepted: Sequence[str]) -> _Recorded | None:
    run_id = plan.settings["run_id"]
    if holds_nothing(journal_of(runs_dir, run_id)):
        return None
    with reader_of(runs_dir, run_id) as reader:
        try:
            changes = reader.changes_to(*experiment_of(plan), accepted)
        except JournalMismatch as error:
            remedy = f"run {run_id} differs from {title}, and a {kind} changes no run; give another --run-id"
            raise error.with_remedy(remedy) from None
        ended = {ending.input for ending in reader.input_endings()} if plan.listed else ()
        left = [number for number in range(len(plan.tasks)) if number not in ended] if plan.listed else None
        return _Recorded(recorded_result(reader), left, bool(changes))


def short_digest(value: object) -> str:
    """A digest for the names of runs: those with other arguments have other names."""
    return digest_of(msgspec.json.encode(value, order="deterministic"), 4).hex()
