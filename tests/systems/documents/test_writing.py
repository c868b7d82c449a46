"""The rules of SeqCV, each point of it in every setting (arXiv: Yao et al., NeurIPS 2025, algorithms 1 and 2), without models."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from microagents.systems.documents import Ranking, ToRank, ToWrite
from microagents.systems.documents.seqcv import SeqCV
from microagents.systems.documents.writing import Answer, DocumentDraft, Missing, NothingWritten, SegmentQuestion
from microagents.systems.questions.candidates import labels_of
from tests.systems.documents.authors import NO, Authors, parts, rules, segment, write_whole, yes


def own(ask: SegmentQuestion, asked: ToWrite) -> str:
    """A text that tells its author and its round."""
    return f"{asked.subtask} by {ask.agent} in {asked.round}"


def author_of(ask: SegmentQuestion) -> int:
    """The author of the segment that a validation judges."""
    return int(ask.at.split("/")[-2])


def outcomes(writing: DocumentDraft, at: str = "write") -> list[list[str]]:
    return [[draft.outcome for draft in drafts] for drafts in writing.records[at].rounds]


# -- votes ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agents", "approvals", "passes"),
    [(3, 2, True), (3, 1, False), (4, 2, False), (4, 3, True), (2, 1, False), (2, 2, True)],
)
def test_a_segment_passes_with_the_approvals_of_more_than_half(agents: int, approvals: int, *, passes: bool) -> None:
    authors = Authors(validate=lambda ask, _: yes((ask.agent or 0) < approvals))
    writing = write_whole(authors, rules(agents, depth=0, rounds=1))
    assert set(outcomes(writing)[0]) == ({"passed"} if passes else {"failed", "forced"})
    assert writing.records["write"].agreed is passes


# -- rounds --------------------------------------------------------------------------------------------------------------------------


def test_an_agent_that_is_never_complete_is_ranked_only_if_nobody_is_and_then_the_text_is_marked() -> None:
    only_first = Authors(write=lambda ask, asked: segment(own(ask, asked), "ongoing" if ask.agent else "complete"))
    writing = write_whole(only_first, rules(3, rounds=4))
    assert len(writing.records["write"].rounds) == 4
    assert (writing.records["write"].author, writing.records["write"].complete) == (0, True)
    assert not only_first.asked_at("rank")
    nobody = Authors(write=lambda ask, asked: segment(own(ask, asked), "ongoing"))
    writing = write_whole(nobody, rules(3, rounds=2))
    assert not writing.records["write"].complete
    assert len(nobody.asked_at("rank")) == 3


def test_override_replaces_the_agents_own_text_of_this_subtask_only() -> None:
    given = parts("first", "second").subtasks
    authors = Authors(
        write=lambda ask, asked: segment(
            own(ask, asked), "complete" if asked.round == 2 else "ongoing", "override" if ask.agent == 0 else "continue"
        )
    )
    writing = write_whole(authors, rules(1), given)
    assert writing.text() == "first by 0 in 2\n\nsecond by 0 in 2\n"


# -- splits --------------------------------------------------------------------------------------------------------------------------


def test_at_the_depth_limit_the_segment_with_most_approvals_is_taken_and_marked() -> None:
    votes = {0: 0, 1: 1, 2: 1}
    authors = Authors(
        write=lambda ask, asked: segment(own(ask, asked), "complete" if asked.round == 2 else "ongoing"),
        validate=lambda ask, _: yes((ask.agent or 0) < votes[author_of(ask)]),
    )
    writing = write_whole(authors, rules(3, depth=0, rounds=2))
    record = writing.records["write"]
    assert outcomes(writing) == [["failed", "forced", "failed"], ["failed", "forced", "failed"]]
    assert (record.text, record.agreed, record.complete) == ("whole by 1 in 1\nwhole by 1 in 2", False, True)


def test_splits_are_proposed_again_until_one_has_no_fault_and_without_one_the_best_segment_is_taken() -> None:
    proposals = iter(list[Answer]([parts("only one"), Missing.FLAGGED, parts("x", "y")]))
    split_at_last = Authors(validate=lambda ask, _: yes("part" in ask.at), split=lambda *_: next(proposals))
    writing = write_whole(split_at_last, rules(3, rounds=1))
    assert [record.objective for record in writing.in_order] == ["x", "y"]
    assert writing.records["write"].refused_splits == ["the subtasks are 1, which is no split"]
    never = Authors(validate=lambda *_: NO, split=lambda *_: parts("whole", "y"))
    writing = write_whole(never, rules(3, rounds=1))
    assert (writing.records["write"].state, writing.records["write"].agreed) == ("done", False)
    assert len(never.asked_at("split")) == 3


# -- ranking -------------------------------------------------------------------------------------------------------------------------

TEXTS = [f"whole by {agent} in 1" for agent in range(4)]
LABELS = labels_of([text.encode() for text in TEXTS])


def different(rank: Mapping[int | None, tuple[int, int]]) -> Authors:
    """Authors with different texts, who rank these two versions best."""
    return Authors(
        write=lambda ask, asked: segment(own(ask, asked)),
        rank=lambda ask, _: Ranking(reason="", best=LABELS[rank[ask.agent][0]], second=LABELS[rank[ask.agent][1]]),
    )


@pytest.mark.parametrize(
    ("ranks", "best"),
    [
        ({0: (1, 2), 1: (2, 0), 2: (1, 0)}, 1),
        ({0: (2, 1), 1: (2, 0), 2: (0, 1)}, 2),
        ({0: (1, 2), 1: (2, 0), 2: (0, 1)}, 0),
        ({0: (1, 2), 1: (0, 2), 2: (3, 1), 3: (0, 2)}, 0),
        ({0: (1, 2), 1: (0, 2), 2: (1, 0), 3: (2, 0)}, 1),
    ],
)
def test_points_for_places_and_ties_by_first_places(ranks: Mapping[int | None, tuple[int, int]], best: int) -> None:
    authors = different(ranks)
    writing = write_whole(authors, rules(len(ranks)))
    assert writing.records["write"].author == best
    for ask in authors.asked_at("rank"):
        assert isinstance(ask.asked, ToRank)
        assert LABELS[ask.agent or 0] not in [each.label for each in ask.asked.versions], "nobody ranks its own version"


def test_versions_are_shown_in_another_order_to_each_ranker() -> None:
    authors = different({0: (3, 2), 1: (3, 2), 2: (3, 1), 3: (2, 1)})
    write_whole(authors, rules(4))
    orders = {
        tuple(each.label for each in ask.asked.versions)
        for ask in authors.asked_at("rank")
        if isinstance(ask.asked, ToRank)
    }
    assert len(orders) == 4
    assert any(list(each) != sorted(each) for each in orders)


def test_equal_versions_are_not_ranked_and_missing_rankings_count_for_nothing() -> None:
    authors = Authors()
    write_whole(authors, rules(3))
    assert not authors.asked_at("rank")
    unranked = Authors(write=lambda ask, asked: segment(own(ask, asked)), rank=lambda *_: Missing.FLAGGED)
    assert write_whole(unranked, rules(3)).records["write"].author == 0


# -- the graph -----------------------------------------------------------------------------------------------------------------------


def test_nobody_who_writes_anything_valid_is_an_end_of_its_own() -> None:
    with pytest.raises(NothingWritten):
        write_whole(Authors(write=lambda *_: Missing.FLAGGED), rules(3, depth=0, rounds=2))


def test_an_absent_agent_is_left_out_until_the_subtask_ends() -> None:
    authors = Authors(
        write=lambda ask, asked: (
            Missing.ABSENT
            if (ask.agent, asked.subtask) == (1, "a")
            else segment(f"{asked.subtask}.", "complete" if asked.round == 2 else "ongoing")
        )
    )
    writing = write_whole(authors, rules(3), parts("a", "b").subtasks)
    assert outcomes(writing, "write/part/1") == [["passed", "absent", "passed"], ["passed", "passed"]]
    assert outcomes(writing, "write/part/2")[0] == ["passed"] * 3
    assert not [ask for ask in authors.asked_at("part/1/round/1/check") if ask.agent == 1]


# -- what attacks found --------------------------------------------------------------------------------------------------------------


def test_a_split_that_failed_is_not_proposed_again_in_later_rounds() -> None:
    authors = Authors(
        write=lambda ask, asked: segment(own(ask, asked), "complete" if asked.round == 3 else "ongoing"),
        validate=lambda *_: NO,
        split=lambda *_: parts("only one"),
    )
    writing = write_whole(authors, rules(3, rounds=3))
    assert [ask.at for ask in authors.asked_at("split")] == [f"write/split/{number}" for number in (1, 2, 3)]
    assert outcomes(writing)[2].count("forced") == 1


@pytest.mark.parametrize(("agents", "quorum"), [(2, 2), (3, 2), (5, 3)])
def test_so_many_agents_must_answer_that_enough_segments_can_pass(agents: int, quorum: int) -> None:
    authors = Authors()
    write_whole(authors, rules(agents))
    assert [turn.quorum for turn in authors.turns] == [quorum, quorum]


class ShortWindow(SeqCV):
    """Little finished text goes into a prompt, and only that of direct parents."""

    sees = "parents"

    @property
    def context_tokens(self) -> int | None:
        return 7


def test_which_texts_are_summarized_does_not_depend_on_what_others_asked_for() -> None:
    given = parts("a" * 15, "b" * 15, "c", "d", depends_on=[(), (), (0, 1), (0,)]).subtasks
    authors = Authors()
    write_whole(authors, rules(3, ShortWindow), given)
    seen = {ask.asked.subtask: ask.asked.finished for ask in authors.asked if isinstance(ask.asked, ToWrite)}
    assert (seen["c"], seen["d"]) == (f"shorter\n\n{'b' * 15}.", f"{'a' * 15}.")
