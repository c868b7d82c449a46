"""Word problems with a known graph of steps, for Atom of Thoughts: who has how many, given in relations that build on each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from math import exp
from random import Random
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Struct
from pydantic import Field

from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.replies.trajectories import Trajectory
from microagents.systems.documents.questions import REPLIES, Segment
from microagents.systems.documents.reasoned_text import WrittenProblem
from microagents.systems.questions.questions import (
    ATOMIC,
    Contraction,
    Decomposition,
    Subquestion,
    Subquestions,
    Thought,
    ToCompose,
    ToConclude,
    ToContract,
    ToCriticize,
    ToFollow,
    ToRevise,
    ToSolve,
    ToThink,
    ToTrace,
    asked_in,
)

# The error rates of the simulated model. They are fixed: they test the engine, not a real model.
ANSWER_ERROR = (0.05, 1.5)
"""a and b of the error rate 1 - exp(-a n^b) of an answer in one go to a question of n steps: 0.13 for 2, 0.43 for 5, 0.74 for 9."""
FOLLOWED_ERROR = 0.05
"""Error rate of each step of an answer along given subquestions: 0.10 for 2 steps, 0.22 for 5, 0.36 for 9. The same for a thought, or a
segment of written reasoning."""
TRACE_ERROR = 0.01
"""Share of graphs of subquestions in which the answer to one that needs no other is wrong."""
CONTRACTION_ERROR = 0.02
"""Share of contractions whose answer is another one."""
UNGUIDED_ERROR = 0.15
"""The same without the graph of subquestions."""
CRITIQUE_ERROR = 0.2
"""Share of critiques that find a fault in a right answer, or none in a wrong one."""
JUDGE_ERROR = 0.1
"""Share of ballots for another candidate than the right one."""
MAX_SLIP = 20
"""Greatest amount by which a wrong step is off."""

NAMES = ("Ana", "Bo", "Cy", "Dan", "Eve", "Fay", "Gus", "Hal", "Ida", "Jo", "Kit", "Lea", "Max", "Nia", "Oto", "Pia")
ITEMS = ("apples", "coins", "stamps", "shells", "cards")
_TIMES = {2: "twice", 3: "three times", 4: "four times"}
_GIVEN = re.compile(r"(\w+) has (-?\d+) (\w+)\.")
_SHIFTED = re.compile(r"(\w+) has (\d+) (more|fewer) \w+ than (\w+)\.")
_SCALED = re.compile(r"(\w+) has (twice|three times|four times) as many \w+ as (\w+)\.")
_SUMMED = re.compile(r"(\w+) has as many \w+ as (\w+) and (\w+) together\.")
_ASKED = re.compile(r"How many (\w+) does (\w+) have\?")


class Total(Reply, frozen=True):
    """The number that is asked for."""

    total: int


class Fact(Struct, frozen=True):
    """A fact about one person of a story."""

    name: str
    kind: Literal["given", "more", "fewer", "times", "sum"]
    number: int = 0
    of: tuple[str, ...] = ()
    """The persons whose numbers it builds on."""

    def value(self, values: dict[str, int]) -> int:
        """Compute the number of the person, from the others' numbers."""
        match self.kind:
            case "given":
                return self.number
            case "more":
                return values[self.of[0]] + self.number
            case "fewer":
                return values[self.of[0]] - self.number
            case "times":
                return values[self.of[0]] * self.number
        return sum(values[name] for name in self.of)

    def sentence(self, item: str) -> str:
        """Write it as a sentence."""
        match self.kind:
            case "given":
                return f"{self.name} has {self.number} {item}."
            case "times":
                return f"{self.name} has {_TIMES[self.number]} as many {item} as {self.of[0]}."
            case "sum":
                return f"{self.name} has as many {item} as {self.of[0]} and {self.of[1]} together."
        return f"{self.name} has {self.number} {self.kind} {item} than {self.of[0]}."


