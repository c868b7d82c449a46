"""The problems that ship: exact checkers, experts that read the prompt alone, mistakes that are wrong, errors that grow with the size."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from pydantic import ValidationError

from microagents import Call, Reply, resume, run
from microagents.base.errors import TaskFailed
from microagents.replies.data_prompts import prompt_of
from microagents.replies.parsing import parse
from microagents.replies.reply_forms import write
from microagents.systems.questions.aot import to_contract
from microagents.systems.questions.problem import WorkedProblem, answer_type
from microagents.systems.questions.questions import (
    ATOMIC,
    Asked,
    Choice,
    Contraction,
    Decomposition,
    Labelled,
    ToChoose,
    ToCompose,
    ToDecompose,
    ToSolve,
    asked_in,
)
from microagents.tasks.ask import Ask
from microagents.tasks.multiplication import Multiplication, Product
from tests.papers.sorting import Sorted, Sorting
from tests.papers.sums import Sums

Worked = WorkedProblem[Product] | WorkedProblem[Sorted]
PROBLEMS: list[Worked] = [Multiplication(digits=6, by=3), Sorting(n=9)]
by_problem = pytest.mark.parametrize("task", PROBLEMS, ids=["multiplication", "sorting"])
seeds = st.integers(0, 10**6)


def encoded(reply: Reply) -> Raw:
    return Raw(msgspec.json.encode(reply))


def solved(task: Worked, problem: str) -> Reply:
    """What experts make of a problem, cut as often as they cut it."""
    cut = task.expert(prompt_of("", ToDecompose(problem=problem)), Decomposition)
    assert isinstance(cut, Decomposition)
    if cut.is_atomic:
        return task.expert(prompt_of("", ToSolve(problem=problem)), answer_type(type(task)))
    return task.expert(prompt_of("", composition(task, problem, cut)), answer_type(type(task)))


def composition(task: Worked, problem: str, cut: Decomposition) -> ToCompose:
    return ToCompose(
        problem=problem,
        first=cut.first,
        answer_to_first=encoded(solved(task, cut.first)),
        second=cut.second,
        answer_to_second=encoded(solved(task, cut.second)),
        compose=cut.compose,
    )


def questions(task: Worked) -> list[tuple[Asked, type[Reply]]]:
    """One of every kind."""
    problem = task.statement()
    cut = task.expert_decomposition(problem)
    wrong = task.mistake(prompt_of("", ToDecompose(problem=problem)), cut, Random(1))
    candidates = (Labelled(label="WRNG", reply=encoded(wrong)), Labelled(label="RGHT", reply=encoded(cut)))
    return [
        (ToSolve(problem=problem), answer_type(type(task))),
        (ToDecompose(problem=problem), Decomposition),
        (composition(task, problem, cut), answer_type(type(task))),
        (ToChoose(question=ToDecompose(problem=problem), candidates=candidates), Choice),
    ]


def test_products_are_compared_digit_by_digit() -> None:
    task = Multiplication(digits=5)
    first, second = task.factors
    assert task.correct(Product(product=first * second))
    assert not task.correct(Product(product=first * second + 7))
    long = Multiplication(digits=40)
    exact = long.factors[0] * long.factors[1]
    assert float(exact) == float(exact + 7)
    assert not long.correct(Product(product=exact + 7))
    assert long.correct(parse(write(Product(product=exact), "json"), Product, "json"))


@by_problem
@given(seed=seeds)
def test_a_mistake_of_any_role_is_another_vote_and_passes_the_screen(task: Worked, seed: int) -> None:
    for asked, reply in questions(task):
        prompt = prompt_of("", asked)
        right = task.expert(prompt, reply)
        wrong = task.mistake(prompt, right, Random(seed))
        assert wrong.vote() != right.vote()
        assert parse(write(wrong, "json"), reply, "json") == wrong


@by_problem
def test_variants_are_other_problems_of_the_same_size_and_number_0_is_the_problem_itself(task: Worked) -> None:
    statements = [task.variant(number).statement() for number in range(20)]
    assert statements[0] == task.statement()
    assert len(set(statements)) == 20


async def calculator(call: Call) -> str:
    asked = asked_in(call.prompt)
    assert isinstance(asked, ToSolve)
    first, second = re.findall(r"\d+", asked.problem)
    return write(Product(product=int(first) * int(second)), "json")


async def test_given_numbers_are_multiplied_exactly_and_read_back_from_the_journal(tmp_path: Path) -> None:
    a, b = 12345678901234567890123, 98765432109876543210
    result = await run(
        Multiplication(a=a, b=b), models=calculator, strategy="maker", max_calls=1, run_id="r", runs_dir=tmp_path
    )
    assert result.outcome == "stopped"
    result = await resume("r", runs_dir=tmp_path, max_calls=9)
    assert result.value == {"answer": {"product": a * b}, "correct": True, "argmax": []}


def test_given_numbers_have_no_other_variant_and_random_ones_have_the_options_that_they_had() -> None:
    given = Multiplication(a=0, b=7)
    assert given.variant(3) == given
    assert given.model_dump() == {"digits": 5, "by": None, "instance": 0, "a": 0, "b": 7}
    assert Multiplication(digits=3).model_dump() == {"digits": 3, "by": None, "instance": 0}


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        *[(Ask, {"text": text}, "") for text in ("", "  \n ", "x" * 100_001)],
        *[(Multiplication, {"digits": digits}, "") for digits in (0, -1, 101)],
        (Multiplication, {"b": 3}, "give both numbers"),
        (Multiplication, {"a": 3, "b": 4, "digits": 3}, "leave out digits, by and instance"),
        (Multiplication, {"a": 3, "b": 4, "instance": 1}, "leave out digits, by and instance"),
        (Multiplication, {"a": 10**100, "b": 4}, "less than"),
    ],
)
def test_options_that_make_no_question_are_refused(task: Callable[..., object], options: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said or None):
        task(**options)


class Counted(WorkedProblem[Product]):
    """A problem of a user's own that says only what is right."""

    def statement(self) -> str:
        return "count 6"

    def expert_answer(self, problem: str) -> Product:
        return Product(product=int(problem.removeprefix("count ")))

    def expert_decomposition(self, problem: str) -> Decomposition:
        half = int(problem.removeprefix("count ")) // 2
        return Decomposition(first=f"count {half}", second=f"count {half}", compose="Add.") if half else ATOMIC

    def expert_composition(self, asked: ToCompose) -> Product:
        return Product(
            product=sum(
                msgspec.json.decode(each, type=Product).product
                for each in (asked.answer_to_first, asked.answer_to_second)
            )
        )


