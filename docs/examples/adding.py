"""Add up a list of numbers, two at a step."""

from microagents import ChainTask, Prompt, Reply


class Sum(Reply, frozen=True):  # what the model fills in; equal replies are votes for the same
    total: int


class Adding(ChainTask[list[int], Sum]):  # a chain of steps; list[int] is the state between them
    numbers: tuple[int, ...] = (2400, -850, -1200, -20, 310)  # an option: -o 'numbers=[1, 2, 3]'

    def start(self) -> list[int]:
        return list(self.numbers)

    def done(self, state: list[int]) -> bool:
        return len(state) == 1

    def prompt(self, state: list[int]) -> Prompt:
        return Prompt(system="Add the two numbers.", user=f"{state[0]} and {state[1]}")

    def advance(self, state: list[int], reply: Sum) -> list[int]:
        return [reply.total, *state[2:]]

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Sum:  # for the simulated model
        return Sum(total=sum(int(number) for number in prompt.user.split(" and ")))
