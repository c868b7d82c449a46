"""A problem that the simulated model can solve by every strategy for problems."""

from collections.abc import Sequence

import msgspec

from microagents import Reply
from microagents.systems.questions import (
    ATOMIC,
    Decomposition,
    Subquestion,
    Subquestions,
    ToCompose,
    ToContract,
    WorkedProblem,
)


class Total(Reply, frozen=True):
    total: int


class Sum(WorkedProblem[Total]):  # "1 + 2 + 3"
    text: str = "1 + 2 + 3 + 4 + 5"

    def statement(self) -> str:
        return self.text

    def expert_answer(self, problem: str) -> Total:
        return Total(total=sum(map(int, problem.split(" + "))))

    # For `recursive`.

    def expert_decomposition(self, problem: str) -> Decomposition:
        first, _, rest = problem.partition(" + ")
        return Decomposition(first=first, second=rest, compose="Add both.") if rest else ATOMIC

    def expert_composition(self, asked: ToCompose) -> Total:
        answers = (asked.answer_to_first, asked.answer_to_second)
        return Total(total=sum(msgspec.json.decode(each, type=Total).total for each in answers))

    # For `aot`: a subquestion for the first two numbers, and one for the rest, which needs its answer.

    def expert_subquestions(self, problem: str) -> Subquestions:
        numbers = problem.split(" + ")
        if problem.count(" + ") == 1:  # one step: no graph
            return Subquestions(nodes=(Subquestion(problem, str(sum(map(int, numbers))), ()),))
        begin = Subquestion(" + ".join(numbers[:2]), str(int(numbers[0]) + int(numbers[1])), ())
        total = str(self.expert_answer(problem).total)
        return Subquestions(nodes=(begin, Subquestion("What is it with the others?", total, (0,))))

    def expert_contraction(self, asked: ToContract) -> str:
        _, _, *others = asked.problem.split(" + ")
        return " + ".join([*(each.answer for each in asked.known), *others])

    # For `tot`: the first addition, and what is left of a problem once thoughts have added.

    def expert_thought(self, problem: str) -> str:
        return str(sum(map(int, problem.split(" + ")[:2])))

    def after_thoughts(self, problem: str, thoughts: Sequence[str]) -> str:
        return " + ".join([*thoughts[-1:], *problem.split(" + ")[len(thoughts) + 1 :]])
