"""A list of steps, each of them needs the result of an earlier one: work whose truth is known, to measure long work in prose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from random import Random
from typing import Annotated, ClassVar

import msgspec
from msgspec import Raw
from pydantic import Field

from microagents.replies.chat import Prompt
from microagents.replies.mistakes import one_field_altered
from microagents.replies.reply import Reply
from microagents.systems.questions.problem import WorkedProblem
from microagents.systems.questions.questions import (
    ATOMIC,
    Contraction,
    Decomposition,
    Subquestion,
    Subquestions,
    ToCompose,
    ToContract,
    ToFollow,
    ToRevise,
    ToSolve,
    asked_in,
)
from microagents.systems.swarm.steps import (
    MORE,
    Check,
    Done,
    Pick,
    Plan,
    StepQuestion,
    StepResult,
    ToAssemble,
    ToCheck,
    ToCompress,
    ToPick,
    ToPlan,
    ToWork,
    step_question_in,
)
from microagents.work.prose import Summary

CONFIDENT = 8
WORKER_ERROR = 0.1
"""Error rate of the simulated model at a step. For n steps in one go, 1 - .9^n."""
PLAN_ERROR = 0.02
JUDGE_ERROR = 0.05
VERIFIER_ERROR = 0.05
DROP_RATE = 0.03
"""Rate at which a summary loses one of its facts."""
ASSEMBLY_ERROR = 0.02
OTHER_ERROR = 0.05
"""Error rate in the roles of other strategies."""

_STEP = re.compile(r"Add (\d+) to (?:the number (\d+)|the result of step (\d+))\.")
_ASKED = re.compile(r"the result of step (\d+)\?")
_OF_SWARM = frozenset(["plan", "result", "whole", "summary", "pick", "check"])
_FACT = re.compile(r"r(\d+) = (\d+)")


class RelayTotal(Reply, frozen=True):
    """The result of the last step."""

    total: int


class Relay(WorkedProblem[RelayTotal]):
    """Steps that add to results of earlier steps, up to many steps before.

    The simulated model takes earlier results only from the summary and the recent steps of its prompt, as a real one would. Its error rates
    are fixed: they test the engine, not a real model.
    """

    default_strategy: ClassVar[str] = "swarm"
    progress_unit: ClassVar[str] = "step"

    length: Annotated[int, Field(ge=2, le=500)] = 40
    """Number of steps."""
    instance: Annotated[int, Field(ge=0)] = 0
    """Number of the random list; each gives another one."""
    reach: Annotated[int, Field(ge=1)] = 20
    """Greatest number of steps between a step and the one whose result it needs."""

    @cached_property
    def steps(self) -> tuple[str, ...]:
        """Steps, as the problem lists them."""
        rng = Random(f"{self.length} {self.reach} {self.instance}")
        first = f"Add {rng.randrange(10, 100)} to the number {rng.randrange(100, 1000)}."
        before = [
            (rng.randrange(10, 100), rng.randrange(max(1, number - self.reach), number))
            for number in range(2, self.length + 1)
        ]
        return (first, *(f"Add {more} to the result of step {step}." for more, step in before))

    def statement(self) -> str:
        return _stated(self.steps)

    def right_results(self) -> tuple[int, ...]:
        """Work out the right results of all steps."""
        return _results(self.steps)

    def correct(self, reply: RelayTotal) -> bool:
        return reply.total == self.right_results()[-1]

    def variant(self, number: int) -> Relay:
        """Return another random list."""
        return type(self)(**self.model_dump(exclude={"instance"}), instance=self.instance + number)

    def expert_answer(self, problem: str) -> RelayTotal:
        return RelayTotal(total=_results(_listed(problem))[-1])

    def expert_decomposition(self, problem: str) -> Decomposition:  # noqa: ARG002 - the same for all
        """Do not cut: the steps build on each other."""
        return ATOMIC

    def expert_composition(self, asked: ToCompose) -> RelayTotal:
        return msgspec.json.decode(asked.answer_to_first, type=RelayTotal)

    def expert_subquestions(self, problem: str) -> Subquestions:
        steps = _listed(problem)
        results, needed = _results(steps), _needed(steps, set())
        nodes = []
        for number in needed:
            question, answer = f"What is the result of step {number}?", str(results[number - 1])
            before = _before(steps[number - 1])
            needs = () if before is None else (needed.index(before),)
            nodes.append(Subquestion(question=question, answer=answer, needs=needs))
        return Subquestions(nodes=tuple(nodes))

    def expert_contraction(self, asked: ToContract) -> str:
        """List the steps that are left, with known results as numbers; without subquestions, the first step's."""
        steps = _listed(asked.problem)
        known = {int(match[1]): int(each.answer) for each in asked.known if (match := _ASKED.search(each.question))}
        if not known:
            known = {
                place: result for place, result in enumerate(_results(steps), 1) if _before(steps[place - 1]) is None
            }
        left = _needed(steps, {*known} - {len(steps)})
        places = {number: place for place, number in enumerate(left, 1)}
        return _stated([_rewritten(steps[number - 1], known, places) for number in left])

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:
        """Give the right reply to the prompt of any role."""
        if not _is_of_swarm(prompt):
            return super().expert(prompt, reply)
        asked = step_question_in(prompt)
        match asked:
            case ToPlan():
                return Plan(steps=_listed(asked.problem))
            case ToWork():
                return _worked(asked)
            case ToAssemble():
                facts = _facts(asked.summary, asked.recent)
                return RelayTotal(total=facts.get(len(asked.plan), 0))
            case ToCompress():
                return Summary(summary=_written({**_facts(asked.summary, ()), **_facts(asked.done.result, ())}))
            case ToPick():
                return _picked(asked)
            case ToCheck():
                right = _is_right(asked.question, asked.reply, _results(_listed(asked.question.problem))[-1])
                return Check(
                    passed=right, feedback="" if right else "The number is not the one that this step leads to."
                )

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:
        """Give a wrong number, a plan or a summary without a part, another candidate, or the opposite of a check."""
        match right:
            case Contraction():
                more = rng.randint(1, 9)
                return Contraction(
                    question=re.sub(r"Add (\d+)", lambda found: f"Add {int(found[1]) + more}", right.question, count=1)
                )
            case _ if not _is_of_swarm(prompt):
                return super().mistake(prompt, right, rng)
            case StepResult():
                number = step_question_in(prompt).number  # type: ignore[union-attr]
                return StepResult(result=f"r{number} = {rng.randrange(100, 10_000)}", confidence=CONFIDENT)
            case Plan():
                return Plan(steps=right.steps[:-1] or ("Do nothing.",))
            case Summary():
                facts = _facts(right.summary, ())
                lost = rng.choice(sorted(facts)) if facts else None
                left = {step: result for step, result in facts.items() if step != lost}
                return Summary(summary=_written(left))
            case Check():
                return Check(
                    passed=not right.passed,
                    feedback="The number is not the one that this step leads to." if right.passed else "",
                )
            case Pick():
                asked = step_question_in(prompt)
                assert isinstance(asked, ToPick)
                others = [each.label for each in asked.candidates if each.label != right.choice]
                if asked.may_ask_for_more and right.choice != MORE:
                    others.append(MORE)
                return Pick(choice=rng.choice(others or [right.choice]), reason="It looks best.")
            case _:
                return one_field_altered(right, rng)

    def difficulty(self, prompt: Prompt, reply: type[Reply]) -> float:
        """Return the error rate of a role."""
        if not _is_of_swarm(prompt):
            asked = asked_in(prompt)
            if isinstance(asked, ToSolve | ToRevise | ToFollow):
                needed = _needed(_listed(asked.problem), set())
                return float(1 - (1 - WORKER_ERROR) ** len(needed))
            return OTHER_ERROR
        rates: dict[type[Reply], float] = {
            StepResult: WORKER_ERROR,
            Plan: PLAN_ERROR,
            Pick: JUDGE_ERROR,
            Check: VERIFIER_ERROR,
            Summary: DROP_RATE,
            RelayTotal: ASSEMBLY_ERROR,
        }
        return rates[reply]