@pytest.mark.parametrize("seed", range(5))
async def test_a_problem_whose_mistakes_are_not_written_can_be_simulated_in_every_role(seed: int) -> None:
    result = await run(Counted(), models="sim:perfect@error=0.4", k=2, seed=seed, runs_dir=None)
    assert result.outcome == "completed"


class Broken(WorkedProblem[Product]):
    """Its experts are wrong, each in another way."""

    def statement(self) -> str:
        return "1 * 1"

    def expert_answer(self, problem: str) -> Product:
        return Product(product=int(problem))

    def expert_decomposition(self, problem: str) -> Decomposition:  # noqa: ARG002
        return Product(product=1)  # type: ignore[return-value]

    def expert_composition(self, asked: ToCompose) -> Product:
        raise KeyError(asked.compose)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (ToSolve(problem="x"), r"^Broken.expert_answer raised ValueError"),
        (ToDecompose(problem="x"), r"^Broken.expert_decomposition must give a Decomposition, not Product\(product=1\)"),
        (
            ToCompose(
                problem="x", first="", answer_to_first=Raw(b"1"), second="", answer_to_second=Raw(b"1"), compose="add"
            ),
            r"^Broken.expert_composition raised KeyError\('add'\)",
        ),
    ],
    ids=["answer", "decomposition", "composition"],
)
def test_what_fails_in_an_expert_is_named_by_its_own_method(asked: Asked, said: str) -> None:
    with pytest.raises(TaskFailed, match=said):
        Broken().expert(prompt_of("", asked), Product)


# -- contractions of products ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guided", [True, False])
@pytest.mark.parametrize("task", [Sums(digits=digits, instance=digits) for digits in (1, 2, 5, 6)], ids=str)
def test_a_product_is_contracted_to_sums_with_the_same_answer(task: Sums, *, guided: bool) -> None:
    question, lengths = task.statement(), list[float]()
    while (graph := task.expert_subquestions(question)).dependent:
        assert graph.flaw() is None
        contract = to_contract(question, graph, guided=guided)
        wrong = task.mistake(
            prompt_of("", contract), Contraction(question=task.expert_contraction(contract)), Random(1)
        )
        assert isinstance(wrong, Contraction)
        assert not task.correct(task.expert_answer(wrong.question))
        question = task.expert_contraction(contract)
        assert task.correct(task.expert_answer(question))
        lengths.append(task.difficulty(prompt_of("", ToSolve(problem=question)), Product))
    assert lengths == sorted(lengths, reverse=True), "each question is easier than the one before it"


def test_a_long_sum_is_cut_and_composed() -> None:
    task, question = Sums(), "What is 12 * 1 + 34 * 10 + 56 * 100 + 78 * 1000?"
    assert solved(task, question) == Product(product=83952)
    assert task.expert_decomposition("What is 12 * 1 + 34 * 10?").is_atomic
    wrong = task.mistake(prompt_of("", ToDecompose(problem=question)), task.expert_decomposition(question), Random(0))
    assert isinstance(wrong, Decomposition)
    halves = task.expert_answer(wrong.first), task.expert_answer(wrong.second)
    assert halves[0].product + halves[1].product != 83952
