"""Public formats of questions: their lines are read as they are, and answers are judged exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from microagents.tasks.code import Code
from microagents.tasks.reasoning import (
    Gsm8k,
    Letter,
    MultiHop,
    MultipleChoice,
    Number,
    PublicQuestion,
    ShortAnswer,
    number_in,
)
from tests.papers.exact import Exact, Math

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "questions"
FORMATS: dict[str, type[Any]] = {
    "gsm8k": Gsm8k,
    "math": Math,
    "multiple-choice": MultipleChoice,
    "multi-hop": MultiHop,
    "code": Code,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_line_of_the_shipped_files_is_a_question(name: str) -> None:
    lines = (EXAMPLES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    tasks = [FORMATS[name](**json.loads(line)) for line in lines]
    assert all(len(task.statement()) > 15 for task in tasks)


def test_numbers_behind_the_mark_are_compared_by_value() -> None:
    task = Gsm8k(question="How many?", answer="There are 1,200 of them. #### 1,200")
    assert task.correct(Number(answer="1200.0")) is True
    assert task.correct(Number(answer="1201")) is False


@pytest.mark.parametrize(
    ("number", "texts"),
    [
        ("1200", ["1,200", "$1200.", "1200.0 dollars", r"\boxed{1{,}200}", "x = 1200"]),
        ("-3", ["-3", "\u22123", "- $3", "-6/2"]),
        ("1/2", ["0.5", ".5", "1/2", "50/100"]),
        ("None", ["", "none", "1e5", "9^9", "3-2", "1, 2", "1,2", "1/0", "9" * 501, "x" * 501]),
    ],
)
def test_the_only_number_of_an_answer_is_its_value(number: str, texts: list[str]) -> None:
    assert {text: str(number_in(text)) for text in texts} == dict.fromkeys(texts, number)


def test_the_box_of_a_solution_is_compared_by_value() -> None:
    task = Math(problem="?", solution=r"So it is \boxed{\frac{\sqrt{2}}{2}}.")
    assert task.correct(Exact(answer=r"\frac{1}{\sqrt{2}}")) is True
    assert task.correct(Exact(answer="0.7071067811865476")) is False


def test_an_answer_that_cannot_be_read_is_flagged_wrong_and_equal_to_no_other() -> None:
    task = Gsm8k(question="How many?", answer="#### about ###")
    unread = Number(answer="1e5")
    assert task.flag(unread) == "unreadable_answer"
    assert task.correct(Number(answer="about ###")) is False  # although both texts are the same
    assert unread.vote() != Number(answer="2e5").vote()


@pytest.mark.parametrize(
    "task",
    [
        Gsm8k(question="?!"),
        Math(problem="?!"),
        MultipleChoice(question="?!", choices=("a", "b")),
        MultiHop(question="?!"),
    ],
)
def test_a_line_without_an_answer_is_not_scored(task: PublicQuestion[Any]) -> None:
    replies = (Number(answer="1"), Exact(answer="1"), Letter(choice="A"), ShortAnswer(answer="1"))
    reply = dict(zip((Gsm8k, Math, MultipleChoice, MultiHop), replies, strict=True))[type(task)]
    assert task.flag(reply) is None
    assert task.correct(reply) is None


@pytest.mark.parametrize(
    "line",
    [
        {"question": "Which?", "choices": ["x", "y", "z"], "answer": 1},
        {"question": "Which?", "choices": ["x", "y", "z"], "answer": "B"},
        {"question": "Which?", "choices": {"text": ["x", "y", "z"], "label": ["A", "B", "C"]}, "answerKey": "B"},
        {
            "question": {
                "stem": "Which?",
                "choices": [{"text": each, "label": str(n)} for n, each in enumerate("xyz", 1)],
            },
            "answerKey": "2",
        },
    ],
    ids=["index", "label", "arc", "stem"],
)
def test_every_form_of_choices_has_one_right_label(line: dict[str, Any]) -> None:
    task = MultipleChoice(**line)
    assert task.background().endswith(f"{task.letters[1]}) y\n{task.letters[2]}) z")
    assert task.correct(Letter(choice=f" ({task.letters[1].lower()})")) is True
    assert task.correct(Letter(choice=task.letters[0])) is False
    assert task.flag(Letter(choice="Q")) == "no_choice"


@pytest.mark.parametrize(
    "line",
    [
        {"question": "Where?", "answer": "the Old Mill", "context": [["Mills", ["One is old.", " One is new."]]]},
        {
            "question": "Where?",
            "answer": "the Old Mill",
            "context": {"title": ["Mills"], "sentences": [["One is old.", " One is new."]]},
        },
        {"input": "Where?", "answers": ["the Old Mill"], "context": "Mills\nOne is old. One is new."},
    ],
    ids=["hotpotqa", "columns", "longbench"],
)
def test_contexts_are_the_background_of_the_question_in_every_format(line: dict[str, Any]) -> None:
    task = MultiHop(**line)
    assert (task.background(), task.statement()) == ("Mills\nOne is old. One is new.", "Where?")
    assert task.correct(ShortAnswer(answer="old mill.")) is True


def test_f1_counts_shared_words_and_yes_is_never_half_right() -> None:
    task = MultiHop(question="Where?", answers=("the old mill", "yes"), least_f1=0.8)
    assert task.f1(ShortAnswer(answer="the old water mill")) == pytest.approx(0.8)
    assert task.correct(ShortAnswer(answer="the old water mill")) is True
    assert task.f1(ShortAnswer(answer="yes, surely")) == 0.0
    assert task.f1(ShortAnswer(answer="a river")) == 0.0


@pytest.mark.parametrize(
    ("kind", "line", "said"),
    [
        (Gsm8k, {"question": " "}, "pattern"),
        (Gsm8k, {"question": "x" * 2**20}, "at most 400000"),
        (MultipleChoice, {"question": "?", "choices": ["a", "b"], "answer": 2}, "none of the choices"),
        (MultipleChoice, {"question": "?", "choices": ["a", "b"], "labels": ["A", "a"]}, "one label"),
        (MultiHop, {"question": "?", "context": [3]}, "a paragraph of context"),
        (MultiHop, {"context": "x"}, "question"),
        (Code, {"text": "f", "test_list": ["assert"]}, "not Python"),
    ],
)
def test_a_line_that_is_no_question_is_refused_by_name(kind: type[Any], line: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        kind(**line)
