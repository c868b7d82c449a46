"""The ladder: remedies for a step that its vote does not decide, cheapest first. Each rung is an election of its own.

A step climbs when its votes are improbable for a step that is no harder than others (`microagents.elections.dissent`), or, if nothing
is known about these, when they reach half the cap. If no rung decides, the step is undecided, and ``--on-undecided`` is applied to it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from types import NoneType
from typing import Annotated, Literal, Self

from msgspec import Raw, Struct, structs
from pydantic import Field, field_validator, model_validator

from microagents.actors.ranges import OneOrMore, OneToThousand
from microagents.actors.registry import unknown
from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage
from microagents.base.user_code import called
from microagents.elections.dissent import alpha_of
from microagents.elections.election import ElectionId, Question, Verdict
from microagents.elections.laws import expected_votes
from microagents.elections.rules import FirstValid, Rule, Tally, Unanimity, UntilImprobable, Weighed, portable
from microagents.replies.chat import Prompt
from microagents.replies.reply import vote_of
from microagents.replies.reply_forms import decoder_of
from microagents.systems.chains.chain import Chain, ChainStep, Rung
from microagents.systems.chains.judge import JUDGE, choice_among
from microagents.systems.chains.lookahead import Lookahead, lookahead_in
from microagents.systems.chains.paraphraser import PARAPHRASER, paraphrase
from microagents.task import ChainTask, Task
from microagents.work.elections import put_to

RIGHT = 0.99
"""Share of right replies from which the calls of a vote are expected."""
RUNGS = ("paraphrase", "model=SPEC", "lookahead", "judge")


class OtherWords(Struct, frozen=True, kw_only=True):
    """Same vote on the question in other words: errors of a model depend on the words, so other words err apart."""

    name: str = "paraphrase"

    async def hold(self, chain: Chain, step: ChainStep, tried: Sequence[Verdict]) -> tuple[ElectionId, Verdict] | None:  # noqa: ARG002 - a rung
        """Hold the vote on a paraphrase; None if no paraphrase keeps every number and name."""
        asked: Prompt = called(chain.task.prompt, step.state, gives=Prompt, at=step.number)
        said = await paraphrase(chain.work, f"step/{step.number}/{self.name}/text", asked)
        if said is None:
            return None
        again = chain.work.question(
            said, chain.reply_type, max_draws=chain.max_draws, sampling=chain.sampling, state=step.state
        )
        return await _vote(chain, step, self.name, structs.replace(step.question, prompts=again.prompts))


class OtherModel(Struct, frozen=True, kw_only=True):
    """Same vote by another model: hard steps differ from model to model."""

    name: str
    spec: str

    async def hold(self, chain: Chain, step: ChainStep, tried: Sequence[Verdict]) -> tuple[ElectionId, Verdict]:  # noqa: ARG002 - a rung
        """Hold the vote."""
        return await _vote(chain, step, self.name, put_to(step.question, (self.spec,)))


class JudgeOfCandidates(Struct, frozen=True, kw_only=True):
    """A vote on which of the replies so far is right, by a judge who sees a reason for each."""

    margin: int
    name: str = "judge"

    async def hold(self, chain: Chain, step: ChainStep, tried: Sequence[Verdict]) -> tuple[ElectionId, Verdict] | None:
        """Hold the vote; None with fewer than two candidates."""
        votes: dict[Hashable, int] = {}
        first: dict[Hashable, bytes] = {}
        for verdict in tried:
            for value, number in verdict.tally:
                vote = vote_of(decoder_of(chain.reply_type).decode(value), step.question.left_out)
                votes[vote] = votes.get(vote, 0) + number
                first.setdefault(vote, value)
        if len(votes) < 2:  # noqa: PLR2004 - there is nothing to choose
            return None
        candidates = tuple(map(Raw, first.values()))
        chosen = await choice_among(
            chain.work,
            f"step/{step.number}/{self.name}",
            step.question.prompts[0],
            candidates,
            margin=self.margin,
            max_draws=chain.max_draws,
        )
        tally = tuple((first[vote], number) for vote, number in votes.items())
        verdict = Verdict(outcome="inferred", leader=chosen, tally=tally, ballots=(), cost_usd=0.0)
        if chosen is None:
            verdict = structs.replace(verdict, outcome="undecided", tally=())
        return ElectionId(
            path=f"{step.election.path}/{self.name}", question_digest=step.election.question_digest
        ), verdict


async def _vote(chain: Chain, step: ChainStep, name: str, question: Question) -> tuple[ElectionId, Verdict]:
    election = question.id_at(f"{step.election.path}/{name}")
    return election, chain.as_taken(await chain.work.hold(election, question))


class Climbing(Strategy):
    """Options of a ladder, for strategies that solve chains."""

    ladder: str = ""
    """Rungs to try at a step that the vote does not decide, cheapest first, separated by commas: `paraphrase`, `model=SPEC`, \
`lookahead`, `judge`."""
    p: Annotated[float | None, Field(gt=0.5, lt=1)] = None
    """Share of right votes at ordinary steps, which `microagents measure TASK` finds. With it, a step climbs as soon as its \
