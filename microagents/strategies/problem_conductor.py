"""How the work on a problem ends, whatever strategy solved it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from microagents.actors import G
from microagents.chat import Reply
from microagents.durable import Conductor
from microagents.elections.election import ElectionId, Verdict
from microagents.errors import TaskFailed
from microagents.journal.messages import RecordDecision
from microagents.problems.problem import Problem, text_of
from microagents.problems.questions import problem_id
from microagents.problems.tree import ROOT, Solution


class ProblemConductor(Conductor[Problem[Any], G]):
    """A conductor whose work comes to one answer."""

    def concluded(self, answer: Reply, *, problems: int = 1, argmax: tuple[str, ...] = ()) -> Solution:
        """The solution. Its answer enters the record, the digests and the account of errors; ``problems`` were solved for it."""
        self.progress(problems, problems)
        value, correct = msgspec.json.encode(answer), self.task.correct(answer)
        if correct is not None and not isinstance(correct, bool):
            raise TaskFailed(f"{type(self.task).__name__}.correct()", f"must give True, False or None, not {correct!r:.100}")
        place = ElectionId(path=f"{self.input}/{ROOT}", question_digest=problem_id(text_of(self.task)))
        self.tell(RecordDecision(id=place, verdict=Verdict(outcome="sampled", leader=0, tally=((value, 1),), ballots=()), correct=correct))
        return Solution(answer=Raw(value), correct=correct, argmax=argmax)
