"""Laws of a promise on the share of wrong rows: thresholds by exact tests in a fixed order, the labels that they take, and an audit.

A cascade takes a row from its cheap model if the score there reaches a threshold, else from its strong one if the score there reaches
another, and leaves it open else. A row is lost if it is taken and wrong. Each pair of thresholds is a hypothesis, "more than the promised
share of rows is lost". Learn then Test (arXiv 2110.01052) rejects hypotheses by p-values on labelled rows; in a fixed order, up to the
first that stands, each may use the whole error probability (section 4.2 there).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import count, takewhile
from typing import NamedTuple

from microagents.elections.laws import binomial_cdf, ln_choose

CONFIDENCE = 0.9
"""Default probability that a promise is kept."""
OF_AUDITS = 0.95
"""Confidence of the bound of an audit."""
POWER = 0.8
"""Probability with which the labels that are asked for are enough."""
LIKELY = (0.1, 0.5)
"""Shares of the promised share that a cascade is taken to lose, for the number of labels."""
FIRST = 0.9
"""Share of the error probability that the first test uses up, and each later one of the rest: labels may be added after a test fails."""
NEVER = 2.0
"""A threshold that no score reaches: the model is not asked."""
_LEVELS = (1.0, 0.9999, 0.9995, 0.999, 0.995, *[each / 100 for each in range(99, -1, -1)])


class Thresholds(NamedTuple):
    """Least scores with which a row is taken from a model."""

    cheap: float
    strong: float


class LabelledRow(NamedTuple):
    """A labelled row that went through both models of a cascade."""

    cheap: float
    """Score of the cheap model, from 0 to 1; below 0 without a decision."""
    cheap_is_right: bool
    strong: float
    strong_is_right: bool

    def path(self, at: Thresholds) -> str | None:
        """Name the model that it is taken from; None if it stays open."""
        if self.cheap >= at.cheap:
            return "cheap"
        if self.strong >= at.strong:
            return "strong"
        return None

    def is_lost(self, at: Thresholds) -> bool:
        """Whether it is taken and wrong."""
        is_right = {"cheap": self.cheap_is_right, "strong": self.strong_is_right, None: True}
        return not is_right[self.path(at)]


class Tested(NamedTuple):
    """Thresholds that keep a promise on the labelled rows."""

    thresholds: Thresholds
    lost: int
    """Number of labelled rows that are lost with them."""


def fixed_order() -> Iterator[Thresholds]:
    """Yield the thresholds that are tested, from the strictest: first fewer rows stay open, then the cheap model takes more of them."""
    for level in _LEVELS:
        yield Thresholds(cheap=NEVER, strong=level)
    for level in _LEVELS:
        yield Thresholds(cheap=level, strong=0.0)


def find_thresholds(rows: Sequence[LabelledRow], wrong_at_most: float, confidence: float) -> Tested | None:
    """Find the last thresholds of the fixed order before the first that fail; None if the strictest fail.

    Args:
        rows: a random sample of the rows.
        wrong_at_most: the promised share of lost rows, between 0 and 1.
        confidence: the probability that the promise is kept, at least, between 0 and 1.
    """
    most, passed = most_lost(len(rows), wrong_at_most, confidence), None
    for at in fixed_order():
        lost = sum(row.is_lost(at) for row in rows)
        if lost > most:
            break
        passed = Tested(at, lost)
    return passed


def confidence_of(test: int, confidence: float) -> float:
    """Return the confidence of one test, so that all tests together keep the promise with the stated one.

    Args:
        test: its number from 0; each test has the labels of the tests before it, and more.
        confidence: the stated probability.
    """
    return 1 - (1 - confidence) * FIRST * (1 - FIRST) ** test


def most_lost(labels: int, wrong_at_most: float, confidence: float) -> int:
    """Return the most lost rows among so many labelled ones with which the exact binomial test passes; -1 if it cannot."""
    passing = takewhile(lambda lost: binomial_cdf(lost, labels, wrong_at_most) <= 1 - confidence, count())
    return sum(1 for _ in passing) - 1


def labels_needed(wrong_at_most: float, wrong: float, confidence: float) -> int:
    """Return the least number of labels with which the test passes with probability `POWER`.

    Args:
        wrong_at_most: the promised share of lost rows.
        wrong: the share that the cascade loses, at most half of the promised one; near that the number grows without end.
        confidence: the probability that the promise is kept.
    """
    enough = (
        labels
        for labels in count(1)
        if binomial_cdf(most_lost(labels, wrong_at_most, confidence), labels, wrong) >= POWER
    )
    return next(enough)


def wrong_bound(wrong: int, judged: int, population: int) -> float:
    """Bound the share of wrong ones from above, with the confidence `OF_AUDITS`, by a random sample of them without replacement.

    It is Clopper and Pearson's one-sided bound (1934) for a finite population. Cells of a row may be wrong together: of them a sample has
    one cell of each row that it has, so that each is as likely to be wrong as any other cell.

    Args:
        wrong: number of wrong ones in the sample.
        judged: size of the sample, at least 1.
        population: size of the population.
    """
    possible = range(wrong, population - judged + wrong + 1)
    excluded = bisect_left(
        possible, x=True, key=lambda each: hypergeometric_cdf(wrong, each, judged, population) <= 1 - OF_AUDITS
    )
    return possible[excluded - 1] / population


def hypergeometric_cdf(drawn: int, marked: int, sample: int, population: int) -> float:
    """Compute the probability that a sample without replacement has at most so many of the marked ones."""
    ln_all = ln_choose(population, sample)
    possible = range(max(0, sample + marked - population), min(drawn, marked) + 1)
    terms = [ln_choose(marked, each) + ln_choose(population - marked, sample - each) - ln_all for each in possible]
    return math.fsum(map(math.exp, terms))
