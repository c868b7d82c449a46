"""Certainty by masses: what they decide is the mode of the law they came from, and what they cannot decide is left to the votes."""

from __future__ import annotations

from collections import Counter
from math import inf, log, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microagents.elections.certainty import FALSE_ALARM, FLAGGED, MassAudit, SeenMasses, audited_of, is_audited
from microagents.elections.count import Count
from microagents.elections.election import Ballot, Flagged, Question, SampleFacts
from microagents.elections.rules import (
    Certain,
    FirstTo,
    FirstToAheadBy,
    FirstValid,
    PortableRule,
    Unanimity,
    UntilImprobable,
    certain,
    without_doubt,
)
from microagents.replies.masses import LawOfMass, Mass, digest_of_text
from tests.roles.voting import a_question

Law = dict[str, float]
"""Texts with their probability. The vote of a text is its first letter; one that begins with a dot is flagged."""
PATH = "0/q/78"
"""A path whose election is not audited."""
weights = st.lists(st.integers(1, 1000), min_size=1, max_size=6)


def mass(text: str, p: float, law: LawOfMass = "draw", branch: float | None = None) -> Mass:
    return Mass(log=log(p), text=digest_of_text(text), law=law, branch=None if branch is None else log(branch))


def seen(
    *told: tuple[str, float], law: LawOfMass = "draw", margin: float = 0.0, branches: float | None = None
) -> SeenMasses:
    """What was seen of one model and prompt."""
    found = SeenMasses(margin, by_branches=branches is not None)
    for text, p in told:
        found.add(0, 1.0, vote_of(text), mass(text, p, law, branches))
    return found


def winner(found: SeenMasses) -> object:
    return None if found.certain is None else found.certain[0]


def vote_of(text: str) -> object:
    return FLAGGED if text.startswith(".") else text[0]


def modes(law: Law) -> set[str]:
    votes = Counter[str]()
    for text, p in law.items():
        if not text.startswith("."):
            votes[text[0]] += p  # type: ignore[assignment]
    return {vote for vote, p in votes.items() if p >= max(votes.values()) - 1e-12}


def drawn(law: Law, seed: int, n: int) -> list[tuple[str, float]]:
    texts = Random(seed).choices(list(law), list(law.values()), k=n)
    return [(text, law[text]) for text in texts]


@st.composite
def laws(draw: st.DrawFn) -> Law:
    """A law of up to six texts of three votes and flags, and of what is never drawn."""
    names = ["a1", "a2", "b1", "b2", "c1", ".1"]
    found = draw(weights)
    total = sum(found) + draw(st.integers(0, 300))
    return {name: weight / total for name, weight in zip(names, found, strict=False)}


# -- what is certain is the mode -----------------------------------------------------------------------------------------------------


@given(laws(), st.integers(0, 1 << 30))
def test_a_certain_vote_is_the_one_that_the_law_casts_most_often(law: Law, seed: int) -> None:
    found = seen(*drawn(law, seed, 12)).certain
    if found is not None:
        rest = 1 - sum(law.values())
        votes = {text[0]: sum(p for other, p in law.items() if other[0] == text[0]) for text in law if text[0] != "."}
        assert found[0] in modes(law)
        assert votes[str(found[0])] > rest - 1e-5  # what was never seen is no likelier
        assert found[1] <= votes[str(found[0])] + 1e-9


@given(laws(), laws(), st.integers(0, 1 << 30))
def test_the_masses_of_a_pool_are_those_of_the_mixture(one: Law, other: Law, seed: int) -> None:
    found = SeenMasses(0.0, by_branches=False)
    for pair in zip(drawn(one, seed, 8), drawn(other, seed + 1, 8), strict=True):
        for part, (text, p) in enumerate(pair):
            found.add(part, 0.5, vote_of(text), mass(text, p))
    if found.certain is not None:
        mixed = {text: (one.get(text, 0) + other.get(text, 0)) / 2 for text in {**one, **other}}
        assert found.certain[0] in modes(mixed)


