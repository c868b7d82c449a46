"""One election in figures, against an enumeration of all courses, against the laws, and against the engine's own count."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import product
from random import Random
from typing import Literal

import pytest

from microagents.base.errors import InvalidUsage
from microagents.base.messages import address_of
from microagents.elections.count import Count
from microagents.elections.election import Ballot, Flagged, Question
from microagents.elections.laws import expected_votes, race_won
from microagents.elections.races import CapOutcome, Course, Race, simulated
from microagents.elections.rules import BestOf, FirstTo, FirstToAheadBy, Rule, Tally, portable
from microagents.replies.chat import Prompt, Sampling, fingerprint
from tests.roles.voting import Say


class Unopposed(Rule, frozen=True):
    n: int

    def votes_needed(self, tally: Tally) -> int:
        return 0 if len(tally.counts) > 1 else self.n - tally.counted

    def outcome(self, tally: Tally) -> Literal["decided", "argmax"]:
        return "decided" if len(tally.counts) == 1 else "argmax"


RULES = [
    FirstToAheadBy(1), FirstToAheadBy(2), FirstToAheadBy(3), FirstTo(2), FirstTo(3), FirstTo(3, at_most=4),
    BestOf(3), BestOf(4), Unopposed(3),
]  # fmt: skip


def enumerated(
    p: Fraction, valid: Fraction, rivals: int, rule: Rule, max_draws: int
) -> tuple[dict[str, Fraction], Fraction]:
    """The probability of each ending and the expected draws, over all sequences of replies."""
    chances: dict[int | None, Fraction] = {
        None: 1 - valid,
        0: valid * p,
        **dict.fromkeys(range(1, rivals + 1), valid * (1 - p) / rivals),
    }
    ends = dict.fromkeys(("right", "wrong", "undecided"), Fraction(0))
    draws = Fraction(0)
    for replies in product(chances, repeat=max_draws):
        chance = math.prod((chances[reply] for reply in replies), start=Fraction(1))
        tally, drawn = Tally(rule), 0
        while tally.votes_needed and drawn < max_draws:
            if (reply := replies[drawn]) is not None:
                tally.count(reply)
            drawn += 1
        ends["undecided" if tally.outcome != "decided" else "right" if rule.winner(tally) == 0 else "wrong"] += chance
        draws += chance * drawn
    return ends, draws


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize(
    ("rivals", "valid", "max_draws"), [(1, Fraction(3, 4), 6), (1, Fraction(1), 7), (3, Fraction(4, 5), 5)]
)
def test_a_course_agrees_with_all_reply_sequences(rule: Rule, rivals: int, valid: Fraction, max_draws: int) -> None:
    ends, draws = enumerated(Fraction(3, 5), valid, rivals, rule, max_draws)
    found = Course(Race(p=0.6, rule=rule, rivals=rivals)).ending(max_draws, float(valid))
    assert (found.right, found.wrong, found.undecided) == pytest.approx(
        [float(chance) for chance in ends.values()], abs=1e-12
    )
    assert found.draws == pytest.approx(float(draws), abs=1e-12)


@pytest.mark.parametrize(("p", "k"), [(0.7, 3), (0.55, 6), (0.9978, 3), (0.99, 12), (0.51, 2)])
def test_without_a_cap_a_race_of_two_is_that_of_the_laws(p: float, k: int) -> None:
    course = Course(Race(p=p, rule=FirstToAheadBy(k)))
    assert course.is_whole
    assert course.loss == pytest.approx(race_won(p, k) * ((1 - p) / p) ** k, rel=1e-9, abs=0)
    assert math.fsum(course.open) == pytest.approx(expected_votes(p, k), rel=1e-12)


def test_what_is_left_of_a_race_keeps_its_digits_however_little_it_is() -> None:
    """A race of two at k = 2 is open after 2n votes if each pair of votes is one of both: (2 p q)^n."""
    course = Course(Race(p=0.9, rule=FirstToAheadBy(2)))
    for cap in (10, 20, 40):
        assert course.ending(cap, 1.0).undecided == pytest.approx(0.18 ** (cap // 2), rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("race", "max_draws", "valid"),
    [
        (Race(p=0.7, rule=FirstToAheadBy(3)), 9, 0.8),
        (Race(p=0.55, rule=FirstToAheadBy(2), rivals=5), 100, 1.0),
        (Race(p=0.6, rule=FirstTo(3), rivals=2), 6, 0.9),
        (Race(p=0.5, rule=BestOf(5), rivals=3), 100, 0.7),
    ],
    ids=repr,
)
def test_elections_of_the_engine_end_as_a_course_says(race: Race, max_draws: int, valid: float) -> None:
    """The voter's own `Count`, with replies by chance. Five standard errors of four figures: under 1 false alarm in 10^5 seeds."""
    rng, trials = Random(f"{race}"), 3_000
    question = Question(
        prompts=(Prompt(user="?"),),
        reply=address_of(Say),
        form=fingerprint(Say),
        rule=portable(race.rule),
        sampling=Sampling(),
        models=("m",),
        max_draws=max_draws,
    )
    values = [b'{"word":"%d"}' % number for number in range(1 + race.rivals)]
    ends: Counter[str] = Counter()
    draws = 0
    for _ in range(trials):
        count = Count(question.id_at("0/x"), question)
        while count.tally.votes_needed and len(count.ballots) < max_draws:
            seq = len(count.ballots)
            if rng.random() >= valid:
                count.add(Flagged(seq=seq, flag="malformed"))
            else:
                count.add(Ballot(seq=seq, value=values[0 if rng.random() < race.p else rng.randint(1, race.rivals)]))
        verdict = count.verdict()
        ends["undecided" if verdict.outcome != "decided" else "right" if verdict.winner == values[0] else "wrong"] += 1
        draws += len(verdict.ballots)
    found = Course(race).ending(max_draws, valid)
    for end, chance in (("right", found.right), ("wrong", found.wrong), ("undecided", found.undecided)):
        assert ends[end] / trials == pytest.approx(chance, abs=5 * math.sqrt(chance * (1 - chance) / trials) + 1e-9)
    assert draws / trials == pytest.approx(found.draws, rel=0.1)


