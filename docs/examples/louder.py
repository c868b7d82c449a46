"""Steps in prose that the simulated model can do: the swarm."""

import msgspec

from microagents import Problem, Prompt, Reply
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


class Speech(Reply, frozen=True):
    text: str


class Louder(Problem[Speech]):  # each word is a step: write it in capitals
    default_strategy = "swarm"
    text: str = "every step is small"

    def statement(self) -> str:
        return self.text

    def right(self, asked: StepQuestion) -> Reply:
        match asked:
            case ToPlan():
                return Plan(steps=tuple(asked.problem.split()))
            case ToWork():
                return StepResult(result=asked.step.upper(), confidence=9)
            case ToAssemble():  # steps before the `recent` ones are in the summary alone
                words = [asked.summary, *(each.result for each in asked.recent)]
                return Speech(text=" ".join(words).strip())

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:
        match asked := step_question_in(prompt):
            case ToCompress():
                return Summary(summary=f"{asked.summary} {asked.done.result}".strip())
            case ToPick():
                labels = [each.label for each in asked.candidates]
                good = [each.label for each in asked.candidates if self.is_right(asked.question, each.reply)]
                return Pick(choice=min(good or labels), reason="It is in capitals.")
            case ToCheck():
                passed = self.is_right(asked.question, asked.reply)
                return Check(passed=passed, feedback="" if passed else "Write capitals.")
            case _:
                return self.right(asked)

    def is_right(self, asked: StepQuestion, reply: msgspec.Raw) -> bool:
        right = self.right(asked)
        return msgspec.json.decode(reply, type=type(right)).vote() == right.vote()
