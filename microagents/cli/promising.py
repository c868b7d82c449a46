"""`run --wrong-at-most`: draw the rows to label, put the labelled ones through the cascade, and find the thresholds of all others."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import typer

from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage
from microagents.base.printing import printable
from microagents.cli.inputs import Given
from microagents.cli.options import StrategyOptions, strategy_named
from microagents.cli.reporting import EXIT_CODES, echo
from microagents.cli.watching import Watched, kept_in, run_in_terminal, show_and_exit
from microagents.elections.promises import LabelledRow
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import journal_of, reader_of
from microagents.runs.driver.begin import run
from microagents.runs.words.money import specs_in
from microagents.runs.words.verdict import counted
from microagents.studies.labels import DrawnRows, without_labels
from microagents.studies.promised import KeptPromise, WantedPromise, kept, labelled_rows
from microagents.studies.series import short_digest
from microagents.systems.chains.row_task import RowTask

MODELS = ("cheap", "strong")
ENDED = ("completed", "undecided", "failed", "refused")


class Promising(NamedTuple):
    """A promise that is asked for on the command line."""

    wanted: WantedPromise
    rows: DrawnRows
    labels: Path
    """File in which a person labels rows."""
    models: Mapping[str, str]
    """Specs of the cheap and the strong model."""
    options: StrategyOptions
    runs_dir: Path
    run_id: str
    changed: Mapping[str, Any]
    """Settings of the run."""
    yes: bool

    def strategy(self, **found: Any) -> Strategy:
        """Build the strategy of a run of the cascade."""
        typed = {**self.options.typed, **found, "strong": self.models["strong"]}
        return strategy_named("cascade", StrategyOptions(typed, self.options.defaults), self.rows[0])


def cascade_of(models: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the specs of the two models of a cascade.

    Raises:
        InvalidUsage: one is missing, or there are others.
    """
    if {name: len(pool) for name, pool in models.items()} != dict.fromkeys(MODELS, 1):
        raise InvalidUsage("--wrong-at-most needs two models: --model cheap=SPEC --model strong=SPEC")
    return {name: models[name][0] for name in MODELS}


def promising(
    wanted: WantedPromise,
    given: Given,
    models: Mapping[str, str],
    options: StrategyOptions,
    *,
    gold_file: Path | None,
    runs_dir: Path,
    run_id: str | None,
    changed: Mapping[str, Any],
    yes: bool,
) -> Promising:
    """Read a promise that is asked for, and the labels so far.

    Raises:
        InvalidUsage: something is missing, or does not go with a promise.
    """
    unfit = [name for name in ("fallback", "on_undecided", "reuse") if name in changed]
    if unfit:
        raise InvalidUsage(
            f"--{unfit[0].replace('_', '-')} takes replies that no label tests into the table; leave it out"
        )
    if not isinstance(given.first, RowTask) or not given.first.gold:
        raise InvalidUsage(
            "--wrong-at-most is for the rows of a table: give --inputs FILE and --gold COLUMN, to be labelled"
        )
    if "output" not in changed:
        raise InvalidUsage("--wrong-at-most needs --output FILE: the rows to label are written beside it")
    assert not isinstance(given.work, RowTask)
    rows = DrawnRows(given.work, given.source)  # type: ignore[arg-type]
    if gold_file is not None:
        rows.read(gold_file)
    asked = short_digest((rows.digest, wanted, models, options.typed, changed.get("seed")))
    named = f"{type(given.first).__name__.lower()}-{asked}" if run_id is None else run_id
    labels = gold_file or Path(f"{changed['output']}").with_suffix(".labels.csv")
    return Promising(wanted, rows, labels, models, options, runs_dir, named, changed, yes)


