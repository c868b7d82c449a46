"""Chains by replies with many steps each: the rival of decomposition (LEAD, section 4.1)."""

from __future__ import annotations

from microagents.base.errors import EndedEarly
from microagents.base.user_code import called
from microagents.elections.election import Flagged
from microagents.replies.chat import Prompt
from microagents.replies.rollouts import Rollout
from microagents.systems.chains.chain import Chain

MAX_STEPS = 10_000
"""Greatest number of steps that one reply is asked for."""
TRIES = 3
"""Number of replies without a valid step after which the work ends."""


async def in_long_replies(chain: Chain, *, horizon: int | None = None, restarts: bool) -> object:
    """Ask for many steps in one reply, and with ``restarts`` again from the state that they lead to; returns the task's result.

    Without a ``horizon`` a reply is asked for all steps that are left.
    """
    total, state, done, number, failed = chain.total, chain.start(), 0, 0, 0

    def take(rollout: Rollout) -> bool | None:
        """Take the steps of a reply, up to the end of the chain; returns whether all are right, if code can say."""
        nonlocal state, done
        verdicts = []
        for reply in rollout.steps:
            if chain.is_done(state, done):
                break
            verdicts.append(chain.correct(state, reply, done))
            state, done = chain.next_state(state, reply, done), done + 1
        if None in verdicts:
            return None
        return all(verdicts)

    chain.work.progress(0, total)
    while not chain.is_done(state, done):
        left = max(1, MAX_STEPS if total is None else total - done)
        asked_for = min(left, horizon or left, MAX_STEPS)
        if failed == (TRIES if restarts else 1) or (number and not restarts):
            if failed:
                why = "the last could not be read"
            else:
                why = f"it has {done:,} of {'?' if total is None else f'{total:,}'} steps"
            raise EndedEarly(chain.work.path_of(f"rollout/{number - 1}"), number, why)
        asked: Prompt = called(chain.task.rollout_prompt, state, asked_for, gives=Prompt, at=done)
        reply = await chain.rollout(f"rollout/{number}", asked, asked_for, first=not failed, correct=take)
        number, failed = number + 1, failed + 1 if isinstance(reply, Flagged) else 0
        chain.work.progress(done, total)
    return chain.result(state)
