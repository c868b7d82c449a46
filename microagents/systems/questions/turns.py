"""Turns at problems: models draw candidates, and the discriminator votes among these, first to k."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Generic, Self, TypeVar

from msgspec import Raw, structs
from pydantic import model_validator

from microagents.actors.role import Strategy
from microagents.base.aio import TaskScope
from microagents.base.errors import RoleFailed, Undecided
from microagents.replies.chat import Sampling
from microagents.replies.reply import A
from microagents.replies.reply_forms import decoder_of
from microagents.systems.questions.candidates import merged
from microagents.systems.questions.discriminator import Discriminate
from microagents.systems.questions.notes import BegunTurn, ProblemNotes, answer_in
from microagents.systems.questions.problem import DIRECTLY, Problem
from microagents.systems.questions.questions import Votable
from microagents.systems.questions.tree import ProblemNode, TurnKind
from microagents.task import Task
from microagents.work.asking import Consult, Q, consulted
from microagents.work.durable import Work

R = TypeVar("R")
V = TypeVar("V")


def most_ballots(k: int) -> int:
    """Number of candidates at a turn, and of ballots in a vote on them, at most (MAKER, algorithm 4: N = 2k - 1)."""
    return 2 * k - 1


class VotedTurns(Strategy):
    """Strategy of turns at a problem, each of which a vote decides."""

    solves = (Problem,)
    draws_solution = True

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        k, cap = self.deciding_votes or 1, self.draw_cap
        if most_ballots(k) > cap:
            raise ValueError(f"a vote at k = {k} may take {most_ballots(k)} ballots, but max_draws = {cap}")
        return self


class Direct(Consult[Q, R], Generic[Q, R], frozen=True, kw_only=True):
    """A question that a conductor puts itself."""

    system: str


class AnswerDirectly(Direct[Votable, Raw], frozen=True, kw_only=True):
    """Answer a problem directly."""

    system: str = DIRECTLY
    needed: bool = True


class Turns:
    """Takes the turns at a problem by the votes of the work's strategy."""

    def __init__(self, work: Work, at: str, *, temperature: float) -> None:
        self.task: Problem[Any] = work.task
        self.argmax: list[str] = []
        """Paths of the votes that were decided by plurality."""
        self.progress = work.progress
        self.notes = ProblemNotes(task=work.task, root=ProblemNode(at=at))
        self._work = work
        self._sampling = sampling_at(work.task, temperature)
        work.note(self.notes)

    async def take(self, node: ProblemNode, ask: Consult[Any, R], asked: Votable | None = None) -> R | None:
        """Return the reply to a question that a vote chooses; None if no reply is valid, and none is needed.

        ``asked`` is the part of the question that the ballots see; by default its data.
        """
        self._begin(BegunTurn(node, ask.at, ask))
        drawn = await (consulted(self._work, ask, ask.system) if isinstance(ask, Direct) else self._work.ask(ask))
        if not drawn and ask.needed:
            raise RoleFailed("The role", type(ask).__name__, f"gave no candidate for {node.at}, and raised nothing")
        if not drawn:
            return None
        decode = decoder_of(ask.reply_class(self.task)).decode
        replies = []
        for each in drawn:
            reply = decode(each) if isinstance(each, Raw) else each
            replies.append(answer_in(reply))
        chosen = await self._voted(ask.at, asked or ask.asked, replies)
        return next(each for each, reply in zip(drawn, replies, strict=True) if reply is chosen)

    async def elect(self, node: ProblemNode, at: str, asked: Votable, replies: Sequence[A]) -> A:
        """Return the candidate that a vote chooses. Equal replies are one candidate; if all are equal, nothing is voted on.

        Ties go to the candidate with most replies, then to the first.
        """
        self._begin(BegunTurn(node, at, None, replies))
        return await self._voted(at, asked, replies)

    def _begin(self, turn: BegunTurn) -> None:
        if self._work.role.context.listener is not None:  # a run keeps no questions
            self.notes.begun.append(turn)

    async def _voted(self, at: str, asked: Votable, replies: Sequence[A]) -> A:
        candidates = merged(replies)
        if len(candidates) == 1:
            return candidates[0].reply
        choice = Discriminate(
            at=f"{at}/{TurnKind.VOTE}",
            question=asked,
            candidates=tuple([each.json for each in candidates]),
            copies=tuple([each.copies for each in candidates]),
            k=self._work.strategy.k,
            max_draws=self._work.strategy.max_draws,
            sampling=self._sampling,
        )
        chosen = await self._work.ask(choice)
        if chosen.index not in range(len(candidates)):
            raise RoleFailed(
                "Discriminator",
                "Discriminate",
                f"chose candidate {chosen.index!r} of {len(candidates)} at {at}/{TurnKind.VOTE}",
            )
        if chosen.outcome == "argmax":
            self.argmax.append(self._work.path_of(f"{at}/{TurnKind.VOTE}"))
        return candidates[chosen.index].reply

    async def all_ended(self, calls: Sequence[Coroutine[Any, Any, V]]) -> list[V]:
        """Return the results of calls that are made side by side.

        If one is undecided, the others still run to their end: decisions must not depend on which of them is faster, and the others are
        needed once a person has decided. Any other failure of one cancels the others.
        """
        async with TaskScope() as scope:
            open_calls = [scope.start(_or_undecided(call)) for call in calls]
            await scope.join()
        results: list[V] = []
        for each in open_calls:
            result = each.result()
            if isinstance(result, Undecided):
                raise result
            results.append(result)
        return results


def sampling_at(task: Task, temperature: float) -> Sampling:
    """Return the task's sampling with this temperature."""
    return structs.replace(task.sampling, first_temperature=temperature, temperature=temperature)


async def _or_undecided(call: Coroutine[Any, Any, V]) -> V | Undecided:
    try:
        return await call
    except Undecided as error:
        return error
