"""Questions about problems that are cut in two (MAKER, appendix F) or made simpler (Atom of Thoughts): their data, and the replies.

The data of a question are one JSON object in the user prompt, not part of a sentence: no text can leave its JSON string.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from graphlib import CycleError, TopologicalSorter
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from microagents.base.text_digests import digest_of
from microagents.elections.red_flags import CYCLE, EMPTY, EMPTY_QUESTION, OUT_OF_RANGE, SELF_DEPENDENCY
from microagents.replies.chat import Prompt
from microagents.replies.data_prompts import data_in, one_spaced
from microagents.replies.reply import CheckedReply, Reply

MAX_SUBQUESTIONS = 64


# Another docstring here would change the digests of questions: see `Reply`.
class Decomposition(Reply, frozen=True):
    """Two sub-problems, and how their answers make the whole one's. Without one of the three: "do not decompose"."""

    first: str
    second: str
    compose: str

    @property
    def is_atomic(self) -> bool:
        """Whether the problem should be answered directly, without cutting it."""
        return not (self.first.strip() and self.second.strip() and self.compose.strip())

    def vote(self) -> Hashable:
        """Return the three texts without regard to spacing; all atomic decompositions are equal."""
        if self.is_atomic:
            return None
        return tuple(one_spaced(text) for text in (self.first, self.second, self.compose))


ATOMIC = Decomposition(first="", second="", compose="")
"""The decomposition that says: do not decompose."""


class Choice(Reply, frozen=True):
    """The label of the candidate that is right."""

    choice: str

    def vote(self) -> str:
        """Return the label, without regard to case and blanks."""
        return self.choice.strip().upper()


class Subquestion(Struct, frozen=True):
    """A part of a way to an answer."""

    question: str
    answer: str
    needs: tuple[int, ...]
    """Indices of the subquestions whose answers it depends on, from 0."""


class Subquestions(CheckedReply, frozen=True):
    """The subquestions of a way to an answer, each with its own answer, and with the indices of the ones that it depends on."""

    nodes: Annotated[tuple[Subquestion, ...], Meta(min_length=1, max_length=MAX_SUBQUESTIONS)]

    def flaw(self) -> str | None:
        """Return the flag of subquestions that are no directed acyclic graph. None is repaired."""
        if not all(node.question.strip() for node in self.nodes):
            return EMPTY_QUESTION
        needed = {index for node in self.nodes for index in node.needs}
        if not needed <= {*range(len(self.nodes))}:
            return OUT_OF_RANGE
        if any(index in node.needs for index, node in enumerate(self.nodes)):
            return SELF_DEPENDENCY
        try:
            self._order()
        except CycleError:
            return CYCLE
        return None

    def vote(self) -> Hashable:
        """Return the subquestions without regard to spacing, and to the order in which one names what it needs."""
        return tuple(
            (one_spaced(node.question), one_spaced(node.answer), tuple(sorted({*node.needs}))) for node in self.nodes
        )

    @property
    def independent(self) -> list[Subquestion]:
        """Subquestions that need no other."""
        return [node for node in self.nodes if not node.needs]

    @property
    def dependent(self) -> list[Subquestion]:
        """Subquestions that need others."""
        return [node for node in self.nodes if node.needs]

    @property
    def longest_path(self) -> int:
        """Number of subquestions on the longest path: the depth of the graph."""
        lengths: dict[int, int] = {}
        for number in self._order():
            lengths[number] = 1 + max((lengths[index] for index in self.nodes[number].needs), default=0)
        return max(lengths.values())

    def _order(self) -> list[int]:
        needs = {index: node.needs for index, node in enumerate(self.nodes)}
        return [*TopologicalSorter(needs).static_order()]


class Contraction(CheckedReply, frozen=True):
    """A question that has the same answer and needs fewer steps, complete in itself."""

    question: str

    def flaw(self) -> str | None:
        """Return the flag of a blank question."""
        if self.question.strip():
            return None
        return EMPTY_QUESTION

    def vote(self) -> Hashable:
        """Return the question without regard to spacing."""
        return one_spaced(self.question)


class Thought(CheckedReply, frozen=True):
    """The next step of a way to an answer, with its result."""

    thought: str

    def flaw(self) -> str | None:
        """Return the flag of a blank thought."""
        if self.thought.strip():
            return None
        return EMPTY

    def vote(self) -> Hashable:
        """Return the thought without regard to spacing."""
        return one_spaced(self.thought)


