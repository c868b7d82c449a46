"""Questions about work in steps whose answers are prose: plans, results of steps, judgements and checks, and the replies to them.

As in `microagents.systems.questions.questions`, the data of a question are one JSON object in the user prompt. No text is cut.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from microagents.elections.red_flags import EMPTY, UNSURE
from microagents.replies.chat import Prompt
from microagents.replies.data_prompts import data_in, one_spaced
from microagents.replies.reply import CheckedReply, Reply
from microagents.replies.reply_fields import Unvoted
from microagents.systems.questions.questions import Labelled
from microagents.work.prose import flaw_of

MAX_STEPS = 1000
LEAST_CONFIDENCE = 3
"""A result with less confidence is flagged as `unsure`."""
MORE = "MORE"
"""The choice of a judge who asks for more results."""


# Other docstrings of replies would change the digests of questions: see `Reply`.
class Plan(CheckedReply, frozen=True):
    """The steps of the work, in their order."""

    steps: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_STEPS)]

    def flaw(self) -> str | None:
        """``empty`` if a step has no text."""
        if all(step.strip() for step in self.steps):
            return None
        return EMPTY

    def vote(self) -> Hashable:
        """Return the steps without regard to spacing."""
        return tuple(one_spaced(step) for step in self.steps)


class StepResult(CheckedReply, frozen=True):
    """The result of a step, and how sure you are of it, from 0 to 10."""

    result: str
    confidence: Annotated[int, Meta(ge=0, le=10), Unvoted]

    def flaw(self) -> str | None:
        """``empty``, ``too_long`` (over 3,000 characters), ``refusal`` or ``unsure`` (confidence below 3)."""
        return flaw_of(self.result) or (UNSURE if self.confidence < LEAST_CONFIDENCE else None)

    def vote(self) -> str:
        """Return the result without regard to spacing."""
        return one_spaced(self.result)


class Pick(Reply, frozen=True):
    """The reason for your choice, and the label of the candidate, or MORE."""

    reason: Annotated[str, Unvoted]
    choice: str

    def vote(self) -> str:
        """Return the label, without regard to case and blanks."""
        return self.choice.strip().upper()


class Check(Reply, frozen=True):
    """Whether it passes, and otherwise its faults."""

    feedback: Annotated[str, Unvoted]
    passed: bool


class Done(Struct, frozen=True):
    """A finished step with its result."""

    number: int
    step: str
    result: str


class RejectedResult(Struct, frozen=True):
    """A result that did not pass, and why."""

    result: str
    feedback: str


class ToPlan(Struct, frozen=True, tag_field="wanted", tag="plan", omit_defaults=True):
    """List the steps that lead to the answer to a problem."""

    problem: str
    lessons: tuple[str, ...] = ()
    """What went wrong in earlier attempts."""


class ToWork(Struct, frozen=True, tag_field="wanted", tag="result", omit_defaults=True):
    """Do one step."""

    problem: str
    plan: tuple[str, ...]
    number: int
    """Number of the step, from 1."""
    step: str
    summary: str = ""
    """Summary of the finished steps before the recent ones."""
    recent: tuple[Done, ...] = ()
    lessons: tuple[str, ...] = ()
    rejected: tuple[RejectedResult, ...] = ()


class ToAssemble(Struct, frozen=True, tag_field="wanted", tag="whole", omit_defaults=True):
    """Make the answer to a problem from the results of its steps."""

    problem: str
    plan: tuple[str, ...]
    summary: str = ""
    recent: tuple[Done, ...] = ()
    lessons: tuple[str, ...] = ()


class ToCompress(Struct, frozen=True, tag_field="wanted", tag="summary", omit_defaults=True):
    """Take one more finished step into a summary."""

    problem: str
    plan: tuple[str, ...]
    done: Done
    summary: str = ""
    lessons: tuple[str, ...] = ()


StepQuestion = ToPlan | ToWork | ToAssemble
"""Questions that several workers answer, and a judge picks from."""


class ToPick(Struct, frozen=True, tag_field="wanted", tag="pick"):
    """Pick the best of several replies to a question, or ask for more of them."""

    question: StepQuestion
    candidates: tuple[Labelled, ...]
    may_ask_for_more: bool


class ToCheck(Struct, frozen=True, tag_field="wanted", tag="check"):
    """Check a reply to a question."""

    question: StepQuestion
    reply: Raw


AskedInSteps = StepQuestion | ToCompress | ToPick | ToCheck
_decoder: msgspec.json.Decoder[AskedInSteps] = msgspec.json.Decoder(AskedInSteps)


def step_question_in(prompt: Prompt) -> AskedInSteps:
    """Read the data of a question from the text of its prompt."""
    return data_in(prompt, _decoder, "work in steps")
