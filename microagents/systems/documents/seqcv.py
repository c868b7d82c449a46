"""SeqCV: segments written one after another, validated by all agents, and split if they cannot agree (Yao et al., NeurIPS 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import Field

from microagents.base.errors import InvalidUsage
from microagents.systems.documents.document_conductor import (
    MANNERS,
    Author,
    DocumentConductor,
    DocumentStrategy,
    DocumentWork,
)
from microagents.systems.documents.writing import Answer, Missing, QuestionBatch
from microagents.systems.questions.problem import Problem
from microagents.work.absence import PanelCall, Quorum, gather_present

ABSENT_AFTER_S = 300.0
"""Time after which the panel continues without an agent that does not answer, if enough others have."""


class SeqCVConductor(DocumentConductor):
    """Goes on without agents that do not answer."""

    async def ask_batch(self, work: DocumentWork, batch: QuestionBatch, agents: Sequence[Author]) -> Sequence[Answer]:
        """Ask all questions of a batch at the same time, and go on without agents that do not answer in time."""
        if batch.quorum is None:
            return await super().ask_batch(work, batch, agents)
        calls = [
            PanelCall(ask.at, ask.agent, partial(self.answer, work, ask, agents))
            for ask in batch.asks
            if ask.agent is not None
        ]
        quorum = Quorum(members=batch.quorum, absent_after_s=ABSENT_AFTER_S)
        answers = await gather_present(work, batch.at, calls, quorum)
        return [Missing.ABSENT if answer is None else answer for answer in answers]


class SeqCV(DocumentStrategy):
    """Sequential execution with cross-model validation: every agent writes, every agent judges, and disagreement splits the subtask."""

    solves = (Problem,)
    conductor = SeqCVConductor
    validated = True
    asks_as = ("validator", "splitter", "ranker")

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
