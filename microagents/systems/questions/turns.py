"""Turns at problems, of which a strategy is written once: models take them in a run, and the records of a journal when it is read.

A strategy awaits turns of a `Turns` and fills in a `ProblemNode`. In a run nobody looks at the node; ``show`` draws it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Raw, structs

from microagents.actors.role import Strategy
from microagents.base.errors import RoleFailed, Undecided
from microagents.journal.messages import OpenElection, Recalled
from microagents.replies.chat import A, Sampling, decoder_of
from microagents.replies.trajectories import Trajectory
from microagents.systems.questions.candidates import Candidate, merged
from microagents.systems.questions.discriminator import Discriminate
from microagents.systems.questions.problem import DIRECTLY, Problem
from microagents.systems.questions.questions import Votable
from microagents.systems.questions.recording import ElectionRecord, TurnRecords, turn_result
from microagents.systems.questions.tree import ProblemNode, Turn
from microagents.task import Task
from microagents.work.asking import Consult, Q, consulted
from microagents.work.durable import Work
from microagents.work.recorded import AnyWork, RecordedWork, Replayed

R = TypeVar("R")
V = TypeVar("V")


def most_ballots(k: int) -> int:
    """Number of candidates at a turn, and of ballots in a vote on them, at most (MAKER, algorithm 4: N = 2k - 1)."""
    return 2 * k - 1


def check_cap(k: int, max_draws: int) -> None:
    """Refuse a cap of draws that a vote may need more of."""
    if most_ballots(k) > max_draws:
        raise ValueError(f"a vote at k = {k} may take {most_ballots(k)} ballots, but max_draws = {max_draws}")


class Direct(Consult[Q, R], Generic[Q, R], frozen=True, kw_only=True):
    """A question that a conductor puts itself."""

    system: str


class AnswerDirectly(Direct[Votable, Raw], frozen=True, kw_only=True):
    """Answer a problem directly."""

    system: str = DIRECTLY
    needed: bool = True


class Turns(ABC):
    """What takes the turns of a strategy."""

    def __init__(self, work: AnyWork[Any, Any]) -> None:
        self.task: Problem[Any] = work.task
        self.argmax: list[str] = []
        """Paths of the votes that were decided by plurality."""
        self.progress = work.progress
        self._scope = work.scope

    @abstractmethod
    async def take(self, node: ProblemNode, ask: Consult[Any, R], asked: Votable | None = None) -> R | None:
        """Return the reply that a vote chooses among those to a question; None where no reply is valid, and none is needed.

        ``asked`` is what the ballots are told of the question; by default its data.
        """

    @abstractmethod
    async def elect(self, node: ProblemNode, at: str, asked: Votable, replies: Sequence[A]) -> A:
        """Return the candidate that a vote chooses. Equal replies are one candidate; where all are equal, there is no vote.

        Ties go to the candidate with most replies, then to the first.
        """

    async def all_ended(self, calls: Sequence[Coroutine[Any, Any, V]]) -> list[V]:
        """Return the results of calls that are made side by side.

        If one is undecided, the others still run to their end: decisions must not depend on which of them is faster, and the others are
        needed once a person has decided. Any other failure of one cancels the others.
        """
        async with self._scope() as scope:
            open_calls = [scope.start(_or_undecided(call)) for call in calls]
            await scope.join()
        results: list[V] = []
        for each in open_calls:
            result = each.result()
            if isinstance(result, Undecided):
                raise result
            results.append(result)
        return results


class AskedTurns(Turns):
    """Turns that models take: they draw candidates, and the discriminator votes among these, first to k."""

    def __init__(
        self, work: Work[Any, Any], *, k: int, max_draws: int, temperature: float, show_copies: bool = False
    ) -> None:
        super().__init__(work)
        self._work = work
        self._k = k
        self._max_draws = max_draws
        self._sampling = sampling_at(work.task, temperature)
        self._show_copies = show_copies

    async def take(self, node: ProblemNode, ask: Consult[Any, R], asked: Votable | None = None) -> R | None:
        """Draw candidates, and hold the vote."""
        drawn = await (consulted(self._work, ask, ask.system) if isinstance(ask, Direct) else self._work.ask(ask))
        if not drawn and ask.needed:
            raise RoleFailed("The role", type(ask).__name__, f"gave no candidate for {node.at}, and raised nothing")
        if not drawn:
            return None
        decode = decoder_of(ask.reply_class(self.task)).decode
        replies = [_answer_in(decode(each) if isinstance(each, Raw) else each) for each in drawn]
        chosen = await self.elect(node, ask.at, asked or ask.asked, replies)
        return next(each for each, reply in zip(drawn, replies, strict=True) if reply is chosen)

    async def elect(self, node: ProblemNode, at: str, asked: Votable, replies: Sequence[A]) -> A:  # noqa: ARG002 - nobody looks at it
        """Hold a vote."""
        candidates = merged(replies)
        if len(candidates) == 1:
            return candidates[0].reply
        chosen = await self._work.ask(
            Discriminate(
                at=f"{at}/{Turn.VOTE}",
                question=asked,
                candidates=tuple(each.json for each in candidates),
                copies=tuple(each.copies for each in candidates),
                show_copies=self._show_copies,
                k=self._k,
                max_draws=self._max_draws,
                sampling=self._sampling,
            )
        )
        if chosen.index not in range(len(candidates)):
            raise RoleFailed(
                "Discriminator",
                "Discriminate",
                f"chose candidate {chosen.index!r} of {len(candidates)} at {at}/{Turn.VOTE}",
            )
        if chosen.outcome == "argmax":
            self.argmax.append(self._work.path_of(f"{at}/{Turn.VOTE}"))
        return candidates[chosen.index].reply


class RecordedTurns(Turns):
    """Turns that are answered as a journal records them. A turn that has not ended there is undecided."""

    def __init__(
        self,
        of_input: int,
        task: Task,
        strategy: Strategy,
        rows: Mapping[str, Recalled],
        open_elections: Sequence[OpenElection],
    ) -> None:
        work: RecordedWork[Any, Any] = RecordedWork(of_input, task, strategy, rows, open_elections)
        super().__init__(work)
        self.records = TurnRecords(work)

    def replayed(self, work: Coroutine[Any, Any, V]) -> V | None:
        """Return the result of work whose turns these are; None where it has not ended."""
        try:
            return Replayed(work).result()
        except Undecided:
            return None

    async def take(self, node: ProblemNode, ask: Consult[Any, R], asked: Votable | None = None) -> R | None:  # noqa: ARG002 - the vote is over
        """Read the turn, and add its result to the node."""
        drawn = self.records.drawn(ask.at)
        decode = decoder_of(ask.reply_class(self.task)).decode
        replies: Sequence[Any] = ask.kept([decode(each) for each in ([] if drawn is None else drawn.replies)])
        candidates = merged([_answer_in(each) for each in replies])
        chosen = self._taken(node, ask.at, drawn, candidates)
        return None if chosen is None else ask.answered([each for each in replies if _answer_in(each) is chosen])[0]

    async def elect(self, node: ProblemNode, at: str, asked: Votable, replies: Sequence[A]) -> A:  # noqa: ARG002 - as above
        """Read the vote, and add its result to the node."""
        candidates = merged(replies)
        if len(candidates) == 1:
            return candidates[0].reply
        vote = self.records.election(f"{at}/{Turn.VOTE}")
        chosen = self._taken(node, at, None if vote is None else ElectionRecord(), candidates)
        assert chosen is not None
        return chosen

    def _taken(
        self, node: ProblemNode, at: str, drawn: ElectionRecord | None, candidates: Sequence[Candidate[A]]
    ) -> A | None:
        vote = self.records.election(f"{at}/{Turn.VOTE}") if len(candidates) > 1 else None
        if drawn is None:
            raise Undecided(at, 0, "not recorded")
        result = turn_result(Turn(at.rpartition("/")[2]), drawn, vote, candidates)
        node.take(result)
        if result.winner is None and result.outcome != "none":
            raise Undecided(at, result.calls, result.outcome)
        return None if result.winner is None else candidates[result.winner].reply


def _answer_in(reply: Any) -> Any:
    return reply.answer if isinstance(reply, Trajectory) else reply


def sampling_at(task: Task, temperature: float) -> Sampling:
    """Return the task's sampling with this temperature."""
    return structs.replace(task.sampling, first_temperature=temperature, temperature=temperature)


async def _or_undecided(call: Coroutine[Any, Any, V]) -> V | Undecided:
    try:
        return await call
    except Undecided as error:
        return error