@pytest.mark.parametrize(
    ("told", "options", "decided"),
    [
        ([("a1", 0.6)], {}, "a"),
        ([("a1", 0.5)], {}, None),
        ([("a1", 0.52)], {"margin": 0.05}, None),
        ([("a1", 0.53)], {"margin": 0.05}, "a"),
        ([("a1", 0.3), ("a2", 0.25)], {}, "a"),
        ([("a1", 0.3), ("a1", 0.3)], {}, None),
        ([("a1", 0.4), ("b1", 0.3), ("c1", 0.25)], {}, "a"),
        ([(".1", 0.7), ("a1", 0.2)], {}, "a"),
        ([(".1", 0.9)], {}, None),
        ([("a1", 0.4), ("a1", 0.6)], {}, None),
        ([("a1", 0.6)], {"law": "model"}, "a"),
        ([("a1", 0.3)], {"branches": 0.2}, "a"),
        ([("a1", 0.3)], {"branches": 0.2, "margin": 0.1}, None),
        ([("a1", 0.3)], {}, None),
    ],
)
def test_what_masses_decide(told: list[tuple[str, float]], options: dict[str, object], decided: str | None) -> None:
    assert winner(seen(*told, **options)) == decided  # type: ignore[arg-type]


@pytest.mark.parametrize("logarithm", [nan, 0.1, inf])
def test_a_mass_that_cannot_be_right_is_none(logarithm: float) -> None:
    found = seen(("b1", 0.2))
    found.add(0, 1.0, "a", Mass(log=logarithm, text=b"a"))
    first = SeenMasses(0.0, by_branches=True)
    first.add(0, 1.0, "a", Mass(log=logarithm, text=b"a", branch=logarithm))
    assert (found.certain, first.certain) == (None, None)
    found.add(0, 1.0, "b", mass("b2", 0.9))  # above 1 together
    assert found.certain is None


def test_a_text_below_one_half_by_the_law_of_one_model_says_nothing_of_its_colder_draws() -> None:
    found = SeenMasses(0.0, by_branches=False)
    found.add(0, 0.5, "a", mass("a1", 0.4, "model"))
    found.add(1, 0.5, "a", mass("a1", 0.9, "model"))
    assert winner(found) is None
    found.add(0, 0.5, "a", mass("a2", 0.55, "model"))
    assert winner(found) == "a"


def test_two_models_never_have_more_than_one_together() -> None:
    found = SeenMasses(0.0, by_branches=True)
    found.add(0, 0.5, "a", mass("a1", 0.99, branch=0.001))
    assert winner(found) is None
    found.add(1, 0.5, "b", mass("b1", 0.98, branch=0.001))
    assert winner(found) is None
    found.add(1, 0.5, "a", mass("a1", 0.02, branch=0.98))
    assert winner(found) == "a"
    assert (found.certain or ("", 0.0))[1] == pytest.approx(0.505, abs=1e-5)


# -- the rule ------------------------------------------------------------------------------------------------------------------------


def count(question: Question, *replies: tuple[str, Mass | None], path: str = PATH) -> Count:
    found = Count(question.id_at(path), question)
    for seq, (text, told) in enumerate(replies):
        if text.startswith("."):
            found.add(Flagged(seq=seq, flag="malformed", facts=SampleFacts(mass=told)))
        else:
            found.add(
                Ballot(seq=seq, value=b'{"word":"%b","remark":""}' % text[0].encode(), facts=SampleFacts(mass=told))
            )
    return found


def test_one_vote_is_enough_for_a_certain_reply_and_else_the_other_rule_says() -> None:
    question = a_question(Certain(FirstToAheadBy(3)))
    likely = count(question, ("a", mass("a1", 0.9)))
    assert (likely.tally.votes_needed, likely.tally.outcome) == (0, "decided")
    assert likely.verdict().probability == pytest.approx(0.9, abs=1e-5)
    needed = [count(question, *[("a", None)] * n).tally.votes_needed for n in range(4)]
    assert needed == [1, 2, 1, 0]
    voted = count(question, *[("a", None)] * 3).verdict()
    assert (voted.outcome, voted.probability) == ("decided", None)
    assert count(question, ("b", None), ("a", mass("a1", 0.9))).verdict().leader == 1
    assert count(question, ("a", mass("a1", 0.3)), (".", mass(".", 0.65))).tally.votes_needed == 0


