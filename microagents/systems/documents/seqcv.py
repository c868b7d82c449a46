"""SeqCV: segments written one after another, validated by all agents, and split if they cannot agree (Yao et al., NeurIPS 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from microagents.actors.role import Deployment
from microagents.base.errors import InvalidUsage
from microagents.elections.panels import ApprovalShare
from microagents.systems.documents.document_conductor import MANNERS, Author, DocumentConductor, DocumentStrategy
from microagents.systems.documents.questions import ToRank, ToSplit, ToValidate
from microagents.systems.documents.roles import Rank, Ranker, Split, Splitter, Validate, Validator
from microagents.systems.documents.writing import Answer, Missing, QuestionBatch, SegmentQuestion, WritingRules
from microagents.systems.questions.problem import Problem
from microagents.systems.questions.turns import sampling_at
from microagents.work.absence import PanelCall, Quorum, gather_present
from microagents.work.durable import Work

JUDGE_TEMPERATURE = 0.0
"""Of judgements and rankings."""
SAME_MODEL_AGENTS = 3
"""Number of agents with ``same_model``, if it is not given."""


MAX_SUBTASKS = 8
"""Maximum number of parts of a split."""
SPLIT_TRIES = 3
"""Number of proposals for one split; if none is valid, the subtask is treated as at the depth limit."""


class SeqCVConductor(DocumentConductor):
    """Has every segment validated, and splits subtasks."""

    asks = (Validate, Split, Rank)

    async def answer(
        self, work: Work[Problem[Any], DocumentStrategy], ask: SegmentQuestion, agents: Sequence[Author]
    ) -> Answer:
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

    async def ask_batch(
        self, work: Work[Problem[Any], DocumentStrategy], batch: QuestionBatch, agents: Sequence[Author]
    ) -> Sequence[Answer]:
        """Ask all questions of a batch at the same time, and go on without agents that do not answer in time."""
        strategy = work.strategy
        assert isinstance(strategy, SeqCV)
        if batch.quorum is None or strategy.absent_after is None:
            return await super().ask_batch(work, batch, agents)
        calls = [
            PanelCall(ask.at, ask.agent, partial(self.answered, work, ask, agents))
            for ask in batch.asks
            if ask.agent is not None
        ]
        quorum = Quorum(members=batch.quorum, absent_after_s=strategy.absent_after, if_fewer=strategy.when_absent)
        return [
            Missing.ABSENT if answer is None else answer
            for answer in await gather_present(work, batch.at, calls, quorum)
        ]


class SeqCV(DocumentStrategy):
    """Sequential execution with cross-model validation: every agent writes, every agent judges, and disagreement splits the subtask."""

    solves = (Problem,)
    conductor = SeqCVConductor

    same_model: bool = False
    """Let agents share a model; they then have different prompts, and the result says so."""
    agent_count: Annotated[int, Field(ge=2, le=20)] | None = None
    """Number of agents; by default one for each model of the pool, or 3 with one model and same_model."""
    approval: Literal["majority", "half", "all"] = "majority"
    """Approvals that a segment needs: more than half of the agents, at least half, or all. Its author judges as well."""
    min_passing: Annotated[int, Field(ge=1)] | None = None
    """Fewest agents with a passing segment or a complete text; with fewer the subtask is split. By default half of them, rounded up."""
    split_when: Literal["few", "none"] = "few"
    """Split a subtask when fewer than min_passing segments pass, or only when none does."""
    depth: Annotated[int, Field(ge=0, le=16)] = 2
    """Maximum number of splits above a subtask. A deeper one takes the segment with most approvals, and is marked as not agreed."""
    ranked_by: Literal["agents", "ranker"] = "agents"
    """Who orders finished versions: all agents, each without its own, or the model of the role `ranker`, as always with two agents."""
    parallel_branches: bool = False
    """Write independent subtasks at the same time. Authors then see only the subtasks that theirs depends on."""
    absent_after: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = 300.0
    """Seconds after which the panel continues without an agent that does not answer; none waits for it until --max-outage."""
    when_absent: Literal["wait", "stop"] = "wait"
    """If fewer agents answer than a segment needs to pass: wait for one more, or stop the run."""

    @model_validator(mode="after")
    def _can_pass(self) -> Self:
        if self.min_passing is not None and self.split_when == "none":
            raise ValueError("with split_when=none one passing segment is enough; leave min_passing out")
        return self

    def check_models(self, pool: Sequence[str]) -> None:
        """Refuse pools with which no cross-model panel can be formed."""
        self.agents(pool)

    def agents(self, pool: Sequence[str]) -> list[Author]:
        """Return the agents: one for each model, or several with one model."""
        models = list(dict.fromkeys(pool))
        count = self.agent_count or (len(models) if len(models) > 1 else SAME_MODEL_AGENTS)
        if len(models) == 1 and not self.same_model:
            raise InvalidUsage(
                f"seqcv has each segment judged by other models, and there is only {models[0]!r}; name two or more with --model, or let "
                "one model play all agents with -s same_model=true"
            )
        if count < len(models):
            raise InvalidUsage(
                f"agent_count={count} leaves models without an agent: there are {len(models)}; name fewer, or raise it"
            )
        if count > len(models) and not self.same_model:
            raise InvalidUsage(
                f"agent_count={count} needs agents that share a model: there are {len(models)}; set -s same_model=true"
            )
        if self.approval == "half" and count == 2:  # noqa: PLR2004 - of two, half is the author
            raise InvalidUsage(
                "with two agents approval=half would let every author pass its own segments; use majority, or a third model"
            )
        if (self.min_passing or 1) > count:
            raise InvalidUsage(f"min_passing={self.min_passing} can never be reached by {count} agents")
        shared = [index // len(models) for index in range(count)]
        authors = []
        for index, which in enumerate(shared):
            manner = f"\nYou are author {which + 1}."
            if which < len(MANNERS):
                manner = MANNERS[which]
            authors.append(Author(model=models[index % len(models)], manner=manner))
        return authors

    def rules(self, agents: int) -> WritingRules:
        """Return the rules of writing with this number of agents."""
        panel = ApprovalShare(
            agents, share=1.0 if self.approval == "all" else 0.5, inclusive=self.approval != "majority"
        )
        return WritingRules(
            agents=agents,
            panel=panel,
            min_passing=1 if self.split_when == "none" else self.min_passing or ceil(agents / 2),
            approvals=panel.approvals_needed,
            rounds=self.rounds,
            depth=self.depth,
            max_subtasks=MAX_SUBTASKS,
            split_tries=SPLIT_TRIES,
            ranked_by=self.ranked_by,
            sees="ancestors" if self.parallel_branches else "all",
            context_tokens=self.context_tokens,
        )

    def deployments(self) -> list[Deployment]:
        """Return the roles of an election, and the validator, the splitter and the ranker."""
        return [*super().deployments(), *(Deployment(role=role) for role in (Validator, Splitter, Ranker))]
