"""MAKER's recursive solver: cut a problem in two, solve both halves, compose, and vote at every turn (arXiv 2511.09030, algorithm 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Self

import msgspec
from msgspec import Struct
from pydantic import Field, model_validator

from microagents.actors import Deployment, Strategy
from microagents.aio import TaskScope, retrieve_exception
from microagents.chat import A, Sampling
from microagents.durable import DurableRequest, Work
from microagents.errors import RoleFailed, Undecided
from microagents.problems.candidates import merged
from microagents.problems.problem import Problem, answer_type_of, direct_prompt, text_of
from microagents.problems.questions import Asked, Decomposition, ToCompose, ToDecompose, ToSolve, problem_id
from microagents.problems.tree import MAX_DEPTH, ROOT, Solution, Turn
from microagents.roles.composer import Compose, Composer, to_compose
from microagents.roles.decomposer import Decompose, Decomposer
from microagents.roles.discriminator import Discriminate, Discriminator
from microagents.strategies.problem_conductor import ProblemConductor


class Solved(Struct, frozen=True, kw_only=True):
    """The answer to a problem, and what it took."""

    answer: bytes
    """The reply, as JSON."""
    problems: int = 1
    """How many problems were solved, sub-problems included."""
    argmax: tuple[str, ...] = ()
    """Turns at which no candidate came to k votes, and the one with most was taken."""


class Solve(DurableRequest[Solved], frozen=True, kw_only=True):
    """Solve a problem: the message by which a conductor passes sub-problems to conductors."""

    problem: str
    depth: int
    """Number of cuts that led to it."""
    width: int | None
    """Upper bound of direct answers below it; None for no bound."""
    above: tuple[bytes, ...] = ()
    """Ids of the problems that it came from."""


ProblemWork = Work[Problem[Any], "Recursive"]


class RecursiveConductor(ProblemConductor["Recursive"]):
    """Solves problems, and sub-problems of other replicas."""

    asks = (Solve, Decompose, Compose, Discriminate)

    async def conduct(self, work: ProblemWork) -> Solution:
        """Solve the whole problem."""
        work.progress(0)
        solved = await work.ask(Solve(at=ROOT, problem=text_of(work.task), depth=0, width=work.strategy.width))
        answer = msgspec.json.decode(solved.answer, type=answer_type_of(work.task))
        return self.concluded(work, answer, problems=solved.problems, argmax=solved.argmax)

    async def solve(self, request: Solve) -> Solved:
        """Solve one problem: cut it, solve both halves, compose; or answer it directly."""
        work: ProblemWork = self.work_on(request)
        strategy, turns, decomposition = work.strategy, _Turns(work, request), None
        if request.depth < strategy.depth and request.width != 1:
            decomposition = await turns.decomposition()
        if decomposition is None or decomposition.is_atomic:
            return Solved(answer=await turns.answer(), argmax=tuple(turns.argmax))
        first, second = await _halves(work, request, decomposition)
        answer = await turns.composition(to_compose(request.problem, decomposition, (first.answer, second.answer)))
        return Solved(
            answer=answer,
            problems=1 + first.problems + second.problems,
            argmax=(*turns.argmax, *first.argmax, *second.argmax),
        )


class _Turns:
    """The turns at one problem: candidates are drawn for each, and one of them is elected."""

    def __init__(self, work: ProblemWork, node: Solve) -> None:
        self.argmax: list[str] = []
        """Paths of the turns that were decided by plurality."""
        self._work = work
        self._node = node
        self._answer_type = answer_type_of(work.task)

    async def decomposition(self) -> Decomposition | None:
        """The elected decomposition; None where no valid one was proposed."""
        node, strategy = self._node, self._work.strategy
        proposed = await self._work.ask(
            Decompose(
                at=f"{node.at}/{Turn.DECOMPOSE}",
                problem=node.problem,
                above=node.above,
                candidates=strategy.candidates,
                sampling=self._sampling(strategy.decomposer_temperature),
            )
        )
        return await self._chosen(Turn.DECOMPOSE, ToDecompose(problem=node.problem), proposed) if proposed else None

    async def answer(self) -> bytes:
        """A direct answer (``ATOMIC``) as JSON; the solver is the thinking module."""
        strategy, asked = self._work.strategy, ToSolve(problem=self._node.problem)
        drawn = await self._work.sample(
            f"{self._node.at}/{Turn.ANSWER}",
            direct_prompt(asked),
            self._answer_type,
            n=strategy.candidates,
            max_draws=strategy.candidates,
            sampling=self._sampling(strategy.solver_temperature),
            needed=True,
        )
        return msgspec.json.encode(await self._chosen(Turn.ANSWER, asked, drawn))

    async def composition(self, asked: ToCompose) -> bytes:
        """The elected composition of the answers to both halves, as JSON."""
        strategy = self._work.strategy
        composed = await self._work.ask(
            Compose(
                at=f"{self._node.at}/{Turn.COMPOSE}",
                asked=msgspec.json.encode(asked),
                candidates=strategy.candidates,
                sampling=self._sampling(strategy.composer_temperature),
            )
        )
        decode = msgspec.json.Decoder(self._answer_type).decode
        return msgspec.json.encode(await self._chosen(Turn.COMPOSE, asked, [decode(each) for each in composed]))

    async def _chosen(self, turn: Turn, asked: Asked, replies: Sequence[A]) -> A:
        """The candidate that discriminators elect; where all samples agree there is no vote."""
        work, at, candidates = self._work, f"{self._node.at}/{turn}/{Turn.VOTE}", merged(replies)
        if not candidates:
            raise RoleFailed("Composer", "Compose", f"gave no candidate for {self._node.at}, and raised nothing")
        if len(candidates) == 1:
            return candidates[0].reply
        chosen = await work.ask(
            Discriminate(
                at=at,
                question=msgspec.json.encode(asked),
                candidates=tuple(msgspec.json.encode(each.reply) for each in candidates),
                copies=tuple(each.copies for each in candidates),
                k=work.strategy.k,
                max_draws=work.strategy.max_draws,
                sampling=self._sampling(work.strategy.discriminator_temperature),
            )
        )
        if chosen.place not in range(len(candidates)):
            raise RoleFailed("Discriminator", "Discriminate", f"chose candidate {chosen.place!r} of {len(candidates)} at {at}")
        if chosen.outcome == "argmax":
            self.argmax.append(work.path_of(at))
        return candidates[chosen.place].reply

    def _sampling(self, temperature: float) -> Sampling:
        return msgspec.structs.replace(self._work.task.sampling, first_temperature=temperature, temperature=temperature)


async def _halves(work: ProblemWork, node: Solve, decomposition: Decomposition) -> Sequence[Solved]:
    """Solve both halves side by side, on any replicas of the conductor.

    Where one half is undecided the other still runs to its end. What is decided must not depend on which half is faster, and once a
    person has decided, the other half is needed. Any other failure of one half cancels the other.

    Raises:
        Undecided: one of them is.
    """
    above = (*node.above, problem_id(node.problem))
    more, fewer = (None, None) if node.width is None else (node.width - node.width // 2, node.width // 2)
    halves = [
        Solve(at=f"{node.at}/{number}", problem=problem, depth=node.depth + 1, width=width, above=above)
        for number, (problem, width) in enumerate([(decomposition.first, more), (decomposition.second, fewer)], 1)
    ]
    scope = TaskScope()
    try:
        open_halves = [scope.start(_solved(work, half)) for half in halves]
        for half in open_halves:
            half.add_done_callback(retrieve_exception)
        ended = await asyncio.gather(*open_halves)
    finally:
        await scope.close()
    solved = []
    for each in ended:
        if isinstance(each, Undecided):
            raise each
        solved.append(each)
    return solved


async def _solved(work: ProblemWork, half: Solve) -> Solved | Undecided:
    try:
        return await work.ask(half)
    except Undecided as error:
        return error


class Recursive(Strategy):
    """Recursive decomposition: 2k - 1 candidates at every turn, and a vote among them, first to k."""

    solves = (Problem,)
    conductor = RecursiveConductor
    cuts_problems = True

    k: Annotated[int, Field(ge=1, le=100)] = 2
    """Votes that decide; with k = 1 there is one candidate, and no vote."""
    depth: Annotated[int, Field(ge=0, le=MAX_DEPTH)] = 5
    """After so many cuts a sub-problem is answered directly."""
    width: Annotated[int, Field(ge=1)] | None = None
    """At most so many sub-problems are answered directly, shared out evenly at every cut; as many as the depth allows if not given."""
    max_draws: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """The cap of a vote: so many ballots, flagged ones included, then it is undecided."""
    decomposer_temperature: Annotated[float, Field(ge=0, le=2)] = 0.5
    """Temperature of decompositions."""
    solver_temperature: Annotated[float, Field(ge=0, le=2)] = 0.5
    """Temperature of direct answers."""
    composer_temperature: Annotated[float, Field(ge=0, le=2)] = 0.5
    """Temperature of compositions."""
    discriminator_temperature: Annotated[float, Field(ge=0, le=2)] = 0.1
    """Temperature of ballots."""

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        if self.candidates > self.max_draws:
            raise ValueError(f"a vote at k = {self.k} may take {self.candidates} ballots, but max_draws = {self.max_draws}")
        return self

    @property
    def candidates(self) -> int:
        """N of algorithm 4."""
        return 2 * self.k - 1

    def deployments(self) -> list[Deployment]:
        """The roles of an election, and those that propose, compose and choose."""
        return [*super().deployments(), *(Deployment(role=role) for role in (Decomposer, Composer, Discriminator))]