def test_the_masses_of_an_audited_election_are_tested_and_its_votes_decide() -> None:
    question, sure = a_question(Certain(FirstToAheadBy(3))), mass("a1", 0.99)
    audited = count(question, ("a", sure), ("b", mass("b1", 0.005)), ("a", sure), path="0/step/4")
    assert audited.tally.votes_needed == 2
    tests = audited.verdict().mass_tests
    assert [(each.model, each.repeated) for each in tests] == [("held", False), ("held", True)]
    assert [each.claimed for each in tests] == pytest.approx([0.99, 0.99], abs=1e-5)


def test_a_quarter_of_the_first_elections_is_audited_and_one_in_a_hundred_later_ones() -> None:
    for form in ("0/step/{}", "{}/answer", "{}/step/0"):
        assert sum(is_audited(form.format(n)) for n in range(80)) == pytest.approx(20, abs=10)
    assert sum(is_audited(f"{n}/answer") for n in range(40)) < 20
    assert 150 < sum(is_audited(f"3/step/{n}") for n in range(80, 20_080)) < 250
    assert [audited_of(n) for n in (40, 20_080)] == [10, 220]


def test_only_a_majority_may_be_made_certain() -> None:
    ladder = UntilImprobable(FirstToAheadBy(3), p=0.9)
    wrapped = certain(ladder, branches=True)
    assert wrapped == Certain(ladder, margin=0.8)
    assert without_doubt(wrapped) == Certain(FirstToAheadBy(3), margin=0.8)
    assert certain(FirstToAheadBy(3), branches=True) == Certain(FirstToAheadBy(3), branches=True)
    assert certain(FirstValid(2), branches=True) == FirstValid(2)
    assert count(a_question(Certain(FirstTo(2, at_most=2))), ("a", None), ("b", None)).tally.outcome == "argmax"


@pytest.mark.parametrize(
    ("rule", "likely", "unlikely"),
    [(UntilImprobable(FirstToAheadBy(3), p=0.9), 0.91, 0.89), (Unanimity(8), 0.92, 0.91)],
)
def test_a_reply_that_shows_a_hard_step_is_left_to_the_test_of_hard_steps(
    rule: PortableRule, likely: float, unlikely: float
) -> None:
    question = a_question(certain(rule, branches=False))
    outcomes = [count(question, ("a", mass("a1", p))).tally.outcome for p in (likely, unlikely)]
    assert outcomes == ["decided", None]


def test_a_step_at_which_no_reply_can_have_one_half_climbs_at_once() -> None:
    question = a_question(certain(UntilImprobable(FirstToAheadBy(3), p=0.9), branches=False))
    told = [("a", mass("a1", 0.3)), ("b", mass("b1", 0.3)), ("c", mass("c1", 0.25))]
    assert [count(question, *told[:n]).tally.outcome for n in (1, 2, 3)] == [None, None, "argmax"]
    assert count(question, *[(text, None) for text, _ in told]).tally.outcome is None


# -- the test of masses --------------------------------------------------------------------------------------------------------------


def ends_false(p: float, claimed: float, seed: int, draws: int) -> bool:
    audit, random = MassAudit(), Random(seed)
    for _ in range(draws):
        audit = audit.after(claimed, repeated=random.random() < p)
        if audit.is_false:
            return True
    return False


@pytest.mark.slow
def test_masses_that_hold_are_hardly_ever_found_false() -> None:
    # 400 sequences of a test whose false alarms are 1 in 10,000 at most: more than 2 have a chance below 2e-5.
    assert FALSE_ALARM == 1e-4
    assert sum(ends_false(p, p, seed, 500) for p in (0.55, 0.9, 0.999, 0.9999) for seed in range(100)) <= 2


def test_a_server_that_claims_too_much_is_found_within_its_audited_elections() -> None:
    # 20 elections have 40 draws after the first at k = 3.
    assert all(ends_false(0.8, 0.9999, seed, 60) for seed in range(50))
    assert all(ends_false(0.3, 0.95, seed, 60) for seed in range(50))
