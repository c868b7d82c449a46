"""Problems whose reasoning is written as a text, segment by segment: the text ends with the answer."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Generic

from microagents.replies.data_prompts import prompt_of
from microagents.replies.parsing import Malformed, parse
from microagents.replies.reply import A
from microagents.replies.reply_forms import json_form, write
from microagents.systems.documents.document import TextExpert
from microagents.systems.documents.questions import (
    Part,
    Parts,
    Segment,
    ToRank,
    ToSplit,
    ToValidate,
    ToWrite,
    Validation,
)
from microagents.systems.questions.problem import Problem, WorkedProblem, answer_type_of, text_of
from microagents.systems.questions.questions import Thought, ToSolve, ToThink

ENDING = """Write the reasoning that leads to the answer to this problem, step by step, with every intermediate result. The text ends with \
the answer: on the last line of its last part, one JSON object of this form: """
FIRST_STEP = "Take the first step that is still to be taken, and state its result."
OTHER_STEPS = "Take all other steps, one after the other, and give the answer in the form that is asked for."


def objective_of(problem: Problem) -> str:
    """Return the objective of a text that solves a problem."""
    return f"{text_of(problem)}\n\n{ENDING}{json_form(answer_type_of(problem))}"


def answer_in(text: str, reply: type[A]) -> A | None:
    """Read the answer that a text ends with; None if it ends otherwise."""
    with suppress(Malformed):
        return parse(text, reply, "json")
    return None


class WrittenProblem(TextExpert, WorkedProblem[A], Generic[A]):
    """A problem whose reasoning code can write, too: one thought a segment, and the answer last."""

    def expert_segment(self, asked: ToWrite) -> Segment:
        """Write the next thought, or the answer if only one step is left."""
        left = self._left(asked.objective, asked.finished, asked.written)
        if asked.subtask != FIRST_STEP and self.steps_of(left) <= 1:
            return _segment(write(self.expert_answer(left), "json"), is_last=True)
        return _segment(self.expert_thought(left), is_last=asked.subtask == FIRST_STEP)

    def mistaken_segment(self, asked: ToWrite, right: Segment, rng: Random) -> Segment:
        """Write a wrong thought, or a wrong answer."""
        left = self._left(asked.objective, asked.finished, asked.written)
        answer, is_last = answer_in(right.text, self.reply_type()), right.status == "complete"
        if answer is not None:
            wrong = self.mistake(prompt_of("", ToSolve(problem=left)), answer, rng)
            return _segment(write(wrong, "json"), is_last=is_last)
        wrong = self.mistake(prompt_of("", ToThink(problem=left)), Thought(thought=right.text), rng)
        assert isinstance(wrong, Thought)
        return _segment(wrong.thought, is_last=is_last)

    def expert_validation(self, asked: ToValidate) -> Validation:
        """Approve a segment after which the answer is still the right one, and which does not end before the answer."""
        written = asked.written if asked.mode == "continue" else ""
        is_right = self._is_right(asked.objective, asked.finished, written, asked.segment)
        is_ended = asked.subtask == FIRST_STEP or answer_in(asked.segment, self.reply_type()) is not None
        passes = is_right and (asked.status == "ongoing" or is_ended)
        return Validation(reason="compared with the answer that follows", passes=passes)

    def expert_parts(self, asked: ToSplit) -> Parts:  # noqa: ARG002 - the same for all
        """Split off the first step."""
        first, others = (
            Part(id=1, objective=FIRST_STEP, depends_on=()),
            Part(id=2, objective=OTHER_STEPS, depends_on=(1,)),
        )
        return Parts(subtasks=(first, others))

    def faults_in(self, asked: ToRank, text: str) -> int:
        """Count one fault in a text that leads to a wrong answer."""
        return int(not self._is_right(asked.objective, asked.finished, text))

    def _left(self, objective: str, *texts: str) -> str:
        """Return the part of a problem that texts leave to be solved."""
        lines: Iterable[str] = [line for text in texts for line in text.splitlines() if line.strip()]
        reply = self.reply_type()
        thoughts = tuple(line for line in lines if answer_in(line, reply) is None)
        return self.left_of(ToThink(problem=objective.rpartition("\n\n")[0], thoughts=thoughts))

    def _is_right(self, objective: str, *texts: str) -> bool:
        right = self.expert_answer(self._left(objective)).vote()
        answer = answer_in(texts[-1], self.reply_type()) or self.expert_answer(self._left(objective, *texts))
        return bool(answer.vote() == right)


def _segment(text: str, *, is_last: bool) -> Segment:
    return Segment(justify="the next step", text=text, status="complete" if is_last else "ongoing", mode="continue")
