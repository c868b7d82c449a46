"""What is asked of a model and how its answer is read: one definition for both, strictly, whatever the text holds."""

from __future__ import annotations

import ast
import re
import time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct

from microagents.chat import (
    MAX_REPLY_CHARS,
    Format,
    Malformed,
    Prompt,
    Reply,
    Sampling,
    Unvoted,
    fingerprint,
    instructions,
    parse,
    schema,
    system_with_instructions,
    write,
)
from microagents.errors import InvalidDefinition

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


# -- one definition for what is asked and what is read -----------------------------------------------------------------


@both_forms
@settings(max_examples=30)
@given(reply=replies)
@example(reply=Text(x='x = 1\n"x" = 2, [3]\n```\n}'))
def test_a_reply_that_is_written_as_asked_is_read_as_it_was(reply: Reply, form: Format) -> None:
    written = write(reply, form)
    assert parse(written, type(reply), form) == reply
    assert parse(f"First {{a}} step: x = 3.\n\n```\n{written}\n```\n", type(reply), form) == reply


@both_forms
@settings(max_examples=30)
@given(reply=replies)
def test_a_reply_that_was_read_casts_the_vote_of_the_one_written(reply: Reply, form: Format) -> None:
    assert parse(write(reply, form), type(reply), form).vote() == reply.vote()


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
@pytest.mark.parametrize("reply", [Whole, Exact, Real, Text, Anything, Grid, Pair, Choice, HanoiMove, Everything, Renamed, Argued])
def test_the_instructions_with_their_blanks_filled_in_are_a_reply(reply: type[Reply], form: Format) -> None:
    body = instructions(reply, form).split("\n\n")[1]
    for blank, filling in BLANKS.items():
        body = body.replace(blank, filling)
    assert not re.search("<| or (?!=)", body)
    assert isinstance(parse(body, reply, form), reply)


@pytest.mark.parametrize("reply", [Whole, HanoiMove, Renamed, Everything])
def test_the_schema_asks_for_the_fields_of_the_instructions(reply: type[Reply]) -> None:
    (definition,) = [part for name, part in schema(reply)["$defs"].items() if name == reply.__name__]
    lines = instructions(reply).split("\n\n")[1].splitlines()
    assert list(definition["properties"]) == [line.split(" = ")[0] for line in lines]


@both_forms
def test_descriptions_and_defaults_are_told_and_stand_behind_the_form(form: Format) -> None:
    assert instructions(Argued, form).endswith("- why: one sentence")
    assert instructions(Renamed, form).endswith("- leftOut: may be left out")
    assert parse('{"firstDisk": 2}' if form == "json" else "firstDisk = 2", Renamed, form) == Renamed(first_disk=2)


@both_forms
def test_the_instructions_close_the_system_prompt(form: Format) -> None:
    assert system_with_instructions("Be exact.", Whole, form) == f"Be exact.\n\n{instructions(Whole, form)}"
    assert system_with_instructions("", Whole, form) == instructions(Whole, form)


class Tree(Reply, frozen=True):
    """A reply that holds itself."""

    x: int
    parts: list[Tree]


class Unreadable(Reply, frozen=True):
    """A field that JSON has no form for."""

    x: complex


@both_forms
@pytest.mark.parametrize("reply", [Tree, Unreadable])
def test_a_reply_that_cannot_be_asked_for_is_refused_by_name(reply: type[Reply], form: Format) -> None:
    with pytest.raises(InvalidDefinition, match=reply.__name__):
        instructions(reply, form)


def test_only_the_first_sample_is_drawn_at_temperature_zero() -> None:
    assert [Sampling().temperature_of(seq) for seq in range(3)] == [0.0, 0.1, 0.1]
    assert Prompt(user="x").system == ""


# -- lines -------------------------------------------------------------------------------------------------------------


def test_the_last_assignment_wins() -> None:
    assert parse("x = 1\nNo, that is wrong.\nx = 2", Whole) == Whole(x=2)
    with pytest.raises(Malformed):
        parse("x = 1\nx = two", Whole)


def test_each_field_takes_its_own_last_line_in_any_order() -> None:
    text = "state = [0, 0, 0]\nnext_state = [[9]]\nAgain:\nnext_state = [[1], []]\nstate = [1, 2, 3]"
    assert parse(text, HanoiMove) == HanoiMove(state=(1, 2, 3), next_state=[[1], []])