votes are improbable; without it only at half the cap. `lead` needs none."""
    false_alarms: Annotated[float, Field(gt=0)] = 0.01
    """Expected number of steps of an input that climb although the model is as good at them as p says, at most."""
    horizon: OneToThousand = 8
    """Number of steps in a rollout."""
    history: OneOrMore = 3
    """Number of steps at which rollouts start: the step itself, and those before it."""
    margin: OneOrMore = 3
    """Lead that decides among predictions of rollouts, and among the ballots of a judge."""
    reuse: bool = True
    """Let rollouts that were drawn for earlier steps count for later ones."""
    contradicting: Literal["count", "discard"] = "discard"
    """What becomes of a rollout that differs from a decided step between its start and the step: `count` its vote, as in the paper, \
or `discard` it."""

    @field_validator("ladder")
    @classmethod
    def _has_known_rungs(cls, text: str) -> str:
        for rung in rungs_in(text):
            if rung not in RUNGS and not (rung.startswith("model=") and rung != "model="):
                raise ValueError(unknown("rung named", rung, RUNGS))
            if not rung.startswith("model=") and rungs_in(text).count(rung) > 1:
                raise ValueError(
                    f"the rung {rung} stands twice in the ladder; a step would meet the same election again"
                )
        return text

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.history > self.horizon:
            raise ValueError(
                f"a rollout of horizon = {self.horizon} steps does not reach a step from history = {self.history} starts"
            )
        if self.rungs and self.margin > self.draw_cap:
            raise ValueError(f"a lead of margin = {self.margin} cannot come from max_draws = {self.draw_cap} draws")
        if self.p is not None and not self.rungs:
            raise ValueError("p is for a ladder, which this run has not; give one, such as ladder=lookahead,judge")
        return self

    def expected_calls(self, task: Task) -> float | None:
        """Return the votes of every step, if the model is right as often as ``p`` says. A problem is one step. Climbs are left out."""
        steps = called(task.steps, gives=(int, NoneType)) if isinstance(task, ChainTask) else 1
        if steps is None:
            return None
        return steps * self.votes_by(self.default_rule)

    def votes_by(self, rule: Rule) -> float:
        """Return the expected votes of an election by a rule."""
        return expected_votes(self.p or RIGHT, max(1, Tally(rule).votes_needed))

    @cached_property
    def rungs(self) -> tuple[Rung, ...]:
        """Rungs of the ladder."""
        made: list[Rung] = []
        for name, rung in names_in(self.ladder).items():
            kind, _, spec = rung.partition("=")
            match kind:
                case "paraphrase":
                    made.append(OtherWords(name=name))
                case "model":
                    made.append(OtherModel(name=name, spec=spec))
                case "lookahead":
                    made.append(lookahead_in(dict(self)))
                case _:
                    made.append(JudgeOfCandidates(name=name, margin=self.margin))
        return tuple(made)

    @property
    def draws_rollouts(self) -> bool:
        """Whether a rung is a lookahead."""
        return any(isinstance(rung, Lookahead) for rung in self.rungs)

    @property
    def caution(self) -> str | None:
        """Fault of a ladder without p."""
        if self.p is not None or not self.rungs or isinstance(self.default_rule, Unanimity):
            return None
        return (
            "a ladder without p is climbed only at half the cap, and a hard step is mostly decided wrongly before that; measure p by "
            "`microagents measure TASK`, and give -s p=SHARE"
        )

    @property
    def named_models(self) -> tuple[str, ...]:
        """Models of the ladder."""
        return tuple(rung.spec for rung in self.rungs if isinstance(rung, OtherModel))

    def rule_of(self, task: Task, number: int, steps: int | None) -> Rule:
        """Return the rule of a step's vote: with a ladder it ends when the votes are improbable."""
        rule = portable(self.rule_for(task))
        if not self.rungs or isinstance(rule, (Unanimity, UntilImprobable, Weighed)):  # agreement is a test of its own
            return rule
        if self.p is not None or isinstance(rule, FirstValid):
            half = None
        else:
            half = max(1, self.draw_cap // 2)
        return UntilImprobable(rule, p=self.p, alpha=alpha_of(number, steps, self.false_alarms), at_most=half)

    def drawing(self) -> list[str]:
        """Name the roles of an election, and the models of the ladder's rungs."""
        rungs = {"paraphrase": PARAPHRASER, "judge": JUDGE}
        return [*super().drawing(), *(name for rung, name in rungs.items() if rung in rungs_in(self.ladder))]


def check_no_ladder(task: Task, strategy: Climbing) -> None:
    """Refuse a ladder for a problem."""
    if strategy.rungs:
        raise InvalidUsage(f"{type(task).__name__} has no steps, so there is nothing to climb; run it without a ladder")


def names_in(ladder: str) -> dict[str, str]:
    """Return the names of the rungs of a ladder, in its order, and the part that each is made of. A second one of a kind has a number."""
    named: dict[str, str] = {}
    for rung in rungs_in(ladder):
        kind = rung.partition("=")[0]
        number = 1 + sum(name.partition("-")[0] == kind for name in named)
        named[kind if number == 1 else f"{kind}-{number}"] = rung
    return named


def rungs_in(ladder: str) -> list[str]:
    """Return the parts of a ladder. The options of a model's spec, which have commas between them, too, stay with it."""
    rungs: list[str] = []
    for part in (each.strip() for each in ladder.split(",") if each.strip()):
        is_option = "=" in part and not part.startswith("model=")
        if is_option and rungs and rungs[-1].startswith("model="):
            rungs[-1] += f",{part}"
        else:
            rungs.append(part)
    return rungs
