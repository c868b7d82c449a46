"""A chain of any length for measurements."""

from __future__ import annotations

from microagents.tasks.hanoi import Hanoi, HanoiResult, Towers


class FirstSteps(Hanoi):
    """The beginning of a tall tower."""

    length: int

    def steps(self) -> int:
        return self.length

    def done(self, state: Towers) -> bool:
        return state.moves == self.length

    def result(self, state: Towers) -> HanoiResult:
        """Return what the tower is like; solved once the steps are made, else a shorter chain would count as wrong."""
        return {**super().result(state), "solved": self.done(state)}