def test_a_name_within_another_name_or_a_sentence_is_no_assignment() -> None:
    with pytest.raises(Malformed, match="no line `state"):
        parse("so state = [1, 2, 3] and\nnext_state = [[1]]", HanoiMove)
    assert parse("so x = 2 at first\nmax = 3, x == 2\nx = 1", Whole) == Whole(x=1)


@pytest.mark.parametrize(
    "text",
    [
        f"x = 1\n{said}"
        for said in (
            "No, wait: x = 2",
            "**x = 2**",
            "so x = 2",
            "`x =2`",
            "x: 2",
            "X = 2",
            "x\u00a0= 2",
            "x\n= 2",
            "That was wrong, it is 2.",
        )
    ],
)
def test_a_line_that_is_not_the_last_word_on_its_name_does_not_count(text: str) -> None:
    with pytest.raises(Malformed, match="something stands behind"):
        parse(text, Whole)


@pytest.mark.parametrize(
    "text",
    [
        "```\nx = 5\n```",
        "```text\n  x = 5  \n```\n",
        "\tx\t=\t5\t",
        "x=5",
        "x = 5\r\n",
        "Thinking…\r\nx = 4\r\nx = 5\r\n",
        "\ud800 and \x00 and \x1b[31m in the reasoning\nx = 5",
    ],
)
def test_fences_blanks_and_any_reasoning_around_a_line_do_not_matter(text: str) -> None:
    assert parse(text, Whole) == Whole(x=5)


def test_a_value_may_run_over_several_lines() -> None:
    assert parse("x = [\n  [1, 2],\n  []\n]", Grid) == Grid(x=[[1, 2], []])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "x",
        "x =",
        "x = \n5 6",
        "x: 5",
        "x == 5",
        "X = 5",
        "y = 5",
        "**x = 5**",
        "**x** = 5",
        "x = **5**",
        "- x = 5",
        "> x = 5",
        "`x = 5`",
        '"x = 5"',
        '"x" = 5',
        "“x” = 5",
        "$x = 5$",
        "<b>x = 5</b>",
        "<script>x = 5</script>",
        "\x1b[1mx = 5\x1b[0m",
        "\x1b]52;c;eCA9IDU=\x07x = 5",
        "\u202ex = 5",
        "\u200bx = 5",
        "x\u200b = 5",
        "x\u00a0= 5",
        "x ＝ 5",  # noqa: RUF001 - a full-width equals sign
        "х = 5",  # noqa: RUF001 - a Cyrillic letter
        "\x00x = 5",
        "\ufeffx = 5",
        "[bold]x = 5[/bold]",
    ],
)
def test_a_line_that_is_not_as_asked_is_malformed(text: str) -> None:
    assert refused(text, Whole, "lines")


@pytest.mark.parametrize("tail", [".", ",", ";", " # five", " (sure)", "**", "`", "\x00", "\u200b", "\ud800", " 6", "\\", "\x1b[0m", "]"])
def test_nothing_may_stand_behind_a_value(tail: str) -> None:
    assert refused(f"x = 5{tail}", Whole, "lines")
    assert refused(f'{{"x": 5}}{tail}', Whole, "json")


# -- JSON --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"x": 5}',
        '  {"x": 5}\n',
        '```json\n{"x": 5}\n```',
        'I think {so}.\n{"x": 5}',
        'First\n{"x": 4}\nbut then\n{"x": 5}',
        '{\n  "x":\n  5\n}',
        '{"x": 5, "unasked": {"x": 6}}',
    ],
)
def test_an_object_is_read_after_free_text_or_in_a_fence(text: str) -> None:
    assert parse(text, Whole, "json") == Whole(x=5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "5",
        "[5]",
        "{}",
        '{"y": 5}',
        '{"x": 5',
        '{"x": 5,}',
        "{'x': 5}",
        "{x: 5}",
        "{“x”: 5}",
        '{"x": 5} // sure',
        '{"x": 5}\nThat is all.',
        '{"x": /* five */ 5}',
        'So {"x": 5}',
        '**{"x": 5}**',
        '[{"x": 5}]',
        '\x00{"x": 5}',
        '\ufeff{"x": 5}',
        '\u200b{"x": 5}',
        '\x1b[1m{"x": 5}\x1b[0m',
        '{"x": 5}}',
    ],
)
def test_an_object_that_is_not_as_asked_is_malformed(text: str) -> None:
    assert refused(text, Whole, "json")


