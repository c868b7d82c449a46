"""Questions of public collections, in the formats of their files: GSM8K, multiple choice and multi-hop questions with contexts.

A line of such a file is an input as it is: ``microagents run gsm8k --inputs test.jsonl``. The simulated model cannot solve these tasks.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from microagents.replies.reply import A, Reply
from microagents.systems.questions.problem import Problem

MAX_CHARS = 400_000
"""Longest question, contexts included: about 100,000 tokens."""
UNREADABLE = "unreadable_answer"
MAX_NUMBER_CHARS = 500
"""Longest answer in which a number is looked for."""
_NUMBER = re.compile(r"(?:(?<![\w)])-\s*)?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+|/0*[1-9][0-9]*)?|\.[0-9]+)")

Text = Annotated[str, Field(min_length=1, max_length=MAX_CHARS, pattern=r"\S")]


class Number(Reply, frozen=True):
    """A number, without a sentence around it."""

    answer: str

    def vote(self) -> str:
        """Return the value, so that 1,200 and 1200.0 are equal. An unreadable answer is flagged: no vote."""
        value = number_in(self.answer)
        if value is None:
            return self.answer
        return str(value)


class Letter(Reply, frozen=True):
    """The letter of the right choice."""

    choice: str

    def vote(self) -> str:
        """Return the letter, without brackets and without regard to case."""
        return self.choice.strip().strip("().").upper()


class ShortAnswer(Reply, frozen=True):
    """A name, a date, a number or a few words, without a sentence around them."""

    answer: str

    def vote(self) -> Hashable:
        """Return the words that F1 counts."""
        return " ".join(_words(self.answer))


class PublicQuestion(Problem[A]):
    """A question of a collection. Fields of its line that are not needed are left out."""

    model_config = ConfigDict(extra="ignore")
    default_strategy = "self-consistency"


class Gsm8k(PublicQuestion[Number]):
    """A word problem of GSM8K (arXiv 2110.14168): ``question``, and ``answer`` with the number behind ``####``."""

    question: Text
    """The question."""
    answer: str | None = None
    """A solution that ends with ``#### NUMBER``, or just the number."""

    def statement(self) -> str:
        return self.question

    @cached_property
    def right(self) -> str | None:
        """Number behind ``####``."""
        if self.answer is None:
            return None
        return self.answer.rpartition("####")[2].strip()

    def flag(self, reply: Reply) -> str | None:
        """Flag ``unreadable_answer`` for an answer that has no number, or several."""
        if isinstance(reply, Number) and number_in(reply.answer) is None:
            return UNREADABLE
        return None

    def correct(self, reply: Number) -> bool | None:
        """Return whether both answers are one number; None without a right one. An unreadable one is wrong."""
        if self.right is None:
            return None
        value = number_in(reply.answer)
        return value is not None and value == number_in(self.right)


