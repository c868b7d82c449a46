"""Lookahead: a step is decided by short rollouts, some started a few steps earlier (LEAD, sections 4.3 and 4.4).

A rollout is one paid sample. Its prediction for the step is a ballot. A model that fails at a step when it is asked for only that step
is often right when it comes to it from before.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, convert, json, msgpack, structs

from microagents.base.aio import TaskScope
from microagents.base.text_digests import digest_of
from microagents.base.user_code import called
from microagents.elections.count import Count
from microagents.elections.election import AnyBallot, Ballot, ElectionId, Flagged, Verdict
from microagents.elections.red_flags import UNVERIFIED
from microagents.elections.rules import AheadByInRounds, Tally
from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply, vote_of
from microagents.replies.rollouts import Rollout
from microagents.systems.chains.chain import Chain, ChainStep, Past
from microagents.task import feedback_on, flag_of, verifies

ENDS_EARLY = "ends_early"
"""The flag of a rollout with fewer steps than asked for, before the end of the chain."""
CONTRADICTS = "contradicts"
"""The flag of a rollout that differs from a decided step between its start and the step."""


class Lookahead(Struct, frozen=True, kw_only=True):
    """Votes by rollouts until one prediction leads every other by a margin at the end of a round."""

    horizon: int = 8
    """Number of steps in a rollout."""
    history: int = 3
    """Number of starting points: the step itself, and those before it. A round has one rollout from each."""
    margin: int = 3
    reuse: bool = True
    """Whether rollouts that were drawn for earlier steps count for later ones as well."""
    contradicting: Literal["count", "discard"] = "discard"
    """Whether a rollout votes that differs from a decided step between its start and the step."""

    @property
    def name(self) -> str:
        """Its name in accounts and paths."""
        return "lookahead"

    def place(self, number: int, seq: int) -> str:
        """Return the place of the rollout that casts a ballot for a step. Steps that may share rollouts have the same places."""
        starts = min(self.history, number + 1)
        start = f"{number - seq % starts}/{seq // starts}"
        if self.reuse:
            return f"rollout/{start}"
        return f"rollout/{number}/{start}"

    async def hold(self, chain: Chain, step: ChainStep, tried: Sequence[Verdict]) -> tuple[ElectionId, Verdict]:  # noqa: ARG002 - a rung
        """Draw rollouts, round by round, until their predictions decide the step, or to the cap of its election."""
        place = ElectionId(path=f"{step.election.path}/{self.name}", question_digest=self._digest(step))
        recalled = await chain.work.recorded(place)
        was_left = recalled is not None and recalled.outcome == "climbed"
        past = await chain.before(step, self.history - 1)
        starts: list[ChainStep | Past] = [step, *past]
        for start, at in [*chain.rollouts]:
            if start <= step.number - self.history:  # no later step starts there
                del chain.rollouts[start, at]
        # Its ballots are counted like the ballots of the step's vote, by another rule.
        count = Count(step.election, step.question)
        count.tally = Tally(AheadByInRounds(self.margin, len(starts)))
        flags: dict[Hashable, str | None] = {}
        while count.tally.votes_needed and len(count.ballots) < chain.max_draws:
            first = len(count.ballots)
            seqs = range(first, min(first + count.tally.votes_needed, chain.max_draws))
            beginning = self.place(step.number, first)
            if was_left and await chain.work.recorded(beginning) is None:
                break  # an earlier sitting came to no decision with those before it, and its record stays
            for seq, rollout in zip(seqs, await self._rollouts(chain, step, starts, seqs), strict=True):
                ballot = await self._ballot(chain, step, past[: seq % len(starts)], seq, rollout, flags=flags)
                count.add(ballot)
        verdict = count.verdict()
        decided = verdict.outcome == "decided" and not was_left
        return place, structs.replace(verdict, outcome="inferred") if decided else structs.replace(
            verdict, outcome="undecided", ballots=()
        )

    def _digest(self, step: ChainStep) -> bytes:
        settings = msgpack.encode(structs.astuple(self))
        return digest_of(step.election.question_digest + settings)

    async def _rollouts(
        self, chain: Chain, step: ChainStep, starts: Sequence[ChainStep | Past], seqs: range
    ) -> list[Rollout | Flagged]:
        """Return the rollouts with these seqs, drawn side by side. They take turns among the starting points."""
        async with TaskScope() as scope:
            drawn = []
            for seq in seqs:
                place = self.place(step.number, seq)
                drawn.append(scope.start(self.rollout(chain, starts[seq % len(starts)], place)))
            await scope.join()
            return [each.result() for each in drawn]

    async def rollout(self, chain: Chain, start: ChainStep | Past, at: str) -> Rollout | Flagged:
        """Return the rollout at a place from a starting point, drawn if no step before has drawn it."""
        drawn = chain.rollouts.get((start.number, at))
        if drawn is None:
            asked: Prompt = called(chain.task.rollout_prompt, start.state, self.horizon, gives=Prompt, at=start.number)
            drawn = chain.rollouts[start.number, at] = await chain.rollout(at, asked, self.horizon)
        return drawn

    async def _ballot(
        self,
        chain: Chain,
        step: ChainStep,
        between: Sequence[Past],
        seq: int,
        rollout: Rollout | Flagged,
        *,
        flags: dict[Hashable, str | None],
    ) -> AnyBallot:
        """Prediction of a rollout for the step.

        ``between`` are the steps from its start on, the last first. ``flags`` are the task's flags of predictions so far: a verification
        may cost time and money, and equal replies are verified once.
        """
        if isinstance(rollout, Flagged):
            return Flagged(seq=seq, flag=rollout.flag, cost_usd=0.0)
        predicted = rollout.steps
        offset = len(between)
        first = between[-1].state if between else step.state
        flag: str | None = None
        if len(predicted) <= offset or (len(predicted) < self.horizon and not _ends(chain, first, predicted)):
            flag = ENDS_EARLY
        elif self.contradicting == "discard" and any(
            vote_of(each.reply) != vote_of(predicted[index]) for index, each in enumerate(reversed(between))
        ):
            flag = CONTRADICTS
        else:
            value = json.encode(predicted[offset])
            if value not in flags:
                flags[value] = await _own_flag(chain, step, predicted[offset])
            flag = flags[value]
        if flag:
            return Flagged(seq=seq, flag=flag, cost_usd=0.0)
        return Ballot(seq=seq, value=json.encode(predicted[offset]), cost_usd=0.0)


def lookahead_in(options: Mapping[str, object]) -> Lookahead:
    """Return the lookahead with these options of a strategy, which has others as well."""
    return convert(options, Lookahead)


async def _own_flag(chain: Chain, step: ChainStep, predicted: Reply) -> str | None:
    task = chain.task
    flag = flag_of(task, predicted, step.question.state, at=step.election.path)
    if flag is None and verifies(type(task)) and await feedback_on(task, predicted, step.question.state) is not None:
        return UNVERIFIED
    return flag


def _ends(chain: Chain, state: Any, predicted: Sequence[Any]) -> bool:
    try:
        for reply in predicted:
            state = chain.task.advance(state, reply)
        return chain.task.done(state) is True
    except Exception:  # noqa: BLE001 - a user's code may raise anything in a state that no decision leads to
        return False
