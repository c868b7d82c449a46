"""Stop rules and tallies, against a reference that counts everything again from the start after every vote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from microagents.base.errors import InvalidUsage
from microagents.elections.election import total_usd
from microagents.elections.panels import Majority
from microagents.elections.rules import Certify, FirstTo, FirstToAheadBy, FirstValid, Rule, Tally
from tests.benchmarks.stopping import wealth

Voted = FirstToAheadBy | FirstTo | Certify

Votes = Sequence[Hashable]

CANDIDATES: Votes = (None, "left", ("right", 2), 0)
"""Any hashable value may be a vote, None included."""

margins = st.integers(1, 6)
ahead_by = st.builds(FirstToAheadBy, k=margins)
first_to = st.builds(FirstTo, k=margins, at_most=st.none() | st.integers(1, 12))
certify = st.builds(Certify, level=st.floats(0.001, 0.4))
rules: st.SearchStrategy[Voted] = st.one_of(ahead_by, first_to, certify)
ballots = st.lists(st.sampled_from(CANDIDATES), max_size=40)


def counted(rule: Rule, votes: Votes) -> Tally:
    """The tally of these votes, whether or not they decide before the last."""
    tally = Tally(rule)
    for vote in votes:
        tally.count(vote)
    return tally


def leader_of(tally: Tally) -> Hashable:
    """The candidate at the leader's place; None before the first vote."""
    return None if tally.leader is None else list(tally.counts)[tally.leader]


def outcome_by_recount(rule: Voted, votes: Votes) -> str | None:
    """What the rule says of these votes, from its definition alone."""
    leader, second = [*(n for _, n in Counter(votes).most_common(2)), 0, 0][:2]
    if isinstance(rule, FirstToAheadBy):
        return "decided" if leader - second >= rule.k else None
    if isinstance(rule, Certify):
        return "decided" if wealth(leader, second) >= 1 / rule.level else None
    if leader >= rule.k:
        return "decided"
    return "argmax" if rule.at_most is not None and len(votes) >= rule.at_most else None


def votes_to_the_end(rule: Voted, votes: Votes) -> Votes:
    """The prefix at which an election ends that counts one vote after the other."""
    for n in range(len(votes) + 1):
        if outcome_by_recount(rule, votes[:n]) is not None:
            return votes[:n]
    return votes


# -- against the reference ---------------------------------------------------------------------------------------------


@given(rules, ballots)
@example(FirstToAheadBy(k=1), [None, "left", "left", None, None])
def test_a_tally_agrees_with_a_recount_from_scratch_after_every_vote(rule: Voted, votes: Votes) -> None:
    tally = Tally(rule)
    for n, vote in enumerate(votes, start=1):
        tally.count(vote)
        so_far = votes[:n]
        assert tally.counts == Counter(so_far)
        assert tally.counted == n
        assert list(tally.counts) == list(dict.fromkeys(so_far))
        assert tally.outcome == outcome_by_recount(rule, so_far)
        assert (tally.votes_needed == 0) == (tally.outcome is not None)
        assert leader_of(tally) == next(c for c in so_far if so_far.count(c) == max(Counter(so_far).values()))


# -- what is compared ---------------------------------------------------------------------------------------------------


def test_costs_are_summed_without_the_noise_of_sums() -> None:
    assert total_usd([0.1, 0.2]) == 0.3
    assert total_usd([2096 * 0.4 / 1e6]) == 0.0008384


def test_numbers_far_beyond_the_digits_of_a_float_are_different_candidates() -> None:
    product = 9_876_543_210 * 9_876_543_211
    votes = [product, product + 7, Decimal("1.1"), Decimal("1.10")]
    assert list(counted(FirstTo(9), votes).counts.values()) == [1, 1, 2]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "said"),
    [
        *[(partial(rule, k), f"k must be at least 1, not {k}") for k in (0, -1) for rule in (FirstToAheadBy, FirstTo)],
        *[(partial(FirstTo, 3, at_most), "at_most must be at least 1") for at_most in (0, -1)],
        *[(partial(Certify, level), "level must be at least 1e-09 and below 0.5") for level in (0, 0.5)],
        (partial(FirstValid, n=0), None),
    ],
)
def test_a_rule_that_can_never_decide_is_refused(build: Callable[[], object], said: str | None) -> None:
    with pytest.raises(InvalidUsage, match=said):
        build()


# -- panels --------------------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 7).map(Majority), st.data())
def test_a_panel_is_decided_as_soon_as_the_result_cannot_change(panel: Majority, data: st.DataObject) -> None:
    votes = data.draw(st.lists(st.booleans(), min_size=panel.members, max_size=panel.members))
    approved = sum(votes) >= panel.approvals_needed
    tally = Tally(panel)
    for cast, vote in enumerate(votes):
        left = panel.members - cast
        endings = {sum(votes[:cast]) + approvals >= panel.approvals_needed for approvals in range(left + 1)}
        assert (not tally.votes_needed) == (len(endings) == 1)
        assert tally.votes_needed <= left
        if not tally.votes_needed:
            break
        tally.count(vote)
    assert not tally.votes_needed
    assert (panel.winner(tally), tally.outcome) == (approved, "decided")
    assert list(tally.counts)[tally.leader or 0] is approved


@pytest.mark.parametrize(("members", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3)])
def test_the_approvals_that_a_panel_needs(members: int, needed: int) -> None:
    assert Majority(members).approvals_needed == needed
