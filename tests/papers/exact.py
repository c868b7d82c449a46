"""Problems of MATH, with an exact reader of their answers: numbers, fractions, roots, polynomials, tuples, sets.

Nothing is computed in floating point, and nothing of a model is evaluated: the reader knows the few forms below, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from fractions import Fraction
from functools import cached_property, lru_cache
from math import gcd, isqrt
from typing import Any

from microagents.replies.reply import Reply
from microagents.tasks.reasoning import UNREADABLE, PublicQuestion, Text

MAX_CHARS = 500
MAX_DEPTH = 40
MAX_TERMS = 200
MAX_EXPONENT = 200
MAX_BITS = 4096
"""Greatest size of a numerator or a denominator."""
MAX_RADICAND = 10**9
"""A greater radicand is not searched for square factors."""
MAX_WORK = 10_000
"""Greatest number of products of two terms in one answer: they take some 50 ms."""
ROOT_WORK = 400
"""Work that the search for the square factors of a radicand counts as."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d*)?|\.\d+)|(?P<word>\\(?:[A-Za-z]+|[{}]))|(?P<letter>[A-Za-z])|(?P<sign>[-+*/^_=,()\[\]{}|]))"
)
_TEXT = re.compile(r"\\(?:text|mbox|textbf|textit|mathrm|rm)\s*\{([^{}]*)\}")
_UNIT = re.compile(r"(?<=\d)\s+[A-Za-z]{2,}(?:[ /][A-Za-z]+)*\s*$")
_LAYOUT = re.compile(r"\\left|\\right|\\displaystyle|\\[,;:! ]|\\\$|\$|\\%|%|\^\s*\{?\s*\\circ\s*\}?|\\degree|~")
_SAME = {
    "\\dfrac": "\\frac",
    "\\tfrac": "\\frac",
    "\\cdot": "*",
    "\\times": "*",
    "\\div": "/",
    "\\lbrace": "\\{",
    "\\rbrace": "\\}",
}
_GREEK = frozenset(
    ["\\pi", "\\theta", "\\alpha", "\\beta", "\\gamma", "\\lambda", "\\mu", "\\phi", "\\omega", "\\infty"]
)
_PAIRS = {"(": ")", "[": "]", "\\{": "\\}"}

Polynomial = dict[tuple[tuple[str, int], ...], Fraction]
"""Coefficients by the powers of symbols. The root of a number without square factors is a symbol."""


class Exact(Reply, frozen=True):
    """A number or a mathematical expression, without a sentence around it."""

    answer: str

    def vote(self) -> Hashable:
        r"""Return the value, so that 0.5 and \frac{1}{2} are equal. An unreadable answer is flagged: no vote."""
        value = read_exact(self.answer)
        if value is None:
            return ("unread", self.answer)
        return value


class Math(PublicQuestion[Exact]):
    """A problem of MATH (arXiv 2103.03874): ``problem``, and ``solution`` with the answer in a box, or ``answer``."""

    problem: Text
    """The problem."""
    solution: str | None = None
    """A solution with ``\\boxed{ANSWER}``."""
    answer: str | None = None
    """Just the answer."""

    def statement(self) -> str:
        return self.problem

    @cached_property
    def right(self) -> str | None:
        """Answer, or the content of the solution's last box."""
        if self.answer is not None or self.solution is None:
            return self.answer
        return boxed_in(self.solution)

    def flag(self, reply: Reply) -> str | None:
        """Flag ``unreadable_answer`` for an answer that the exact reader cannot read."""
        if isinstance(reply, Exact) and read_exact(reply.answer) is None:
            return UNREADABLE
        return None

    def correct(self, reply: Exact) -> bool | None:
        """Return whether both answers have one value; None without a right one. An unreadable one is wrong."""
        if self.right is None:
            return None
        value = read_exact(reply.answer)
        return value is not None and value == read_exact(self.right)


class _Unreadable(Exception):
    """Text is in no form that the reader knows."""


def boxed_in(text: str) -> str | None:
    r"""Find the content of the last ``\boxed{...}`` of a text; None if there is none, or its braces do not close."""
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start < 0:
        return None
    start = text.index("{", start)
    depth = 0
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if not depth:
            return text[start + 1 : end]
    return None


@lru_cache(maxsize=4096)
def read_exact(text: str) -> Hashable | None:
    r"""Read the value of an answer, equal for equal answers; None if it cannot be read.

    ``1,000``, ``\frac{1}{2}``, ``0.5``, ``2\sqrt{3}``, ``x^2 + 1``, ``(1, 2]``, ``\{1, 2\}`` and words are read. A unit behind a
    number, a currency sign, a percent sign and a degree are left out, and so is ``x =`` in front.
    """
    if len(text) > MAX_CHARS:
        return None
    try:
        return _value(text)
    except _Unreadable:
        return None


