"""The answer to a problem, and the base class of conductors that solve problems."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType

from msgspec import UNSET, Raw, UnsetType

from microagents.actors.role import G
from microagents.base.user_code import called
from microagents.elections.election import ElectionId, Verdict
from microagents.journal.messages import RecordDecision
from microagents.replies.chat import Sampling
from microagents.replies.reply import A, Reply
from microagents.replies.reply_forms import encode_reply
from microagents.systems.questions.candidates import merged
from microagents.systems.questions.problem import DIRECTLY, Problem, text_of
from microagents.systems.questions.questions import ToSolve, problem_id
from microagents.systems.questions.tree import ROOT, Solution
from microagents.task import prompt_about
from microagents.work.conductor import Conductor
from microagents.work.durable import Work


def is_problem(work: Work) -> bool:
    """Whether the work is on a problem, in a strategy that solves chains as well."""
    return isinstance(work.task, Problem)


def concluded(
    work: Work,
    answer: Reply,
    *,
    problems: int = 1,
    argmax: tuple[str, ...] = (),
    correct: bool | UnsetType | None = UNSET,
) -> Solution:
    """Record the answer to the problem; returns the solution. The answer enters the digests and the account of errors.

    ``problems`` counts sub-problems, too; ``argmax`` has the paths of turns that were decided by plurality. The problem is asked whether
    the answer is right, unless ``correct`` knows.
    """
    work.progress(problems, problems)
    value = encode_reply(answer)
    judged: bool | None = (
        called(work.task.correct, answer, gives=(bool, NoneType)) if isinstance(correct, UnsetType) else correct
    )
    place = ElectionId(path=work.path_of(ROOT), question_digest=problem_id(text_of(work.task)))
    verdict = Verdict(outcome="sampled", leader=0, tally=((value, 1),), ballots=())
    work.record(RecordDecision(id=place, verdict=verdict, correct=judged))
    return Solution(answer=Raw(value), correct=judged, argmax=argmax)


async def drawn_answers(
    work: Work,
    reply: type[A],
    system: str = DIRECTLY,
    *,
    samples: int = 1,
    sampling: Sampling,
    max_draws: int | None = None,
) -> list[A]:
    """Draw answers to the whole problem: as many replies of a class as valid samples are wanted, all at once.

    Raises:
        Undecided: no reply is valid.
    """
    prompt = prompt_about(work.task, system, ToSolve(problem=text_of(work.task)))
    most = max_draws or samples
    return await work.sample("answer", prompt, reply, n=samples, sampling=sampling, max_draws=most, needed=True)


def concluded_by_plurality(work: Work, answers: Sequence[Reply], samples: int) -> Solution:
    """Record the most frequent answer, marked ``argmax`` if it has no majority of the samples."""
    leader = max(merged(answers), key=lambda candidate: candidate.copies)
    is_majority = 2 * leader.copies > samples
    return concluded(work, leader.reply, argmax=() if is_majority else (work.path_of("answer"),))


class ProblemConductor(Conductor[Problem, G]):
    """A conductor that gives one answer to a problem."""

    concluded = staticmethod(concluded)