# -- values ------------------------------------------------------------------------------------------------------------


@both_forms
@pytest.mark.parametrize(
    "value",
    [
        "True",
        "true",
        "null",
        '"5"',
        "5.0",
        "5e0",
        "1e5",
        "1e400",
        "12345678901234567.0",
        "+5",
        "05",
        "5,000",
        "5_000",
        "0x5",
        "(5)",
        "[5]",
        "5/1",
        "2+3",
        "__import__('os').getpid()",
        "NaN",
        "Infinity",
        "-Infinity",
        "５",  # noqa: RUF001 - full width
        "٥",  # noqa: RUF001 - Arabic
        "²",
        "5٥",  # noqa: RUF001
        "5\u200b",
        "9" * 5_000,
    ],
)
def test_what_is_no_plain_integer_is_malformed(value: str, form: Format) -> None:
    assert refused(answer(value, form), Whole, form)


@both_forms
@pytest.mark.parametrize(
    "value",
    [
        "((1, 2), (3,))",
        "[(1, 2)]",
        "[[1, 2],]",
        "[[1, 2,]]",
        "[[1, 2]",
        "[[1, 2]]]",
        "[[1 2]]",
        "[[1, True]]",
        "[[1, true]]",
        "[[1, 2.0]]",
        "[[1, NaN]]",
        '["[1, 2]"]',
        "[1, 2]",
        "{1, 2}",
        "[[1, ...]]",
        "**[[1, 2]]**",
        "[[１, 2]]",  # noqa: RUF001 - full width
    ],
)
def test_what_is_no_list_of_lists_of_integers_is_malformed(value: str, form: Format) -> None:
    assert refused(answer(value, form), Grid, form)


@both_forms
@pytest.mark.parametrize("value", ["[1]", "[1, 2, 3]", "(1, 2)", "[1, 2,]", "1, 2", "[true, 2]"])
def test_a_tuple_is_a_list_of_its_length(value: str, form: Format) -> None:
    assert refused(answer(value, form), Pair, form)
    assert parse(answer("[1, 2]", form), Pair, form) == Pair(x=(1, 2))


@both_forms
@pytest.mark.parametrize(
    "value",
    [
        "five",
        "'five'",
        "“five”",
        '"five',
        'five"',
        '"fi"ve"',
        '"fi\nve"',
        '"fi\x00ve"',
        '"fi\x1b[31mve"',
        '"fi\ud800ve"',
        r'"fi\ud800ve"',
        r'"fi\x76e"',
        '"""five"""',
        "5",
    ],
)
def test_what_is_no_plain_text_is_malformed(value: str, form: Format) -> None:
    assert refused(answer(value, form), Text, form)


@both_forms
@pytest.mark.parametrize(
    "value",
    ["x = 2", "a\nx = 2", "}\n{", '"', "]", ", ", "```", "\\", "\x00", "\x1b[31m", "\u202e", "[bold]", "<script>", "“"],
)
def test_delimiters_and_hostile_characters_within_a_text_are_that_text(value: str, form: Format) -> None:
    assert parse(write(Text(x=value), form), Text, form) == Text(x=value)


@both_forms
@pytest.mark.parametrize("value", ["left", '"Left"', '"left "', '"left" or "right, or = [both]"', '["left"]', "0"])
def test_what_is_none_of_the_choices_is_malformed(value: str, form: Format) -> None:
    assert refused(answer(value, form), Choice, form)
    assert parse(answer('"right, or = [both]"', form), Choice, form) == Choice(x="right, or = [both]")


@both_forms
@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e400", "-1e400", '"1"', "true", "1,5", "½", ".5", "5.", "9" * 5_000])
def test_what_is_no_finite_number_is_malformed(value: str, form: Format) -> None:
    assert refused(answer(value, form), Real, form)