class Thoughts(Reply, frozen=True):
    """The first steps of a way to an answer."""

    thoughts: tuple[str, ...]

    def vote(self) -> Hashable:
        """Return the thoughts without regard to spacing."""
        return tuple(map(one_spaced, self.thoughts))


class Critique(Reply, frozen=True):
    """What is wrong with an answer; empty where nothing is."""

    fault: str


class ToSolve(Struct, frozen=True, tag_field="wanted", tag="answer"):
    """Answer a problem directly."""

    problem: str


class ToDecompose(Struct, frozen=True, tag_field="wanted", tag="decomposition"):
    """Cut a problem in two."""

    problem: str


class ToCompose(Struct, frozen=True, tag_field="wanted", tag="composition"):
    """Compose the answer to a problem from the answers to its two sub-problems."""

    problem: str
    first: str
    answer_to_first: Raw
    second: str
    answer_to_second: Raw
    compose: str


class ToTrace(Struct, frozen=True, tag_field="wanted", tag="subquestions"):
    """Take the way to an answer apart into subquestions."""

    problem: str
    reasoning: str


class Known(Struct, frozen=True):
    """A subquestion with its answer."""

    question: str
    answer: str


class ToContract(Struct, frozen=True, tag_field="wanted", tag="contraction"):
    """Ask a problem anew, with what is known as conditions."""

    problem: str
    known: tuple[Known, ...] = ()
    open: tuple[str, ...] = ()
    """Subquestions that are still to be answered."""
    reasoning: str = ""
    """The way to an answer, if nothing was taken apart."""


class Planned(Struct, frozen=True):
    """A subquestion without its answer."""

    question: str
    needs: tuple[int, ...]


class ToFollow(Struct, frozen=True, tag_field="wanted", tag="answer_by_subquestions"):
    """Answer a problem by its subquestions, one after the other."""

    problem: str
    subquestions: tuple[Planned, ...]


class ToThink(Struct, frozen=True, tag_field="wanted", tag="thought"):
    """Take the next step to the answer."""

    problem: str
    thoughts: tuple[str, ...] = ()
    """The steps before it."""


class ToConclude(Struct, frozen=True, tag_field="wanted", tag="answer_after_thoughts"):
    """Answer a problem after the first steps of a way to its answer."""

    problem: str
    thoughts: tuple[str, ...]


class ToCriticize(Struct, frozen=True, tag_field="wanted", tag="critique"):
    """Find what is wrong with an answer."""

    problem: str
    reasoning: str
    answer: Raw


class ToRevise(Struct, frozen=True, tag_field="wanted", tag="revision"):
    """Answer a problem again, after what was wrong with an answer."""

    problem: str
    reasoning: str
    answer: Raw
    fault: str


class Labelled(Struct, frozen=True, omit_defaults=True):
    """A candidate in the prompt of a discriminator."""

    label: str
    reply: Raw
    copies: int | None = None
    """Number of samples that gave it; None if ballots do not see it."""


Votable = ToSolve | ToDecompose | ToCompose | ToTrace | ToContract | ToThink
"""Questions whose replies may be voted on."""


class ToChoose(Struct, frozen=True, tag_field="wanted", tag="choice"):
    """Choose the candidate that is the right reply to a question."""

    question: Votable
    candidates: tuple[Labelled, ...]


Asked = Votable | ToFollow | ToConclude | ToCriticize | ToRevise | ToChoose
_decoder: msgspec.json.Decoder[Asked] = msgspec.json.Decoder(Asked)


def asked_in(prompt: Prompt) -> Asked:
    """Read the data of a question from the text of its prompt.

    Raises:
        InvalidDefinition: the prompt is of another kind.
    """
    return data_in(prompt, _decoder, "a problem")


def without_cycles(
    proposed: Iterable[Decomposition], problem: str, above: Iterable[bytes]
) -> tuple[Decomposition, ...]:
    """Drop decompositions that repeat the problem or one of its ancestors (``above``), since these would never end."""
    seen = {*above, problem_id(problem)}
    new = []
    for each in proposed:
        if each.is_atomic or seen.isdisjoint((problem_id(each.first), problem_id(each.second))):
            new.append(each)  # noqa: PERF401 - two ideas
    return tuple(new)


def problem_id(problem: str) -> bytes:
    """Digest of the words of a problem. Texts that differ only in spacing have the same id."""
    return digest_of(one_spaced(problem))