class MultipleChoice(PublicQuestion[Letter]):
    """A question with choices, as in MMLU (``choices``, and ``answer`` as an index) and ARC (labelled ``choices``, ``answerKey``)."""

    question: Text
    """The question."""
    choices: Annotated[tuple[str, ...], Field(min_length=2, max_length=26)]
    """The choices, in their order."""
    labels: tuple[str, ...] = ()
    """Their labels; by default A, B, C, ..."""
    answer: int | str | None = None
    """Index or label of the right choice."""

    @model_validator(mode="before")
    @classmethod
    def _from_file(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        read = dict(given)
        if isinstance(stem := read.get("question"), Mapping):  # {"stem": ..., "choices": [{"text": ..., "label": ...}]}
            read.update(question=stem.get("stem"), choices=stem.get("choices"))
        choices = read.get("choices")
        if isinstance(choices, Mapping):  # {"text": [...], "label": [...]}
            read.update(choices=choices.get("text"), labels=choices.get("label", ()))
        elif isinstance(choices, Sequence) and choices and all(isinstance(each, Mapping) for each in choices):
            read.update(choices=[each.get("text") for each in choices], labels=[each.get("label") for each in choices])
        if "answerKey" in read:
            read["answer"] = read.pop("answerKey")
        return read

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.labels and len(self.labels) != len(self.choices):
            raise ValueError(f"there are {len(self.choices)} choices and {len(self.labels)} labels")
        if len(set(self.letters)) < len(self.letters):
            raise ValueError("two choices have one label")
        if self.answer is not None and self.right is None:
            raise ValueError(f"answer {self.answer!r} is none of the choices {', '.join(self.letters)}")
        return self

    @cached_property
    def letters(self) -> tuple[str, ...]:
        """Labels of the choices."""
        if self.labels:
            return tuple([label.strip().upper() for label in self.labels])
        return tuple(string.ascii_uppercase[: len(self.choices)])

    @cached_property
    def right(self) -> str | None:
        """Label of the right choice."""
        if isinstance(self.answer, str):
            label = self.answer.strip().upper()
            if label in self.letters:
                return label
        index = int(self.answer) if isinstance(self.answer, int) or (self.answer or "").isdecimal() else -1  # type: ignore[arg-type]
        if 0 <= index < len(self.letters):
            return self.letters[index]
        return None

    def statement(self) -> str:
        return self.question

    def background(self) -> str:
        return "\n".join(f"{letter}) {text}" for letter, text in zip(self.letters, self.choices, strict=True))

    def flag(self, reply: Reply) -> str | None:
        """Flag ``no_choice`` for a label that no choice has."""
        if isinstance(reply, Letter) and reply.vote() not in self.letters:
            return "no_choice"
        return None

    def correct(self, reply: Letter) -> bool | None:
        if self.right is None:
            return None
        return reply.vote() == self.right


class MultiHop(PublicQuestion[ShortAnswer]):
    """A question about several paragraphs: HotpotQA (``context`` as titles and sentences) and LongBench (``input``, ``answers``)."""

    question: Text
    """The question."""
    context: Annotated[str, Field(max_length=MAX_CHARS)] = ""
    """The paragraphs."""
    answers: tuple[str, ...] = ()
    """The right answers; each will do."""
    least_f1: Annotated[float, Field(gt=0, le=1)] = 1.0
    """F1 of the words from which an answer counts as right."""

    @model_validator(mode="before")
    @classmethod
    def _from_file(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        read = dict(given)
        read.setdefault("question", read.get("input"))
        if read.get("answer") is not None:
            read.setdefault("answers", [read["answer"]])
        context = read.get("context")
        if isinstance(context, Mapping):  # {"title": [...], "sentences": [[...], ...]}
            context = list(zip(context.get("title", ()), context.get("sentences", ()), strict=False))
        if isinstance(context, Sequence) and not isinstance(context, str):
            read["context"] = "\n\n".join(_paragraph(each) for each in context)
        return read

    @field_validator("answers", mode="before")
    @classmethod
    def _one_or_more(cls, given: Any) -> Any:
        if isinstance(given, str):
            return [given]
        return given

    def statement(self) -> str:
        return self.question

    def background(self) -> str:
        return self.context

    def flag(self, reply: Reply) -> str | None:
        """Flag ``unreadable_answer`` for an answer without a word."""
        if isinstance(reply, ShortAnswer) and not _words(reply.answer):
            return UNREADABLE
        return None

    def f1(self, reply: ShortAnswer) -> float | None:
        """Compute the greatest F1 of its words and a right answer's; None without right answers.

        Counted as in SQuAD (arXiv 1606.05250) and HotpotQA: without case, punctuation and articles.
        """
        said = _words(reply.answer)
        return max((_f1(said, _words(right)) for right in self.answers), default=None)

    def correct(self, reply: ShortAnswer) -> bool | None:
        f1 = self.f1(reply)
        if f1 is None:
            return None
        return f1 >= self.least_f1


def number_in(text: str) -> Fraction | None:
    """Read the number of a text, whatever words, signs of currency or boxes stand around it; None unless there is just one."""
    if len(text) > MAX_NUMBER_CHARS:
        return None
    plain = text.replace("\u2212", "-").replace("{,}", ",").replace("$", "")
    found = _NUMBER.findall(plain)
    if len(found) != 1:
        return None
    digits = "".join(found[0].split())
    return Fraction(digits.replace(",", ""))


def _paragraph(given: Any) -> str:
    match given:
        case str():
            return given
        case [str(title), [*sentences]]:
            return f"{title}\n{''.join(map(str, sentences))}"
        case _:
            raise ValueError(f"a paragraph of context is a text, or a title and a list of sentences, not {given!r:.80}")


def _words(text: str) -> list[str]:
    """Return the words without case, punctuation and articles."""
    bare = "".join(each for each in text.lower() if each not in string.punctuation)
    return [word for word in bare.split() if not re.fullmatch("a|an|the", word)]


def _f1(given: Sequence[str], right: Sequence[str]) -> float:
    shared = (Counter(given) & Counter(right)).total()
    # Yes, no and noanswer are all or nothing.
    if not shared or ({"yes", "no", "noanswer"} & {*given, *right} and given != right):
        return 0.0
    precision, recall = shared / len(given), shared / len(right)
    return 2 * precision * recall / (precision + recall)
