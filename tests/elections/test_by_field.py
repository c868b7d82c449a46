"""Votes by field: each field of a row over the same samples, until all are decided at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from math import log
from random import Random
from typing import Annotated, Any

import pytest

from microagents import Call, Model, Prompt, Reply, Result, RowTask, Sample, Unvoted, run
from microagents.base.errors import InvalidDefinition
from microagents.base.messages import address_of
from microagents.elections.count import Count
from microagents.elections.election import Ballot, ElectionId, Question, SampleFacts, Verdict
from microagents.elections.rules import ByField, Certain, FirstToAheadBy, PortableRule
from microagents.replies.chat import Sampling, Usage
from microagents.replies.disagreements import open_votes
from microagents.replies.masses import Mass
from microagents.replies.reply_forms import encode_reply, fingerprint


class Place(Reply, frozen=True):
    street: str
    city: str
    note: Annotated[str, Unvoted] = ""


class Span(Reply, frozen=True):
    first: int
    last: int

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError("the last is before the first")


BY_FIELD = ByField(FirstToAheadBy(2), (("street",), ("city",)))


def counted(
    replies: Sequence[Place | Span], rule: PortableRule = BY_FIELD, masses: Sequence[float] = (), max_draws: int = 100
) -> Verdict:
    """Count replies in launch order, at most until the election is over."""
    kind = type(replies[0])
    question = Question(
        prompts=(Prompt(user="?"),),
        reply=address_of(kind),
        form=fingerprint(kind),
        rule=rule,
        sampling=Sampling(),
        models=("sim:perfect",),
        max_draws=max_draws,
    )
    count = Count(ElectionId(path="0/step/1", question_digest=b"0" * 16), question)
    for seq, reply in enumerate(replies):
        assert not count.is_over
        mass = Mass(text=bytes([seq]), log=log(masses[seq]), law="draw", branch=None) if masses else None
        count.add(Ballot(seq=seq, value=encode_reply(reply), facts=SampleFacts(mass=mass)))
    return count.verdict()


def place(street: str, city: str, note: str = "") -> Place:
    return Place(street=street, city=city, note=note)


SCATTERED = [
    *[place("A", "x", "one"), place("b", "Y", "two"), place("A", "z")],
    *[place("c", "Y"), place("A", "w"), place("d", "Y")],
]


def test_a_row_is_decided_once_all_its_fields_lead_at_the_same_time() -> None:
    replies = [place("A", "x"), place("A", "Y"), place("b", "Y"), place("A", "Y")]
    assert [counted(replies[:votes]).outcome for votes in range(1, 5)] == [*["undecided"] * 3, "decided"]
    assert counted(replies).winner == b'{"street":"A","city":"Y","note":""}'


def test_a_row_that_no_sample_gave_has_the_fields_that_lead_and_its_prose_from_the_nearest_sample() -> None:
    verdict = counted(SCATTERED)
    assert (verdict.outcome, verdict.winner) == ("decided", b'{"street":"A","city":"Y","note":"one"}')
    assert verdict.leader is not None
    assert verdict.tally[verdict.leader][1] == 0


def test_fields_that_belong_together_are_one_part_of_the_vote() -> None:
    verdict = counted(SCATTERED, ByField(FirstToAheadBy(2), (("street", "city"),)))
    assert (verdict.outcome, verdict.open_fields) == ("undecided", (("street", "city"),))


def test_fields_of_several_samples_that_do_not_fit_together_win_nothing() -> None:
    rule = ByField(FirstToAheadBy(2), (("first",), ("last",)))
    pairs = [(9, 10), (1, 2), (9, 11), (0, 2), (9, 12), (-1, 2)]
    verdict = counted([Span(first=first, last=last) for first, last in pairs], rule)
    assert (verdict.outcome, verdict.open_fields) == ("undecided", ())


def test_masses_of_all_texts_with_a_value_certify_it() -> None:
    rule = ByField(Certain(FirstToAheadBy(9)), (("street",), ("city",)))
    alone = counted([place("A", "Y")], rule, masses=[0.9])
    assert alone.outcome == "decided"
    assert alone.probability == pytest.approx(0.9, abs=1e-5)
    replies = [place("A", "x"), place("A", "Y"), place("b", "Y")]
    assert counted(replies, rule, masses=[0.2, 0.45, 0.05]).open_fields == (("city",),)
    assert counted(replies, rule, masses=[0.15, 0.5, 0.15]).winner == b'{"street":"A","city":"Y","note":""}'


class Fields(Reply, frozen=True):
    a: int
    b: int
    c: int
    d: int
    e: int
    f: int
    g: int
    h: int


class Fill(RowTask[Fields]):
    format = "json"

    def prompt(self, row: dict[str, object]) -> Prompt:
        return Prompt(user=f"Row {row['n']}")


class FillWhole(Fill):
    vote_by = "row"


class FillTogether(Fill):
    together = (("a", "z"),)


class FillChecked(Fill):
    def flag(self, row: dict[str, object], reply: Fields) -> str | None:  # noqa: ARG002 - as tasks have it
        return "all_right" if not any(getattr(reply, name) for name in "abcdefgh") else None


class PerField(Model):
    """Gives each field right, as 0, in a share of the samples."""

    answers_at_once = True
    throttled_as = None

    def __init__(self, right: float) -> None:
        self._right = right

    async def complete(self, call: Call) -> Sample:
        rng = Random(f"{call.prompt.user.partition(chr(10))[0]}/{call.id.seq}")
        fields = {name: 0 if rng.random() < self._right else rng.randrange(1, 5) for name in "abcdefgh"}
        return Sample(text=json.dumps(fields), usage=Usage(input_tokens=1, output_tokens=1))


async def filled(task: type[Fill], right: float = 0.8, rows: int = 40) -> Result[Any]:
    return await run(
        task.rows([{"n": number} for number in range(rows)]), models=PerField(right), on_undecided="leader"
    )


@pytest.mark.slow
async def test_votes_by_field_take_a_fraction_of_the_votes_on_whole_rows() -> None:
    by_field, whole = await filled(Fill), await filled(FillWhole)
    assert sum(any(row.values()) for row in by_field.value if row is not None) == 0
    assert 2 * by_field.calls < whole.calls
    assert by_field.account.composed > 0
    assert f"{by_field.account.composed} composed of the fields of several samples" in str(by_field)
    assert f"{by_field.account.outvoted} samples outvoted in some field" in str(by_field)
    assert whole.account.composed == whole.account.fields == 0


async def test_a_composed_row_must_pass_the_flag_of_its_task() -> None:
    result = await filled(FillChecked, rows=3)
    assert all(any(row.values()) for row in result.value if row is not None)


async def test_fields_that_vote_together_must_be_fields_of_the_reply() -> None:
    with pytest.raises(InvalidDefinition, match="'z' is none, or is there twice; voted are a, b, c, d, e, f, g, h"):
        await filled(FillTogether)


async def test_an_open_row_says_which_fields_are_open_with_their_votes() -> None:
    result = await run(Fill.rows([{"n": 1}]), models=PerField(0.5), strategy="maker", max_draws=4)
    (failed,) = result.failed_inputs or ()
    assert failed.outcome == "undecided"
    assert failed.reason is not None
    assert "open: " in failed.reason
    assert " x 0" in failed.reason


def test_open_values_are_written_as_json_and_those_that_look_alike_by_their_code_points() -> None:
    class Town(Reply, frozen=True):
        name: str
        area: Decimal

    tally = [(Town(name="Paris", area=Decimal("1.5")), 2), (Town(name="P\u0430ris", area=Decimal(2)), 1)]
    said = open_votes(tally, [("name",), ("area",)])
    assert said == r'open: name (2 x "Paris", 1 x "P\u0430ris"), area (2 x "1.5", 1 x "2")'


async def test_an_open_row_without_a_valid_reply_says_so() -> None:
    async def unformed(_: Call) -> str:
        return "I do not know."

    result = await run(Fill.rows([{"n": 1}]), models=unformed, strategy="maker", max_draws=4)
    (failed,) = result.failed_inputs or ()
    assert "after 4 draws (no valid reply; 4 flagged" in str(failed.reason)


def test_the_leader_of_an_open_row_has_the_most_frequent_value_of_each_field() -> None:
    verdict = counted([*SCATTERED[:3], place("c", "Y")])
    assert (verdict.outcome, verdict.winner) == ("undecided", b'{"street":"A","city":"Y","note":"one"}')
    spans = [Span(first=9, last=10), Span(first=1, last=2), Span(first=9, last=11), Span(first=0, last=2)]
    rule = ByField(FirstToAheadBy(3), (("first",), ("last",)))
    assert counted(spans, rule).winner == b'{"first":9,"last":10}'
