"""Groups of replies that mean the same."""

from __future__ import annotations

from microagents.elections.groups import Groups


def test_a_reply_joins_the_group_that_means_the_same_or_founds_one() -> None:
    groups = Groups()
    assert groups.add("a", b"A", []) is False
    assert groups.add("b", b"B", []) is False
    assert groups.add("a2", b"A2", [b"A"]) is False
    assert (groups.of("a2"), groups.of("b"), groups.of("c")) == (b"A", b"B", None)
    assert groups.representatives == [b"A", b"B"]


def test_a_reply_that_belongs_to_two_groups_makes_them_one() -> None:
    groups = Groups()
    for vote, reply in (("a", b"A"), ("b", b"B"), ("c", b"C")):
        groups.add(vote, reply, [])
    assert groups.add("d", b"D", [b"C", b"B"]) is True
    assert [groups.of(vote) for vote in "abcd"] == [b"A", b"B", b"B", b"B"]
