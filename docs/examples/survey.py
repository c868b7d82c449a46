"""A kind of task of your own: questions that do not depend on each other, and a strategy that asks them side by side."""

import asyncio
import re
from typing import ClassVar, Self

from microagents import Conductor, Prompt, Reply, Strategy, Task, Work


class Answer(Reply, frozen=True):
    value: int


class Survey(Task):
    """microagents run survey.py:Survey -o questions=@questions.txt"""

    default_strategy: ClassVar[str] = f"{__name__}:AskAll"

    questions: str
    """One a line."""

    @property
    def lines(self) -> list[str]:
        return self.questions.splitlines()

    @classmethod
    def reply_type(cls) -> type[Reply]:
        """Part of the identity of a run: a resume with another form of answers is refused."""
        return Answer

    def first_prompt(self) -> Prompt:
        """The same for the wording of the questions."""
        return self.prompt(self.lines[0])

    def variant(self, number: int) -> Self:
        """Other questions of the same kind, for `compare`. Number 0 is the task itself."""
        return type(self)(
            questions=re.sub(r"^\d+", lambda first: str(int(first[0]) + number), self.questions, flags=re.MULTILINE)
        )

    def prompt(self, question: str) -> Prompt:
        return Prompt(system="You do sums.", user=question)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Answer:
        """Lets the simulated model stand in for a real one. Optional."""
        return Answer(value=sum(map(int, prompt.user.split(" + "))))


class AskAllConductor(Conductor[Survey, "AskAll"]):
    async def conduct(self, work: Work[Survey, "AskAll"]) -> dict[str, int]:
        task = work.task
        elections = [
            work.elect(f"question/{place}", task.prompt(each), Answer) for place, each in enumerate(task.lines)
        ]
        decisions = await asyncio.gather(*elections)
        return {question: decision.require().value for question, decision in zip(task.lines, decisions, strict=True)}


class AskAll(Strategy):
    """One election for each question."""

    solves, conductor = (Survey,), AskAllConductor
    k: int = 3
