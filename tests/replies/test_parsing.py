"""How an answer is read: strictly, whatever the text holds."""

from __future__ import annotations

import ast
import contextlib
import re
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, get_args

import pytest
from msgspec import Meta

from microagents.replies.parsing import MAX_REPLY_CHARS, Malformed, parse
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import Format, Reading, write
from tests.replies.classes import (
    Anything,
    Choice,
    Exact,
    Grid,
    HanoiMove,
    Real,
    Text,
    Whole,
    answer,
    both_forms,
    refused,
)

# -- lines -------------------------------------------------------------------------------------------------------------


def test_the_last_assignment_wins() -> None:
    assert parse("x = 1\nNo, that is wrong.\nx = 2", Whole) == Whole(x=2)
    with pytest.raises(Malformed):
        parse("x = 1\nx = two", Whole)


def test_a_name_within_another_name_or_a_sentence_is_no_assignment() -> None:
    with pytest.raises(Malformed, match="no line `state"):
        parse("so state = [1, 2, 3] and\nnext_state = [[1]]", HanoiMove)
    assert parse("so x = 2 at first\nmax = 3, x == 2\nx = 1", Whole) == Whole(x=1)


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("<think>\nx = 2</think>", ""),
        (" <thinking>so 2\n</thinking>", "<|im_end|>"),
        ("<reasoning></reasoning>", "\n</s>\n"),
        ("", "<end_of_turn>"),
    ],
)
@pytest.mark.parametrize("reading", get_args(Reading))
def test_the_marks_of_a_template_around_a_reply_are_no_text(before: str, behind: str, reading: Reading) -> None:
    assert parse(f"{before}x = 1{behind}", Whole, "lines", reading) == Whole(x=1)
    assert parse(f'{before}{{"x": 1}}{behind}', Whole, "json", reading) == Whole(x=1)
    within = "<think> or </think>, </s>"
    assert parse(f'x = "{within}"', Text, "lines", reading) == Text(x=within)


@pytest.mark.parametrize(
    "text",
    [
        f"x = 1\n{said}"
        for said in (
            "No, wait: x = 2", "**x = 2**", "so x = 2", "`x =2`", "x: 2", "X = 2", "x\u00a0= 2", "x\n= 2",
            "That was wrong, it is 2.",
        )
    ],
)  # fmt: skip
def test_a_line_that_is_not_the_last_word_on_its_name_does_not_count(text: str) -> None:
    with pytest.raises(Malformed, match="something stands behind"):
        parse(text, Whole)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x =",
        *("x: 5", "x == 5", "X = 5", "y = 5", "**x = 5**", "**x** = 5", "x = **5**", "- x = 5"),
        "\x1b]52;c;eCA9IDU=\x07x = 5",
        "\u202ex = 5",
        "\x00x = 5",
        "\ufeffx = 5",
    ],
)
def test_a_line_that_is_not_as_asked_is_malformed(text: str) -> None:
    assert refused(text, Whole, "lines")


@pytest.mark.parametrize("tail", [".", " # five", "**", "\ud800", " 6", "\\", "]"])
def test_nothing_may_stand_behind_a_value(tail: str) -> None:
    assert refused(f"x = 5{tail}", Whole, "lines")
    assert refused(f'{{"x": 5}}{tail}', Whole, "json")


# -- JSON --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"x": 5}\n```',
        '~~~\n{"x": 5}\n~~~',
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
        "null",
        "{}",
        '{"x": 5',
        '{"x": 5,}',
        '{"x": 5} // sure',
        '{"x": 5}\nThat is all.',
        'So {"x": 5}',
        '[{"x": 5}]',
        '\u200b{"x": 5}',
        '\x1b[1m{"x": 5}\x1b[0m',
        '{"x": 5}}',
    ],
)
def test_an_object_that_is_not_as_asked_is_malformed(text: str) -> None:
    assert refused(text, Whole, "json")


