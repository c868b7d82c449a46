"""A chain of any length for measurements."""

from __future__ import annotations

from microagents.tasks.hanoi import Hanoi, Towers


class FirstSteps(Hanoi):
    """The beginning of a tall tower."""

    length: int

    def steps(self) -> int:
        return self.length

    def done(self, state: Towers) -> bool:
        return state.moves == self.length
