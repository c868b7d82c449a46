"""Blocks: several steps of a chain in one question, voted on as a whole (MAKER, figure 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from microagents.replies.chat import Prompt
from microagents.replies.rollouts import rollout_of
from microagents.strategies.chain import Chain, ChainWork
from microagents.user_code import called


class Blocks(Chain):
    """A chain whose steps are blocks: a reply to one holds the next steps of the task, at most ``size``, and is a single vote.

    A decided reply with fewer of them leads on from its last one; any after the task's end are left out.
    """

    def __init__(self, work: ChainWork, size: int) -> None:
        super().__init__(work)
        self._size = size
        self.sampling = self.long_sampling(size)
        self.reply_type = rollout_of(self.reply_type, size)
        self.total = None if self.total is None else -(-self.total // size)
        """The least number of blocks."""

    def prompt(self, state: Any, number: int) -> Prompt:
        """Ask for the next steps."""
        asked: Prompt = called(self.task.rollout_prompt, state, self._size, gives=Prompt, at=number)
        return asked

    def next_state(self, state: Any, reply: Any, number: int) -> Any:
        """Return the state after the last step of a block."""
        for before, step in self._walk(state, number, reply):
            state = super().next_state(before, step, number)
        return state

    def oracle(self, state: Any, number: int) -> Any:
        """Return the right block; None if code cannot know it."""
        right = [step for _, step in self._walk(state, number)]
        return self.reply_type(steps=tuple(right)) if right else None

    def correct(self, state: Any, reply: Any, number: int) -> bool | None:
        """Whether all steps of a block are right; None if code cannot know it."""
        for before, step in self._walk(state, number, reply):
            verdict = super().correct(before, step, number)
            if not verdict:
                return verdict
        return True

    def _walk(self, state: Any, number: int, reply: Any = None) -> Iterator[tuple[Any, Any]]:
        """Yield each state of a block with the step that a reply takes in it, or else the oracle, up to the end of the task."""
        for at in range(self._size if reply is None else len(reply.steps)):
            if self.is_done(state, number):
                return
            step = super().oracle(state, number) if reply is None else reply.steps[at]
            if step is None:
                return
            yield state, step
            state = super().next_state(state, step, number)
