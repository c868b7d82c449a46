"""Reply classes with fields of every kind, and replies of them, for the tests of prompts and of the parser."""

from __future__ import annotations

import time
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, get_args

import pytest
from hypothesis import strategies as st
from msgspec import Meta, Struct

from microagents.replies.parsing import Malformed, parse
from microagents.replies.reply import Reply
from microagents.replies.reply_fields import Unvoted
from microagents.replies.reply_forms import Format

FORMS: tuple[Format, ...] = get_args(Format)
both_forms = pytest.mark.parametrize("form", FORMS)


class Colour(Enum):
    """Values that are not their names."""

    RED = "red, bright"
    BLUE = "blue"


class Box(Struct, frozen=True):
    """A part of a reply."""

    label: str
    sizes: tuple[int, Decimal]


class Add(Struct, frozen=True, tag=True):
    """One of two kinds of part, told apart by its tag."""

    amount: int


class Take(Struct, frozen=True, tag=True):
    """The other kind."""

    amount: int


class Row(Struct, frozen=True, array_like=True):
    """A part that is written as a list."""

    left: int
    right: int


class Whole(Reply, frozen=True):
    """One integer."""

    x: int


class Exact(Reply, frozen=True):
    """One decimal number."""

    x: Decimal


class Real(Reply, frozen=True):
    """One number."""

    x: float


class Text(Reply, frozen=True):
    """One text."""

    x: str


class Anything(Reply, frozen=True):
    """Any JSON."""

    x: Any


class Grid(Reply, frozen=True):
    """Lists in a list."""

    x: list[list[int]]


class Priced(Reply, frozen=True):
    """Decimal numbers in a list."""

    x: list[Decimal]


class Pair(Reply, frozen=True):
    """A tuple."""

    x: tuple[int, int]


class Choice(Reply, frozen=True):
    """One of a few texts, with delimiters in them."""

    x: Literal["left", "right, or = [both]"]


class HanoiMove(Reply, frozen=True):
    """Two fields, one of which ends like the other."""

    state: tuple[int, int, int]
    next_state: list[list[int]]


class Everything(Reply, frozen=True):
    """A field of every kind."""

    whole: int
    exact: Decimal
    real: float
    text: str
    flag: bool
    choice: Literal["left", "right, or = [both]", 3]
    colour: Colour
    grid: list[list[int]]
    pair: tuple[int, str]
    box: Box
    boxes: list[Box]
    named: dict[str, Decimal]
    maybe: int | None
    change: Add | Take
    row: Row


class Renamed(Reply, frozen=True, rename="camel"):
    """A field that is written otherwise than it is called."""

    first_disk: int
    left_out: int = 7


class Argued(Reply, frozen=True):
    """A field to vote on and one that is only asked for."""

    answer: list[int]
    why: Annotated[str, Unvoted, Meta(description="one sentence")]


decimals = st.decimals(allow_nan=False, allow_infinity=False)
reals = st.floats(allow_nan=False, allow_infinity=False)
integers = st.integers() | st.integers(10**40, 10**41)
texts = st.text() | st.text(alphabet=',[](){}"\\`*=:\n\r\t \u2028\x00x1“', max_size=20)
boxes = st.builds(Box, label=texts, sizes=st.tuples(integers, decimals))
replies: st.SearchStrategy[Reply] = st.one_of(
    st.builds(Whole, x=integers),
    st.builds(Text, x=texts),
    st.builds(HanoiMove, state=st.tuples(integers, integers, integers), next_state=st.lists(st.lists(integers))),
    st.builds(
        Everything,
        whole=integers,
        exact=decimals,
        real=reals,
        text=texts,
        flag=st.booleans(),
        choice=st.sampled_from(["left", "right, or = [both]", 3]),
        colour=st.sampled_from(Colour),
        grid=st.lists(st.lists(integers, max_size=3), max_size=3),
        pair=st.tuples(integers, texts),
        box=boxes,
        boxes=st.lists(boxes, max_size=3),
        named=st.dictionaries(texts, decimals, max_size=3),
        maybe=st.none() | integers,
        change=st.builds(Add, amount=integers) | st.builds(Take, amount=integers),
        row=st.builds(Row, left=integers, right=integers),
    ),
    st.builds(Renamed, first_disk=integers, left_out=integers),
    st.builds(Argued, answer=st.lists(integers), why=texts),
)


def answer(value: str, form: Format) -> str:
    """A reply whose one field ``x`` has this value, as a model may have written it."""
    return f"x = {value}" if form == "lines" else f'{{"x": {value}}}'


def refused(text: str, reply: type[Reply], form: Format) -> bool:
    """Whether a text is malformed, found out in less than a second of computing."""
    started = time.process_time()
    try:
        parse(text, reply, form)
    except Malformed:
        return True
    else:
        return False
    finally:
        assert time.process_time() - started < 1.0
