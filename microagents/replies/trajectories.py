"""Trajectories: an answer with the reasoning that leads to it, in one reply."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Annotated, Any

from microagents.base.messages import make_on_demand
from microagents.replies.reply import Reply, derived
from microagents.replies.reply_fields import Unvoted


class Trajectory(Reply, frozen=True, kw_only=True):
    """The reasoning step by step, and the answer that it leads to."""

    reasoning: Annotated[str, Unvoted]
    answer: Any

    def vote(self) -> Hashable:
        """Vote as the answer does: other reasons for it make no other answer."""
        vote: Hashable = self.answer.vote()
        return vote


@lru_cache(maxsize=256)
def trajectory_of(reply: type[Reply]) -> type[Trajectory]:
    """Build the class of trajectories that lead to a ``reply``."""
    return derived(Trajectory, reply, "trajectory", {"reasoning": Annotated[str, Unvoted], "answer": reply})


make_on_demand("trajectory", lambda reply, _: trajectory_of(reply))
