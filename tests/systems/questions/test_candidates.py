"""Candidates: merged where they are equal, labelled by what they say, shown in an order of each ballot's own."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

from microagents.systems.questions.candidates import LABEL_CHARS, labels_of, leader_of, shuffled
from microagents.systems.questions.questions import Choice


def test_labels_grow_where_short_ones_would_be_equal() -> None:
    many = [str(number).encode() for number in range(5000)]
    labels = labels_of(many)
    assert len(set(labels)) == 5000
    assert len(labels[0]) > LABEL_CHARS


def test_every_ballot_sees_an_order_of_its_own_in_which_every_candidate_comes_first_equally_often() -> None:
    labels = labels_of([b"a", b"b", b"c"])
    first = Counter(shuffled(labels, ballot)[0] for ballot in range(3000))
    # Binomial, 3000 draws of a third: five standard deviations, a false alarm in a million.
    assert all(abs(first[label] - 1000) < 130 for label in labels)
    assert all(sorted(shuffled(labels, ballot)) == sorted(labels) for ballot in range(20))


def test_what_a_ballot_sees_does_not_depend_on_the_order_in_which_candidates_came() -> None:
    labels = labels_of([b"a", b"b", b"c"])
    for ballot in range(10):
        seen = {tuple(shuffled(order, ballot)) for order in permutations(labels)}
        assert len(seen) == 1


@pytest.mark.parametrize(
    ("votes", "copies", "leader"),
    [
        ({"A": 1, "B": 2, "C": 0}, (5, 1, 9), 1),
        ({"A": 1, "B": 1, "C": 1}, (1, 2, 1), 1),
        ({"A": 1, "B": 1, "C": 1}, (1, 1, 1), 0),
        ({"C": 1, "B": 1}, (9, 2, 2), 1),
    ],
)
def test_a_tie_goes_to_the_candidate_that_most_samples_gave_then_to_the_first_launched(
    votes: dict[str, int], copies: tuple[int, ...], leader: int
) -> None:
    assert leader_of(votes, ["A", "B", "C"], copies) == leader


def test_a_label_counts_however_a_model_spells_it() -> None:
    assert Choice(choice=" abcd ").vote() == Choice(choice="ABCD").vote()
