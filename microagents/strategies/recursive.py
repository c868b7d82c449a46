"""MAKER's recursive solver: cut a problem in two, solve both halves, compose, and vote at every turn (arXiv 2511.09030, algorithm 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import msgspec
from msgspec import Raw, Struct
from pydantic import Field, model_validator

from microagents.actors import Deployment, Strategy
from microagents.errors import RoleFailed
from microagents.journal.messages import OpenElection, Recalled
from microagents.problems.problem import Problem, answer_type, answer_type_of, direct_prompt, text_of
from microagents.problems.questions import Decomposition, ToCompose, ToDecompose, ToSolve, Votable, problem_id
from microagents.problems.tree import MAX_DEPTH, ROOT, ProblemNode, Solution, Turn, solution_tree
from microagents.replies.chat import A
from microagents.roles.composer import Compose, Composer
from microagents.roles.decomposer import Decompose, Decomposer
from microagents.roles.discriminator import Discriminate, Discriminator
from microagents.strategies.problem_conductor import ProblemConductor
from microagents.strategies.turns import Votes, all_ended, check_cap, most_ballots, sampling_at
from microagents.task import Task
from microagents.work.durable import DurableRequest, Work


class Solved(Struct, frozen=True, kw_only=True):
    """The answer to a problem, with counts of the work on it."""

    answer: bytes
    """The reply, as JSON."""
    problems: int = 1
    """Number of solved problems, sub-problems included."""
    argmax: tuple[str, ...] = ()
    """Paths of turns at which no candidate reached k votes, so that the one with most votes was taken."""


class Solve(DurableRequest[Solved], frozen=True, kw_only=True):
    """Solve a problem. A conductor passes the sub-problems of a problem to all conductors with this message."""

    problem: str
    depth: int
    """Number of cuts that led to it."""
    width: int | None
    """Maximum number of direct answers below it; None for no bound."""
    above: tuple[bytes, ...] = ()
    """Ids of the problems above it in the tree."""


ProblemWork = Work[Problem[Any], "Recursive"]


class RecursiveConductor(ProblemConductor["Recursive"]):
    """Solves problems, and sub-problems that any replica sends."""

    asks = (Solve, Decompose, Compose, Discriminate)

    async def conduct(self, work: ProblemWork) -> Solution:
        """Solve the whole problem."""
        work.progress(0)
        solved = await work.ask(Solve(at=ROOT, problem=text_of(work.task), depth=0, width=work.strategy.width))
        answer = msgspec.json.decode(solved.answer, type=answer_type_of(work.task))
        return self.concluded(work, answer, problems=solved.problems, argmax=solved.argmax)

    async def solve(self, request: Solve) -> Solved:
        """Solve one problem: cut it in two, solve both halves and compose their answers; or answer it directly."""
        work: ProblemWork = self.work_on(request)
        strategy, turns, decomposition = work.strategy, _Turns(work, request), None
        if request.depth < strategy.depth and request.width != 1:
            decomposition = await turns.decomposition()
        if decomposition is None or decomposition.is_atomic:
            return Solved(answer=await turns.answer(), argmax=tuple(turns.argmax))
        first, second = await _solve_halves(work, request, decomposition)
        answer = await turns.composition(
            ToCompose(
                problem=request.problem,
                first=decomposition.first,
                answer_to_first=Raw(first.answer),
                second=decomposition.second,
                answer_to_second=Raw(second.answer),
                compose=decomposition.compose,
            )
        )
        return Solved(
            answer=answer,
            problems=1 + first.problems + second.problems,
            argmax=(*turns.argmax, *first.argmax, *second.argmax),
        )


class _Turns:
    """The turns at one problem. For each turn candidates are drawn, and one of them is elected."""

    def __init__(self, work: ProblemWork, node: Solve) -> None:
        strategy = work.strategy
        self._votes = Votes(
            work,
            k=strategy.k,
            max_draws=strategy.max_draws,
            temperature=strategy.discriminator_temperature,
            show_copies=strategy.show_copies,
        )
        self._work = work
        self._node = node
        self._answer_type = answer_type_of(work.task)

    @property
    def argmax(self) -> list[str]:
        """Paths of the turns that were decided by plurality."""
        return self._votes.argmax

    async def decomposition(self) -> Decomposition | None:
        """The elected decomposition; None where no valid one was proposed."""
        node, strategy = self._node, self._work.strategy
        asked = ToDecompose(problem=node.problem)
        proposed = await self._work.ask(
            Decompose(
                at=f"{node.at}/{Turn.DECOMPOSE}",
                asked=asked,
                above=node.above,
                samples=strategy.candidates,
                at_least=strategy.min_candidates,
                max_draws=strategy.max_draws,
                sampling=sampling_at(self._work, strategy.decomposer_temperature),
            )
        )
        return await self._elect(Turn.DECOMPOSE, asked, proposed) if proposed else None

    async def answer(self) -> bytes:
        """The elected direct answer, as JSON."""
        strategy, asked = self._work.strategy, ToSolve(problem=self._node.problem)
        drawn = await self._work.propose(
            f"{self._node.at}/{Turn.ANSWER}",
            direct_prompt(asked),
            self._answer_type,
            n=strategy.candidates,
            at_least=strategy.min_candidates,
            max_draws=strategy.max_draws,
            sampling=sampling_at(self._work, strategy.solver_temperature),
            needed=True,
        )
        return msgspec.json.encode(await self._elect(Turn.ANSWER, asked, drawn))

    async def composition(self, asked: ToCompose) -> bytes:
        """The elected composition of the answers to both halves, as JSON."""
        strategy = self._work.strategy
        composed = await self._work.ask(
            Compose(
                at=f"{self._node.at}/{Turn.COMPOSE}",
                asked=asked,
                samples=strategy.candidates,
                at_least=strategy.min_candidates,
                max_draws=strategy.max_draws,
                sampling=sampling_at(self._work, strategy.composer_temperature),
            )
        )
        decode = msgspec.json.Decoder(self._answer_type).decode
        return msgspec.json.encode(await self._elect(Turn.COMPOSE, asked, [decode(each) for each in composed]))

    async def _elect(self, turn: Turn, asked: Votable, replies: Sequence[A]) -> A:
        """The candidate that the discriminator's vote chooses."""
        if not replies:
            raise RoleFailed("Composer", "Compose", f"gave no candidate for {self._node.at}, and raised nothing")
        return await self._votes.elect(f"{self._node.at}/{turn}/{Turn.VOTE}", asked, replies)


