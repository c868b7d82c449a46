"""The judge-based swarm: plan, do each step by several personas, let a judge pick, verify at once, compress, compose, verify, learn.

It is for long lists of steps whose answers are prose, where votes cannot be counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import msgspec
from msgspec import Raw, Struct, structs
from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, field_validator, model_validator

from microagents.actors import Deployment, Strategy
from microagents.aio import TaskScope
from microagents.elections.election import Ballot, ElectionId, Verdict
from microagents.errors import RoleFailed, Undecided
from microagents.journal.messages import OpenElection, Recalled, RecordDecision
from microagents.problems.candidates import Candidate, merged
from microagents.problems.problem import Problem, answer_type, answer_type_of, text_of
from microagents.problems.questions import problem_id, prompt_of
from microagents.problems.step_records import SwarmRecord, swarm_record
from microagents.problems.steps import (
    Check,
    Done,
    Plan,
    Rejected,
    StepQuestion,
    StepResult,
    ToAssemble,
    ToCheck,
    ToCompress,
    ToPlan,
    ToWork,
)
from microagents.problems.tree import ROOT, Solution
from microagents.replies.chat import Prompt, Reply
from microagents.roles import planner
from microagents.roles.asking import Consult
from microagents.roles.composer import Assemble, Composer
from microagents.roles.compressor import Compress, Compressor
from microagents.roles.judge import Judge, PickBest
from microagents.roles.planner import Planner, ProposePlans
from microagents.roles.verifier import Verifier, Verify
from microagents.roles.worker import DoStep, Worker
from microagents.strategies.problem_conductor import ProblemConductor
from microagents.strategies.turns import check_cap, sampling_at
from microagents.task import Task
from microagents.work.durable import Work

PERSONAS = """pragmatist: You are a pragmatist: you take the shortest way that surely works.
skeptic: You are a skeptic: you look for what could be wrong before you write it down.
innovator: You are an innovator: you look for a way that others would not try first.
systems thinker: You are a systems thinker: you look at how each part acts on the others.
historian: You are a historian: you ask how such things were done before, and how they ended.
contrarian: You are a contrarian: you take the view that most would not, and see whether it holds."""


class SwarmSolution(Solution, frozen=True, kw_only=True):
    """The answer to a problem, and what did not pass on the way to it."""

    verified: bool
    """Whether the answer passed as a whole. If it did not, it is the one of the loop with the fewest steps that did not pass."""
    unverified: tuple[str, ...] = ()
    """Places of steps whose last result did not pass."""
    loops: int = 1
    """Number of loops that were run."""


class _Loop(Struct, frozen=True, kw_only=True):
    """The result of one loop."""

    at: str
    answer: bytes | None = None
    passed: bool = False
    lesson: str = ""
    unverified: tuple[str, ...] = ()
    steps: int = 1
    """Number of steps of the plan."""


SwarmWork = Work[Problem[Any], "Swarm"]


class SwarmConductor(ProblemConductor["Swarm"]):
    """Runs loops until an answer passes."""

    asks = (ProposePlans, DoStep, Assemble, PickBest, Verify, Compress)

    async def conduct(self, work: SwarmWork) -> Solution:
        """Solve the problem.

        Raises:
            Undecided: no loop led to an answer.
        """
        loops: list[_Loop] = []
        for number in range(work.strategy.loops):
            lessons = tuple(each.lesson for each in loops if each.lesson)
            loops.append(await _LoopOfSwarm(work, f"loop/{number}", lessons).run())
            if loops[-1].passed:
                break
        best = loops[-1] if loops[-1].passed else min(loops, key=lambda each: (each.answer is None, len(each.unverified)))
        if best.answer is None:
            raise Undecided(work.path_of(best.at), len(loops), best.lesson)
        answer = msgspec.json.decode(best.answer, type=answer_type_of(work.task))
        if not best.passed:
            _mark_undecided(work, best.answer)
        found = self.concluded(work, answer, problems=best.steps)
        return SwarmSolution(
            answer=found.answer,
            correct=found.correct,
            verified=best.passed,
            unverified=tuple(work.path_of(at) for at in best.unverified),
            loops=len(loops),
        )


def _mark_undecided(work: SwarmWork, answer: bytes) -> None:
    """Record that no answer passed, so that the run ends undecided with the best one as its result."""
    place = ElectionId(path=work.path_of(f"{ROOT}/verified"), question_digest=problem_id(text_of(work.task)))
    verdict = Verdict(outcome="undecided", leader=0, tally=((answer, 1),), ballots=(Ballot(seq=0, value=answer, cost_usd=0.0),))
    work.role.tell(RecordDecision(id=place, verdict=verdict, correct=None))


class _LoopOfSwarm:
    """One loop: a plan, its steps, and the answer made of them."""

    def __init__(self, work: SwarmWork, at: str, lessons: tuple[str, ...]) -> None:
        self._work = work
        self._at = at
        self._lessons = lessons
        self._problem = text_of(work.task)
        self._strategy = work.strategy
        self._personas = work.strategy.persona_texts
        self._done: list[Done] = []
        self._unverified: list[str] = []
        self._feedback: list[str] = []
        """The words of the verifier on results that did not pass."""

    async def run(self) -> _Loop:
        """Run the loop; it ends early where no worker gives a valid result."""
        planned = await self._turn(f"{self._at}/plan", ToPlan(problem=self._problem, lessons=self._lessons), Plan, ProposePlans)
        if planned is None:
            return self._ended("no valid plan was proposed")
        plan = planned.steps
        scope = TaskScope()
        try:
            first = ToCompress(problem=self._problem, plan=plan, done=Done(number=0, step="", result=""), lessons=self._lessons)
            summaries = _Summaries(self._work, scope, f"{self._at}/summary", first)
            for number, step in enumerate(plan, 1):
                self._work.progress(number - 1, len(plan))
                done = await self._step(number, step, plan, summaries)
                if done is None:
                    await summaries.finished()  # cancelled, they would be recorded or not by chance
                    return self._ended(f"step {number} ({step}) had no valid result")
                self._done.append(done)
                summaries.add(done)
            asked = ToAssemble(
                problem=self._problem,
                plan=plan,
                summary=await summaries.before(len(plan) + 1),
                recent=self._recent(len(plan) + 1),
                lessons=self._lessons,
            )
        finally:
            await scope.close()
        answer = await self._turn(f"{self._at}/whole", asked, answer_type_of(self._work.task), Assemble)
        if answer is None:
            return self._ended("no valid answer was composed")
        encoded = msgspec.json.encode(answer)
        checked = await self._check(f"{self._at}/whole/check", asked, encoded)
        return _Loop(
            at=self._at,
            answer=encoded,
            passed=checked.passed,
            lesson="" if checked.passed else "\n".join([*self._feedback, checked.feedback]),
            unverified=tuple(self._unverified),
            steps=len(plan),
        )

    def _ended(self, reason: str) -> _Loop:
        return _Loop(at=self._at, lesson="\n".join([*self._feedback, reason]), unverified=tuple(self._unverified))

    async def _step(self, number: int, step: str, plan: tuple[str, ...], summaries: _Summaries) -> Done | None:
        """Do one step, verify it, and do it again with the feedback where it does not pass. None where no result is valid."""
        asked = ToWork(
            problem=self._problem,
            plan=plan,
            number=number,
            step=step,
            summary=await summaries.before(number),
            recent=self._recent(number),
            lessons=self._lessons,
        )
        last: StepResult | None = None
        rejected: list[Rejected] = []
        for attempt in range(1 + self._strategy.retries):
            at = f"{self._at}/step/{number}/{attempt}"
            asked = structs.replace(asked, rejected=tuple(rejected))
            found = await self._turn(at, asked, StepResult, DoStep)
            if found is None:
                continue
            last = found
            checked = await self._check(f"{at}/check", asked, msgspec.json.encode(found))
            if checked.passed:
                return Done(number=number, step=step, result=found.result)
            rejected.append(Rejected(result=found.result, feedback=checked.feedback))
        if last is None:
            return None
        self._unverified.append(f"{self._at}/step/{number}")
        self._feedback.append(f"step {number} ({step}) did not pass: {rejected[-1].feedback}")
        return Done(number=number, step=step, result=last.result)

    def _recent(self, number: int) -> tuple[Done, ...]:
        """The finished steps that a question behind them shows in full."""
        return tuple(self._done[max(0, number - 1 - self._strategy.recent) :])

    async def _turn(self, at: str, asked: StepQuestion, reply: type[Any], request: type[Consult[Any, Any]]) -> Any:
        """Draw from ever more workers until all agree or the judge picks one; None where no reply is valid."""
        work, strategy = self._work, self._strategy
        decode = msgspec.json.Decoder(reply).decode
        replies: list[Any] = []
        drawn = 0
        for size in strategy.workers:
            personas = [self._personas[place % len(self._personas)] for place in range(drawn, size)]
            got = await work.ask(
                request(
                    at=f"{at}/workers/{size}",
                    asked=asked,
                    manners=tuple(personas),
                    samples=len(personas),
                    max_draws=len(personas),
                    sampling=sampling_at(work, strategy.worker_temperature),
                )
            )
            drawn = size
            replies += [decode(each) if isinstance(each, Raw) else each for each in got]
            candidates = merged(replies)
            if len(candidates) == 1 and (candidates[0].copies > 1 or size == 1):
                return candidates[0].reply
            is_last = size == strategy.workers[-1]
            if not candidates or (len(candidates) == 1 and is_last):
                continue
            place = await self._picked(f"{at}/judge/{size}", asked, candidates, may_ask_for_more=not is_last)
            if place is not None:
                return candidates[place].reply
        return merged(replies)[0].reply if replies else None

    async def _picked(self, at: str, asked: StepQuestion, candidates: Sequence[Candidate[Any]], *, may_ask_for_more: bool) -> int | None:
        place = await self._work.ask(
            PickBest(
                at=at,
                asked=asked,
                candidates=tuple(each.json for each in candidates),
                may_ask_for_more=may_ask_for_more,
                k=self._strategy.k,
                max_draws=self._strategy.max_draws,
                sampling=sampling_at(self._work, self._strategy.judge_temperature),
            )
        )
        if place is not None and place not in range(len(candidates)):
            raise RoleFailed("Judge", "PickBest", f"chose candidate {place!r} of {len(candidates)} at {at}")
        return place

    async def _check(self, at: str, asked: StepQuestion, reply: bytes) -> Check:
        if not self._strategy.verify:
            return Check(passed=True, feedback="")
        (check,) = await self._work.ask(
            Verify(
                at=at,
                asked=ToCheck(question=asked, reply=Raw(reply)),
                k=self._strategy.k,
                max_draws=self._strategy.max_draws,
                sampling=sampling_at(self._work, self._strategy.judge_temperature),
            )
        )
        return check


class _Summaries:
    """The summaries of finished steps, each made of the one before it while the next steps are done."""

    def __init__(self, work: SwarmWork, scope: TaskScope, at: str, first: ToCompress) -> None:
        self._work = work
        self._scope = scope
        self._at = at
        self._first = first
        """The question of every summary, without its step and the summary before it."""
        self._made: list[Any] = []
        """For each finished step that a later one may need in the summary, the task that makes the summary with it."""

    def add(self, done: Done) -> None:
        """Begin the summary with a step, as soon as it is finished."""
        if self._work.strategy.compress and done.number + self._work.strategy.recent <= len(self._first.plan):
            self._made.append(self._scope.start(self._with(done, self._made[-1] if self._made else None)))

    async def before(self, number: int) -> str:
        """The summary for a question behind the steps below a number; empty while all of these are shown in full."""
        left_out = number - 1 - self._work.strategy.recent
        return str(await self._made[left_out - 1]) if self._made and left_out > 0 else ""

    async def finished(self) -> None:
        """Wait for the summaries that have begun."""
        for made in self._made:
            await made

    async def _with(self, done: Done, before: Any) -> str:
        asked = structs.replace(self._first, done=done, summary="" if before is None else await before)
        (made,) = await self._work.ask(
            Compress(
                at=f"{self._at}/{done.number}",
                asked=asked,
                max_draws=self._work.strategy.max_draws,
                sampling=self._work.task.sampling,
            )
        )
        return made.summary


class Swarm(Strategy):
    """Plan, do every step by several personas, let a judge pick, verify and mend at once, compose, verify, learn."""

    solves = (Problem,)
    conductor = SwarmConductor
    draws_solution = True

    workers: Annotated[tuple[Annotated[int, Field(ge=1, le=100)], ...], Field(min_length=1)] = (2, 3, 5)
    """Numbers of workers: so many at first, and up to so many in all each time the judge asks for more."""
    k: Annotated[int, Field(ge=1, le=100)] = 1
    """Number of votes that decide for a judge and for a verifier."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Number of times that a step which does not pass is done again, with the feedback."""
    loops: Annotated[int, Field(ge=1, le=10)] = 3
    """Maximum number of loops from the plan to the whole answer."""
    recent: Annotated[int, Field(ge=1)] = 5
    """Number of the last steps that are shown in full; older ones are in the summary."""
    compress: bool = True
    """Keep a summary of older steps. Without it nothing of them is shown."""
    verify: bool = True
    """Check every step and the whole answer. Without it the first answer is the result."""
    max_draws: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    """Cap of a judge's and of a verifier's vote, and of the draws of a summary."""
    worker_temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    """Temperature of plans, results and compositions."""
    judge_temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """Temperature of judges and verifiers."""
    personas: str = PERSONAS
    """The personas of workers, one a line: NAME: TEXT. personas=@FILE reads them from a file."""

    @field_validator("workers", mode="wrap")
    @classmethod
    def _are_numbers(cls, given: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(given)
        except ValidationError:
            if isinstance(given, str):  # the command line's text, which is read as JSON then
                raise
            raise ValueError(f"workers are one or more numbers from 1 to 100, such as [2,3,5], not {given!r:.100}") from None

    @field_validator("personas")
    @classmethod
    def _has_personas(cls, given: str) -> str:
        names = [name for name, _ in _personas(given)]
        if not names:
            raise ValueError("there is no persona in it; write one a line, as NAME: TEXT")
        if twice := [name for place, name in enumerate(names) if name in names[:place]]:
            raise ValueError(f"two personas are called {twice[0]!r}; give each a name of its own")
        return given

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        if list(self.workers) != sorted(set(self.workers)):
            raise ValueError(f"workers must rise, such as 2,3,5, not {','.join(map(str, self.workers))}")
        check_cap(self.k, self.max_draws)
        return self

    @property
    def passes_undecided(self) -> bool:
        """An answer that did not pass is a result all the same, and the run ends undecided."""
        return True

    @property
    def persona_texts(self) -> list[str]:
        """The texts of the personas, in their order."""
        return [text for _, text in _personas(self.personas)]

    @property
    def persona_names(self) -> list[str]:
        """The names of the personas, in their order."""
        return [name for name, _ in _personas(self.personas)]

    def trial_questions(self, task: Task) -> list[tuple[Prompt, type[Reply]]]:
        """The question for a plan."""
        assert isinstance(task, Problem)
        return [(prompt_of(planner.SYSTEM, ToPlan(problem=text_of(task))), Plan)]

    def solution(
        self,
        of_input: int,
        task: Task,
        pool: Sequence[str],  # noqa: ARG002 - of no account for the steps
        rows: Mapping[str, Recalled],
        open_elections: Sequence[OpenElection],
    ) -> SwarmRecord:
        """The recorded loops with their plans, steps, picks, checks and lessons."""
        assert isinstance(task, Problem)
        return swarm_record(
            of_input, text_of(task), answer_type(type(task)), rows, open_elections, workers=self.workers, names=self.persona_names
        )

    def deployments(self) -> list[Deployment]:
        """The roles of an election, and those of the swarm."""
        roles = (Planner, Worker, Judge, Verifier, Compressor, Composer)
        return [*super().deployments(), *(Deployment(role=role) for role in roles)]


def _personas(text: str) -> list[tuple[str, str]]:
    """The names and texts of personas.

    Raises:
        ValueError: a line is neither a persona nor a comment.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        name, _, said = (part.strip() for part in line.partition(":"))
        if name and said and not name.startswith("#"):
            found.append((name, said))
        elif line.strip() and not name.startswith("#"):
            raise ValueError(f"line {number} of the personas is not NAME: TEXT, but {line.strip()!r:.80}")
    return found
