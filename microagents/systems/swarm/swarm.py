"""The judge-based swarm: plan, do each step by several personas, let a judge pick, verify at once, compress, compose, verify, learn.

It is for long lists of steps whose answers are prose, so that votes cannot be counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Annotated, Any, Self

from msgspec import Raw, structs
from pydantic import Field, field_validator, model_validator

from microagents.actors.ranges import OneToHundred, OneToMillion
from microagents.base.aio import TaskScope
from microagents.base.errors import RoleFailed, Undecided
from microagents.elections.election import Ballot, ElectionId, Verdict
from microagents.journal.messages import RecordDecision
from microagents.replies.chat import Prompt
from microagents.replies.reply import A, Reply
from microagents.replies.reply_forms import decoder_of
from microagents.systems.questions.candidates import Candidate, merged
from microagents.systems.questions.problem import Problem, answer_type_of, text_of
from microagents.systems.questions.problem_conductor import ProblemConductor
from microagents.systems.questions.questions import problem_id
from microagents.systems.questions.tree import ROOT, Solution
from microagents.systems.questions.turns import VotedTurns, sampling_at
from microagents.systems.swarm.judge import Judge, PickBest
from microagents.systems.swarm.notes import LoopRecord, StepRecord, SwarmNotes, SwarmTurn
from microagents.systems.swarm.roles import (
    PLAN,
    Assemble,
    Assembler,
    Compress,
    Compressor,
    DoStep,
    Planner,
    ProposePlans,
    Verifier,
    Verify,
    Worker,
)
from microagents.systems.swarm.steps import (
    Done,
    Plan,
    RejectedResult,
    StepQuestion,
    StepResult,
    ToAssemble,
    ToCheck,
    ToCompress,
    ToPlan,
    ToWork,
)
from microagents.task import Task, prompt_about
from microagents.work.asking import Consult
from microagents.work.durable import Work

WORKER_TEMPERATURE = 0.7
"""Of plans, results and compositions."""
JUDGE_TEMPERATURE = 0.0
PERSONAS = """pragmatist: You are a pragmatist: you take the shortest way that surely works.
skeptic: You are a skeptic: you look for what could be wrong before you write it down.
innovator: You are an innovator: you look for a way that others would not try first.
systems thinker: You are a systems thinker: you look at how each part acts on the others.
historian: You are a historian: you ask how such things were done before, and how they ended.
contrarian: You are a contrarian: you take the view that most would not, and see whether it holds."""


RETRIES = 2
"""Number of times that a step which does not pass is done again, with the feedback."""
RECENT = 5
"""Number of the last steps that are shown in full; older ones are in the summary."""


class SwarmSolution(Solution, frozen=True, kw_only=True):
    """Answer to a problem, and what did not pass on the way to it."""

    verified: bool
    """Whether the answer passed as a whole. If it did not, it is the one of the loop with the fewest steps that did not pass."""
    unverified: tuple[str, ...] = ()
    """Places of steps whose last result did not pass."""
    loops: int = 1
    """Number of loops that were run."""


SwarmWork = Work[Problem, "Swarm"]


class SwarmConductor(ProblemConductor["Swarm"]):
    """Runs loops until an answer passes."""

    asks = (ProposePlans, DoStep, Assemble, PickBest, Verify, Compress)

    async def conduct(self, work: SwarmWork) -> Solution:
        """Solve the problem."""
        strategy = work.strategy
        names = [name for name, _ in _personas(strategy.personas)]
        notes = SwarmNotes(problem=text_of(work.task), workers=strategy.workers, personas=names)
        work.note(notes)
        loops = notes.loops
        for number in range(1, strategy.loops + 1):
            lessons = tuple(each.lesson for each in loops if each.lesson)
            loops.append(LoopRecord(number=number, plan=SwarmTurn(at=f"loop/{number - 1}/plan")))
            await _LoopOfSwarm(work, loops[-1], lessons).run()
            if loops[-1].passed:
                break
        if loops[-1].passed:
            best = loops[-1]
        else:
            best = min(loops, key=lambda each: (each.answer is None, len(each.unverified)))
        if best.answer is None:
            raise Undecided(work.path_of(best.at), len(loops), best.lesson)
        answer = decoder_of(answer_type_of(work.task)).decode(best.answer)
        if not best.passed:  # the run ends undecided with the best answer as its result
            value = bytes(best.answer)
            place = ElectionId(path=work.path_of(f"{ROOT}/verified"), question_digest=problem_id(text_of(work.task)))
            verdict = Verdict(
                outcome="undecided", leader=0, tally=((value, 1),), ballots=(Ballot(seq=0, value=value, cost_usd=0.0),)
            )
            work.record(RecordDecision(id=place, verdict=verdict))
        found = self.concluded(work, answer, problems=len(best.steps))
        unverified = [work.path_of(f"{best.at}/step/{each.number}") for each in best.unverified]
        return SwarmSolution(
            **structs.asdict(found),
            verified=best.passed,
            unverified=tuple(unverified),
            loops=len(loops),
        )


class _LoopOfSwarm:
    """One loop: a plan, its steps, and the answer made of them."""

    def __init__(self, work: SwarmWork, loop: LoopRecord, lessons: tuple[str, ...]) -> None:
        self._work = work
        self._loop = loop
        self._lessons = lessons
        self._problem = text_of(work.task)
        self._strategy = work.strategy
        self._personas = [text for _, text in _personas(work.strategy.personas)]
        self._judged: dict[str, Any] = {
            "k": work.strategy.k,
            "max_draws": work.strategy.max_draws,
            "sampling": sampling_at(work.task, JUDGE_TEMPERATURE),
        }
        self._summaries: list[Awaitable[str]] = []
        """For each finished step that a later one may need in the summary, the task that makes the summary with it."""

    async def run(self) -> None:
        """Run the loop; it ends early if no worker gives a valid result."""
        loop = self._loop
        planned = await self._turn(loop.plan, ToPlan(problem=self._problem, lessons=self._lessons), Plan, ProposePlans)
        if planned is None:
            return
        plan = planned.steps
        async with TaskScope() as scope:
            for number, step in enumerate(plan, 1):
                self._work.progress(number - 1, len(plan))
                asked = ToWork(
                    problem=self._problem,
                    plan=plan,
                    number=number,
                    step=step,
                    summary=await self._summary_before(number),
                    recent=self._recent(),
                    lessons=self._lessons,
                )
                loop.steps.append(StepRecord(number=number, step=step))
                await self._step(loop.steps[-1], asked)
                if loop.steps[-1].last is None:
                    for summary in self._summaries:  # cancelled, they would be recorded or not by chance
                        await summary
                    return
                if self._strategy.compress and number + RECENT <= len(plan):
                    compressed = ToCompress(
                        problem=self._problem, plan=plan, done=_done(loop.steps[-1]), lessons=self._lessons
                    )
                    before = self._summaries[-1] if self._summaries else None
                    self._summaries.append(scope.start(self._summary(compressed, before)))
            before_end = await self._summary_before(len(plan) + 1)
            whole = ToAssemble(
                problem=self._problem,
                plan=plan,
                summary=before_end,
                recent=self._recent(),
                lessons=self._lessons,
            )
        loop.whole = SwarmTurn(at=f"{loop.at}/whole")
        if await self._turn(loop.whole, whole, answer_type_of(self._work.task), Assemble) is not None:
            await self._check(loop.whole, whole)

    async def _step(self, step: StepRecord, asked: ToWork) -> None:
        for attempt in range(1 + RETRIES):
            turn = SwarmTurn(at=f"{self._loop.at}/step/{step.number}/{attempt}")
            step.turns.append(turn)
            found = await self._turn(turn, asked, StepResult, DoStep)
            if found is None:
                continue
            await self._check(turn, asked)
            if turn.passed is not False:
                return
            asked = structs.replace(
                asked, rejected=(*asked.rejected, RejectedResult(result=found.result, feedback=turn.feedback))
            )

    def _recent(self) -> tuple[Done, ...]:
        """Return the last finished steps, which a question behind them shows in full."""
        return tuple(_done(step) for step in self._loop.steps[-RECENT:])

    async def _summary_before(self, number: int) -> str:
        """Return the summary for a question behind the steps below a number; empty while all of these are shown in full."""
        left_out = number - 1 - RECENT
        if self._summaries and left_out > 0:
            return await self._summaries[left_out - 1]
        return ""

    async def _summary(self, asked: ToCompress, before: Awaitable[str] | None) -> str:
        """Return the summary with a finished step, made of the one before it while the next steps are done."""
        asked = structs.replace(asked, summary="" if before is None else await before)
        at, max_draws = f"{self._loop.at}/summary/{asked.done.number}", self._strategy.max_draws
        (made,) = await self._work.ask(
            Compress(at=at, asked=asked, max_draws=max_draws, sampling=self._work.task.sampling)
        )
        return made.summary

    async def _turn(
        self, turn: SwarmTurn, asked: StepQuestion, reply: type[A], request: type[Consult[Any, Any]]
    ) -> A | None:
        """Draw from ever more workers until all agree or the judge picks one; None if no reply is valid."""
        work, strategy = self._work, self._strategy
        replies: list[A] = []
        drawn = 0
        for size in strategy.workers:
            personas = tuple(self._personas[index % len(self._personas)] for index in range(drawn, size))
            sampled = request(
                at=f"{turn.at}/workers/{size}",
                asked=asked,
                manners=personas,
                samples=len(personas),
                max_draws=len(personas),
                sampling=sampling_at(work.task, WORKER_TEMPERATURE),
            )
            got = await work.ask(sampled)
            drawn = size
            decode = decoder_of(reply).decode
            replies += [decode(each) if isinstance(each, Raw) else each for each in got]
            candidates = merged(replies)
            is_last = size == strategy.workers[-1]
            if len(candidates) == 1 and (candidates[0].copies > 1 or size == 1 or is_last):
                return _take(turn, candidates[0])
            if candidates:
                index = await self._picked(turn, size, asked, candidates, may_ask_for_more=not is_last)
                if index is not None:
                    return _take(turn, candidates[index])
        return None

    async def _picked(
        self,
        turn: SwarmTurn,
        size: int,
        asked: StepQuestion,
        candidates: Sequence[Candidate[Any]],
        *,
        may_ask_for_more: bool,
    ) -> int | None:
        at = f"{turn.at}/judge/{size}"
        pick = PickBest(
            at=at,
            asked=asked,
            candidates=tuple([each.json for each in candidates]),
            copies=tuple([each.copies for each in candidates]),
            may_ask_for_more=may_ask_for_more,
            **self._judged,
        )
        picked = await self._work.ask(pick)
        if picked.index is not None and picked.index not in range(len(candidates)):
            raise RoleFailed("Judge", "PickBest", f"chose candidate {picked.index!r} of {len(candidates)} at {at}")
        turn.judged += 1
        turn.reason = picked.reason
        return picked.index

    async def _check(self, turn: SwarmTurn, asked: StepQuestion) -> None:
        if not self._strategy.verify or turn.picked is None:
            return
        to_check = ToCheck(question=asked, reply=turn.picked)
        check = await self._work.ask(Verify(at=f"{turn.at}/check", asked=to_check, **self._judged))
        turn.passed, turn.feedback = check.passed, check.feedback


def _take(turn: SwarmTurn, candidate: Candidate[A]) -> A:
    turn.picked, turn.copies = candidate.json, candidate.copies
    return candidate.reply


def _done(step: StepRecord) -> Done:
    return Done(number=step.number, step=step.step, result=step.result)


class Swarm(VotedTurns):
    """Plan, do every step by several personas, let a judge pick, verify and mend at once, compose, verify, learn."""

    conductor = SwarmConductor
    roles = (Planner, Worker, Judge, Verifier, Compressor, Assembler)

    workers: Annotated[tuple[OneToHundred, ...], Field(min_length=1)] = (2, 3, 5)
    """Numbers of workers: the first at the start, then up to the next in all each time the judge asks for more."""
    k: OneToHundred = 1
    """Number of votes that decide for a judge and for a verifier."""
    loops: Annotated[int, Field(ge=1, le=10)] = 3
    """Maximum number of loops from the plan to the whole answer."""
    compress: bool = True
    """Keep a summary of older steps. Without it nothing of them is shown."""
    verify: bool = True
    """Check every step and the whole answer. Without it the first answer is the result."""
    max_draws: OneToMillion = 20
    """Cap of a judge's and of a verifier's vote, and of the draws of a summary."""
    personas: str = PERSONAS
    """The personas of workers, one a line: NAME: TEXT. personas=@FILE reads them from a file."""

    @field_validator("personas")
    @classmethod
    def _has_personas(cls, given: str) -> str:
        names = [name for name, _ in _personas(given)]
        if not names:
            raise ValueError("it names no persona; write one a line, as NAME: TEXT")
        twice = [name for index, name in enumerate(names) if name in names[:index]]
        if twice:
            raise ValueError(f"two personas are called {twice[0]!r}; give each a name of its own")
        return given

    @model_validator(mode="after")
    def _has_rising_workers(self) -> Self:
        if list(self.workers) != sorted(set(self.workers)):
            raise ValueError(f"workers must rise, such as 2,3,5, not {','.join(map(str, self.workers))}")
        return self

    @property
    def passes_undecided(self) -> bool:
        """An answer that did not pass is a result all the same, and the run ends undecided."""
        return True

    def trial_questions(self, task: Task) -> list[tuple[Prompt, type[Reply]]]:
        """Return the question for a plan."""
        assert isinstance(task, Problem)
        return [(prompt_about(task, PLAN, ToPlan(problem=text_of(task))), Plan)]


def _personas(text: str) -> list[tuple[str, str]]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        name, _, said = (part.strip() for part in line.partition(":"))
        if name and said and not name.startswith("#"):
            found.append((name, said))
        elif line.strip() and not name.startswith("#"):
            raise ValueError(f"line {number} of the personas is not NAME: TEXT, but {line.strip()!r:.80}")
    return found