class Story(Struct, frozen=True):
    """A word problem, read from its text."""

    item: str
    facts: tuple[Fact, ...]
    asked: str
    """The person whose number is asked for."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a text."""
        asked = _ASKED.search(text)
        if asked is None:
            raise ValueError(f"{text!r:.80} asks for nobody's number")
        factors = {words: factor for factor, words in _TIMES.items()}
        facts = [
            *(Fact(name, "given", int(number)) for name, number, _ in _GIVEN.findall(text)),
            *(
                Fact(name, "more" if kind == "more" else "fewer", int(number), (of,))
                for name, number, kind, of in _SHIFTED.findall(text)
            ),
            *(Fact(name, "times", factors[words], (of,)) for name, words, of in _SCALED.findall(text)),
            *(Fact(name, "sum", of=(first, second)) for name, first, second in _SUMMED.findall(text)),
        ]
        return cls(asked[1], tuple(facts), asked[2])

    def text(self) -> str:
        """Write the sentences, and the question behind them."""
        return " ".join([*(fact.sentence(self.item) for fact in self.facts), self.question(self.asked)])

    def question(self, name: str) -> str:
        """Write the question for one person's number."""
        return f"How many {self.item} does {name} have?"

    def order(self) -> list[Fact]:
        """List the facts that lead to the number, each behind the facts that it builds on."""
        by_name, found = {fact.name: fact for fact in self.facts}, dict[str, Fact]()

        def visit(name: str) -> None:
            if name not in found:
                for each in by_name[name].of:
                    visit(each)
                found[name] = by_name[name]

        visit(self.asked)
        return [*found.values()]

    def steps(self) -> list[Fact]:
        """List the relations that lead to the number."""
        return [fact for fact in self.order() if fact.of]

    def values(self, slip: tuple[str, int] = ("", 0)) -> dict[str, int]:
        """Compute the numbers of all persons; one may be off by an amount, and with it all that build on it."""
        values: dict[str, int] = {}
        for fact in self.order():
            values[fact.name] = fact.value(values) + (slip[1] if fact.name == slip[0] else 0)
        return values

    def with_givens(self, known: dict[str, int]) -> Story:
        """Return the story with the numbers of some persons as given facts, without what is no longer needed."""
        given = {name: Fact(name, "given", value) for name, value in known.items()}
        facts = tuple([given.get(fact.name, fact) for fact in self.facts])
        needed = {fact.name for fact in Story(self.item, facts, self.asked).order()}
        return Story(self.item, tuple(fact for fact in facts if fact.name in needed), self.asked)

    def reasoning(self, values: dict[str, int]) -> str:
        """Write the way to the number, step by step."""
        lines = []
        for fact in self.steps():
            used = " and ".join(f"{name} has {values[name]}" for name in fact.of)
            told = fact.sentence(self.item)
            lines.append(
                f"The story says: {told} I have found that {used}, so {fact.name} has {values[fact.name]} {self.item}."
            )
        return " ".join(lines)