@both_forms
@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", '"NaN"', '"sNaN"', '"Infinity"', '"-inf"', "true", "1,5", '"one"', "１.5", "1.１"],  # noqa: RUF001
)
def test_what_is_no_finite_decimal_is_malformed(value: str, form: Format) -> None:
    assert refused(answer(value, form), Exact, form)


# -- size and depth ----------------------------------------------------------------------------------------------------


@both_forms
@pytest.mark.parametrize("reply", [Whole, Text, Grid, Anything])
@pytest.mark.parametrize("n", [300, 600, 2_000, 90_000, 100_000])
def test_deep_brackets_are_malformed(n: int, reply: type[Reply], form: Format) -> None:
    for value in ("[" * n, "[" * n + "]" * n, '{"a":' * n, '{"a":' * n + "1" + "}" * n):
        assert refused(answer(value, form), reply, form)


@both_forms
@pytest.mark.parametrize("unit", ["x", "x = 5\n", "[", "\n{", " ", "\u4e00", "\U0001f600"])
def test_ten_megabytes_are_malformed_unread(unit: str, form: Format) -> None:
    text = unit * (10_000_000 // len(unit)) + "\n" + answer("5", form)
    assert refused(text, Whole, form)


@both_forms
@pytest.mark.parametrize(
    ("start", "unit"),
    [
        ("", "x="),
        ("\U0001f600", "x="),
        (" " * 100_000, "x="),
        ("\U0001f600" + " " * 100_000, "x = "),
        ("", "x" + " " * 300),
        ("", " x ="),
        ("", "x=="),
        ("", "\nx"),
        ("", "\n" + " " * 300 + "x"),
        ("", "\n{"),
        ("", '{"x":'),
        ('x = "', '\\"'),
        ('{"x": "', '\\"'),
        ("x = ", "9"),
        ('{"x": ', "9"),
        ("x = 1", "0"),
        ("x = [", "[],"),
    ],
)
def test_no_text_takes_long_to_refuse(start: str, unit: str, form: Format) -> None:
    text = start + unit * ((MAX_REPLY_CHARS - len(start)) // len(unit))
    for reply in (Whole, Text, Grid, Anything):
        assert refused(text, reply, form) or form == "lines"


@both_forms
def test_long_numbers_are_read_to_the_last_digit(form: Format) -> None:
    number = 7 * 10**3_999 + 1
    assert parse(answer(str(number), form), Whole, form).x == number
    assert parse(answer("7" * 5_000, form), Exact, form).x == Decimal("7" * 5_000)


# -- votes -------------------------------------------------------------------------------------------------------------


@both_forms
def test_products_that_floats_cannot_tell_apart_are_different_votes(form: Format) -> None:
    product = 9_876_543_210 * 9_876_543_211
    assert float(product) == float(product + 7)
    for reply in (Whole, Exact, Anything):
        one, other = (parse(answer(str(value), form), reply, form).vote() for value in (product, product + 7))
        assert one != other


@both_forms
def test_decimals_keep_every_digit_and_compare_by_value(form: Format) -> None:
    digits = "0.1000000000000000055511151231257827021181583404541015625"
    assert parse(answer(digits, form), Exact, form).x == Decimal(digits)
    assert parse(answer(digits, form), Exact, form).vote() != parse(answer("0.1", form), Exact, form).vote()
    assert parse(answer("1.10", form), Exact, form).vote() == parse(answer('"1.1"', form), Exact, form).vote()


def test_decimals_in_lists_compare_by_value_too() -> None:
    one, other = Priced(x=[Decimal("1.10")]), Priced(x=[Decimal("1.1")])
    assert one.vote() == other.vote()
    assert hash(one.vote()) == hash(other.vote())


def test_fields_not_voted_on_do_not_divide_votes() -> None:
    one, other = Argued(answer=[1, 2], why="a"), Argued(answer=[1, 2], why="b")
    assert one != other
    assert one.vote() == other.vote()
    assert one.vote() != Argued(answer=[2, 1], why="a").vote()


def test_every_field_that_is_voted_on_counts() -> None:
    right = HanoiMove(state=(1, 0, 2), next_state=[[3], [], [1]])
    assert right.vote() != HanoiMove(state=(1, 0, 2), next_state=[[3], [1], []]).vote()
    assert right.vote() != HanoiMove(state=(1, 2, 0), next_state=[[3], [], [1]]).vote()


@given(st.one_of(replies, st.builds(Anything, x=st.recursive(st.none() | integers, lambda x: st.lists(x, max_size=3)))))
def test_equal_replies_cast_equal_votes_that_have_a_hash(reply: Reply) -> None:
    again = msgspec.json.decode(msgspec.json.encode(reply), type=type(reply))
    assert again.vote() == reply.vote()
    assert hash(again.vote()) == hash(reply.vote())


def test_the_order_of_keys_is_no_part_of_a_vote() -> None:
    one, other = (parse(answer(value, "json"), Anything, "json") for value in ('{"a": [1], "b": 2}', '{"b": 2, "a": [1]}'))
    assert one.vote() == other.vote()
    assert hash(one.vote()) == hash(other.vote())


class Unvotable(Reply, frozen=True):
    """Nothing to vote on."""

    why: Annotated[str, Unvoted]


class Rounded(Reply, frozen=True):
    """A reply that says itself what it is compared by."""

    x: float

    def vote(self) -> int:
        return round(self.x)


def test_a_reply_without_a_field_to_vote_on_is_refused_unless_it_says_how() -> None:
    with pytest.raises(InvalidDefinition, match="Unvotable has no field to vote on"):
        Unvotable(why="a").vote()
    assert Rounded(x=2.2).vote() == Rounded(x=1.9).vote()


@both_forms
def test_two_malformed_answers_are_not_equal_votes(form: Format) -> None:
    failures: list[Malformed] = []
    for _ in range(2):
        with pytest.raises(Malformed) as raised:
            parse("I do not know.", Whole, form)
        failures.append(raised.value)
    assert failures[0] != failures[1]
    assert str(failures[0]) == str(failures[1])


class Positive(Reply, frozen=True):
    """A reply that checks itself."""

    x: Annotated[int, Meta(le=100)]

    def __post_init__(self) -> None:
        if self.x <= 0:
            raise ValueError(f"{self.x} is not positive")


@both_forms
def test_a_reply_that_fails_its_own_checks_is_malformed(form: Format) -> None:
    for value, reason in (("-1", "-1 is not positive"), ("101", "`int` <= 100")):
        with pytest.raises(Malformed, match=reason):
            parse(answer(value, form), Positive, form)


# -- nothing that a model wrote is ever run ----------------------------------------------------------------------------

RUNS_TEXT = {"eval", "exec", "literal_eval"}


def names_that_run_text(source: str) -> set[str]:
    """Which of the functions that take text for code a source mentions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.alias(name=name) | ast.Attribute(attr="literal_eval" as name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="builtins"), attr=name):
                found.add(name)
    return found & RUNS_TEXT


def test_no_source_file_runs_text_as_code() -> None:
    root = Path(__file__).parents[1]
    sources = [path for folder in ("microagents", "runtimes", "tasks") for path in sorted((root / folder).rglob("*.py"))]
    assert root / "microagents" / "chat.py" in sources
    assert {path.name: names for path in sources if (names := names_that_run_text(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    "source",
    ["eval('1')", "f = eval", "import ast\nast.literal_eval('1')", "from ast import literal_eval", "builtins.exec"],
)
def test_the_check_of_the_sources_sees_what_it_looks_for(source: str) -> None:
    assert names_that_run_text(source)


class Carry(Reply, frozen=True):
    move: int
    carry: int = 0


@pytest.mark.parametrize("said", ["carry: 1", "**carry = 1**", "- carry = 1", "Carry = 1"])
def test_an_optional_field_in_a_bad_form_is_malformed_and_not_its_default(said: str) -> None:
    with pytest.raises(Malformed):
        parse(f"move = 3\n{said}", Carry)
    assert parse("move = 3", Carry) == Carry(move=3)


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


@pytest.mark.parametrize("form", ["lines", "json"])
def test_a_decimal_that_nobody_could_work_with_is_malformed(form: Format) -> None:
    class Sum(Reply, frozen=True):
        x: Decimal

    for written in ("1e999999999", "1e1001", "1e-999999"):
        with pytest.raises(Malformed, match="out of range"):
            parse(f"x = {written}" if form == "lines" else f'{{"x": {written}}}', Sum, form)
