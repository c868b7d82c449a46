"""Preview of one question, before a run: its prompt, the replies, their flags, and the vote.

Of a chain it is any step, of other work the first question that its strategy asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct, structs

from microagents.actors.role import Deployment, Strategy
from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidUsage, Stopped
from microagents.base.messages import resolve
from microagents.elections.election import (
    AnyBallot,
    Ballot,
    Draw,
    Elect,
    ElectionId,
    Flagged,
    Follow,
    Question,
    Rejected,
    SampleId,
    Verdict,
)
from microagents.elections.red_flags import MALFORMED
from microagents.journal.messages import Account, Entry, RecordSample, Report
from microagents.replies.chat import Sample
from microagents.replies.parsing import malformed_reason
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import Reading, decoder_of
from microagents.roles import Keeper, Solver, Voter
from microagents.runs.driver.tool_lists import with_tools_of_servers
from microagents.runs.plan import RunPlan
from microagents.runtimes.dispatcher import RoleMessenger
from microagents.runtimes.local import LocalRuntime
from microagents.systems.chains.chain import ChainConductor
from microagents.task import ChainTask, Task
from microagents.work.conductor import Conduct
from microagents.work.durable import Work


class ShownReply(Struct, frozen=True, kw_only=True):
    """One sample of the shown question."""

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
    """One question with its prompt, all replies and the vote."""

    step: int
    """Number of the step; 0 for the first question of other work than a chain."""
    path: str
    """The place of the question in the work."""
    system: str
    user: str
    replies: list[ShownReply]
    outcome: str
    """The outcome of the vote; ``stopped`` if it ended before, for the reason."""
    reason: str | None
    tally: list[tuple[Any, int]]
    """For each distinct vote its first-launched reply, as JSON-like values, and its count."""
    correct: bool | None
    """Whether the oracle accepts the decision; None without a decision or an oracle."""
    leader_correct: bool | None
    """Whether the oracle accepts the leading reply, also of a vote without a decision; None without a valid reply or an oracle."""
    climbs_to: str | None
    """Name of the rung that a run would try next; None if the vote decided, and without a ladder."""
    calls: int
    cost_usd: float | None


class Seen:
    """The question of a preview with its samples and its verdict, as its roles see them. They live in one process."""

    def __init__(self) -> None:
        self.asked: tuple[ElectionId, Question] | None = None
        self.verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self.drawn: dict[SampleId, tuple[Draw, Sample]] = {}
        self.screened: dict[SampleId, AnyBallot] = {}
        self.leader_correct: bool | None = None
        self.climbs_to: str | None = None

    def replies(self, election: ElectionId, task: Task, reading: Reading) -> Iterator[ShownReply]:
        """Yield the replies of an election, in launch order."""
        if not self.verdict.done():
            counted = None
        else:
            counted = {ballot.seq for ballot in self.verdict.result().ballots}
        for sample_id, (draw, sample) in sorted(self.drawn.items(), key=lambda item: item[0].seq):
            if sample_id.election != election:
                continue
            ballot, why = self.screened.get(sample_id), None
            flag = ballot.flag if isinstance(ballot, Flagged) else None
            if flag == MALFORMED:
                why = malformed_reason(sample.text, resolve(draw.reply, Reply), task.format, reading)
            yield ShownReply(
                seq=sample_id.seq,
                temperature=draw.temperature,
                model=draw.model,
                text=sample.text,
                finish=sample.finish,
                output_tokens=sample.usage.output_tokens,
                cost_usd=sample.usage.cost_usd,
                flag=flag,
                why=why,
                vote=msgspec.json.decode(ballot.value) if isinstance(ballot, Ballot) else None,
                counted=ballot is not None if counted is None else sample_id.seq in counted,
            )


class PreviewVoter(Voter):
    """Holds the first election that it is asked for; all others wait until the preview ends."""

    async def elect(self, request: Elect) -> Verdict:
        """Hold the first election."""
        seen = await self._first(request)
        verdict = await super().elect(request)
        seen.verdict.set_result(verdict)
        return verdict

    def record(self, record: Entry) -> None:
        """Keep the ballot or the red flag of a sample, too."""
        super().record(record)
        if isinstance(record, RecordSample) and not isinstance(record.ballot, Rejected):
            self.context.options["seen"].screened[record.id] = record.ballot

    async def follow(self, request: Follow) -> AsyncGenerator[Ballot | Verdict]:
        """Hold the first election."""
        seen = await self._first(request)
        async with aclosing(super().follow(request)) as items:
            async for item in items:
                if isinstance(item, Verdict):
                    seen.verdict.set_result(item)
                yield item

    async def _first(self, request: Elect | Follow) -> Seen:
        seen: Seen = self.context.options["seen"]
        if seen.asked is not None:
            await asyncio.Event().wait()
        seen.asked = request.id, request.question
        return seen


class PreviewSolver(Solver):
    """Draws samples, and keeps them."""

    async def draw(self, request: Draw) -> tuple[Sample, ...]:
        """Take samples, and keep them."""
        samples = await super().draw(request)
        for seq, sample in enumerate(samples, request.id.seq):
            self.context.options["seen"].drawn[structs.replace(request.id, seq=seq)] = request, sample
        return samples


class StepConductor(ChainConductor[Strategy]):
    """Holds the election of one step. The oracle does the steps before it."""

    async def conduct(self, work: Work[ChainTask, Strategy]) -> None:
        """Hold the election of the step, and note the oracle's verdict on the vote."""
        kind, task, wanted = work.strategy.conductor, work.task, self.context.settings["step"]
        chain = (kind(self.context, self._messenger) if issubclass(kind, ChainConductor) else self).chain(work)
        state = chain.start()
        step, said = 0, f"step {wanted} cannot be shown: {type(task).__name__}"
        while step < wanted and not chain.is_done(state, step):
            known = chain.oracle(state, step)
            if known is None:
                raise InvalidUsage(f"{said} has no oracle for the steps before it; try --step {step}")
            state, step = chain.next_state(state, known, step), step + 1
        if chain.is_done(state, step):
            raise InvalidUsage(f"{said} is over before it; try --step {max(0, step - 1)}")
        shown = chain.step(wanted, state)
        verdict = await work.hold(shown.election, shown.question)
        seen: Seen = self.context.options["seen"]
        if verdict.winner is not None:
            leader = decoder_of(chain.reply_type).decode(verdict.winner)
            seen.leader_correct = chain.correct(state, leader, wanted)
        if verdict.outcome != "decided" and work.strategy.rungs:
            seen.climbs_to = work.strategy.rungs[0].name


