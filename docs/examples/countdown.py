"""A chain that the simulated model can do, rollouts too."""

from microagents import ChainTask, Prompt, Reply


class Shorter(Reply, frozen=True):
    number: int


class Countdown(ChainTask[int, Shorter]):  # the state is a number
    first: int = 12

    def start(self) -> int:
        return self.first

    def done(self, state: int) -> bool:
        return state == 0

    def prompt(self, state: int) -> Prompt:
        return Prompt(system="Subtract 1.", user=f"Number: {state}")

    def advance(self, state: int, reply: Shorter) -> int:
        return reply.number

    # For the simulated model. Both read the text that a model reads.

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Shorter:
        return Shorter(number=self.state_in(prompt) - 1)

    def state_in(self, prompt: Prompt) -> int:  # for rollouts alone
        return int(prompt.user.splitlines()[0].removeprefix("Number: "))
