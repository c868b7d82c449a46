"""Squares of numbers: rows of which some are hard, for a cheap and a strong simulated model."""

from microagents import Prompt, Reply, RowTask


class Square(Reply, frozen=True):
    square: int


class Squares(RowTask[Square]):
    def prompt(self, row: dict[str, str]) -> Prompt:
        return Prompt(user=f"The square of {row['x']}?")

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Square:  # for the simulated model
        return Square(square=int(prompt.user.split()[-1].rstrip("?")) ** 2)