@pytest.mark.parametrize(
    "text", ['{"x": 5, "x": 5}', '{"x": 4, "x": 5}', '{"x": 4, "\\u0078": 5}', '{"x": 5, "unasked": {"a": 1, "a": 1}}']
)
def test_an_object_that_names_a_key_twice_is_malformed(text: str) -> None:
    assert refused(text, Whole, "json")


@both_forms
def test_an_object_within_a_value_that_names_a_key_twice_is_malformed(form: Format) -> None:
    assert parse(answer('[{"a": 1}, {"a": 2}]', form), Anything, form) == Anything(x=[{"a": 1}, {"a": 2}])
    assert refused(answer('[{"a": 1, "b": 1, "a": 2}]', form), Anything, form)


# -- values ------------------------------------------------------------------------------------------------------------


@both_forms
@pytest.mark.parametrize(
    "value",
    [
        "True",
        "null",
        '"5"',
        *("5.0", "5e0", "1e400", "+5", "05", "5,000", "5_000", "0x5", "[5]"),
        *("5/1", "__import__('os').getpid()", "NaN", "Infinity"),
        "\uff15",
        "\u0665",
        "5\u0665",
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
        *("((1, 2), (3,))", "[(1, 2)]", "[[1, 2],]", "[[1, 2]", "[[1, 2]]]", "[[1, True]]"),
        *("[[1, 2.0]]", "[[1, NaN]]"),
        '["[1, 2]"]',
        "[1, 2]",
        "**[[1, 2]]**",
        "[[\uff11, 2]]",
    ],
)
def test_what_is_no_list_of_lists_of_integers_is_malformed(value: str, form: Format) -> None:
    assert refused(answer(value, form), Grid, form)


@both_forms
@pytest.mark.parametrize(
    "value",
    ["five", '"five', '"fi"ve"', '"fi\nve"', '"fi\x1b[31mve"', '"fi\ud800ve"', "5"],
)
def test_what_is_no_plain_text_is_malformed(value: str, form: Format) -> None:
    assert refused(answer(value, form), Text, form)


@both_forms
@pytest.mark.parametrize(
    "value",
    ["x = 2", "}\n{", '"', "\\", "\x00"],
)
def test_delimiters_and_hostile_characters_within_a_text_are_that_text(value: str, form: Format) -> None:
    assert parse(write(Text(x=value), form), Text, form) == Text(x=value)


@both_forms
@pytest.mark.parametrize("value", ["left", '"Left"', '"left" or "right, or = [both]"'])
def test_what_is_none_of_the_choices_is_malformed(value: str, form: Format) -> None:
    assert refused(answer(value, form), Choice, form)
    assert parse(answer('"right, or = [both]"', form), Choice, form) == Choice(x="right, or = [both]")


@both_forms
@pytest.mark.parametrize("value", ["NaN", "1e400", "true", ".5", "9" * 5_000])
def test_what_is_no_finite_number_is_malformed(value: str, form: Format) -> None:
    assert refused(answer(value, form), Real, form)


@both_forms
@pytest.mark.parametrize(
    "value",
    ["NaN", '"NaN"', '"-inf"', "1,5", '"one"'],
)
def test_what_is_no_finite_decimal_is_malformed(value: str, form: Format) -> None:
    assert refused(answer(value, form), Exact, form)


# -- the last value, whatever stands around ----------------------------------------------------------------------------


class Moved(Reply, frozen=True):
    """The two values that MAKER's flagging parser reads."""

    move: tuple[int, int, int]
    next_state: tuple[list[int], list[int], list[int]]