def test_a_simulation_holds_the_exact_figures_in_its_intervals_and_is_the_same_every_time() -> None:
    """Two intervals of 95 % hold both figures at 9 seeds of 10; the seed is fixed."""
    race = Race(p=0.55, rule=FirstToAheadBy(2), rivals=3)
    found, exact = simulated(race, 20, 0.9), Course(race).ending(20, 0.9)
    assert found == simulated(race, 20, 0.9)
    assert found.right_interval is not None
    assert found.draws_interval is not None
    assert found.right_interval[0] < exact.right < found.right_interval[1]
    assert found.draws_interval[0] < exact.draws < found.draws_interval[1]
    assert (exact.right_interval, exact.draws_interval) == (None, None)


def test_a_course_that_takes_too_much_work_says_how_far_it_came() -> None:
    course = Course(Race(p=0.7, rule=FirstToAheadBy(12)), max_work=2_000)
    votes = len(course.open) - 1
    assert not course.is_whole
    assert (course.covers(votes), course.covers(votes + 1)) == (True, False)
    whole = Course(Race(p=0.7, rule=FirstToAheadBy(12)))
    assert as_floats(course.ending(votes, 0.9)) == pytest.approx(as_floats(whole.ending(votes, 0.9)), rel=1e-9)


def as_floats(ending: CapOutcome) -> list[float]:
    return [ending.right, ending.wrong, ending.undecided, ending.draws]


def test_an_election_that_never_seems_to_end_is_not_simulated() -> None:
    with pytest.raises(InvalidUsage, match="too many to simulate"):
        simulated(Race(p=0.5, rule=FirstToAheadBy(10**6)), 10**6, 1.0)
