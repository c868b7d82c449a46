"""MAKER's recursive solver: cut a problem in two, solve both halves, compose, and vote at every turn (arXiv 2511.09030, algorithm 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Self

import msgspec
from msgspec import Struct
from pydantic import Field, model_validator

from microagents.actors import Deployment, Strategy
from microagents.aio import TaskScope, retrieve_exception
from microagents.chat import A, Sampling
from microagents.errors import RoleFailed, Undecided
from microagents.messages import Request
from microagents.problems.candidates import merged
from microagents.problems.problem import Problem, answer_type, direct_prompt, text_of
from microagents.problems.questions import Asked, Decomposition, ToDecompose, ToSolve, problem_id
from microagents.problems.tree import MOST_DEPTH, ROOT, Solution, Turn
from microagents.roles.composer import Compose, Composer, to_compose
from microagents.roles.decomposer import Decompose, Decomposer
from microagents.roles.discriminator import Chosen, Discriminate, Discriminator
from microagents.strategies.problem_conductor import ProblemConductor


class Solved(Struct, frozen=True, kw_only=True):
    """The answer to a problem, and what it took."""

    answer: bytes
    """The reply, as JSON."""
    problems: int = 1
    """How many problems were solved, sub-problems included."""
    argmax: tuple[str, ...] = ()
    """Turns at which no candidate came to k votes, and the one with most was taken."""


class Solve(Request[Solved], frozen=True, kw_only=True):
    """Solve a problem: the message by which a conductor hands the halves to conductors."""

    route_by = "at"
    input: int
    at: str
    problem: str
    depth: int
    """How many cuts led to it."""
    width: int | None
    """At most so many direct answers may come of it; None for no bound."""
    recalls: bool
    """See `DurableRole.recalls`."""
    above: tuple[bytes, ...] = ()
    """Ids of the problems that it came from."""


class RecursiveConductor(ProblemConductor["Recursive"]):
    """Solves a problem and, as one of several replicas, problems that others cut."""

    asks = (Solve, Decompose, Compose, Discriminate)

    async def conduct(self) -> Solution:
        """The answer."""
        self.progress(0)
        root = Solve(
            input=self.input,
            at=ROOT,
            problem=text_of(self.task),
            depth=0,
            width=self.strategy.width,
            recalls=await self.recalls(),
        )
        solved = await self.ask(root)
        answer = msgspec.json.decode(solved.answer, type=answer_type(type(self.task)))
        return self.concluded(answer, problems=solved.problems, argmax=solved.argmax)

    async def solve(self, request: Solve) -> Solved:
        """The answer to one problem."""
        return await self.for_input(request.input, recalls=request.recalls)._solve(request)  # noqa: SLF001 - its own

    async def _solve(self, node: Solve) -> Solved:
        turns: list[str] = []
        decomposition = None
        if node.depth < self.strategy.depth and node.width != 1:
            decomposition = await self._decomposition(node, turns)
        if decomposition is None or decomposition.is_atomic:
            return Solved(answer=await self._answer(node, turns), argmax=tuple(turns))
        first, second = await self._halves(node, decomposition)
        asked = to_compose(node.problem, decomposition, (first.answer, second.answer))
        composed = await self.ask(
            Compose(
                input=node.input,
                at=f"{node.at}/{Turn.COMPOSE}",
                recalls=await self.recalls(),
                asked=msgspec.json.encode(asked),
                candidates=self.strategy.candidates,
                sampling=self._sampling(self.strategy.composer_temperature),
            )
        )
        decode = msgspec.json.Decoder(answer_type(type(self.task))).decode
        answer = await self._chosen(node, Turn.COMPOSE, asked, [decode(each) for each in composed], turns)
        return Solved(
            answer=msgspec.json.encode(answer),
            problems=1 + first.problems + second.problems,
            argmax=(*turns, *first.argmax, *second.argmax),
        )

    async def _decomposition(self, node: Solve, turns: list[str]) -> Decomposition | None:
        """The elected way to cut a problem; None where no valid one was proposed."""
        proposed = await self.ask(
            Decompose(
                input=node.input,
                at=f"{node.at}/{Turn.DECOMPOSE}",
                recalls=await self.recalls(),
                problem=node.problem,
                above=node.above,
                candidates=self.strategy.candidates,
                sampling=self._sampling(self.strategy.decomposer_temperature),
            )
        )
        return await self._chosen(node, Turn.DECOMPOSE, ToDecompose(problem=node.problem), proposed, turns) if proposed else None

    async def _halves(self, node: Solve, decomposition: Decomposition) -> Sequence[Solved]:
        """Both halves solved, side by side, wherever there is a conductor.

        Where one is undecided the other goes on to its end: what is decided must not depend on which is faster, and once a person has
        decided it is needed.

        Raises:
            Undecided: one of them is.
        """
        above = (*node.above, problem_id(node.problem))
        more, fewer = (None, None) if node.width is None else (node.width - node.width // 2, node.width // 2)
        halves = (decomposition.first, more), (decomposition.second, fewer)
        recalls = await self.recalls()
        scope = TaskScope()
        try:
            open_halves = [
                scope.start(
                    self._solved(
                        Solve(
                            input=node.input,
                            at=f"{node.at}/{number}",
                            problem=problem,
                            depth=node.depth + 1,
                            width=width,
                            recalls=recalls,
                            above=above,
                        )
                    )
                )
                for number, (problem, width) in enumerate(halves, 1)
            ]
            for half in open_halves:
                half.add_done_callback(retrieve_exception)
            ended = await asyncio.gather(*open_halves)  # whatever else one fails with ends the other at once
        finally:
            await scope.close()
        solved = []
        for each in ended:
            if isinstance(each, Undecided):
                raise each
            solved.append(each)
        return solved

    async def _solved(self, half: Solve) -> Solved | Undecided:
        try:
            return await self.ask(half)
        except Undecided as error:
            return error

    async def _answer(self, node: Solve, turns: list[str]) -> bytes:
        """A direct answer (``ATOMIC``); the solver is the thinking module."""
        asked = ToSolve(problem=node.problem)
        drawn = await self.sample(
            f"{node.at}/{Turn.ANSWER}",
            direct_prompt(asked),
            answer_type(type(self.task)),
            n=self.strategy.candidates,
            max_draws=self.strategy.candidates,
            sampling=self._sampling(self.strategy.solver_temperature),
            needed=True,
        )
        return msgspec.json.encode(await self._chosen(node, Turn.ANSWER, asked, drawn, turns))

    async def _chosen(self, node: Solve, turn: Turn, asked: Asked, replies: Sequence[A], turns: list[str]) -> A:
        """The candidate that discriminators elect; where all samples say the same there is nothing to vote on."""
        candidates = merged(replies)
        if not candidates:
            raise RoleFailed("Composer", "Compose", f"gave no candidate for {node.at}, and raised nothing")
        if len(candidates) == 1:
            return candidates[0].reply
        at = f"{node.at}/{turn}/{Turn.VOTE}"
        chosen: Chosen = await self.ask(
            Discriminate(
                input=node.input,
                at=at,
                recalls=await self.recalls(),
                question=msgspec.json.encode(asked),
                candidates=tuple(msgspec.json.encode(each.reply) for each in candidates),
                copies=tuple(each.copies for each in candidates),
                k=self.strategy.k,
                max_draws=self.strategy.max_draws,
                sampling=self._sampling(self.strategy.discriminator_temperature),
            )
        )
        if chosen.place not in range(len(candidates)):
            raise RoleFailed("Discriminator", "Discriminate", f"chose candidate {chosen.place!r} of {len(candidates)} at {at}")
        if chosen.outcome == "argmax":
            turns.append(f"{node.input}/{at}")
        return candidates[chosen.place].reply

    def _sampling(self, temperature: float) -> Sampling:
        return msgspec.structs.replace(self.task.sampling, first_temperature=temperature, temperature=temperature)


class Recursive(Strategy):
    """Recursive decomposition: 2k - 1 candidates at every turn, and a vote among them, first to k."""

    solves = (Problem,)
    conductor = RecursiveConductor
    cuts_problems = True

    k: Annotated[int, Field(ge=1, le=100)] = 2
    """Votes that decide; with k = 1 there is one candidate, and no vote."""
    depth: Annotated[int, Field(ge=0, le=MOST_DEPTH)] = 5
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
