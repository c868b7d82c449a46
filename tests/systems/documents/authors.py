"""A writing that is sent replies by a function, without models: what each agent is asked, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from microagents.systems.documents import (
    Part,
    Parts,
    Ranking,
    Segment,
    SegmentSummary,
    ToRank,
    ToSplit,
    ToSummarize,
    ToValidate,
    ToWrite,
    Validation,
)
from microagents.systems.documents.seqcv import SeqCV
from microagents.systems.documents.strategy import DocumentStrategy
from microagents.systems.documents.writing import Answer, DocumentDraft, QuestionBatch, SegmentQuestion

Author = Callable[[SegmentQuestion], Answer]


class Rules(NamedTuple):
    """How a document is written."""

    strategy: DocumentStrategy
    agents: int


def rules(agents: int = 3, strategy: type[DocumentStrategy] = SeqCV, **changed: Any) -> Rules:
    """By default SeqCV with so many agents."""
    return Rules(strategy(**changed), agents)


def segment(
    text: str, status: Literal["ongoing", "complete"] = "complete", mode: Literal["continue", "override"] = "continue"
) -> Segment:
    return Segment(justify="", text=text, status=status, mode=mode)


def yes(passes: bool = True) -> Validation:  # noqa: FBT001, FBT002 - the reply to a question
    return Validation(reason="so it is", passes=passes)


NO = yes(passes=False)


def parts(*objectives: str, depends_on: Sequence[Sequence[int]] = ()) -> Parts:
    """Parts with these objectives; without dependencies they are independent."""
    needs = [tuple(each) for each in depends_on] or [()] * len(objectives)
    return Parts(
        subtasks=tuple(Part(id=place, objective=each, depends_on=needs[place]) for place, each in enumerate(objectives))
    )


class Authors:
    """Replies by kind of question; a kind without a function is answered as by agents who agree at once. Keeps every turn."""

    def __init__(
        self,
        *,
        write: Callable[[SegmentQuestion, ToWrite], Answer] | None = None,
        validate: Callable[[SegmentQuestion, ToValidate], Answer] | None = None,
        split: Callable[[SegmentQuestion, ToSplit], Answer] | None = None,
        rank: Callable[[SegmentQuestion, ToRank], Answer] | None = None,
    ) -> None:
        self.turns: list[QuestionBatch] = []
        self._write, self._validate, self._split, self._rank = write, validate, split, rank

    @property
    def asked(self) -> list[SegmentQuestion]:
        return [ask for turn in self.turns for ask in turn.asks]

    def asked_at(self, part: str) -> list[SegmentQuestion]:
        """The questions whose place contains a text."""
        return [ask for ask in self.asked if part in ask.at]

    def answer(self, ask: SegmentQuestion) -> Answer:
        match ask.asked:
            case ToWrite():
                return self._write(ask, ask.asked) if self._write else segment(f"{ask.asked.subtask}.")
            case ToValidate():
                return self._validate(ask, ask.asked) if self._validate else yes()
            case ToSplit():
                return (
                    self._split(ask, ask.asked)
                    if self._split
                    else parts(f"{ask.asked.subtask}, a", f"{ask.asked.subtask}, b")
                )
            case ToRank():
                best, second, *_ = ask.asked.versions
                return (
                    self._rank(ask, ask.asked)
                    if self._rank
                    else Ranking(reason="", best=best.label, second=second.label)
                )
            case ToSummarize():
                return SegmentSummary(summary="shorter")


def write_whole(authors: Authors, how: Rules, given: Sequence[Part] = (), objective: str = "whole") -> DocumentDraft:
    """Write a document to its end, one subtask after the other."""

    async def ask(batch: QuestionBatch) -> list[Answer]:
        authors.turns.append(batch)
        return [authors.answer(each) for each in batch.asks]

    writing = DocumentDraft(objective, given, how.strategy, how.agents, ask)

    async def write() -> None:
        while ready := writing.take_ready():
            for record in ready:
                await writing.write(record)

    asyncio.run(write())
    return writing
