"""MAKER's recursive solver: cut a problem in two, solve both halves, compose, and vote at every turn (arXiv 2511.09030, algorithm 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Raw, Struct
from pydantic import Field

from microagents.actors.ranges import OneOrMore, OneToHundred, OneToMillion
from microagents.replies.reply_forms import decoder_of
from microagents.systems.questions.composer import Compose, Composer
from microagents.systems.questions.decomposer import Decompose, Decomposer
from microagents.systems.questions.discriminator import Discriminate, Discriminator
from microagents.systems.questions.problem import Problem, answer_type_of, text_of
from microagents.systems.questions.problem_conductor import ProblemConductor
from microagents.systems.questions.questions import Decomposition, ToCompose, ToDecompose, ToSolve, problem_id
from microagents.systems.questions.tree import MAX_DEPTH, ROOT, ProblemNode, Solution, TurnKind
from microagents.systems.questions.turns import (
    AnswerDirectly,
    Turns,
    VotedTurns,
    most_ballots,
)
from microagents.work.asking import Consult
from microagents.work.durable import DurableRequest, Work


class RecursiveSolution(Struct, frozen=True, kw_only=True):
    """Answer to a problem, with counts of the work on it."""

    answer: bytes
    """The reply, as JSON."""
    problems: int = 1
    """Number of solved problems, sub-problems included."""
    argmax: tuple[str, ...] = ()
    """Paths of turns at which no candidate reached k votes, so that the one with most votes was taken."""


class Solve(DurableRequest[RecursiveSolution], frozen=True, kw_only=True):
    """Solve a problem. A conductor passes the sub-problems of a problem to all conductors with this message."""

    problem: str
    depth: int
    """Number of cuts that led to it."""
    width: int | None
    """Maximum number of direct answers below it; None for no bound."""
    above: tuple[bytes, ...] = ()
    """Ids of the problems above it in the tree."""


ProblemWork = Work[Problem, "Recursive"]
BALLOT_TEMPERATURE = 0.1


class RecursiveConductor(ProblemConductor["Recursive"]):
    """Solves problems, and sub-problems that any replica sends."""

    asks = (Solve, Decompose, Compose, Discriminate)

    async def conduct(self, work: ProblemWork) -> Solution:
        """Solve the whole problem."""
        work.progress(0)
        problem = text_of(work.task)
        solved = await work.ask(Solve(at=ROOT, problem=problem, depth=0, width=work.strategy.width))
        answer = decoder_of(answer_type_of(work.task)).decode(solved.answer)
        return self.concluded(work, answer, problems=solved.problems, argmax=solved.argmax)

    async def solve(self, request: Solve) -> RecursiveSolution:
        """Solve a problem by halves, each on any replica of the conductor, and compose their answers; or answer it directly."""
        work: ProblemWork = self.work_on(request)
        strategy = work.strategy
        turns = Turns(work, request.at, temperature=BALLOT_TEMPERATURE)
        node = turns.notes.root
        draws: dict[str, Any] = {
            "samples": most_ballots(strategy.k),
            "at_least": strategy.min_candidates,
            "max_draws": strategy.max_draws,
            "sampling": turns.task.sampling,
        }
        node.problem, node.depth = request.problem, request.depth
        halves: Sequence[RecursiveSolution] = ()
        cut: Decomposition | None = None
        if request.depth < strategy.depth and request.width != 1:
            asked = ToDecompose(problem=request.problem)
            cut = await turns.take(
                node,
                Decompose(at=f"{node.at}/{TurnKind.DECOMPOSE}", asked=asked, above=request.above, **draws),
            )
        if cut is None or cut.is_atomic:
            ask: Consult[Any, Raw] = AnswerDirectly(
                at=f"{node.at}/{TurnKind.ANSWER}", asked=ToSolve(problem=request.problem), **draws
            )
        else:
            above = (*request.above, problem_id(request.problem))
            # Halving the bound on the width at every cut keeps decisions independent of time: a shared count would not.
            more = fewer = None
            if request.width is not None:
                more, fewer = request.width - request.width // 2, request.width // 2
            parts = [
                Solve(at=f"{node.at}/{number}", problem=part, depth=request.depth + 1, width=width, above=above)
                for number, (part, width) in enumerate([(cut.first, more), (cut.second, fewer)], 1)
            ]
            node.children = tuple([ProblemNode(at=each.at, problem=each.problem, depth=each.depth) for each in parts])
            solving = [work.ask(part) for part in parts]
            halves = await turns.all_ended(solving)
            to_compose = ToCompose(
                problem=request.problem,
                first=cut.first,
                answer_to_first=Raw(halves[0].answer),
                second=cut.second,
                answer_to_second=Raw(halves[1].answer),
                compose=cut.compose,
            )
            ask = Compose(at=f"{node.at}/{TurnKind.COMPOSE}", asked=to_compose, **draws)
        node.answer = await turns.take(node, ask)
        assert node.answer is not None
        below = [path for each in halves for path in each.argmax]
        return RecursiveSolution(
            answer=bytes(node.answer),
            problems=1 + sum(each.problems for each in halves),
            argmax=(*turns.argmax, *below),
        )


class Recursive(VotedTurns):
    """Recursive decomposition: 2k - 1 candidates at every turn, and a vote among them, first to k."""

    conductor = RecursiveConductor
    roles = (Decomposer, Composer, Discriminator)

    k: OneToHundred = 2
    """Number of votes that decide. With k = 1 there is one candidate, and no vote."""
    depth: Annotated[int, Field(ge=0, le=MAX_DEPTH)] = 5
    """Maximum number of cuts above a sub-problem; a deeper one is answered directly."""
    width: OneOrMore | None = None
    """Maximum number of direct answers, halved at every cut; None for no bound."""
    max_draws: OneToMillion = 100
    """Cap of a vote: after this many ballots, flagged ones included, it ends undecided. Also the cap of the candidates of a turn."""
    min_candidates: Annotated[int, Field(ge=1, le=199)] = 2
    """Number of valid candidates that is aimed at, 2k - 1 at most: if fewer than these are valid, but one is, more are drawn. One that
    remains without a rival is taken, and marked `single`."""