MOVE, STATE = "[1, 0, 2]", "[[3, 2], [], [1]]"
RIGHT = Moved(move=(1, 0, 2), next_state=([3, 2], [], [1]))
AS_ASKED = {
    "plain": f"move = {MOVE}\nnext_state = {STATE}",
    "behind reasoning": f"Disk 1 moves on.\n\nmove = {MOVE}\nnext_state = {STATE}",
    "behind another try": f"move = [2, 0, 1]\nnext_state = [[3], [2, 1], []]\nNo:\nmove = {MOVE}\nnext_state = {STATE}",
    "in another order": f"next_state = {STATE}\nmove = {MOVE}",
    "without blanks": "move=[1,0,2]\nnext_state=[[3,2],[],[1]]",
    "with many blanks": f"move\t=\t{MOVE}\nnext_state  =   [ [ 3,2 ], [ ], [ 1 ] ]  ",
    "in a fence": f"```\nmove = {MOVE}\nnext_state = {STATE}\n```",
    "in a fence with a language": f"```python\nmove = {MOVE}\nnext_state = {STATE}\n```\n",
    "in two fences": f"```\nmove = {MOVE}\n```\n\n```\nnext_state = {STATE}\n```",
    "over several lines": f"move = {MOVE}\nnext_state = [\n  [3, 2],\n  [],\n  [1]\n]",
    "indented": f"    move = {MOVE}\n    next_state = {STATE}",
    "apart": f"move = {MOVE}\n\n\nnext_state = {STATE}\n\n",
    "with carriage returns": f"move = {MOVE}\r\nnext_state = {STATE}\r\n",
    "behind its name in prose": f"The move = the only legal one.\nmove = {MOVE}\nnext_state = {STATE}",
}
OTHERWISE = {
    "bold": f"**move = {MOVE}**\n**next_state = {STATE}**",
    "bullets": f"- move = {MOVE}\n- next_state = {STATE}",
    "numbers": f"1. move = {MOVE}\n2. next_state = {STATE}",
    "full stops": f"move = {MOVE}.\nnext_state = {STATE}.",
    "text behind": f"move = {MOVE}\nnext_state = {STATE}\n\nThis follows the procedure.",
    "sentence": f"So move = {MOVE}, which gives next_state = {STATE}.",
    "one line": f"move = {MOVE}, next_state = {STATE}",
    "backticks": f"`move = {MOVE}`\n`next_state = {STATE}`",
    "the quotes of the paper's prompt": f"'''move = {MOVE}'''\n'''next_state = {STATE}'''",
    "formula": f"$move = {MOVE}$\n$next_state = {STATE}$",
    "comments": f"move = {MOVE}  # disk 1 from peg 0 to peg 2\nnext_state = {STATE}  # the new state",
    "capitals": f"Move = {MOVE}\nNext_State = {STATE}",
    "boxes of LaTeX": rf"\boxed{{move = {MOVE}}}" + "\n" + rf"\boxed{{next_state = {STATE}}}",
    "display formulas": rf"\[ move = {MOVE} \]" + "\n" + rf"\[ next_state = {STATE} \]",
    "table": f"| move = {MOVE} | next_state = {STATE} |",
    "heading and quotation": f"### Answer\n> move = {MOVE}\n> next_state = {STATE}",
    "semicolons": f"move = {MOVE};\nnext_state = {STATE};",
    "tags": f"<answer>move = {MOVE}\nnext_state = {STATE}</answer>",
    "no-break spaces": f"move\u00a0=\u00a0{MOVE}\nnext_state\u00a0=\u00a0{STATE}",
    "names in bold with a sign": f"**Final answer: move = {MOVE}** and **next_state = {STATE}** \u2705",
}
BY_THE_PAPER_ALONE = {
    "comma behind the last item": f"move = [1, 0, 2,]\nnext_state = {STATE}",
    "comma behind the last peg's disks": f"move = {MOVE}\nnext_state = [[3, 2,], [], [1]]",
}
IN_NEITHER = {
    "colons": f"move: {MOVE}\nnext_state: {STATE}",
    "bold names": f"**move** = {MOVE}\n**next_state** = {STATE}",
    "names in backticks": f"`move` = {MOVE}\n`next_state` = {STATE}",
    "names in LaTeX": rf"$\text{{move}} = {MOVE}$" + "\n" + rf"$\text{{next\_state}} = {STATE}$",
    "tuples": "move = (1, 0, 2)\nnext_state = ((3, 2), (), (1,))",
    "one object": f'{{"move": {MOVE}, "next_state": {STATE}}}',
}


