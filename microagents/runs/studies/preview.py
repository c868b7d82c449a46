"""Preview of one step of a chain: its prompt, the replies, their flags, and the vote."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from microagents.actors import Context, Deployment, Messenger, Strategy
from microagents.elections.election import Ballot, Draw, Flagged, Verdict
from microagents.elections.red_flags import MALFORMED
from microagents.errors import InvalidUsage
from microagents.journal.messages import Account, Report
from microagents.messages import Request, resolve
from microagents.replies.chat import Reply, Sample, decoder_of
from microagents.replies.parsing import malformed_reason
from microagents.roles import Limiter, Recorder, RedFlagger, Solver, Voter
from microagents.runs.plan import Plan
from microagents.runtimes.local import LocalRuntime
from microagents.strategies.chain import Chain, ChainConductor
from microagents.task import ChainTask, Task
from microagents.work.conductor import Conduct, Conducted
from microagents.work.durable import Work
from microagents.work.elections import Resolution


class ShownReply(Struct, frozen=True, kw_only=True):
    """One sample of the shown step."""

    seq: int
    temperature: float | None
    model: str
    text: str
    finish: str
    output_tokens: int | None
    cost_usd: float | None
    flag: str | None
    why: str | None
    """The parser's reason for a malformed reply."""
    vote: Any
    """The parsed reply, as JSON-like values; None for a flagged one, and for one that is not counted."""
    counted: bool
    """Whether it is part of the vote; False for a reply that arrived when the vote was over."""


class ShownStep(Struct, frozen=True, kw_only=True):
    """One step with its prompt, all replies and the vote."""

    step: int
    system: str
    user: str
    replies: list[ShownReply]
    outcome: str
    tally: list[tuple[Any, int]]
    """For each distinct vote its first-launched reply, as JSON-like values, and its count."""
    correct: bool | None
    """Whether the oracle accepts the decision; None without a decision or an oracle."""
    leader_correct: bool | None
    """Whether the oracle accepts the leading reply, also of a vote without a decision; None without a valid reply or an oracle."""
    climbs_to: str | None
    """Name of the rung that a run would try next; None where the vote decided, and without a ladder."""
    calls: int
    cost_usd: float | None


class DrawnSamples(Request[list[tuple[Draw, Sample]]], frozen=True, kw_only=True):
    """Ask for the samples drawn so far, in launch order."""


class RecordingSolver(Solver):
    """A solver that keeps the samples that it draws."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._drawn: dict[int, tuple[Draw, Sample]] = {}

    async def draw(self, request: Draw) -> Sample:
        """Take one sample, and keep it."""
        sample = await super().draw(request)
        self._drawn[request.id.seq] = (request, sample)
        return sample

    async def samples(self, request: DrawnSamples) -> list[tuple[Draw, Sample]]:  # noqa: ARG002 - the message is the address
        """Return the samples drawn so far."""
        return [sample for _, sample in sorted(self._drawn.items())]


class StepConductor(ChainConductor[Strategy]):
    """Holds the election of one step. The oracle does the steps before it."""

    asks = (DrawnSamples,)

    def _chain_of_strategy(self, work: Work[ChainTask[Any, Any], Strategy]) -> Chain:
        kind = work.strategy.conductor
        return kind.chain(self, work) if issubclass(kind, ChainConductor) else self.chain(work)

    async def conduct(self, work: Work[ChainTask[Any, Any], Strategy]) -> ShownStep:
        """Hold the election of the step; returns it with its prompt, all replies and the vote."""
        task, wanted, chain = work.task, self.context.settings["step"], self._chain_of_strategy(work)
        state = chain.start()
        for step in range(wanted):
            known = None if chain.is_done(state, step) else chain.oracle(state, step)
            if known is None:
                why = "is over before it" if chain.is_done(state, step) else "has no oracle for the steps before it"
                raise InvalidUsage(f"step {wanted} cannot be shown: {type(task).__name__} {why}; try --step {max(0, step - 1)}")
            state = chain.next_state(state, known, step)
        if chain.is_done(state, wanted):
            raise InvalidUsage(f"step {wanted} cannot be shown: {type(task).__name__} is over before it; try --step {wanted - 1}")
        shown = chain.step(wanted, state)
        verdict = await work.hold(shown.election, shown.question)
        resolution = Resolution(id=shown.election, verdict=verdict)
        decision = work.commit(resolution, chain.reply_type, lambda right: chain.correct(state, right, wanted))
        leader = None if verdict.winner is None else decoder_of(chain.reply_type).decode(verdict.winner)
        right = None if leader is None else chain.correct(state, leader, wanted)
        rungs = () if decision.decided else work.strategy.rungs
        return ShownStep(
            step=wanted,
            system=shown.question.prompts[0].system,
            user=shown.question.prompts[0].user,
            replies=_shown_replies(verdict, await self.ask(DrawnSamples()), task),
            outcome=verdict.outcome,
            tally=[(msgspec.json.decode(value), votes) for value, votes in verdict.tally],
            correct=right if decision.decided else None,
            leader_correct=right,
            climbs_to=rungs[0].name if rungs else None,
            calls=0,
            cost_usd=None,
        )


def _shown_replies(verdict: Verdict, drawn: list[tuple[Draw, Sample]], task: Task) -> list[ShownReply]:
    counted = {ballot.seq: ballot for ballot in verdict.ballots}
    shown = []
    for draw, sample in drawn:
        ballot = counted.get(draw.id.seq)
        is_malformed = isinstance(ballot, Flagged) and ballot.flag == MALFORMED
        shown.append(
            ShownReply(
                seq=draw.id.seq,
                temperature=draw.temperature,
                model=draw.model,
                text=sample.text,
                finish=sample.finish,
                output_tokens=sample.usage.output_tokens,
                cost_usd=sample.usage.cost_usd,
                flag=ballot.flag if isinstance(ballot, Flagged) else None,
                why=malformed_reason(sample.text, resolve(draw.reply, Reply), task.format, task.reading) if is_malformed else None,
                vote=msgspec.json.decode(ballot.value) if isinstance(ballot, Ballot) else None,
                counted=ballot is not None,
            )
        )
    return shown


async def show_step(plan: Plan, step: int) -> ShownStep:
    """Hold the election of one step; returns it with its prompt, all replies and the vote.

    Args:
        plan: the run that the step belongs to.
        step: number of the step, from 0.

    Raises:
        InvalidUsage: there is no such step, or no oracle for the steps before it.
    """
    context = plan.context()
    context = msgspec.structs.replace(context, settings={**context.settings, "step": step})
    roles = [Deployment(role=role) for role in (Recorder, Limiter, StepConductor, Voter, RecordingSolver, RedFlagger)]
    async with LocalRuntime(context, roles) as runtime:
        conducted: Conducted = await runtime.messenger.ask(Conduct(input=0))
        account: Account = await runtime.messenger.ask(Report())
    shown = msgspec.json.decode(conducted.value, type=ShownStep)
    return msgspec.structs.replace(shown, calls=account.calls, cost_usd=account.cost_usd)
