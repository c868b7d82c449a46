"""Documents: problems whose answer is a long text, written in subtasks and segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from microagents.replies.chat import Prompt
from microagents.replies.model_replies import as_reply
from microagents.replies.reply import Reply
from microagents.systems.documents.questions import (
    REPLIES,
    Part,
    Parts,
    Ranking,
    Segment,
    SegmentSummary,
    Text,
    ToRank,
    ToSplit,
    ToSummarize,
    ToValidate,
    ToWrite,
    Validation,
    asked_in,
)
from microagents.systems.questions.problem import Problem
from microagents.task import Task


class Document(Problem[Text]):
    """A long text with an objective. Its statement is the objective of the whole."""

    default_strategy = "seqcv"
    progress_unit = "subtask"

    def subtasks(self) -> Sequence[Part]:
        """Give the graph of subtasks; by default none, and the whole is one subtask."""
        return ()

    def output_path(self) -> Path | None:
        """Give the file that the text is written into by the process that started the run; None for no file."""
        return None

    def checks(self, text: str) -> dict[str, bool | None]:  # noqa: ARG002 - for documents to override
        """Check the hard requirements on the finished text, by name; None for one that cannot be checked here."""
        return {}

    def correct(self, reply: Text) -> bool | None:
        """Return whether all hard requirements are met; None if one cannot be checked, or if there is none."""
        return are_met(self.checks(reply.text))


def are_met(checks: Mapping[str, bool | None]) -> bool | None:
    """Return whether all hard requirements are met. None without any, or if one cannot be checked and none fails."""
    met = list(checks.values())
    if not met or (None in met and False not in met):
        return None
    return all(met)


class TextExpert(Task[Any]):
    """Writes and judges a text, as the simulated model does in every role. Other questions go to the next class."""

    def expert_segment(self, asked: ToWrite) -> Segment:
        """Write the segment that an author who sees only the question writes."""
        raise NotImplementedError

    def mistaken_segment(self, asked: ToWrite, right: Segment, rng: Random) -> Segment:
        """Write a wrong segment in place of the right one."""
        raise NotImplementedError

    def expert_validation(self, asked: ToValidate) -> Validation:
        """Judge a segment rightly."""
        raise NotImplementedError

    def expert_parts(self, asked: ToSplit) -> Parts:
        """Split a subtask well."""
        raise NotImplementedError

    def faults_in(self, asked: ToRank, text: str) -> int:
        """Count the faults in a version of a subtask's text, for its rank."""
        raise NotImplementedError

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:
        """Give the right reply to the prompt of any role."""
        if reply not in REPLIES.values():
            return as_reply(super().expert(prompt, reply))
        asked = asked_in(prompt)
        match asked:
            case ToWrite():
                return self.expert_segment(asked)
            case ToValidate():
                return self.expert_validation(asked)
            case ToSplit():
                return self.expert_parts(asked)
            case ToRank():
                best, second, *_ = sorted(
                    asked.versions, key=lambda each: (self.faults_in(asked, each.text), each.label)
                )
                return Ranking(reason="fewest faults", best=best.label, second=second.label)
            case ToSummarize():
                return SegmentSummary(summary=asked.text)

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:
        """Give a wrong segment, the opposite judgement, a split that is none, the reverse ranking, an empty summary."""
        if type(right) not in REPLIES.values():
            return super().mistake(prompt, right, rng)
        asked = asked_in(prompt)
        match right, asked:
            case Segment(), ToWrite():
                return self.mistaken_segment(asked, right, rng)
            case Validation(), _:
                return Validation(reason="a wrong judgement", passes=not right.passes)
            case Parts(), ToSplit():
                return Parts(subtasks=(Part(id=0, objective=asked.subtask, depends_on=()),))
            case Ranking(), _:
                return Ranking(reason="a wrong ranking", best=right.second, second=right.best)
            case _:
                return SegmentSummary(summary="")


class WorkedDocument(TextExpert, Document):
    """A document that code can write, so that the simulated model can take every role."""


def text_in(value: object) -> str | None:
    """Read the text from the result of a document; None if it is the result of something else."""
    match value:
        case {"answer": {"text": str(text)}}:
            return text
    return None
