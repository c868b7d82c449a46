"""Figures of papers: what was published, what the package gives, and the state that computations share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import typer
from msgspec import Struct

from microagents import Result, Strategy, Task, compare, measure, run
from microagents.base.errors import InvalidUsage
from microagents.elections.laws import wilson_interval
from microagents.runs.driver.forecast import Forecast
from microagents.studies.comparison import Row
from microagents.studies.measure import Measurement
from microagents.studies.series import short_digest
from microagents.task import ChainTask
from tests.papers.flags import FlagFindings, flags_in

LAW = "law"
"""Stands for a model if a number is computed by a formula."""
T = TypeVar("T")


class Line(Struct, frozen=True, kw_only=True):
    """One number of a figure."""

    what: str
    published: str = "-"
    """As in the paper; ``-`` if its figure has no number to read."""
    ours: str
    interval: str = "-"
    """Of 95 %."""
    n: int | None = None
    """Number of inputs, steps or samples; None for a formula."""
    model: str
    holds: bool | None = None
    """Whether ours shows what the paper says; None if the paper says nothing of this number."""


class Figure(Struct, frozen=True, kw_only=True):
    """A table or figure of a paper."""

    paper: str
    name: str
    subject: str
    why: str
    """Why ours differs, or why there is no number."""
    compute: Callable[[Lab], Awaitable[list[Line]]] | None = None
    """None if it cannot be made again."""
    needs: Literal["", "model", "data and model"] = ""
    """What has to be given: a simulated model does not read prompts, and data sets of others are not ours to ship."""

    @property
    def command(self) -> str:
        """Arguments of ``python -m tests.papers``."""
        return f"{self.paper} {self.name}"


class Lab:
    """Models, sizes and shared measurements of one call of the command.

    Args:
        models: specs in place of each figure's own models.
        count: number of inputs, steps or problems of every figure; None for each figure's own.
        data: folder with data sets as JSON lines; None without.
        runs_dir: folder of journals: what was paid once is not bought again.
        asks: whether a person is asked before a model is paid.
    """

    def __init__(
        self,
        runs_dir: Path,
        *,
        models: Sequence[str] = (),
        count: int | None = None,
        data: Path | None = None,
        asks: bool = True,
    ) -> None:
        self.runs_dir, self.data, self.models = runs_dir, data, tuple(models)
        self._count, self._asks = count, asks
        self._shared: dict[object, asyncio.Task[Any]] = {}

    @property
    def given(self) -> dict[str, Any]:
        """Keywords of a run: before it begins, its bill is shown and asked for."""
        return {"on_forecast": self._show_bill}

    def size(self, default: int) -> int:
        """Return the number of inputs of a figure."""
        return default if self._count is None else self._count

    def spec(self, own: str, at: int = 0) -> str:
        """Return the model of a figure: its own, or the given one."""
        return self.models[at % len(self.models)] if self.models else own

    async def once(self, key: object, make: Callable[[], Awaitable[T]]) -> T:
        """Compute what several figures read once."""
        if key not in self._shared:
            self._shared[key] = asyncio.ensure_future(make())
        found: T = await self._shared[key]
        return found

    async def measured(self, task: Task, *specs: str, steps: int, **asked: Any) -> Measurement:
        """Measure models on steps of a task."""
        models = list(dict.fromkeys(self.spec(each, at) for at, each in enumerate(specs)))
        make = partial(measure, task, models, steps=steps, runs_dir=self.runs_dir, **asked, **self.given)
        found = await self.once((repr(task), *models, steps, *sorted(asked.items())), make)
        if found.outcome != "completed":
            raise InvalidUsage(f"the measurement of {', '.join(models)} ended early: {found.reason}")
        return found

    async def flags(self, task: ChainTask[Any, Any], spec: str, *, steps: int) -> FlagFindings:
        """Measure a model, and read its texts again with and without red flags."""
        found = await self.measured(task, spec, steps=steps)
        return flags_in(self.runs_dir, task, found.models[0])

    async def rows(
        self, work: Task | Sequence[Task], spec: str, strategies: Sequence[Strategy], *, pooled: bool = False
    ) -> list[Row]:
        """Compare strategies on one task, as often as the figure has inputs, or on a list of inputs; pooled by all given models."""
        repeat = self.size(10) if isinstance(work, Task) else None
        model = list(self.models) if pooled else self.spec(spec)
        found = await compare(
            work, models=model, strategies=strategies, runs_dir=self.runs_dir, seed=0, repeat=repeat, **self.given
        )
        if found.outcome != "completed":
            raise InvalidUsage(f"the comparison with {model} ended early: {found.reason}")
        return list(found.rows)

    async def results(self, tasks: Sequence[Task], spec: str, strategy: Strategy, **settings: Any) -> Result[Any]:
        """Do a list of inputs by all models that are given."""
        models = list(self.models) or [spec]
        run_id = f"papers-{type(strategy).__name__.lower()}-{short_digest((models, [*map(repr, tasks)]))}"
        where: dict[str, Any] = {"runs_dir": self.runs_dir, "run_id": run_id, **settings, **self.given}
        return await run(tasks, models=models, strategy=strategy, seed=0, **where)

    def _show_bill(self, forecast: Forecast) -> None:
        typer.echo(str(forecast), err=True)
        if self._asks and forecast.is_billed:
            begins = False
            with suppress(typer.Abort):  # Ctrl-C, or the end of the input
                begins = typer.confirm("Begin?", err=True)
            if not begins:
                raise InvalidUsage("nothing was started")


def word_of(spec: str) -> str:
    """Return the word that stands beside a number: simulated, or the model's name."""
    return "simulated" if spec.startswith("sim:") else spec.partition("@")[0]


def share(what: str, right: float, n: int, spec: str, published: str = "-", *, expected: float | None = None) -> Line:
    """Return the line of a share, which holds if its interval has the expected one."""
    low, high = wilson_interval(right, n)
    return Line(
        what=what,
        published=published,
        ours=f"{right / n:.3f}" if n else "-",
        interval=f"{low:.3f} to {high:.3f}",
        n=n,
        model=word_of(spec),
        holds=None if expected is None else low <= expected <= high,
    )


def by_law(what: str, ours: str, published: str = "-", *, holds: bool | None = None) -> Line:
    """Return the line of a number that a formula gives."""
    return Line(what=what, published=published, ours=ours, model=LAW, holds=holds)