def read_as_in_the_paper(text: str) -> Moved:
    """MAKER's flagging parser (appendix, `parse_move_state_flag`), for three disks."""
    row = r"\[[^\[\]]*\]"
    moves = re.findall(rf"(?is)\bmove\b\s*=\s*({row})", text)
    states = re.findall(rf"(?is)\bnext_state\b\s*=\s*(\[\s*{row}\s*,\s*{row}\s*,\s*{row}\s*\])", text)
    if not moves or not states:
        raise Malformed("no move, or no state")
    move, state = ast.literal_eval(moves[-1]), ast.literal_eval(states[-1])
    if len(move) != 3 or not all(isinstance(each, int) for each in [*move, *(disk for peg in state for disk in peg)]):
        raise Malformed("no three integers, or no lists of integers")
    return Moved(move=tuple(move), next_state=tuple(state))


def taken(read: Callable[[str], Moved], forms: dict[str, str]) -> list[str]:
    """Names of the forms that a parser takes; each as the right reply."""
    found = []
    for name, text in forms.items():
        with contextlib.suppress(Malformed, ValueError, SyntaxError):
            assert read(text) == RIGHT, name
            found.append(name)
    return found


def test_both_readings_of_forms_of_a_right_reply_beside_the_papers_parser() -> None:
    """42 forms that models give: ``strict`` takes 14, ``last`` 34, the paper's flagging parser 36."""
    forms = AS_ASKED | OTHERWISE | BY_THE_PAPER_ALONE | IN_NEITHER
    assert (len(forms), len(AS_ASKED), len(OTHERWISE), len(BY_THE_PAPER_ALONE)) == (42, 14, 20, 2)
    assert taken(lambda text: parse(text, Moved), forms) == list(AS_ASKED)
    assert taken(lambda text: parse(text, Moved, reading="last"), forms) == [*AS_ASKED, *OTHERWISE]
    assert taken(read_as_in_the_paper, forms) == [*AS_ASKED, *OTHERWISE, *BY_THE_PAPER_ALONE]


@pytest.mark.parametrize(
    "text",
    [
        f"next_state = {STATE}",
        f"move = [1, 0]\nnext_state = {STATE}",
        f"move = {MOVE}\nmove = [1, 0]\nnext_state = {STATE}",
        f"move = [1, 0, 2.0]\nnext_state = {STATE}",
        f"move = {MOVE}\nnext_state = [[3, 2], [1]]",
        f"last_move = {MOVE}\nnext_state = {STATE}",
        f"move == {MOVE}\nnext_state = {STATE}",
    ],
)
def test_what_has_no_last_value_of_the_type_is_malformed_in_both_readings(text: str) -> None:
    for reading in get_args(Reading):
        with pytest.raises(Malformed):
            parse(text, Moved, reading=reading)


@pytest.mark.parametrize(
    "tail",
    [",000", ".5", "e3", "kg", " 000", " * 3", " - 3", "^2", " = 5"],
)
def test_a_number_that_goes_on_is_not_cut_off(tail: str) -> None:
    with pytest.raises(Malformed):
        parse(f"x = 5{tail}", Whole, reading="last")


def test_names_that_differ_by_capitals_are_told_apart() -> None:
    class Capitals(Reply, frozen=True):
        n: int
        N: int

    assert parse("N = 2, n = 1.", Capitals, reading="last") == Capitals(n=1, N=2)


