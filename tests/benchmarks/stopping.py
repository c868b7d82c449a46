"""When to stop drawing votes: ``python -m tests.benchmarks.stopping [VOTES]``.

Stopping rules as they were published, written from their papers alone, on the same votes: the first to be ahead by k, adaptive
consistency (arXiv 2305.11860), early-stopping self-consistency (arXiv 2401.10480), and the majority of all. Also a test by betting on the
first two, level .05 (a uniform mixture of stakes), which leaves a question open where it is not sure: below, in three orders of the votes.
Last, how often that test decides for another reply than the likeliest, of 2 to 10 replies as likely as it, or nearly; exit code 1 if
that is more often than the level.

A line of the file is a question: ``{"right": "12", "votes": ["12", "11", ...]}``, and ``"seconds": [...]`` if arrivals are known; or a
character for each vote, 0 for the right one (``tests/benchmarks/votes`` has such votes of a real model), which are
the default). Equal lines are different questions.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from math import comb
from pathlib import Path
from random import Random
from statistics import fmean

import msgspec
import numpy as np
from msgspec import Struct

from tests.benchmarks.harness import parser_of

IN_FLIGHT = 5
LEVEL = 0.05
OTHERS = (1.0, 0.9, 0.5, 0.05)
"""How likely replies besides two equal ones are, in these."""
GSM8K = Path(__file__).parent / "votes" / "gsm8k-gpt-4o-mini.txt"
SHARE, CORRELATION = 0.888, 0.52
WRONG = (0.6, 0.2, 0.1, 0.06, 0.04)
"""Shares of wrong replies among each other."""


class Recorded(Struct, frozen=True):
    """The votes on one question."""

    right: str
    votes: tuple[str, ...]
    seconds: tuple[float, ...] = ()


Rule = Callable[[Sequence[str]], str | None]
"""Tells which reply is decided by the votes so far; None while another vote is wanted."""


def ahead_by(k: int) -> Rule:
    """Decide once a reply leads every other by k."""

    def decided(votes: Sequence[str]) -> str | None:
        (leader, most), *others = Counter(votes).most_common(2)
        return leader if most - (others[0][1] if others else 0) >= k else None

    return decided


def adaptive(threshold: float) -> Rule:
    """Decide once the leader is the more frequent of the first two with this probability, from a uniform prior."""

    def decided(votes: Sequence[str]) -> str | None:
        (leader, most), *others = Counter(votes).most_common(2)
        second = others[0][1] if others else 0
        draws = most + second + 1
        return leader if sum(comb(draws, each) for each in range(most + 1)) / 2**draws >= threshold else None

    return decided


def window(size: int) -> Rule:
    """Decide once all votes of a window are equal."""

    def decided(votes: Sequence[str]) -> str | None:
        last = votes[-size:]
        return last[0] if len(votes) % size == 0 and len(set(last)) == 1 else None

    return decided


def wealth(votes: int, rival: int) -> float:
    """Wealth of bets on a reply against an equal rival, 2^n times the integral of q^votes (1 - q)^rival over q from 1/2 to 1, twice."""
    bets = votes + rival
    return sum(comb(bets + 1, each) for each in range(votes + 1)) / ((bets + 1) * comb(bets, votes))


def certify(level: float) -> Rule:
    """Decide once the first of two replies passes the test against the second."""

    def decided(votes: Sequence[str]) -> str | None:
        (leader, most), *others = Counter(votes).most_common(2)
        return leader if wealth(most, others[0][1] if others else 0) >= 1 / level else None

    return decided


RULES: dict[str, Rule] = {
    **{f"ahead by {k}": ahead_by(k) for k in range(1, 6)},
    **{f"adaptive, {share:g}": adaptive(share) for share in (0.9, 0.95)},
    **{f"windows of {size}": window(size) for size in (3, 5)},
    "certify, .05": certify(LEVEL),
    "majority of all": lambda _: None,
}


def decide(rule: Rule, votes: Sequence[str]) -> tuple[str, int]:
    """Return what a rule decides, and after how many votes; at the end the most frequent reply."""
    for count in range(1, len(votes) + 1):
        if (found := rule(votes[:count])) is not None:
            return found, count
    return Counter(votes).most_common(1)[0][0], len(votes)


class Decisions(Struct, frozen=True, kw_only=True):
    """How a rule ends elections on recorded votes."""

    elections: int
    calls: float
    open: float
    right: float
    """Share of the decided ones that are right."""
    not_the_mode: int
    """Number of decisions for a reply that fewer of all votes of the question give than another."""


def decisions(questions: Sequence[Recorded], rule: Rule, orders: int = 3) -> Decisions:
    """Hold elections on the votes in some random orders."""
    counts, decided, right, others = list[int](), 0, 0, 0
    for question in [each for order in range(orders) for each in questions]:
        votes = [*question.votes]
        Random(f"{len(counts)}").shuffle(votes)
        reply, count = decide(rule, votes)
        counts.append(count)
        if rule(votes[:count]) is not None:
            decided += 1
            right += reply == question.right
            others += votes.count(reply) < max(Counter(votes).values())
    number = len(counts)
    return Decisions(
        elections=number, calls=fmean(counts), open=1 - decided / number, right=right / decided, not_the_mode=others
    )


def not_the_likeliest(shares: Sequence[float], elections: int = 4_000, votes: int = 200) -> float:
    """Share of elections among replies with these shares, the first as likely as any, in which the test decides for another one."""
    least = [next(more for more in range(rival, votes + 1) if wealth(more, rival) >= 1 / LEVEL) for rival in range(80)]
    needed, rng = np.array([*least, *[votes + 1] * votes]), np.random.default_rng(len(shares))
    counts, at, wrong = np.zeros((elections, len(shares)), int), np.arange(elections), 0
    bounds = np.cumsum(shares)[:-1] / sum(shares)
    for _ in range(votes):
        counts[at, np.searchsorted(bounds, rng.random(len(at)))] += 1
        second, first = np.partition(counts[at], -2, axis=1)[:, -2:].T
        is_over = first >= needed[second]
        wrong += int((counts[at[is_over]].argmax(1) != 0).sum())
        at = at[~is_over]
    return wrong / elections


def check_level() -> bool:
    """Print the greatest share of such decisions for each number of replies; return whether it is within the level."""
    is_met = True
    for number in (2, 3, 4, 6, 10):
        tried = [[1.0, 1.0, *[other] * (number - 2)] for other in OTHERS] + [[1.0, *[0.95] * (number - 1)]]
        worst = max(map(not_the_likeliest, tried))
        is_met &= worst <= LEVEL
        print(
            f"  {number} replies: another than the likeliest decided in {worst:.4f}{'' if worst <= LEVEL else '  OUTSIDE'}"
        )
    return is_met


def by_arrival(question: Recorded) -> list[str]:
    """Order votes as they arrive where so many are in flight, each next one sent as one arrives."""
    free, arrivals = [0.0] * IN_FLIGHT, []
    for vote, seconds in zip(question.votes, question.seconds, strict=True):
        begun = min(free)
        free[free.index(begun)] = begun + seconds
        arrivals.append((begun + seconds, vote))
    return [vote for _, vote in sorted(arrivals)]


def recorded(text: str) -> list[Recorded]:
    """Read recorded votes."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    decode = msgspec.json.Decoder(Recorded).decode
    return [decode(line) if line.startswith("{") else Recorded(right="0", votes=tuple(line)) for line in lines]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("votes", nargs="?", type=Path, default=GSM8K, help="recorded votes")
    questions = recorded(parser.parse_args(arguments).votes.read_text(encoding="utf-8"))
    orders = {"launch": [each.votes for each in questions]}
    if all(each.seconds for each in questions):
        orders["arrival"] = [tuple(by_arrival(each)) for each in questions]
    print(f"{len(questions):,} questions; right, and votes of a question, by order of " + " and of ".join(orders))
    for name, rule in RULES.items():
        row = []
        for votes in orders.values():
            ends = [decide(rule, each) for each in votes]
            right = fmean(end == each.right for (end, _), each in zip(ends, questions, strict=True))
            row.append(f"{right:.4f} {fmean(count for _, count in ends):6.2f}")
        print(f"  {name:<16} " + "    ".join(row))
    for name in ("ahead by 3", "certify, .05"):
        found = decisions(questions, RULES[name])
        print(f"  {name}: {found.calls:.2f} votes, open {found.open:.4f}, right of decided {found.right:.4f}, ", end="")
        print(f"not the most frequent of all {found.not_the_mode:,} of {found.elections:,}")
    sys.exit(not check_level())


if __name__ == "__main__":
    main()
