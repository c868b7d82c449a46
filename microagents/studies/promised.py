"""A promise on the wrong rows of a table: the labelled rows go through the whole cascade, and tests on them find its thresholds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from microagents.elections.count import Count
from microagents.elections.election import ElectionId, Question
from microagents.elections.promises import (
    LIKELY,
    NEVER,
    LabelledRow,
    Tested,
    Thresholds,
    confidence_of,
    find_thresholds,
    fixed_order,
    labels_needed,
)
from microagents.journal.messages import Recalled
from microagents.journal.reading import Reader
from microagents.runs.inspection.replay import replay_of
from microagents.runs.judging import judge_result
from microagents.runs.plan import plan_of
from microagents.runs.words.money import money
from microagents.studies.measured import ModelMeasurement
from microagents.studies.row_plans import plan_rows
from microagents.systems.chains.cascade import CascadeConductor, StrongModel, score_of
from microagents.systems.chains.row_task import RowTask
from microagents.work.durable import Work

STRICTEST = next(fixed_order())
ALL = Thresholds(cheap=NEVER, strong=0.0)
"""Thresholds with which each row is taken from the strong model if that decides it."""


class WantedPromise(Struct, frozen=True, kw_only=True):
    """A promise that is wanted."""

    wrong_at_most: float
    """Share of all rows that may be written wrong."""
    confidence: float
    """Probability with which it is kept."""

    def labels(self, test: int = 0) -> tuple[int, int]:
        """Return the labels that a test takes if the cascade is wrong in a tenth, and in a half, of the promised share."""
        most, confidence = self.wrong_at_most, confidence_of(test, self.confidence)
        least, likely = [labels_needed(most, each * most, confidence) for each in LIKELY]
        return least, likely

    def __str__(self) -> str:
        return f"at most {100 * self.wrong_at_most:g} % of the rows are wrong ({100 * self.confidence:g} %)"


class ExpectedCost(Struct, frozen=True, kw_only=True):
    """Calls and cost of a part of a promise, by the assumed error rate of `microagents.runs.driver.forecast`."""

    calls: float
    usd: float | None
    """None if no price is known."""


class PromisePlan(Struct, frozen=True, kw_only=True):
    """Labels, calls and cost of a promise, before anything is bought."""

    wanted: WantedPromise
    labels: tuple[int, int]
    """The labels that it takes: at least, and if the cascade is wrong in half of the promised share."""
    labelled: int
    """Number of labels that there are."""
    labelling: ExpectedCost
    """Both models on the least number of labelled rows."""
    table: tuple[ExpectedCost, ExpectedCost]
    """The table, if the cheap model gets every row, and if it gets none."""
    least_open: float | None
    """Least share of rows that must stay open, by a measurement of the strong model; None without one."""

    @property
    def missing(self) -> int:
        """Number of labels that are missing at least."""
        return max(0, self.labels[0] - self.labelled)

    def __str__(self) -> str:
        least, likely = self.labels
        first, (low, high) = self.labelling, self.table
        costs = [f", {money(first.usd)}", f", {money(low.usd)} to {money(high.usd)}"]
        of_labels, of_table = ["", ""] if None in (first.usd, low.usd, high.usd) else costs
        return (
            f"{self.wanted} takes {least} to {likely} labels of rows drawn at random ({first.calls:,.0f} calls{of_labels} for {least}, "
            f"then {low.calls:,.0f} to {high.calls:,.0f}{of_table} for the table); there are {self.labelled} (labels of the first rows, or "
            "chosen by hand, do not count)"
        )


def least_open(measured: ModelMeasurement, rows: Sequence[RowTask], k: int, wrong_at_most: float) -> float | None:
    """Return the least share of rows that must stay open, by a measurement of the strong model; None if nothing judges its replies.

    It is the share that the votes leave open, and the share that they decide wrongly less the promised one.
    """
    votes = plan_rows(rows, measured, k=k).votes[-1].votes
    if votes.right is None:
        return None
    wrong = 1 - votes.right.share - votes.open.share
    return votes.open.share + max(0.0, wrong - wrong_at_most)


class KeptPromise(Struct, frozen=True, kw_only=True):
    """A wanted promise, tested on labelled rows."""

    wanted: WantedPromise
    rows: tuple[LabelledRow, ...]
    test: int = 0
    """Number of earlier tests, with fewer labels."""

    @property
    def found(self) -> Tested | None:
        """The thresholds; None if none keep it."""
        return find_thresholds(self.rows, self.wanted.wrong_at_most, confidence_of(self.test, self.wanted.confidence))

    @property
    def is_hopeless(self) -> bool:
        """Whether even the strictest thresholds lose so much that the likely number of labels will hardly do."""
        lost = sum(each.is_lost(STRICTEST) for each in self.rows)
        return lost > LIKELY[1] * self.wanted.wrong_at_most * len(self.rows)

    @property
    def least_open(self) -> float:
        """Least share of rows that must stay open: that which is wrong without thresholds, by the labelled rows, less the promised one."""
        lost = sum(each.is_lost(ALL) for each in self.rows)
        return max(0.0, lost / len(self.rows) - self.wanted.wrong_at_most)

    def said(self, found: Tested) -> str:
        """Return the promise, with its condition and its basis."""
        condition = f"if new rows are like the {len(self.rows):,} labelled ones, a random sample"
        return f"{self.wanted}, {condition}; {found.lost:,} of these are wrong"


def labelled_rows(reader: Reader, labelled: Sequence[RowTask]) -> Iterator[LabelledRow]:
    """Yield the rows of a run in which each row went through the whole cascade, with their scores, judged by their labels.

    Args:
        reader: its journal.
        labelled: its rows in their order, with labels; it may have more of them.
    """
    plan = plan_of(reader, whole=True)
    conductor = CascadeConductor(plan.context(), replay_of(reader, plan))
    strong: StrongModel = plan.strategy.strong_model  # type: ignore[attr-defined]
    for number, task in enumerate(labelled):
        chain = conductor.chain(Work(conductor, number, recalls=False))
        step = chain.step(0, chain.start())
        scores: list[Any] = []
        for election, question in ((step.election, step.question), strong.asked(chain, step)):
            scores += _scored(election, question, reader.decision_at(election.path), task)
        yield LabelledRow(*scores)


def _scored(election: ElectionId, question: Question, found: Recalled | None, task: RowTask) -> tuple[float, bool]:
    """Return the score of a recorded vote, and whether its reply is right."""
    count = Count(election, question)
    for ballot in () if found is None else found.ballots:
        count.add(ballot)
    verdict = count.verdict()
    if found is None or found.value is None or verdict.winner != found.value:
        return -1.0, False
    return score_of(verdict), judge_result(task, msgspec.json.decode(found.value)) is True