def _is_of_swarm(prompt: Prompt) -> bool:
    wanted: object = msgspec.json.decode(prompt.user).get("wanted")
    return wanted in _OF_SWARM


def _stated(steps: Sequence[str]) -> str:
    listed = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    return f"Do these steps in their order. Write the result of step N as rN = RESULT.\n{listed}\nWhat is the result of the last step?"


def _before(step: str) -> int | None:
    """Read the number of the step whose result a step needs; None if it needs none."""
    match = _STEP.fullmatch(step)
    assert match is not None
    if match[3]:
        return int(match[3])
    return None


def _needed(steps: Sequence[str], known: AbstractSet[int]) -> list[int]:
    """List the numbers of the steps that lead to the last result, from those whose results are known."""
    found: list[int] = []
    number: int | None = len(steps)
    while number is not None and number not in known:
        found.append(number)
        number = _before(steps[number - 1])
    return found[::-1]


def _rewritten(step: str, known: Mapping[int, int], places: Mapping[int, int]) -> str:
    """Write a step with the number of a known result in its place, or with the new place of the step that it needs."""
    before = _before(step)
    if before is None:
        return step
    if before in places:
        given = f"the result of step {places[before]}"
    else:
        given = f"the number {known[before]}"
    return step.replace(f"the result of step {before}", given)


