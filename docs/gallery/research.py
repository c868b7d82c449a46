"""A research plan by a swarm: a planner cuts the question, workers look things up, a judge picks among their results."""

from microagents import Calls, Problem, Prompt, Reply, ToolCall, tool
from microagents.systems.swarm import (
    Check,
    Pick,
    Plan,
    StepQuestion,
    StepResult,
    Summary,
    ToAssemble,
    ToCheck,
    ToCompress,
    ToPick,
    ToPlan,
    ToWork,
    step_question_in,
)

RIVERS = {"Elbe": 1094, "Oder": 866, "Weser": 451, "Ems": 371, "Havel": 334}


@tool("read_only")
def length_km(river: str) -> int:
    """Look up how long a river is."""
    return RIVERS[river]


class Report(Reply, frozen=True):
    text: str


class Research(Problem[Report]):
    """microagents run research.py"""

    default_strategy = "swarm"
    tools = (length_km,)
    rivers: tuple[str, ...] = tuple(RIVERS)

    def statement(self) -> str:
        return f"How long are these rivers, in km? {' '.join(self.rivers)}"

    def correct(self, reply: Report) -> bool:
        return reply.text == "; ".join(f"{each}: {RIVERS[each]} km" for each in self.rivers)

    # For the simulated model, which reads what real ones read.

    def right(self, asked: StepQuestion, observed: str) -> Reply:
        match asked:
            case ToPlan():
                return Plan(steps=tuple(asked.problem.partition("? ")[2].split()))
            case ToWork():
                if "<observation " not in observed:
                    return Calls(calls=[ToolCall("length_km", {"river": asked.step})])
                length = observed.rpartition("<observation ")[2].split("\n")[1]
                return StepResult(result=f"{asked.step}: {length} km", confidence=9)
            case ToAssemble():
                found = [asked.summary, *(each.result for each in asked.recent)]
                return Report(text="; ".join(each for each in found if each))

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:
        match asked := step_question_in(prompt):
            case ToCompress():
                return Summary(summary="; ".join(each for each in (asked.summary, asked.done.result) if each))
            case ToPick():
                good = [each.label for each in asked.candidates if str(RIVERS[asked.question.step]) in str(each.reply)]
                return Pick(
                    choice=min(good or [each.label for each in asked.candidates]), reason="It is what the table says."
                )
            case ToCheck():
                return Check(passed=True, feedback="")
            case _:
                return self.right(asked, prompt.user)
