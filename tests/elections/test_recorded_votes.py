"""Recorded votes of a real model, as the benchmark of stopping rules reads them."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from microagents.elections.betting import sure_votes
from tests.benchmarks import stopping
from tests.benchmarks.stopping import RULES, Recorded, ahead_by, decide, decisions, recorded, wealth

VOTES = Path(stopping.__file__).parent / "votes" / "gsm8k-gpt-4o-mini.txt"


def test_both_forms_of_recorded_votes_are_read_and_equal_lines_are_different_questions() -> None:
    line = '{"right": "12", "votes": ["12", "11"], "seconds": [1.0, 2.0]}'
    assert recorded(f"001a\n\n{line}\n001a\n") == [
        Recorded(right="0", votes=("0", "0", "1", "a")),
        Recorded(right="12", votes=("12", "11"), seconds=(1.0, 2.0)),
        Recorded(right="0", votes=("0", "0", "1", "a")),
    ]


def test_votes_on_recorded_questions_end_as_measured() -> None:
    questions = recorded(VOTES.read_text(encoding="utf-8"))
    ends = [decide(ahead_by(2), each.votes) for each in questions]
    assert len(questions) == 1_318
    assert fmean(end == "0" for end, _ in ends) == pytest.approx(0.9385, abs=5e-5)
    assert fmean(count for _, count in ends) == pytest.approx(2.56, abs=5e-3)


def test_a_test_by_betting_takes_the_votes_of_its_formula() -> None:
    for level in (0.05, 0.001):
        for rival in range(50):
            votes = sure_votes(rival, level)
            assert wealth(votes, rival) >= 1 / level > wealth(votes - 1, rival)


def test_a_certified_reply_is_the_likeliest_one_on_recorded_votes() -> None:
    questions = recorded(VOTES.read_text(encoding="utf-8"))[::8]
    found = decisions(questions, RULES["certify, .05"], orders=1)
    assert (found.not_the_mode, found.right > 0.93, found.open < 0.1) == (0, True, True)
