"""The exact reader: equal answers have one value, different ones have two, and what it does not know has none."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.papers.exact import boxed_in, read_exact


@pytest.mark.parametrize(
    "equal",
    [
        ["1,000", "1000", "1000.0", "$1,000", r"\$1000", r"\boxed{1000}", "x = 1000", "1{,}000", "1000."],
        [r"\frac{1}{2}", "1/2", "0.5", ".5", r"\dfrac12", r"\frac{50}{100}", r"2^{-1}"],
        [r"3\frac{1}{2}", "7/2", "3.5"],
        [r"2\sqrt{3}", r"\sqrt{12}", r"\frac{6}{\sqrt{3}}", r"\sqrt3\cdot2"],
        ["(x+1)^2", "x^2 + 2x + 1", "1 + 2x + x^{2}"],
        [r"\left(1, \frac{1}{2}\right]", "(1,0.5]"],
        [r"\{2, 1\}", r"\{1,2\}", r"\lbrace 1, 2, 2 \rbrace"],
        [r"12\text{ inches}", "12 inches", "12"],
        [r"45^\circ", "45", r"45\%"],
        [r"\text{(C)}", "(C)", "c"],
        ["Yes", "yes.", r"\text{yes}"],
        ["-3", "\u22123", r"-\frac{6}{2}"],
    ],
    ids=lambda equal: equal[0],
)
def test_forms_of_one_answer_have_one_value(equal: list[str]) -> None:
    values = {read_exact(each) for each in equal}
    assert len(values) == 1
    assert None not in values


def test_different_answers_have_different_values() -> None:
    answers = [
        "1", "2", "1/3", "0.333", "(1,2)", "[1,2]", "(2,1)", "1,2", r"\{1,2\}", r"\sqrt{2}", "1.41421356", "x",
        "x^2", r"\pi", "yes", "no",
    ]  # fmt: skip
    assert len({read_exact(each) for each in answers}) == len(answers)


@pytest.mark.parametrize(
    "text",
    ["", "1e5", "9^9^9", "1/0", r"\frac{1}{x+1}", "10**9", "x" * 501],
)
def test_what_it_does_not_know_has_no_value(text: str) -> None:
    assert read_exact(text) is None


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "text",
    [
        "+".join(["(1+x)^{199}"] * 38),
        r"(x^{-1}+x+2\sqrt{999999937})^{60}",
        r"(\sqrt2+\sqrt3+\sqrt5+\sqrt7+\sqrt{11}+\sqrt{13})^{40}",
    ],
    ids=["powers", "inverse", "many roots"],
)
def test_no_short_text_takes_long(text: str) -> None:
    started = time.process_time()
    read_exact(text)
    assert time.process_time() - started < 1.0


@given(st.text(alphabet="0123456789x+-*/^(){}[],.\\= frcsqtpi", max_size=80))
def test_any_text_is_read_or_not_and_never_breaks(text: str) -> None:
    hash(read_exact(text))


@given(st.fractions(), st.fractions())
def test_fractions_are_equal_where_their_values_are(one: Fraction, other: Fraction) -> None:
    assert (read_exact(str(one)) == read_exact(rf"\frac{{{other.numerator}}}{{{other.denominator}}}")) == (one == other)


def test_the_last_box_counts_with_the_braces_in_it() -> None:
    assert boxed_in(r"\boxed{1}, no: \boxed{\frac{1}{2}}.") == r"\frac{1}{2}"
    assert boxed_in("no box") is None
    assert boxed_in(r"\boxed{1") is None
