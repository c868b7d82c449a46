"""Plausible wrong replies: one field altered within its type, so that the vote differs."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import Enum
from random import Random
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from microagents.replies.mistakes import one_field_altered
from microagents.replies.parsing import parse
from microagents.replies.reply import Reply
from microagents.replies.reply_fields import Unvoted
from microagents.replies.reply_forms import write

SEEDS = range(200)
by_seed = st.integers(0, 2**32)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Booked(Reply, frozen=True):
    account: Literal["rent", "wages", "other"]
    colour: Colour
    balance: Decimal
    count: int
    share: float
    paid: bool
    text: str
    sizes: list[int]
    pair: tuple[int, str]
    late: int | None
    due: date
    score: Annotated[int, Meta(ge=0, le=100)]
    remark: Annotated[str, Unvoted] = ""


finite = st.floats(-1e9, 1e9)
cents = st.decimals(-(10**6), 10**6, places=2)
booked = st.builds(
    Booked,
    account=st.sampled_from(["rent", "wages", "other"]),
    colour=st.sampled_from(Colour),
    balance=cents,
    count=st.integers(),
    share=finite,
    paid=st.booleans(),
    text=st.text(st.characters(codec="utf-8"), max_size=8),
    sizes=st.lists(st.integers(), max_size=3),
    pair=st.tuples(st.integers(), st.just("a")),
    late=st.none() | st.integers(),
    due=st.dates(),
    score=st.integers(0, 100),
    remark=st.just("free"),
)


def altered_fields(right: Struct, wrong: Struct) -> list[str]:
    return [name for name in right.__struct_fields__ if getattr(right, name) != getattr(wrong, name)]


@given(booked, by_seed)
def test_a_mistake_differs_in_one_voted_field_and_in_its_vote_and_follows_from_the_seed(
    right: Booked, seed: int
) -> None:
    before = msgspec.to_builtins(right)
    wrong = one_field_altered(right, Random(seed))
    assert wrong == one_field_altered(right, Random(seed))
    assert wrong.vote() != right.vote()
    (altered,) = altered_fields(right, wrong)
    assert altered != "remark"
    assert msgspec.to_builtins(right) == before, "the original is left as it was"


@given(booked, by_seed)
def test_a_mistake_is_a_valid_reply_that_the_parser_reads_back(right: Booked, seed: int) -> None:
    wrong = one_field_altered(right, Random(seed))
    assert msgspec.convert(msgspec.to_builtins(wrong), Booked, strict=False) == wrong
    assert parse(write(wrong), Booked).vote() == wrong.vote()
    assert parse(write(wrong, "json"), Booked, "json").vote() == wrong.vote()


def test_every_field_that_can_be_altered_is_altered_by_some_seed() -> None:
    right = Booked(
        account="rent",
        colour=Colour.RED,
        balance=Decimal("1.50"),
        count=1,
        share=0.5,
        paid=True,
        text="ab",
        sizes=[1],
        pair=(1, "a"),
        late=3,
        due=date.max,
        score=100,
    )
    found = {name for seed in SEEDS for name in altered_fields(right, one_field_altered(right, Random(seed)))}
    assert found == set(Booked.__struct_fields__) - {"remark"}


def test_a_reply_that_offers_nothing_to_alter_is_refused_with_the_way_out() -> None:
    class Only(Reply, frozen=True):
        word: Literal["yes"]
        sizes: list[int]

    with pytest.raises(ValueError, match="define the method `mistake` of the task"):
        one_field_altered(Only(word="yes", sizes=[]), Random(0))


# -- replies that have a mistake must get it from every seed -----------------------------------------------------------


class Narrow(Reply, frozen=True):
    bit: Annotated[int, Meta(ge=0, le=1)]


class Chosen(Reply, frozen=True):
    size: Literal[1, 2] | None


class Listed(Reply, frozen=True):
    words: list[Literal["yes", "no"]]


class Part(Struct, frozen=True):
    amount: int


class Nested(Reply, frozen=True):
    part: Part


@pytest.mark.parametrize(
    ("right", "seeds"),
    [
        (Narrow(bit=0), SEEDS),
        (Chosen(size=1), SEEDS),
        (Listed(words=["yes"]), range(1)),
        (Nested(part=Part(amount=1)), range(1)),
    ],
    ids=lambda given: type(given).__name__,
)
def test_no_seed_is_left_without_a_mistake(right: Reply, seeds: range) -> None:
    for seed in seeds:
        assert one_field_altered(right, Random(seed)).vote() != right.vote()
