"""Speculation: open the next steps of a chain on guesses, so that voting costs no waiting time.

Step i+1 needs the state after step i, not its decision. It opens on the first valid ballot that arrives for step i. Ballots are still
counted in launch order, and steps are committed in their order. A step commits only if its question is the one that the decided state
asks. So decisions and digests are the same as in `step_by_step`; only time and wasted calls differ.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import aclosing
from functools import partial
from typing import Any

from microagents.base.aio import TaskScope
from microagents.base.logs import log
from microagents.elections.election import Ballot, Verdict
from microagents.elections.rules import Tally
from microagents.replies.reply import Reply, vote_of
from microagents.replies.reply_forms import decoder_of, encode_reply
from microagents.systems.chains.chain import Chain, ChainStep
from microagents.work.elections import no_verdict

AHEAD = 32
"""Number of steps that are open at a time by default."""
WASTE_SHARE = 0.05
"""Guessing pauses while more than this share of recent calls was wasted."""
WASTE_OVER_CALLS = 1000
"""Number of recent calls over which the share is taken."""


async def guess_ahead(chain: Chain, *, ahead: int) -> object:
    """Walk a chain with guesses, and with at most ``ahead`` steps open at a time; returns the task's result."""
    total = chain.total
    state, done = await chain.take_up()
    window = _Window(chain, ahead)
    try:
        while not chain.is_done(state, done):
            step, verdict = await window.first(done, state)
            decision = await chain.commit(step, verdict)
            chain.go_on(step, decision.require())
            done += 1
            state = window.advance(decision.require(), calls=len(verdict.ballots))
            chain.work.progress(done, total)
        return chain.result(state)
    finally:
        await window.close()


class _Window:
    """Open steps of a chain in their order.

    The first is asked in a decided state. Every other one is asked in the state that the guess at the step before it leads to.
    """

    def __init__(self, chain: Chain, ahead: int) -> None:
        self._chain = chain
        self._ahead = ahead
        self._steps: deque[OpenStep] = deque()
        self._waste = Waste()
        self._scope = TaskScope()

    async def first(self, number: int, state: Any) -> tuple[ChainStep, Verdict]:
        if not self._steps:  # there was no guess at it, or a wrong one that was dropped
            self._open(number, state)
        return self._steps[0].step, await self._steps[0].verdict

    def advance(self, reply: Any, *, calls: int) -> Any:
        """Close the first step with its decided reply; returns the state after it. Steps on another guess are dropped."""
        first = self._steps.popleft()
        # Equal replies may still lead to different states: 0.0 and -0.0, dicts in another order.
        if self._steps and encode_reply(first.guess) == encode_reply(reply):
            state = self._steps[0].step.state
        else:
            state = self._chain.advance(first.step, reply)
            number = first.step.number + 1
            # Another reply may still lead to the same question, and then the open steps are right.
            if self._steps and (
                self._chain.is_done(state, number)
                or self._chain.step(number, state).election != self._steps[0].step.election
            ):
                self._drop(0)
        self._waste.add(calls)
        if self._steps:
            self._extend(self._steps[-1])
        return state

    async def close(self) -> None:
        await self._scope.close()
        for opened in self._steps:
            del opened.verdict  # the traceback of its failure refers to the step

    def _open(self, number: int, state: Any) -> None:
        opened = OpenStep(self._chain.step(number, state), self._chain.reply_type)
        opened.verdict = self._scope.start(opened.follow(self._chain, partial(self._guessed, opened)))
        self._steps.append(opened)

    def _guessed(self, opened: OpenStep) -> None:
        """Replace the steps that were opened on an old guess. A step that was closed or dropped has none."""
        if opened in self._steps:
            self._drop(opened.step.number + 1 - self._steps[0].step.number)
            self._extend(opened)

    def _extend(self, last: OpenStep) -> None:
        """Open the step after the last one, on the guess at the last one's reply."""
        if last.guess is None or len(self._steps) >= self._ahead or self._waste.is_high:
            return
        try:
            state = self._chain.advance(last.step, last.guess)
            if not self._chain.is_done(state, last.step.number + 1):
                self._open(last.step.number + 1, state)
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything in a state that no decision leads to
            log().debug("the task refused the state of a guess", step=last.step.number, error=repr(error))

    def _drop(self, index: int) -> None:
        """Cancel the open steps from an index on, first launched first."""
        dropped = [self._steps.pop() for _ in range(len(self._steps) - index)]
        for opened in reversed(dropped):
            opened.verdict.cancel()
            # Its launched draws are wasted: all that arrived, or at least as many as a fresh election launches at once.
            calls = max(opened.arrived, Tally(opened.step.question.rule).votes_needed)
            self._waste.add(calls, wasted=calls)


class OpenStep:
    """A step whose election is open, in a state that may be a guess.

    The guess at its reply is the vote with most ballots *by arrival*. It opens the next step early, and decides nothing.
    """

    def __init__(self, step: ChainStep, reply: type[Reply]) -> None:
        self.step = step
        self.verdict: asyncio.Task[Verdict]
        """The task that follows its election to the verdict."""
        self.arrived = 0
        """Number of valid ballots that have arrived."""
        self.guess: Reply | None = None
        """The guess at its reply; None before the first ballot."""
        self._decode = decoder_of(reply).decode
        self._votes: dict[int, Hashable] = {}
        """The vote of each ballot, by seq."""
        self._counts: dict[Hashable, int] = {}
        self._leader: Hashable = None

    async def follow(self, chain: Chain, guessed: Callable[[], None]) -> Verdict:
        """Follow the election to its verdict. Calls ``guessed`` after each change of the guess."""
        async with aclosing(chain.follow(self.step)) as items:
            async for item in items:
                if isinstance(item, Verdict):
                    return item
                if self.arrive(item):
                    guessed()
        raise no_verdict(self.step.election)

    def arrive(self, ballot: Ballot) -> bool:
        """Add a ballot that arrived; returns whether the guess changed. It changes once another reply has more ballots."""
        reply = self._decode(ballot.value)
        vote = vote_of(reply, self.step.question.left_out)
        self.arrived += 1
        if ballot.seq in self._votes:  # its reply failed the task's verification, and this one takes its place
            self._counts[self._votes[ballot.seq]] -= 1
        self._votes[ballot.seq] = vote
        self._counts[vote] = self._counts.get(vote, 0) + 1
        if self.guess is not None and (vote == self._leader or self._counts[vote] <= self._counts[self._leader]):
            return False
        self.guess, self._leader = reply, vote
        return True


class Waste:
    """Share of recent calls that wrong guesses wasted. `WASTE_OVER_CALLS` calls are recent."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, int]] = deque()
        """Calls and wasted calls of each recent step."""
        self._calls = self._wasted = 0

    @property
    def is_high(self) -> bool:
        """Whether guessing should pause."""
        return self._wasted > WASTE_SHARE * max(self._calls, WASTE_OVER_CALLS)

    def add(self, calls: int, *, wasted: int = 0) -> None:
        """Count the calls of a committed or of a dropped step."""
        self._steps.append((calls, wasted))
        self._calls, self._wasted = self._calls + calls, self._wasted + wasted
        while self._calls - self._steps[0][0] >= WASTE_OVER_CALLS:
            calls, wasted = self._steps.popleft()
            self._calls, self._wasted = self._calls - calls, self._wasted - wasted
