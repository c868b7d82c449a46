"""Rollouts: several steps of a chain in one reply, for lookahead (LEAD, section 4.3)."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Annotated, Any, ClassVar

from msgspec import Meta, structs

from microagents.base.messages import make_on_demand
from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply, derived, vote_of

MAX_OUTPUT_TOKENS = 32_768
"""Greatest limit that is sent to the provider for a rollout; each of its steps adds the limit of one step up to there."""


class Rollout(Reply, frozen=True, kw_only=True):
    """Steps of a chain in their order, each from the state that the one before it leads to."""

    horizon: ClassVar[int] = 0
    """Greatest number of steps."""
    steps: tuple[Any, ...]

    def vote(self) -> Hashable:
        """Return the votes of the steps."""
        return tuple(vote_of(step) for step in self.steps)


@lru_cache(maxsize=256)
def rollout_of(reply: type[Reply], horizon: int) -> type[Rollout]:
    """Build the class of rollouts of at most ``horizon`` steps, each a ``reply``."""
    steps: Any = tuple[reply, ...]  # type: ignore[valid-type]
    annotations = {"steps": Annotated[steps, Meta(min_length=1, max_length=horizon)]}
    return derived(Rollout, reply, f"rollout_{horizon}", annotations, horizon=horizon)


make_on_demand("rollout", lambda reply, horizon: rollout_of(reply, int(horizon)))


def default_rollout_prompt(asked: Prompt, horizon: int) -> Prompt:
    """Ask the question of one step, with the request to go on after it."""
    return structs.replace(
        asked,
        user=f"{asked.user}\n\nDo not stop after this step. Give the next {horizon} steps in their order, each from the state that the one "
        "before it leads to. Give fewer only if the work ends with the last of them.",
    )
