"""Planned runs: the strategies that come into question for a task, each with its chance, calls, cost and duration."""

from __future__ import annotations

from msgspec import Struct

from microagents.elections.laws import (
    Proportion,
)
from microagents.studies.ceilings import Ceiling
from microagents.studies.simulation import Simulation


class PlannedRun(Struct, frozen=True, kw_only=True):
    """A strategy with its models, and its promise."""

    models: tuple[str, ...]
    """None with given rates."""
    strategy: str
    k: int | None
    """None for a strategy without a k."""
    options: dict[str, str] = {}
    """Other options of the strategy."""
    chance: Proportion
    """Chance that all steps are right, under the condition of its measurement."""
    independent: float | None = None
    """The same if every step had the mean error rate; None for a strategy without a law."""
    calls: float
    cost_usd: float | None = None
    """Cost of all calls, by the measured cost of a call; None if it is unknown."""
    duration_s: float | None = None
    """Expected duration; None if the latency is unknown."""
    limited_by: str | None = None
    """The limit of the provider that makes the duration, such as ``output tokens``; None if the latency does."""
    is_best: bool = False
    """Whether it is the cheapest that is enough for the target in budget and deadline; a ladder or lead only if no other is."""
    enough_if: str | None = None
    """Condition under which it is this, in words, and how to remove the condition: hard steps may be among those not sampled."""


class Goals(Struct, frozen=True, kw_only=True):
    """Demands on a run."""

    total: int
    target: float
    k: int | None
    max_cost_usd: float | None
    max_time_s: float | None
    concurrency: int | None


class PlannedRuns(Struct, frozen=True, kw_only=True):
    """The runs that come into question for a task."""

    steps: int
    """Number of steps; 1 for an input that is one question, and for the trial of an agent."""
    unit: str
    """Unit of the chance: ``steps``, ``input`` or ``trial``."""
    target: float
    runs: tuple[PlannedRun, ...]
    notes: dict[tuple[str, ...], tuple[str, ...]] = {}
    """Sentences on runs, by the names of their models."""
    ceiling: Ceiling | None = None
    """Of measured models the limit of all that picks among their samples; None of others."""
    needed: str | None = None
    """Why no k is advised, if there are too few samples, and which draws would tell."""
    simulation: Simulation | None = None
    """Outcome of simulated runs of the marked or chosen row."""

    @property
    def best(self) -> PlannedRun | None:
        """The marked run; None if none reaches the target."""
        return next((run for run in self.runs if run.is_best), None)

    @property
    def assumed(self) -> PlannedRun | None:
        """The run that would be marked if no unsampled step erred more often than the worst sampled one; None without such a run."""
        return next((run for run in self.runs if run.enough_if is not None), None)
