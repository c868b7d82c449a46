"""SeqCV: segments written one after another, validated by all agents, and split if they cannot agree (Yao et al., NeurIPS 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from microagents.base.errors import InvalidUsage
from microagents.systems.documents.document_conductor import DocumentConductor, DocumentWork
from microagents.systems.documents.questions import ToRank, ToSplit, ToValidate
from microagents.systems.documents.roles import Rank, Ranker, Split, Splitter, Validate, Validator
from microagents.systems.documents.strategy import MANNERS, Author, DocumentStrategy
from microagents.systems.documents.writing import Answer, Missing, QuestionBatch, SegmentQuestion
from microagents.systems.questions.problem import Problem
from microagents.systems.questions.turns import sampling_at
from microagents.work.absence import PanelCall, gather_present

JUDGE_TEMPERATURE = 0.0
"""Of judgements and rankings."""
ABSENT_AFTER_S = 300.0
"""Time after which the panel continues without an agent that does not answer, if enough others have."""


class SeqCVConductor(DocumentConductor):
    """Has every segment validated, and splits subtasks."""

    asks = (Validate, Split, Rank)

    async def answer(self, work: DocumentWork, ask: SegmentQuestion, agents: Sequence[Author]) -> Answer:
        """Put a question to the validator, the splitter or the ranker; others as in the base class."""
        strategy = work.strategy
        assert isinstance(strategy, SeqCV)
        agent = Author(model=None) if ask.agent is None else agents[ask.agent]
        judged: dict[str, Any] = {
            "model": agent.model,
            "max_draws": strategy.max_draws,
            "sampling": sampling_at(work.task, JUDGE_TEMPERATURE),
        }
        request: Any
        match ask.asked:
            case ToValidate() as asked:
                request = Validate(at=ask.at, asked=asked, manners=(agent.manner,), **judged)
            case ToSplit() as asked:
                request = Split(
                    at=ask.at, asked=asked, max_draws=1, sampling=sampling_at(work.task, strategy.temperature)
                )
            case ToRank() as asked:
                request = Rank(at=ask.at, asked=asked, **judged)
            case _:
                return await super().answer(work, ask, agents)
        replies = await work.ask(request)
        return replies[0] if replies else Missing.FLAGGED

    async def ask_batch(self, work: DocumentWork, batch: QuestionBatch, agents: Sequence[Author]) -> Sequence[Answer]:
        """Ask all questions of a batch at the same time, and go on without agents that do not answer in time."""
        if batch.quorum is None:
            return await super().ask_batch(work, batch, agents)
        calls = [
            PanelCall(ask.at, ask.agent, partial(self.answered, work, ask, agents))
            for ask in batch.asks
            if ask.agent is not None
        ]
        answers = await gather_present(work, batch.at, calls, quorum=batch.quorum, absent_after_s=ABSENT_AFTER_S)
        return [Missing.ABSENT if answer is None else answer for answer in answers]


class SeqCV(DocumentStrategy):
    """Sequential execution with cross-model validation: every agent writes, every agent judges, and disagreement splits the subtask."""

    solves = (Problem,)
    conductor = SeqCVConductor
    validated = True
    roles = (Validator, Splitter, Ranker)

    same_model: bool = False
    """Let one model play three agents; they then have different prompts, and the result says so."""
    depth: Annotated[int, Field(ge=0, le=16)] = 2
    """Maximum number of splits above a subtask. A deeper one takes the segment with most approvals, and is marked as not agreed."""

    def check_models(self, pool: Sequence[str]) -> None:
        """Refuse pools with which no cross-model panel can be formed."""
        self.agents(pool)

    def agents(self, pool: Sequence[str]) -> list[Author]:
        """Return the agents: one for each model, or three with one model."""
        models = list(dict.fromkeys(pool))
        if len(models) > 1:
            return [Author(model=each) for each in models]
        if not self.same_model:
            raise InvalidUsage(
                f"seqcv has each segment judged by other models, and there is only {models[0]!r}; name two or more with --model, or let "
                "one model play all agents with -s same_model=true"
            )
        return [Author(model=models[0], manner=each) for each in MANNERS]