@pytest.mark.parametrize(
    "unit",
    ["x = ", 'x = "', 'x = ["', 'x = "\\"', "x = 9", "x" + " " * 300],
)
def test_no_text_takes_long_to_read_the_last_value_from(unit: str) -> None:
    text = unit * (MAX_REPLY_CHARS // len(unit))
    for reply in (Text, Anything):
        started = time.process_time()
        with contextlib.suppress(Malformed):
            parse(text, reply, reading="last")
        assert time.process_time() - started < 1.0


def test_the_last_reading_refuses_a_duplicate_key_and_does_not_look_further() -> None:
    with pytest.raises(Malformed, match="names a key twice"):
        parse('x = [1]\nx = {"a": 1, "a": 2}', Anything, reading="last")


# -- size and depth ----------------------------------------------------------------------------------------------------


@both_forms
@pytest.mark.parametrize("reply", [Whole, Anything])
@pytest.mark.parametrize("n", [100_000])
def test_deep_brackets_are_malformed(n: int, reply: type[Reply], form: Format) -> None:
    for value in ("[" * n, "[" * n + "]" * n, '{"a":' * n, '{"a":' * n + "1" + "}" * n):
        assert refused(answer(value, form), reply, form)


@both_forms
@pytest.mark.parametrize("unit", ["x = 5\n", "\U0001f600"])
def test_ten_megabytes_are_malformed_unread(unit: str, form: Format) -> None:
    text = unit * (10_000_000 // len(unit)) + "\n" + answer("5", form)
    assert refused(text, Whole, form)


@both_forms
@pytest.mark.parametrize(
    ("start", "unit"),
    [
        ("\U0001f600" + " " * 100_000, "x = "),
        ("", "x" + " " * 300),
        ("", "\n{"),
        ("", '{"x":'),
        ('{"x": ', "9"),
        ("x = [", "[],"),
    ],
)
def test_no_text_takes_long_to_refuse(start: str, unit: str, form: Format) -> None:
    text = start + unit * ((MAX_REPLY_CHARS - len(start)) // len(unit))
    for reply in (Whole, Anything):
        assert refused(text, reply, form) or form == "lines"


class Positive(Reply, frozen=True):
    """A reply that checks itself."""

    x: Annotated[int, Meta(le=100)]

    def __post_init__(self) -> None:
        if self.x <= 0:
            raise ValueError(f"{self.x} is not positive")


@both_forms
def test_a_reply_that_fails_its_own_checks_is_malformed(form: Format) -> None:
    for value, reason in (("-1", "-1 is not positive"), ("101", "101.*, but .*at most 100")):
        with pytest.raises(Malformed, match=reason):
            parse(answer(value, form), Positive, form)


@pytest.mark.parametrize(
    "before",
    ["{x} and {y} are sets.\n{not JSON}\n", '{"an": "example"}\nis no reply; this is:\n'],
)
def test_the_outermost_object_is_the_reply_wherever_its_lines_begin(before: str) -> None:
    text = f'{before}{{"pairs": [\n{{"a": 1}},\n{{"a": 2}}\n]}}'
    assert (
        parse(text, Paired, "json")
        == parse(f"{text} Done.", Paired, "json", "last")
        == Paired(pairs=({"a": 1}, {"a": 2}))
    )
    with pytest.raises(Malformed, match="something stands behind"):
        parse(f"{text}\nDone.", Paired, "json")


@pytest.mark.parametrize("text", ['{"pairs": []}\n{"pairs": [', "{\n" * 50_000, '{"pairs":\n' * 15_000])
def test_an_object_that_is_cut_off_is_no_reply(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text, Paired, "json")


class Paired(Reply, frozen=True):
    pairs: tuple[dict[str, int], ...]


# -- nothing that a model wrote is ever run ----------------------------------------------------------------------------


class Carry(Reply, frozen=True):
    move: int
    carry: int = 0


@pytest.mark.parametrize("said", ["carry: 1", "**carry = 1**", "- carry = 1", "Carry = 1"])
def test_an_optional_field_in_a_bad_form_is_malformed_and_not_its_default(said: str) -> None:
    with pytest.raises(Malformed):
        parse(f"move = 3\n{said}", Carry)
    assert parse("move = 3", Carry) == Carry(move=3)


@pytest.mark.parametrize("form", ["lines", "json"])
def test_a_decimal_that_nobody_could_work_with_is_malformed(form: Format) -> None:
    class Sum(Reply, frozen=True):
        x: Decimal

    for written in ("1e999999999", "1e1001", "1e-999999"):
        with pytest.raises(Malformed, match="out of range"):
            parse(f"x = {written}" if form == "lines" else f'{{"x": {written}}}', Sum, form)
