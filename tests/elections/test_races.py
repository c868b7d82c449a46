"""One election in figures, against an enumeration of all courses, against the laws, and against the engine's own count."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import product
from random import Random
from typing import Literal

import pytest

from microagents.base.messages import address_of
from microagents.elections.count import Count
from microagents.elections.election import Ballot, Question
from microagents.elections.race_tables import ERRORS, certified_table
from microagents.elections.races import race_end
from microagents.elections.rules import Certify, FirstTo, FirstToAheadBy, Rule, Tally, portable
from microagents.replies.chat import Prompt, Sampling
from microagents.replies.reply_forms import fingerprint
from tests.roles.voting import Say


class Unopposed(Rule, frozen=True):
    n: int

    def votes_needed(self, tally: Tally) -> int:
        return 0 if len(tally.counts) > 1 else self.n - tally.counted

    def outcome(self, tally: Tally) -> Literal["decided", "argmax"]:
        return "decided" if len(tally.counts) == 1 else "argmax"


RULES = [
    FirstToAheadBy(1), FirstToAheadBy(2), FirstToAheadBy(3), FirstTo(2), FirstTo(3), FirstTo(3, at_most=4),
    Certify(0.3), Unopposed(3),
]  # fmt: skip


def enumerated(p: Fraction, rule: Rule, max_draws: int) -> tuple[dict[str, Fraction], Fraction]:
    """The probability of each ending and the expected draws, over all sequences of replies."""
    chances = {0: p, 1: 1 - p}
    ends = dict.fromkeys(("right", "wrong", "undecided"), Fraction(0))
    draws = Fraction(0)
    for replies in product(chances, repeat=max_draws):
        chance = math.prod((chances[reply] for reply in replies), start=Fraction(1))
        tally, drawn = Tally(rule), 0
        while tally.votes_needed and drawn < max_draws:
            tally.count(replies[drawn])
            drawn += 1
        ends["undecided" if tally.outcome != "decided" else "right" if rule.winner(tally) == 0 else "wrong"] += chance
        draws += chance * drawn
    return ends, draws


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_race_agrees_with_all_reply_sequences(rule: Rule) -> None:
    ends, draws = enumerated(Fraction(3, 5), rule, 7)
    assert race_end(0.4, rule, 7) == pytest.approx([*map(float, ends.values()), float(draws)], abs=1e-12)


def test_a_table_of_certified_votes_agrees_with_races() -> None:
    table = certified_table(0.05, 30)
    for at in range(60, len(ERRORS), 15):
        end = race_end(float(ERRORS[at]), Certify(0.05), 30)
        assert (table.loss[at, 0], table.votes[at, 0]) == pytest.approx((end.lost, end.draws))


def test_what_is_left_of_a_race_keeps_its_digits_however_little_it_is() -> None:
    """A race of two at k = 2 is open after 2n votes if each pair of votes is one of both: (2 p q)^n."""
    for cap in (10, 20, 40):
        assert race_end(0.1, FirstToAheadBy(2), cap).undecided == pytest.approx(0.18 ** (cap // 2), rel=1e-9, abs=0)


@pytest.mark.parametrize(("p", "rule", "max_draws"), [(0.7, FirstToAheadBy(3), 9), (0.6, FirstTo(3), 6)])
def test_elections_of_the_engine_end_as_a_race_says(p: float, rule: Rule, max_draws: int) -> None:
    """The voter's own `Count`, with replies by chance. Five standard errors of four figures: under 1 false alarm in 10^5 seeds."""
    rng, trials = Random(f"{rule}"), 3_000
    question = Question(
        prompts=(Prompt(user="?"),),
        reply=address_of(Say),
        form=fingerprint(Say),
        rule=portable(rule),
        sampling=Sampling(),
        models=("m",),
        max_draws=max_draws,
    )
    values = [b'{"word":"0"}', b'{"word":"1"}']
    ends: Counter[str] = Counter()
    draws = 0
    for _ in range(trials):
        count = Count(question.id_at("0/x"), question)
        while count.tally.votes_needed and len(count.ballots) < max_draws:
            seq = len(count.ballots)
            count.add(Ballot(seq=seq, value=values[rng.random() >= p]))
        verdict = count.verdict()
        ends["undecided" if verdict.outcome != "decided" else "right" if verdict.winner == values[0] else "wrong"] += 1
        draws += len(verdict.ballots)
    found = race_end(1 - p, rule, max_draws)
    for end, chance in (("right", found.right), ("wrong", found.wrong), ("undecided", found.undecided)):
        assert ends[end] / trials == pytest.approx(chance, abs=5 * math.sqrt(chance * (1 - chance) / trials) + 1e-9)
    assert draws / trials == pytest.approx(found.draws, rel=0.1)
