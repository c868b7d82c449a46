"""`run --wrong-at-most`: draw the rows to label, put the labelled ones through the cascade, and find the thresholds of all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import typer
from msgspec import Struct

from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage
from microagents.base.files import is_there
from microagents.cli.inputs import Given
from microagents.cli.options import StrategyOptions, strategy_named
from microagents.cli.reporting import EXIT_CODES, warn
from microagents.cli.views.row_queue import judge_rows
from microagents.cli.watching import ALL_ENDED, Watched, kept_in, run_in_terminal, show_and_exit
from microagents.elections.promises import LabelledRow
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import journal_of
from microagents.journal.sharded import reader_of
from microagents.runs.driver.begin import new_plan, run
from microagents.runs.driver.forecast import forecast_of
from microagents.runs.driver.keywords import RunControl
from microagents.runs.plan import plan_of
from microagents.runs.result import Result
from microagents.runs.settings import check_promised
from microagents.runs.words.verdict import counted, resume_command
from microagents.studies.labels import DrawnRows, LabelQueue
from microagents.studies.measured import ModelMeasurement
from microagents.studies.promised import (
    ExpectedCost,
    KeptPromise,
    PromisePlan,
    WantedPromise,
    labelled_rows,
    least_open,
)
from microagents.studies.series import short_digest
from microagents.systems.chains.cascade import UNREACHED
from microagents.systems.chains.row_task import RowTask


class Promising(Struct, frozen=True, kw_only=True, dict=True):
    """A promise that is asked for on the command line."""

    wanted: WantedPromise
    given: Given
    models: Mapping[str, list[str]]
    options: StrategyOptions
    gold_file: Path | None
    """File of labels; None for the one beside the output."""
    label: str | None = None
    """Where a person labels rows now: `terminal` or `browser`; None for nowhere."""
    runs_dir: Path
    run_id: str | None = None
    changed: Mapping[str, Any]
    """Settings of the run."""
    yes: bool = False

    def check(self) -> None:
        """Refuse options that do not go with a promise.

        Raises:
            InvalidUsage: something is missing, or too much.
        """
        if {name: len(pool) for name, pool in self.models.items()} != {"cheap": 1, "strong": 1}:
            raise InvalidUsage("--wrong-at-most needs two models: --model cheap=SPEC --model strong=SPEC")
        if not (0 < self.wanted.wrong_at_most < 1 and 0 < self.wanted.confidence < 1):
            raise InvalidUsage("--wrong-at-most and --confidence are shares between 0 and 1, such as .05 and .9")
        check_promised(self.changed)
        if not getattr(self.given.first, "gold", None) or "output" not in self.changed:
            raise InvalidUsage(
                "--wrong-at-most fills the rows of a table: give --inputs, --gold COLUMN and --output FILE"
            )

    @cached_property
    def rows(self) -> DrawnRows:
        """The rows in their random order, with the labels so far."""
        drawn = DrawnRows(self.given.work, self.given.source)  # type: ignore[arg-type]
        if self.gold_file is not None or is_there(self.labels):
            drawn.read(self.labels)
        return drawn

    @property
    def labels(self) -> Path:
        """File in which a person labels rows."""
        return self.gold_file or Path(self.changed["output"]).with_suffix(".labels.csv")

    @cached_property
    def name(self) -> str:
        """Name of the run: the same command continues it."""
        asked = (self.rows.digest, self.wanted, self.models, self.options.typed, self.changed["seed"])
        return self.run_id or f"{type(self.given.first).__name__.lower()}-{short_digest(asked)}"

    def labels_run(self, before: Sequence[Sequence[RowTask]]) -> str:
        """Name the run that asks both models about the labelled rows after earlier ones."""
        return f"{self.name}-labels-{sum(map(len, before))}"

    def strategy(self, **found: Any) -> Strategy:
        """Build the strategy of a run of the cascade."""
        typed = {**self.options.typed, **found, "strong": self.models["strong"][0]}
        return strategy_named("cascade", StrategyOptions(typed, self.options.defaults), self.given.first)


def promised_strategy(asked: Promising) -> Strategy:
    """Return the cascade whose thresholds keep the promise; without one, say why, and exit."""
    least, likely = asked.wanted.labels()
    before = _asked_before(asked)
    _name_changes(asked, before)
    if asked.label is not None:
        queue = LabelQueue(asked.rows, asked.labels, likely, Path(asked.changed["output"]), asked.runs_dir)
        judge_rows(queue, asked.runs_dir, in_browser=asked.label == "browser")
    labelled = asked.rows.labelled(likely)
    if len(labelled) < least:
        _ask_for_labels(asked)
    earlier = len(before) if len(labelled) > sum(map(len, before)) else len(before) - 1
    tested = KeptPromise(wanted=asked.wanted, rows=tuple(_through_cascade(asked, labelled, before)), test=earlier)
    found = tested.found
    if found is None:
        _say_why_not(asked, tested)
    at, promise = found.thresholds, tested.said(found)
    paths = Counter(each.path(at) for each in tested.rows)
    warn(
        f"{promise}; {paths['cheap']:,} are by the cheap model, {paths['strong']:,} by the strong one, {paths[None]:,} open; "
        f"of new rows at least {tested.least_open:.1%} must stay open"
    )
    share = 1 - paths["cheap"] / len(tested.rows)
    return asked.strategy(cheap_from=at.cheap, strong_from=at.strong, strong_share=share, promise=promise)


def promise_plan(asked: Promising, measured: ModelMeasurement | None = None) -> PromisePlan:
    """Plan the labels, calls and cost of the promise; with a measurement of the strong model also the rows that must stay open.

    Raises:
        InvalidUsage: the table has too few rows, or another model was measured.
    """
    (least, likely), rows, (strong,) = asked.wanted.labels(), asked.rows, asked.models["strong"]
    total = len(rows.order)
    if total < least:
        raise InvalidUsage(f"{rows.source} has {counted(total, 'row')}, and {asked.wanted} takes {least} labels")
    found = None
    if measured is not None:
        if measured.model != strong:
            raise InvalidUsage(f"the measurement {measured.run_id!r} is of {measured.model}; measure {strong}")
        k = asked.strategy().k_strong  # type: ignore[attr-defined]  # of a cascade
        found = least_open(measured, rows.rows, k, asked.wanted.wrong_at_most)
    return PromisePlan(
        wanted=asked.wanted,
        labels=(least, likely),
        labelled=len(rows.labelled(likely)),
        labelling=_expected(asked, least, cheap_from=UNREACHED),
        table=(
            _expected(asked, total, cheap_from=1, strong_share=0),
            _expected(asked, total, cheap_from=1, strong_share=1),
        ),
        least_open=found,
    )


def _expected(asked: Promising, rows: int, **options: float) -> ExpectedCost:
    given = {"strategy": asked.strategy(**options), **asked.changed}
    plan = new_plan(asked.rows.rows[:rows], asked.models["cheap"], given)  # type: ignore[arg-type]  # settings of a run
    calls, forecast = plan.strategy.expected_calls(plan.tasks[0]), forecast_of(plan, None)
    return ExpectedCost(calls=(calls or 0.0) * rows, usd=None if forecast is None else forecast.cost_usd)


def _ask_for_labels(asked: Promising) -> NoReturn:
    """Write the rows to label, and exit."""
    found = promise_plan(asked)
    asked.rows.write(asked.labels, found.labels[1])
    _end(
        f"no promise yet, and nothing was asked: {found}; label {found.missing} more at least in {asked.labels} "
        f"({', '.join(asked.rows.gold)}), from the top and without gaps, and give the same command again"
    )


def _say_why_not(asked: Promising, tested: KeptPromise) -> NoReturn:
    likely, labels = asked.wanted.labels(tested.test + 1)[1], len(tested.rows)
    said = f"no promise, and no other row was asked: on {labels:,} labelled rows not even the strictest thresholds pass"
    if tested.is_hopeless or labels >= likely:
        _end(f"{said}: the strong model is too often wrong where its samples agree; take a better one, or promise less")
    asked.rows.write(asked.labels, likely)
    _end(f"{said}; label {likely - labels} more in {asked.labels}, and give the same command again")


def _end(text: str) -> NoReturn:
    warn(text)
    raise typer.Exit(EXIT_CODES["undecided"])


def _asked_before(asked: Promising) -> list[Sequence[RowTask]]:
    """Return the labelled rows that both models were asked about, with their labels then, by run."""
    runs: list[Sequence[RowTask]] = []
    while not holds_nothing(journal_of(asked.runs_dir, asked.labels_run(runs))):
        with reader_of(asked.runs_dir, asked.labels_run(runs)) as reader:
            runs.append(plan_of(reader, whole=True).tasks)  # type: ignore[arg-type]  # rows, as they were begun
    return runs


def _name_changes(asked: Promising, before: list[Sequence[RowTask]]) -> None:
    """Say which labels have changed, or are gone, since both models were asked about their rows."""
    changed, removed = asked.rows.changes(chain.from_iterable(before))
    asked_with = "since both models were asked, and"
    if changed:
        warn(f"{counted(len(changed), 'label')} changed {asked_with} the new ones count: {', '.join(changed)}")
    if removed:
        warn(
            f"{counted(len(removed), 'label')} removed {asked_with} labels count up to the first gap: {', '.join(removed)}"
        )


def _through_cascade(asked: Promising, labelled: list[RowTask], before: list[Sequence[RowTask]]) -> list[LabelledRow]:
    """Ask both models about the labelled rows. Rows that were labelled later are a run of their own, so no earlier one changes.

    Raises:
        InvalidUsage: the table is being filled by the promise of fewer labels.
    """
    found, runs, more = list[LabelledRow](), [*before], labelled[sum(map(len, before)) :]
    if more and not holds_nothing(journal_of(asked.runs_dir, asked.name)):
        raise InvalidUsage(
            f"run {asked.name} fills the table by the promise of its first {len(labelled) - len(more)} labels, and there are "
            f"{len(labelled)} now; nothing was asked; go on with that promise: {resume_command(asked.name, asked.runs_dir)}; or fill the "
            f"table anew by all labels, which asks about every row again: give --run-id {asked.name}-{len(labelled)} and another --output"
        )
    if more:
        runs.append(more)
    for number, rows in enumerate(runs):
        name = asked.labels_run(runs[:number])
        _ask_both(asked, name, rows)
        with reader_of(asked.runs_dir, name) as reader:
            found += labelled_rows(reader, labelled[len(found) :][: len(rows)])
    return found


def _ask_both(asked: Promising, name: str, rows: Sequence[RowTask]) -> None:
    settings: Any = {**asked.changed, "output": None, "share": "off", "run_id": name, "runs_dir": asked.runs_dir}

    def start(control: RunControl, _: object) -> Coroutine[Any, Any, Result]:
        strategy = asked.strategy(cheap_from=UNREACHED)
        return run(rows, models=asked.models["cheap"], strategy=strategy, **control, **settings)

    watched = Watched(name, RowTask.progress_unit, asked.models["cheap"], kept_in(name, asked.runs_dir))
    result = run_in_terminal(watched, start, yes=asked.yes)
    if result.outcome not in ALL_ENDED:
        show_and_exit(result, as_json=False)
