"""What is asked of a model, and how its replies are compared."""

from __future__ import annotations

import re
from decimal import Decimal
from enum import IntEnum
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct

from microagents.base.errors import InvalidDefinition
from microagents.replies.chat import Prompt, Sampling
from microagents.replies.parsing import parse
from microagents.replies.reply import Reply, vote_of
from microagents.replies.reply_fields import Unvoted
from microagents.replies.reply_forms import Format, fingerprint, instructions, write
from tests.replies.classes import (
    Anything,
    Argued,
    Choice,
    Everything,
    Exact,
    Grid,
    HanoiMove,
    Pair,
    Priced,
    Real,
    Renamed,
    Text,
    Whole,
    answer,
    both_forms,
    integers,
    replies,
)

# -- one definition for what is asked and what is read -----------------------------------------------------------------


@pytest.mark.slow
@both_forms
@settings(max_examples=30)
@given(reply=replies)
@example(reply=Text(x='x = 1\n"x" = 2, [3]\n```\n}'))
def test_a_reply_that_is_written_as_asked_is_read_as_it_was(reply: Reply, form: Format) -> None:
    written = write(reply, form)
    assert parse(written, type(reply), form) == reply
    assert parse(f"First {{a}} step: x = 3.\n\n```\n{written}\n```\n", type(reply), form) == reply


BLANKS = {
    "<integer>": "7",
    "<decimal number>": "1.10",
    "<number>": "0.5",
    '"<text>"': '"some, text"',
    '"<key>"': '"key"',
    "true or false": "true",
    '3 or "left" or "right, or = [both]"': '"left"',
    '"left" or "right, or = [both]"': '"left"',
    '"red, bright" or "blue"': '"blue"',
    "7 or null": "null",
    "null or 7": "null",
    '{"type": "Add", "amount": 7} or {"type": "Take", "amount": 7}': '{"type": "Take", "amount": 7}',
    "<any JSON value>": "[null]",
    ", ...": "",
}
"""Every blank of the forms above, and something to fill it with; in this order."""


@both_forms
@pytest.mark.parametrize(
    "reply", [Whole, Exact, Real, Text, Anything, Grid, Pair, Choice, HanoiMove, Everything, Renamed, Argued]
)
def test_the_instructions_with_their_blanks_filled_in_are_a_reply(reply: type[Reply], form: Format) -> None:
    body = instructions(reply, form).split("\n\n")[1]
    for blank, filling in BLANKS.items():
        body = body.replace(blank, filling)
    assert not re.search("<| or (?!=)", body)
    assert isinstance(parse(body, reply, form), reply)


@both_forms
def test_descriptions_and_defaults_are_told_and_stand_behind_the_form(form: Format) -> None:
    assert instructions(Argued, form).endswith("- why: one sentence")
    assert instructions(Renamed, form).endswith("- leftOut: may be left out")
    assert parse('{"firstDisk": 2}' if form == "json" else "firstDisk = 2", Renamed, form) == Renamed(first_disk=2)


def test_only_the_first_sample_is_drawn_at_temperature_zero() -> None:
    assert [Sampling().temperature_of(seq) for seq in range(3)] == [0.0, 0.1, 0.1]
    assert Prompt(user="x").system == ""


# -- votes -------------------------------------------------------------------------------------------------------------


@both_forms
def test_products_that_floats_cannot_tell_apart_are_different_votes(form: Format) -> None:
    product = 9_876_543_210 * 9_876_543_211
    assert float(product) == float(product + 7)
    for reply in (Whole, Exact, Anything):
        one, other = (parse(answer(str(value), form), reply, form).vote() for value in (product, product + 7))
        assert one != other


def test_every_field_that_is_voted_on_counts_and_no_other() -> None:
    one, other = Argued(answer=[1, 2], why="a"), Argued(answer=[1, 2], why="b")
    assert one != other
    assert one.vote() == other.vote()
    assert one.vote() != Argued(answer=[2, 1], why="a").vote()
    right = HanoiMove(state=(1, 0, 2), next_state=[[3], [], [1]])
    assert right.vote() != HanoiMove(state=(1, 0, 2), next_state=[[3], [1], []]).vote()
    assert right.vote() != HanoiMove(state=(1, 2, 0), next_state=[[3], [], [1]]).vote()


@given(st.one_of(replies, st.builds(Anything, x=st.recursive(st.none() | integers, lambda x: st.lists(x, max_size=3)))))
def test_equal_replies_cast_equal_votes_that_have_a_hash(reply: Reply) -> None:
    again = msgspec.json.decode(msgspec.json.encode(reply), type=type(reply))
    assert again.vote() == reply.vote()
    assert hash(again.vote()) == hash(reply.vote())


def test_the_order_of_keys_and_the_form_of_decimals_in_lists_are_no_part_of_a_vote() -> None:
    keys = [parse(answer(value, "json"), Anything, "json") for value in ('{"a": [1], "b": 2}', '{"b": 2, "a": [1]}')]
    decimals = [Priced(x=[Decimal("1.10")]), Priced(x=[Decimal("1.1")])]
    for one, other in (keys, decimals):
        assert one.vote() == other.vote()
        assert hash(one.vote()) == hash(other.vote())


class Mixed(Reply, frozen=True):
    x: int | bool | float


