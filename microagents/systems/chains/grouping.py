"""Several steps of a chain in one election: the paper's m (MAKER, section 3.2 and figure 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from microagents.base.errors import InvalidUsage
from microagents.base.user_code import called
from microagents.replies.chat import Prompt
from microagents.replies.rollouts import MAX_OUTPUT_TOKENS, rollout_of
from microagents.systems.chains.chain import Chain, ChainWork
from microagents.task import verifies


class GroupedChain(Chain):
    """Chain whose every step is a group of steps of the task: they are asked for in one reply, and all of them are one vote.

    The last group may have fewer steps. A task must not verify single replies.
    """

    def __init__(self, work: ChainWork, steps: int) -> None:
        task, own = work.task, work.task.sampling
        if verifies(type(task)):
            raise InvalidUsage(f"{type(task).__name__} verifies single replies; leave -s steps={steps} out")
        most = min(MAX_OUTPUT_TOKENS, steps * own.max_output_tokens)
        flag_above = None if own.flag_above_tokens is None else steps * own.flag_above_tokens
        super().__init__(work, sampling=structs.replace(own, max_output_tokens=most, flag_above_tokens=flag_above))
        self._size = steps
        self.reply_type = rollout_of(self.reply_type, steps)
        self._task_steps = self.total
        """Steps of the task, as far as it knows."""
        if self.total is not None:
            self.total = -(-self.total // steps)

    def asked(self, state: Any, number: int) -> Prompt:
        """Ask for the steps of a group."""
        left = self._size if self._task_steps is None else self._task_steps - number * self._size
        size = self._size if left < 1 else min(left, self._size)
        asked: Prompt = called(self.task.rollout_prompt, state, size, gives=Prompt, at=number)
        return asked

    def next_state(self, state: Any, reply: Any, number: int) -> Any:
        """Return the state that the steps of a group lead to."""
        for before, step in self._steps(state, reply, number):
            state = super().next_state(before, step, number)
        return state

    def oracle(self, state: Any, number: int) -> Any:
        """Return the right steps of a group; None if code cannot know them."""
        steps: list[Any] = []
        while len(steps) < self._size and not self.is_done(state, number):
            right = called(self.task.oracle, state, at=number)
            if right is None:
                return None
            state = super().next_state(state, right, number)
            steps.append(right)
        return self.reply_type(steps=tuple(steps))

    def correct(self, state: Any, reply: Any, number: int) -> bool | None:
        """Whether all steps of a group are right; None if code cannot know it."""
        verdicts = [super(GroupedChain, self).correct(*each, number) for each in self._steps(state, reply, number)]
        if False in verdicts:
            return False
        if None in verdicts:
            return None
        return True

    def _steps(self, state: Any, reply: Any, number: int) -> Iterator[tuple[Any, Any]]:
        """Yield the steps of a group, each with the state before it; none behind the end of the chain."""
        for step in reply.steps:
            if self.is_done(state, number):
                return
            yield state, step
            state = super().next_state(state, step, number)
