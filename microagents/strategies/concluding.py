"""How the work on a problem ends, whatever strategy solved it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from microagents.account import RecordDecision
from microagents.actors import G
from microagents.chat import Reply
from microagents.decomposition import problem_id
from microagents.durable import Conductor
from microagents.elections import ElectionId, Verdict
from microagents.problem import Problem
from microagents.solution import ROOT, Solution


class ProblemConductor(Conductor[Problem[Any], G]):
    """A conductor whose work comes to one answer."""

    def concluded(self, answer: Reply, *, problems: int = 1, argmax: tuple[str, ...] = ()) -> Solution:
        """The solution. Its answer enters the record, the digests and the account of errors; ``problems`` were solved for it."""
        self.progress(problems, problems)
        value, correct = msgspec.json.encode(answer), self.task.correct(answer)
        place = ElectionId(path=f"{self.input}/{ROOT}", fork=problem_id(self.task.statement()))
        self.tell(RecordDecision(id=place, verdict=Verdict(outcome="sampled", leader=0, tally=((value, 1),), ballots=()), correct=correct))
        return Solution(answer=Raw(value), correct=correct, argmax=argmax)
