"""A puzzle in 24 moves: frogs on the left and toads on the right change places. After one wrong move there is often no way any more."""

from functools import cache
from random import Random

from msgspec import Struct

from microagents import ChainTask, Prompt, Reply

RULES = """Frogs (F) move to the right, toads (T) to the left: onto the empty place (_) beside them, or onto it over one other animal.
Places are numbered from 0. In the end all toads stand on the left and all frogs on the right. Name the place of the animal to move next."""


class Move(Reply, frozen=True):
    place: int


class Row(Struct, frozen=True):
    animals: str


class Ended(Row, frozen=True):
    solved: bool


def moved(animals: str, place: int) -> str | None:
    """The row after a move; None for one that the rules forbid."""
    if not 0 <= place < len(animals) or animals[place] == "_":
        return None
    empty, ahead = animals.index("_"), 1 if animals[place] == "F" else -1
    if empty - place not in (ahead, 2 * ahead):
        return None
    row = list(animals)
    row[empty], row[place] = row[place], "_"
    return "".join(row)


@cache
def way(animals: str) -> tuple[int, ...] | None:
    """The first way to the end, as places; None where there is none."""
    if animals == "".join(sorted(animals, key="T_F".index)):
        return ()
    for place in range(len(animals)):
        if (after := moved(animals, place)) and (rest := way(after)) is not None:
            return (place, *rest)
    return None


class Frogs(ChainTask[Row, Move, Ended]):
    """microagents run puzzle.py"""

    each: int = 4

    def start(self) -> Row:
        return Row("F" * self.each + "_" + "T" * self.each)

    def done(self, state: Row) -> bool:
        return way(state.animals) in ((), None)  # the end, or no way to it

    def prompt(self, state: Row) -> Prompt:
        return Prompt(system=RULES, user=f"Row: {state.animals}")

    def flag(self, state: Row, reply: Move) -> str | None:
        return None if moved(state.animals, reply.place) else "forbidden_move"

    def advance(self, state: Row, reply: Move) -> Row:
        return Row(moved(state.animals, reply.place) or state.animals)

    def result(self, state: Row) -> Ended:
        return Ended(animals=state.animals, solved=way(state.animals) == ())

    def correct(self, state: Row, reply: Move) -> bool:  # several moves may be right
        return way(self.advance(state, reply).animals) is not None

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Move:  # for the simulated model
        return Move(place=(way(prompt.user.removeprefix("Row: ")) or (0,))[0])

    def mistake(self, prompt: Prompt, right: Move, rng: Random) -> Move:  # any place of an animal that may move
        animals = prompt.user.removeprefix("Row: ")
        return Move(place=rng.choice([place for place in range(len(animals)) if moved(animals, place)]))