def promised_strategy(asked: Promising) -> Strategy:
    """Return the cascade whose thresholds keep the promise; without one, say what is missing, and exit."""
    least, likely = asked.wanted.labels
    labelled = asked.rows.labelled(likely)
    if len(labelled) < least:
        _ask_for_labels(asked, len(labelled), likely)
    tested = kept(asked.wanted, _through_cascade(asked, labelled)[: len(labelled)])
    if tested.found is None:
        _say_why_not(asked, tested)
    at = tested.found.thresholds
    shares = tested.shares(at)
    echo(
        f"microagents: {tested}; of new rows about {shares['cheap']:.0%} are then by the cheap model, {shares['strong']:.0%} by the strong "
        f"one, {shares[None]:.0%} open, at the least {tested.least_open:.0%}",
        err=True,
    )
    return asked.strategy(cheap_from=at.cheap, strong_from=at.strong, promise=str(tested))


def _ask_for_labels(asked: Promising, labelled: int, wanted: int) -> NoReturn:
    """Write the rows to label, and exit."""
    least, rows, total = asked.wanted.labels[0], asked.rows, len(asked.rows.order)
    if total < least:
        raise InvalidUsage(f"{rows.source} has {counted(total, 'row')}, and {asked.wanted} takes {least} labels")
    rows.write(asked.labels, wanted)
    chosen = ""
    if rows.labels > labelled:
        chosen = f", and {rows.labels - labelled} of other rows: labels of the first rows, or chosen by hand, promise nothing of the others"
    _end(
        f"no promise yet, and nothing was asked: {asked.wanted} takes {least} to {wanted} labels of rows that are drawn at random; "
        f"there are {labelled}{chosen}; label {least - labelled} more at least in {asked.labels} ({', '.join(rows.gold)}), from the "
        f"top and without gaps, and give --gold-file {asked.labels}"
    )


def _say_why_not(asked: Promising, tested: KeptPromise) -> NoReturn:
    more = tested.more_labels
    said = f"no promise, and no other row was asked: on {len(tested.rows):,} labelled rows not even the strictest thresholds pass"
    if more is None:
        _end(f"{said}: the strong model is too often wrong where its samples agree; take a better one, or promise less")
    asked.rows.write(asked.labels, len(tested.rows) + more)
    _end(f"{said}; label {more} more in {asked.labels}, and give it with --gold-file")


def _end(text: str) -> NoReturn:
    echo(printable(f"microagents: {text}"), err=True)
    raise typer.Exit(EXIT_CODES["undecided"])


def _through_cascade(asked: Promising, labelled: list[RowTask[Any]]) -> list[LabelledRow]:
    """Ask both models about the labelled rows. Rows that were labelled later are a run of their own, so no earlier one changes."""
    found: list[LabelledRow] = []
    while len(found) < len(labelled):
        name = f"{asked.run_id}-labels-{len(found)}"
        rows = labelled[len(found) :]
        journal = journal_of(asked.runs_dir, name)
        if not holds_nothing(journal):
            with reader_of(asked.runs_dir, name) as reader:
                rows = rows[: reader.experiment.inputs]
        _ask_both(asked, name, rows)
        with reader_of(asked.runs_dir, name) as reader:
            found += labelled_rows(reader, rows)
    return found


def _ask_both(asked: Promising, name: str, rows: list[RowTask[Any]]) -> None:
    settings = {
        key: value for key, value in asked.changed.items() if key not in ("output", "output_dialect", "trust_columns")
    }
    watched = Watched(
        name, RowTask.progress_unit, specs_in({"": list(asked.models.values())}), kept_in(name, asked.runs_dir)
    )
    start: Callable[..., Coroutine[Any, Any, Any]] = lambda control, _: run(  # noqa: E731
        without_labels(rows),
        models=asked.models["cheap"],
        strategy=asked.strategy(),
        runs_dir=asked.runs_dir,
        run_id=name,
        share="off",
        **control,
        **settings,
    )
    result = run_in_terminal(watched, start, yes=asked.yes)
    if result.outcome not in ENDED:
        show_and_exit(result, as_json=False)