class Nested(Reply, frozen=True):
    passes: bool
    x: list[dict[str, int | bool]] | None


class Part(Struct, frozen=True):
    x: Any


class Parts(Reply, frozen=True):
    x: tuple[Part, ...]


class Level(IntEnum):
    LOW = 1


class Levels(Reply, frozen=True):
    x: Level | bool


@both_forms
@pytest.mark.parametrize(
    ("reply", "different"),
    [
        (Mixed, ["1", "true", "1.0", "0", "false", "0.0"]),
        (Anything, ["1", "true", "1.0", "[1]", "[true]", "[1.0]", '{"a": 1}', '{"a": true}', '{"a": [1.0]}']),
        (Parts, ['[{"x": 1}]', '[{"x": true}]', '[{"x": 1.0}]', '[{"x": [1]}]', '[{"x": [true]}]']),
        (Levels, ["1", "true"]),
    ],
)
def test_equal_numbers_of_different_types_are_different_votes_where_the_type_tells_them_apart(
    reply: type[Reply], different: list[str], form: Format
) -> None:
    votes = [parse(answer(value, form), reply, form).vote() for value in different * 2]
    assert len(set(votes)) == len(different)
    assert votes[: len(different)] == votes[len(different) :]


def test_numbers_are_one_vote_where_the_type_does_not_tell_them_apart() -> None:
    one, other = (parse(f"x = {value}", Real) for value in ("1", "1.0"))
    assert one.vote() == other.vote() == 1.0, "a plain number, for the rules of users"
    nested = [parse(f"passes = true\nx = {value}", Nested).vote() for value in ('[{"a": 1}]', '[{"a": true}]')]
    assert nested[0] != nested[1]
    assert [vote[0] for vote in nested if isinstance(vote, tuple)] == [True, True]


def test_a_reply_that_is_a_list_is_refused_when_it_is_defined() -> None:
    with pytest.raises(InvalidDefinition, match="Listed is array_like"):

        class Listed(Reply, frozen=True, array_like=True):
            x: int

    class Listing(Struct, frozen=True, array_like=True):
        pass

    with pytest.raises(InvalidDefinition, match="Heir is array_like"):

        class Heir(Listing, Reply, frozen=True):
            x: int


class Unvotable(Reply, frozen=True):
    """Nothing to vote on."""

    why: Annotated[str, Unvoted]


class Rounded(Reply, frozen=True):
    x: float

    def vote(self) -> int:
        return round(self.x)


def test_a_reply_without_a_field_to_vote_on_is_refused_unless_it_says_how() -> None:
    with pytest.raises(InvalidDefinition, match=r"not Unvoted to .*Unvotable, or override vote"):
        Unvotable(why="a").vote()
    assert Rounded(x=2.2).vote() == Rounded(x=1.9).vote()


def test_two_classes_differ_in_their_fingerprint_by_bounds_and_by_what_is_voted_on() -> None:
    class Low(Reply, frozen=True):
        x: Annotated[int, Meta(le=3)]

    class High(Reply, frozen=True):
        x: Annotated[int, Meta(le=9)]

    class Silent(Reply, frozen=True):
        x: Annotated[int, Meta(le=9)]
        y: Annotated[str, Unvoted] = ""

    class Loud(Reply, frozen=True):
        x: Annotated[int, Meta(le=9)]
        y: str = ""

    assert len({fingerprint(each) for each in (Low, High, Silent, Loud)}) == 4


# -- what the parser demands ------------------------------------------------------------------------------------------


class Bounded(Reply, frozen=True):
    score: Annotated[int, Meta(ge=1, le=5)]
    share: Annotated[float, Meta(gt=0, lt=1)]
    even: Annotated[int, Meta(ge=0, multiple_of=2)]
    code: Annotated[str, Meta(min_length=2, max_length=3, pattern="^[A-Z]+$")]
    tags: Annotated[list[Annotated[str, Meta(max_length=1)]], Meta(min_length=1, max_length=2)]
    counts: Annotated[dict[str, int], Meta(max_length=4)]


def test_a_model_is_told_every_bound_that_its_reply_is_held_to() -> None:
    for form in (
        "<integer from 1 to 5>",
        "<number above 0 and below 1>",
        "<integer of at least 0, a multiple of 2>",
        '"<text of 2 to 3 characters that matches the pattern ^[A-Z]+$>"',
        '["<text of at most 1 character>", ...] (1 to 2 items)',
        '{"<key>": <integer>, ...} (at most 4 keys)',
    ):
        assert form in instructions(Bounded)


# -- texts that look alike --------------------------------------------------------------------------------------------


class Named(Struct, frozen=True):
    name: str


class Placed(Reply, frozen=True):
    place: str
    others: tuple[Named, ...] = ()
    by_name: dict[str, str] = msgspec.field(default_factory=dict)


def test_texts_that_differ_only_in_how_accents_are_written_are_one_vote() -> None:
    composed, combining = ("caf\u00e9", "cafe\u0301")
    replies = [Placed(place=each, others=(Named(each),), by_name={each: each}) for each in (composed, combining)]
    assert replies[0] != replies[1]
    assert vote_of(replies[0]) == vote_of(replies[1])
    assert vote_of(Placed(place="\u212a")) == vote_of(Placed(place="K"))
    assert vote_of(Placed(place="cafe")) != vote_of(replies[0])