def _value(text: str) -> Hashable:
    text = text.replace("\u2212", "-").replace("\\$", "").replace("{,}", ",").strip().removesuffix(".")
    if (boxed := boxed_in(text)) is not None:
        text = boxed
    plain = _TEXT.sub(r"\1", text).strip()
    if re.fullmatch(r"\([A-Za-z]\)|[A-Za-z]+(?: [A-Za-z]+)*", plain):  # words, with or without \text around them
        return "words", plain.lower().strip("()")
    words = _UNIT.sub("", _TEXT.sub(" ", text)).strip()
    if not words and plain:
        return "words", " ".join(plain.lower().split())
    found = _Reader(_LAYOUT.sub(" ", words)).whole()
    if found is None:
        raise _Unreadable
    return found


class _Reader:
    """Reads one answer by recursive descent, within a bound of work."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._work = 0

    def whole(self) -> Hashable:
        parts = [self._equation()]
        while self._take(","):
            parts.append(self._equation())
        if self._at < len(self._tokens):
            raise _Unreadable
        if len(parts) == 1:
            return parts[0]
        return ("list", *parts)

    def _equation(self) -> Hashable:
        """Read an expression, or what a name is set to."""
        left = self._group()
        if self._take("="):
            right = self._group()
            if not (isinstance(left, tuple) and left and left[0] == "sum" and _is_name(left)):
                raise _Unreadable
            return right
        return left

    def _group(self) -> Hashable:
        """Read a tuple, an interval, a set or an expression."""
        opening = self._peek()
        if opening in _PAIRS:
            start = self._at
            self._at += 1
            self._descend()
            parts = [self._equation()]
            while self._take(","):
                parts.append(self._equation())
            self._depth -= 1
            closing = self._peek()
            if opening == "\\{" and closing == "\\}":
                self._at += 1
                return "set", *sorted(set(parts), key=repr)
            if len(parts) > 1 and closing in (")", "]"):
                self._at += 1
                return f"{opening}{closing}", *parts
            self._at = start
        return _canonical(self._sum())

    def _sum(self) -> Polynomial:
        self._descend()
        sign = -1 if self._take("-") else 1
        if sign > 0:
            self._take("+")
        total = _scaled(self._product(), sign)
        while (sign := 1 if self._take("+") else -1 if self._take("-") else 0) != 0:
            total = _added(total, _scaled(self._product(), sign))
        self._depth -= 1
        return total

    def _product(self) -> Polynomial:
        total = self._power()
        while True:
            if self._take("*"):
                total = self._multiplied(total, self._power())
            elif self._take("/"):
                total = self._divided(total, self._power())
            elif (follows := self._peek()) is not None and (
                follows in ("(", "{", "\\frac", "\\sqrt", *_GREEK) or follows.isalpha()
            ):
                total = self._multiplied(total, self._power())
            else:
                return total

    def _power(self) -> Polynomial:
        base = self._atom()
        if self._take("^"):
            self._descend()
            exponent = -_whole(self._atom()) if self._take("-") else _whole(self._atom())
            self._depth -= 1
            total = _number(Fraction(1))
            for _ in range(abs(exponent)):
                total = self._multiplied(total, base)
            if exponent < 0:
                return self._divided(_number(Fraction(1)), total)
            return total
        return base

    def _atom(self) -> Polynomial:
        word = self._peek()
        if word is None:
            raise _Unreadable
        self._at += 1
        if word[0].isdigit() or word[0] == ".":
            whole = Fraction(word.replace(",", ""))
            # "2\frac{1}{3}" is a mixed number.
            if self._peek() == "\\frac" and "." not in word:
                self._at += 1
                return _added(_number(whole), self._fraction())
            return _number(whole)
        if word.isalpha() or word in _GREEK:
            return {((word, 1),): Fraction(1)}
        if word == "\\frac":
            return self._fraction()
        if word == "\\sqrt":
            if self._peek() == "[":
                raise _Unreadable
            self._spend(ROOT_WORK)
            return _root(self._argument())
        if word in ("(", "{"):
            inner = self._sum()
            if not self._take(")" if word == "(" else "}"):
                raise _Unreadable
            return inner
        raise _Unreadable

    def _fraction(self) -> Polynomial:
        return self._divided(self._argument(), self._argument())

    def _argument(self) -> Polynomial:
        """Read what stands behind a command: a group in braces, or one digit or letter."""
        word = self._peek()
        if word is not None and word.isdigit() and len(word) > 1:
            self._tokens[self._at] = word[1:]
            return _number(Fraction(word[0]))
        self._descend()
        found = self._atom()
        self._depth -= 1
        return found

    def _multiplied(self, one: Polynomial, other: Polynomial) -> Polynomial:
        self._spend(len(one) * len(other))
        total: Polynomial = {}
        for left, a in one.items():
            for right, b in other.items():
                powers, factor = _joined(left, right)
                total[powers] = total.get(powers, Fraction(0)) + a * b * factor
        return _checked(total)

    def _divided(self, one: Polynomial, other: Polynomial) -> Polynomial:
        """Divide by a single term: a quotient of two sums would have no single form here."""
        if len(other) != 1:
            raise _Unreadable
        ((powers, coefficient),) = other.items()
        return self._multiplied(one, {tuple((symbol, -power) for symbol, power in powers): 1 / coefficient})

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise _Unreadable

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Unreadable

    def _peek(self) -> str | None:
        if self._at < len(self._tokens):
            return self._tokens[self._at]
        return None

    def _take(self, word: str) -> bool:
        if self._peek() != word:
            return False
        self._at += 1
        return True


def _tokens(text: str) -> list[str]:
    text = text.rstrip()
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or not text.isascii():
            raise _Unreadable
        word = match.group(match.lastgroup or 0)
        found.append(_SAME.get(word, word))
        at = match.end()
    return found


def _number(value: Fraction) -> Polynomial:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise _Unreadable
    if not value:
        return {}
    return {(): value}


def _scaled(given: Polynomial, by: int) -> Polynomial:
    return {powers: by * coefficient for powers, coefficient in given.items()}


def _added(one: Polynomial, other: Polynomial) -> Polynomial:
    total = dict(one)
    for powers, coefficient in other.items():
        total[powers] = total.get(powers, Fraction(0)) + coefficient
    return _checked(total)


def _joined(
    left: tuple[tuple[str, int], ...], right: tuple[tuple[str, int], ...]
) -> tuple[tuple[tuple[str, int], ...], Fraction]:
    """Multiply two products of symbols, and return the number that comes out of roots in it."""
    powers: dict[str, int] = {}
    for symbol, power in (*left, *right):
        powers[symbol] = powers.get(symbol, 0) + power
    factor, inside = Fraction(1), 1
    for symbol in [each for each in powers if each.startswith("root ")]:
        number, power = int(symbol.split()[1]), powers.pop(symbol)
        factor *= Fraction(number) ** (power // 2)
        if power % 2:  # both are free of squares: what they share is the root of the square in their product
            shared = gcd(inside, number)
            factor *= shared
            inside = (inside // shared) * (number // shared)
    if inside.bit_length() > MAX_BITS:
        raise _Unreadable
    if inside > 1:
        powers[f"root {inside}"] = 1
    return tuple(sorted((symbol, power) for symbol, power in powers.items() if power)), factor


def _root(given: Polynomial) -> Polynomial:
    if set(given) - {()}:
        raise _Unreadable
    value = given.get((), Fraction(0))
    if value < 0:
        raise _Unreadable
    # The root of p/q is the root of p q, over q.
    outside, inside = _square_part(value.numerator * value.denominator)
    number = Fraction(outside, value.denominator)
    if not number:
        return {}
    return {((f"root {inside}", 1),) if inside > 1 else (): number}


@lru_cache(maxsize=1024)
def _square_part(number: int) -> tuple[int, int]:
    """Find the numbers a and b, with b free of squares, for which a² b is the number."""
    if number < 0 or (number > MAX_RADICAND and isqrt(number) ** 2 != number):
        raise _Unreadable
    whole = isqrt(number)
    if whole * whole == number:
        return whole, 1 if number else 0
    outside, inside, factor = 1, number, 2
    while factor * factor <= inside:
        while inside % (factor * factor) == 0:
            inside //= factor * factor
            outside *= factor
        factor += 1
    return outside, inside


def _whole(given: Polynomial) -> int:
    value = given.get((), Fraction(0))
    if set(given) - {()} or value.denominator != 1 or abs(value) > MAX_EXPONENT:
        raise _Unreadable
    return int(value)


def _checked(given: Polynomial) -> Polynomial:
    found = {powers: coefficient for powers, coefficient in given.items() if coefficient}
    if len(found) > MAX_TERMS:
        raise _Unreadable
    for powers, coefficient in found.items():
        _number(coefficient)
        if any(abs(power) > MAX_EXPONENT for _, power in powers):
            raise _Unreadable
    return found


def _canonical(given: Polynomial) -> Hashable:
    terms: Any = sorted(_checked(given).items())
    return "sum", *((powers, coefficient.numerator, coefficient.denominator) for powers, coefficient in terms)


def _is_name(value: tuple[Any, ...]) -> bool:
    return len(value) == 2 and len(value[1][0]) == 1 and value[1][0][0][1] == 1 and value[1][1:] == (1, 1)
