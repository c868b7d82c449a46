"""A cascade over the rows of a table: a cheap model, a strong one where the cheap one is unsure, and a person where both are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Self

from msgspec import Struct, structs
from pydantic import Field, model_validator

from microagents.actors.ranges import OneOrMore
from microagents.base.errors import NeedsPerson, Refused, RefusedUnderPromise, Undecided
from microagents.elections.election import Decision, ElectionId, Question, Verdict
from microagents.elections.promises import NEVER
from microagents.elections.rules import Rule, portable
from microagents.systems.chains.chain import Chain, ChainStep, ChainWork, Rung
from microagents.systems.chains.maker import Maker, MakerConductor
from microagents.systems.chains.row_task import RowTask
from microagents.task import Task
from microagents.work.elections import put_to

STRONG = "strong"
"""Name of the rung of the strong model."""
UNREACHED = 1.5
"""Threshold that no score reaches, of a model that is asked all the same: labelled rows go through both models."""


def score_of(verdict: Verdict) -> float:
    """Return how sure a decided reply is, from 0 to 1; -1 without a decision.

    It is the probability that the model gave it, or else the share of samples that agree with it: of each field, if fields are voted on.
    """
    if verdict.outcome != "decided" or verdict.leader is None:
        return -1.0
    if verdict.probability is not None:
        return verdict.probability
    counts = [votes for _, votes in verdict.tally]
    if verdict.by_field is None:
        return counts[verdict.leader] / sum(counts)
    return 1 - verdict.by_field.outvoted / (verdict.by_field.fields * sum(counts))


class CascadeChain(Chain):
    """A row whose votes decide only from a score on.

    If the cheap model is not asked, the vote of the strong one takes its place.
    """

    def step(self, number: int, state: Any, rule: Rule | None = None) -> ChainStep:
        """Build the step of the row, for the first model that is asked."""
        step = super().step(number, state, rule)
        if self.work.strategy.asks_cheap:
            return step
        question = self.strong_question(step)
        return structs.replace(step, question=question, election=question.id_at(step.election.path))

    def strong_question(self, step: ChainStep) -> Question:
        """Return the question of a row to the strong model, decided by its own number of votes."""
        strategy = self.work.strategy
        return put_to(super().step(step.number, step.state, strategy.strong_rule).question, (strategy.strong,))

    def if_sure(self, verdict: Verdict, least: float) -> Verdict:
        """Return a verdict, as undecided if it is decided with too low a score."""
        if verdict.outcome == "decided" and score_of(verdict) < least:
            return structs.replace(verdict, outcome="undecided")
        return verdict

    async def commit(self, step: ChainStep, verdict: Verdict, **given: Any) -> Decision[Any]:
        """Settle and record the verdict of the cheap model, or that of the strong one."""
        strategy = self.work.strategy
        least = strategy.cheap_from if strategy.asks_cheap else strategy.strong_from
        return await super().commit(step, self.if_sure(verdict, least), **given)


class StrongModel(Struct, frozen=True, kw_only=True):
    """The same vote by the strong model, taken from a score on."""

    least: float
    name: str = STRONG

    def asked(self, chain: CascadeChain, step: ChainStep) -> tuple[ElectionId, Question]:
        """Return the election of a step by the strong model."""
        question = chain.strong_question(step)
        return question.id_at(f"{step.election.path}/{self.name}"), question

    async def hold(self, chain: Chain, step: ChainStep, tried: Sequence[Verdict]) -> tuple[ElectionId, Verdict]:  # noqa: ARG002 - a rung
        """Hold the vote."""
        assert isinstance(chain, CascadeChain)
        election, question = self.asked(chain, step)
        return election, chain.if_sure(await chain.work.hold(election, question), self.least)


class CascadeConductor(MakerConductor):
    """Decides rows, or leaves them open."""

    def chain(self, work: ChainWork) -> CascadeChain:
        """Return the row as a chain of one step."""
        return CascadeChain(work)

    async def conduct(self, work: ChainWork) -> object:
        """Take the row from a model.

        Raises:
            NeedsPerson: under a promise, which no other model and no leader may settle: it is open.
            RefusedUnderPromise: under a promise, if the provider refuses it.
        """
        try:
            return await super().conduct(work)
        except Undecided as error:
            if not work.strategy.promise:
                raise
            if isinstance(error, Refused):
                raise RefusedUnderPromise(*error.args) from None
            why = f"no model is sure enough for the promise ({error.args[2]})"
            raise NeedsPerson(error.path, why, "FIELD=VALUE") from None


class Cascade(Maker):
    """Votes of a cheap model on a row, taken from a score on; else votes of a strong one, taken from another; else the row stays open.

    The score is the share of samples that agree with the decided reply, or the probability that the model gives it.
    `run --wrong-at-most` finds both thresholds on labelled rows.
    """

    solves = (RowTask,)  # type: ignore[assignment]  # of the chains and problems of maker these alone
    conductor = CascadeConductor

    strong: str
    """Spec of the strong model; the pool of the run is the cheap one."""
    k: OneOrMore = 5
    """Number of votes of the cheap model that decide. More of them make its score finer: on recorded votes it got .66 of the rows with 3, \
.81 with 5."""
    k_strong: OneOrMore = 3
    """Number of votes of the strong model that decide."""
    cheap_from: Annotated[float, Field(ge=0)] = NEVER
    """Least score with which a row is taken from the cheap model; above 1 for no row, and from 2 on it is not even asked."""
    strong_from: Annotated[float, Field(ge=0)] = 0.0
    """Least score with which a row is taken from the strong model."""
    strong_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of rows that the strong model is expected to be asked about, for the expected cost."""
    promise: str = ""
    """The promise that the thresholds keep, with its condition; empty for thresholds without one."""

    @model_validator(mode="after")
    def _has_no_ladder(self) -> Self:
        if self.ladder:
            raise ValueError("a cascade is a ladder of its own: leave out ladder")
        if self.k_strong > self.max_draws:
            raise ValueError(f"k_strong = {self.k_strong} votes cannot come from max_draws = {self.max_draws} samples")
        return self

    @cached_property
    def rungs(self) -> tuple[Rung, ...]:
        """The strong model, unless it alone is asked."""
        return (self.strong_model,) if self.asks_cheap else ()

    @property
    def asks_cheap(self) -> bool:
        """Whether the cheap model is asked."""
        return self.cheap_from < NEVER

    @property
    def strong_model(self) -> StrongModel:
        """The vote of the strong model."""
        return StrongModel(least=self.strong_from)

    @property
    def strong_rule(self) -> Rule:
        """Rule of the vote of the strong model."""
        return self.rule_by(self.k_strong)

    @property
    def named_models(self) -> tuple[str, ...]:
        """The strong model."""
        return (self.strong,)

    def expected_calls(self, task: Task) -> float:
        """Return the expected votes of both models."""
        cheap = self.votes_by(self.default_rule) if self.asks_cheap else 0.0
        return cheap + sum(self.named_calls(task).values())

    def named_calls(self, task: Task) -> dict[str, float]:  # noqa: ARG002 - as in any strategy
        """Return the expected votes of the strong model: of all rows, if none may be taken from the cheap one."""
        share = self.strong_share if self.cheap_from <= 1 else 1.0
        return {self.strong: share * self.votes_by(self.strong_rule)}

    @property
    def caution(self) -> str | None:
        """None: it needs no rate."""
        return None

    def rule_of(self, task: Task, number: int, steps: int | None) -> Rule:  # noqa: ARG002 - as in any strategy
        """Return the rule of a vote."""
        return portable(self.rule_for(task))
