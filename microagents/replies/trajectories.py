"""Trajectories: an answer with the reasoning that leads to it, in one reply."""

from __future__ import annotations

import types
from collections.abc import Hashable
from functools import lru_cache
from typing import Annotated, Any

from microagents.base.messages import make_on_demand
from microagents.replies.chat import Reply, Unvoted


class Trajectory(Reply, frozen=True, kw_only=True):
    """The reasoning step by step, and the answer that it leads to."""

    reasoning: Annotated[str, Unvoted]
    answer: Any

    def vote(self) -> Hashable:
        """Vote as the answer does: other reasons for it make no other answer."""
        vote: Hashable = self.answer.vote()
        return vote


@lru_cache(maxsize=256)
def trajectory_of(reply: type[Reply], form: int = 1) -> type[Trajectory]:
    """Build the class of trajectories that lead to a ``reply``. There is one ``form`` so far."""
    if form != 1:
        raise ValueError(f"unknown form {form} of a trajectory")

    def fill(namespace: dict[str, Any]) -> None:
        namespace.update(
            __module__=reply.__module__,
            __qualname__=f"{reply.__qualname__}.trajectory_{form}",
            __doc__=Trajectory.__doc__,
            __annotations__={"reasoning": Annotated[str, Unvoted], "answer": reply},
        )

    return types.new_class(f"{reply.__name__}Trajectory", (Trajectory,), {"frozen": True, "kw_only": True}, fill)


make_on_demand("trajectory", lambda reply, form: trajectory_of(reply, int(form)))