async def _solve_halves(work: ProblemWork, node: Solve, decomposition: Decomposition) -> Sequence[Solved]:
    """Solve both halves side by side, on any replicas of the conductor.

    Raises:
        Undecided: one half is undecided.
    """
    above = (*node.above, problem_id(node.problem))
    # Halving the bound on the width at every cut keeps decisions independent of time. A shared count would depend on the faster half.
    more, fewer = (None, None) if node.width is None else (node.width - node.width // 2, node.width // 2)
    halves = [
        Solve(at=f"{node.at}/{number}", problem=problem, depth=node.depth + 1, width=width, above=above)
        for number, (problem, width) in enumerate([(decomposition.first, more), (decomposition.second, fewer)], 1)
    ]
    return await all_ended([work.ask(half) for half in halves])


class Recursive(Strategy):
    """Recursive decomposition: 2k - 1 candidates at every turn, and a vote among them, first to k."""

    solves = (Problem,)
    conductor = RecursiveConductor
    draws_solution = True

    k: Annotated[int, Field(ge=1, le=100)] = 2
    """Number of votes that decide. With k = 1 there is one candidate, and no vote."""
    depth: Annotated[int, Field(ge=0, le=MAX_DEPTH)] = 5
    """Maximum number of cuts above a sub-problem; a deeper one is answered directly."""
    width: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of direct answers, halved at every cut; None for no bound."""
    max_draws: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Cap of a vote: after this many ballots, flagged ones included, it ends undecided. Also the cap of the candidates of a turn."""
    min_candidates: Annotated[int, Field(ge=1, le=199)] = 2
    """Number of valid candidates that is aimed at, 2k - 1 at most: where fewer than these are valid, but one is, more are drawn. One that
    remains without a rival is taken, and marked `single`."""
    show_copies: bool = False
    """Tell discriminators how many samples gave each candidate."""
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
        check_cap(self.k, self.max_draws)
        return self

    @property
    def candidates(self) -> int:
        """Number of candidates at a turn: N of algorithm 4."""
        return most_ballots(self.k)

    def solution(
        self,
        of_input: int,
        task: Task,
        pool: Sequence[str],  # noqa: ARG002 - of no account for the tree
        rows: Mapping[str, Recalled],
        open_elections: Sequence[OpenElection],
    ) -> ProblemNode:
        """The recorded tree of sub-problems."""
        assert isinstance(task, Problem)
        return solution_tree(of_input, text_of(task), answer_type(type(task)), rows, open_elections)

    def deployments(self) -> list[Deployment]:
        """The roles of an election, and the decomposer, the composer and the discriminator."""
        return [*super().deployments(), *(Deployment(role=role) for role in (Decomposer, Composer, Discriminator))]