class WordProblem(WrittenProblem[Total]):
    """A story about who has how many, with a question that takes a known number of steps.

    The simulated model errs the more often the more steps a question takes in one go. Its error rates are fixed: they test the engine, not
    a real model.
    """

    default_strategy = "aot"

    depth: Annotated[int, Field(ge=1, le=7)] | None = None
    """Number of steps that build on each other; from 2 to 5, by the instance, if not given."""
    instance: Annotated[int, Field(ge=0)] = 0
    """Number of the random story."""

    @cached_property
    def story(self) -> Story:
        """Story."""
        rng = Random(f"{self.depth} {self.instance}")  # noqa: S311 - seeded on purpose
        depth = rng.randint(2, 5) if self.depth is None else self.depth
        names = rng.sample(NAMES, len(NAMES))
        widths = [*(rng.randint(1, 2) for _ in range(depth - 1)), 1]
        facts = [Fact(names.pop(), "given", rng.randint(3, 20)) for _ in range(widths[0])]
        before = [fact.name for fact in facts]
        for width in widths:
            layer = []
            for place in range(width):
                of = tuple(before) if len(before) > width else (before[place % len(before)],)
                layer.append(_relation(names.pop(), of, rng))
            facts += layer
            before = [fact.name for fact in layer]
        asked = facts[-1].name
        rng.shuffle(facts)
        return Story(rng.choice(ITEMS), tuple(facts), asked)

    def statement(self) -> str:
        return self.story.text()

    def correct(self, reply: Total) -> bool:
        return reply.total == self.story.values()[self.story.asked]

    def variant(self, number: int) -> Self:
        """Return another story."""
        return type(self)(depth=self.depth, instance=self.instance + number)

    def expert_answer(self, problem: str) -> Total:
        story = Story.read(problem)
        return Total(total=story.values()[story.asked])

    def expert_reasoning(self, problem: str) -> str:
        story = Story.read(problem)
        return story.reasoning(story.values())

    def expert_subquestions(self, problem: str) -> Subquestions:
        story = Story.read(problem)
        steps, values = story.steps(), story.values()
        places = {fact.name: place for place, fact in enumerate(steps)}
        nodes = []
        for fact in steps:
            needs = dict.fromkeys(places[name] for name in fact.of if name in places)
            question, answer = story.question(fact.name), str(values[fact.name])
            nodes.append(Subquestion(question=question, answer=answer, needs=tuple(needs)))
        return Subquestions(nodes=tuple(nodes))

    def expert_contraction(self, asked: ToContract) -> str:
        """Write the story with known numbers given; without the subquestions that build only on given facts."""
        story = Story.read(asked.problem)
        known = {_person(each.question): int(each.answer) for each in asked.known}
        if not known:
            given, values = {fact.name for fact in story.order() if not fact.of}, story.values()
            known = {fact.name: values[fact.name] for fact in story.steps() if given.issuperset(fact.of)}
        return story.with_givens(known).text()

    def expert_thought(self, problem: str) -> str:
        story = Story.read(problem)
        step = (story.steps() or story.order())[0]
        return f"{story.question(step.name)} {story.values()[step.name]}"

    def after_thoughts(self, problem: str, thoughts: Sequence[str]) -> str:
        """Write the story with the numbers that thoughts have found given; the last one counts."""
        return Story.read(problem).with_givens(_found(thoughts)).text()

    def steps_of(self, problem: str) -> int:
        return len(Story.read(problem).steps())

    def expert_decomposition(self, problem: str) -> Decomposition:  # noqa: ARG002 - the same for all
        """Do not cut: the steps build on each other."""
        return ATOMIC

    def expert_composition(self, asked: ToCompose) -> Total:
        return msgspec.json.decode(asked.answer_to_first, type=Total)

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:
        """Make a wrong step, and all that follows from it; in a contraction a given number that is off."""
        if type(right) in REPLIES.values():
            return super().mistake(prompt, right, rng)
        asked = asked_in(prompt)
        match asked:
            case ToSolve() | ToFollow() | ToConclude() | ToRevise():
                story = Story.read(self.left_of(asked))
                fact = rng.choice(story.steps() or story.order())
                wrong = story.values((fact.name, _slip(rng)))
                total = Total(total=wrong[story.asked])
                if isinstance(right, Trajectory):
                    return msgspec.structs.replace(right, reasoning=story.reasoning(wrong), answer=total)
                return total
            case ToContract():
                assert isinstance(right, Contraction)
                story = Story.read(right.question)
                given = rng.choice([fact for fact in story.order() if not fact.of])
                changed = story.with_givens({given.name: given.number + _slip(rng)})
                return Contraction(question=changed.text())
            case ToThink():
                assert isinstance(right, Thought)
                question, _, number = right.thought.rpartition(" ")
                return Thought(thought=f"{question} {int(number) + _slip(rng)}")
        return super().mistake(prompt, right, rng)

    def difficulty(self, prompt: Prompt, reply: type[Reply]) -> float:
        if reply in REPLIES.values():
            return FOLLOWED_ERROR if reply is Segment else JUDGE_ERROR
        asked = asked_in(prompt)
        match asked:
            case ToSolve() | ToConclude() | ToRevise():
                a, b = ANSWER_ERROR
                return 1 - exp(-a * self.steps_of(self.left_of(asked)) ** b)
            case ToThink():
                return FOLLOWED_ERROR
            case ToFollow():
                return 1 - (1 - FOLLOWED_ERROR) ** len(asked.subquestions)
            case ToTrace():
                return TRACE_ERROR
            case ToContract():
                return CONTRACTION_ERROR if asked.open else UNGUIDED_ERROR
            case ToCriticize():
                return CRITIQUE_ERROR
        return JUDGE_ERROR


def _relation(name: str, of: tuple[str, ...], rng: Random) -> Fact:
    if len(of) > 1:
        return Fact(name, "sum", of=of)
    match rng.choice(("more", "fewer", "times")):
        case "more":
            return Fact(name, "more", rng.randint(2, 15), of)
        case "fewer":
            return Fact(name, "fewer", 1, of)
    return Fact(name, "times", rng.choice(tuple(_TIMES)), of)


def _slip(rng: Random) -> int:
    return rng.choice((-1, 1)) * rng.randint(1, MAX_SLIP)


def _found(thoughts: Sequence[str]) -> dict[str, int]:
    """Return the numbers that thoughts have found, by person."""
    return {_person(each): int(each.rpartition(" ")[2]) for each in thoughts}


def _person(question: str) -> str:
    asked = _ASKED.search(question)
    assert asked is not None
    return asked[2]