async def show_step(plan: RunPlan, step: int) -> ShownStep:
    """Ask one question, and show it with its prompt, all replies and the vote.

    Args:
        plan: the run that the question belongs to.
        step: number of the step of a chain, from 0; 0 for the first question of other work.

    Raises:
        InvalidUsage: the step does not exist, the steps before it have no oracle, or no model is asked.
    """
    seen = Seen()
    (place, question), reason, account = await _preview(plan, step, seen)
    verdict = seen.verdict.result() if seen.verdict.done() else None
    is_decided = verdict is not None and verdict.outcome == "decided"
    return ShownStep(
        step=step,
        path=place.path,
        system=question.prompts[0].flat.system,
        user=question.prompts[0].flat.user,
        replies=[*seen.replies(place, plan.tasks[0], question.reading)],
        outcome="stopped" if verdict is None else verdict.outcome,
        reason=reason,
        tally=[] if verdict is None else [(msgspec.json.decode(value), votes) for value, votes in verdict.tally],
        correct=seen.leader_correct if is_decided else None,
        leader_correct=seen.leader_correct,
        climbs_to=seen.climbs_to,
        calls=account.calls,
        cost_usd=account.cost_usd,
    )


async def _preview(plan: RunPlan, step: int, seen: Seen) -> tuple[tuple[ElectionId, Question], str | None, Account]:
    plan = await with_tools_of_servers(plan)
    task, strategy = plan.tasks[0], plan.strategy
    is_chain = isinstance(task, ChainTask) and issubclass(strategy.conductor, ChainConductor)
    if step and not is_chain:
        raise InvalidUsage(
            f"{type(task).__name__} by {type(strategy).__name__} has no numbered steps: leave --step out for its first question"
        )
    context = plan.context()
    context = structs.replace(context, settings={**context.settings, "step": step})
    watching: dict[type, type] = {Voter: PreviewVoter, Solver: PreviewSolver}
    roles = [
        Deployment(role=Keeper),
        Deployment(role=StepConductor if is_chain else strategy.conductor, options={"seen": seen}),
        *(
            Deployment(role=watching.get(each.role, each.role), options={**each.options, "seen": seen})
            for each in strategy.deployments()
        ),
    ]
    async with LocalRuntime(context, roles) as runtime:
        reason = await _until_verdict(runtime.messenger, seen, is_chain=is_chain)
        account = await runtime.messenger.ask(Report(when="written"))
    if seen.asked is None:
        raise InvalidUsage(reason or f"{type(strategy).__name__} asked no model, so it has no question to show")
    return seen.asked, reason, account


async def _until_verdict(messenger: RoleMessenger, seen: Seen, *, is_chain: bool) -> str | None:
    """Work until the first election has its verdict; returns the reason if the run stopped before."""
    scope = TaskScope()
    try:
        conducting = scope.start(messenger.ask(Conduct(input=0)))
        failure = scope.start(messenger.ask(Report(when="stopped")))
        ends: list[asyncio.Future[Any]] = [conducting, failure]
        if not is_chain:
            ends.append(seen.verdict)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if seen.verdict.done() and not is_chain:  # a strategy may give up in the same moment, for want of a decision
            return None
        if conducting.done():
            await conducting
        elif failure.done():
            await failure
    except Stopped as error:
        return str(error)
    finally:
        await scope.close()
    return None