def _worked(asked: ToWork) -> StepResult:
    """Work out a step from the results that its question gives; without the one that it needs, the result is unsure."""
    match = _STEP.fullmatch(asked.step)
    if match is None:
        return StepResult(result="nothing", confidence=CONFIDENT)
    more, number, step = match.groups()
    before = int(number) if number else _facts(asked.summary, asked.recent).get(int(step))
    if before is None:
        return StepResult(result=f"The result of step {step} is not given.", confidence=0)
    return StepResult(result=f"r{asked.number} = {before + int(more)}", confidence=CONFIDENT)


def _picked(asked: ToPick) -> Pick:
    """Pick the candidate that is right by what the question gives; without one MORE, or else the first by label."""
    question = asked.question
    if isinstance(question, ToAssemble):
        total = _facts(question.summary, question.recent).get(len(question.plan))
    else:
        total = None
    good = [each.label for each in asked.candidates if _is_right(question, each.reply, total)]
    if good:
        return Pick(choice=min(good), reason="It is what this step leads to.")
    first = min(each.label for each in asked.candidates)
    return Pick(choice=MORE if asked.may_ask_for_more else first, reason="None of them is what this step leads to.")


def _is_right(question: StepQuestion, reply: Raw, total: int | None) -> bool:
    """Return whether a plan or a step is right by what its question gives; the whole is right with this total."""
    match question:
        case ToWork():
            return msgspec.json.decode(reply, type=StepResult).vote() == _worked(question).vote()
        case ToAssemble():
            return msgspec.json.decode(reply, type=RelayTotal).total == total
        case ToPlan():
            return msgspec.json.decode(reply, type=Plan).steps == _listed(question.problem)


def _listed(problem: str) -> tuple[str, ...]:
    return tuple(match[0] for match in _STEP.finditer(problem))


def _results(steps: tuple[str, ...]) -> tuple[int, ...]:
    results: list[int] = []
    for step in steps:
        match = _STEP.fullmatch(step)
        assert match is not None
        more, number, before = match.groups()
        results.append(int(more) + (int(number) if number else results[int(before) - 1]))
    return tuple(results)


def _facts(summary: str, recent: tuple[Done, ...]) -> dict[int, int]:
    """Read the results that a question gives, by the number of their step."""
    texts = [summary, *(each.result for each in recent)]
    return {int(step): int(result) for text in texts for step, result in _FACT.findall(text)}


def _written(facts: dict[int, int]) -> str:
    results = [f"r{step} = {result}" for step, result in sorted(facts.items())]
    return "; ".join(results) or "nothing"
