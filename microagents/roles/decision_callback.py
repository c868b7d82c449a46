"""The callback of a caller that gets each decision once it is durable."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from microagents.base.aio import Notifier, is_cancellation
from microagents.base.errors import Aborted, TaskFailed
from microagents.base.user_code import role_failed
from microagents.elections.election import OPEN_OUTCOMES
from microagents.journal.messages import RecordDecision, RecordedDecision, recorded_decision
from microagents.task import Task
from microagents.tools.effect_keys import keyed_by

OnDecision = Callable[[RecordedDecision], Awaitable[None] | None]
"""Gets each decision once it is durable. A plain function or an async one. What it does happens once under `current_effect_key`."""


class DecisionCallback:
    """Calls a callback with each decision once it is durable, one after the other.

    Args:
        on_decision: the callback.
        run_id: the run.
        task: the class of its tasks.
    """

    def __init__(self, on_decision: OnDecision, run_id: str, task: type[Task]) -> None:
        self._run_id = run_id
        self._task = task
        self._on_decision: OnDecision | None = on_decision
        self._taken: list[RecordDecision] = []
        """Decisions of the commit that is under way."""
        self._waiting: deque[tuple[RecordedDecision, bytes]] = deque()
        """Durable decisions that the callback does not know yet, each with its value as JSON."""
        self._released, self._called = Notifier(), Notifier()

    def take(self, record: RecordDecision) -> None:
        """Keep a decision of the commit that is under way."""
        self._taken.append(record)

    def release(self, committed_at: str | None) -> None:
        """Let the callback know the decisions that are durable now."""
        if self._on_decision is not None:
            decided = (_decided(record, committed_at, self._task) for record in self._taken)
            self._waiting.extend(filter(None, decided))
            self._released.notify()
        self._taken.clear()

    async def run(self) -> TaskFailed | Aborted:
        """Call the callback with each decision; returns its failure, after which it is not called again."""
        while True:
            try:
                while self._waiting and self._on_decision is not None:
                    decision, value = self._waiting[0]
                    with keyed_by(self._run_id, decision.path, value):
                        called = self._on_decision(decision)
                        if called is not None:
                            await called
                    self._waiting.popleft()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a caller's code may raise anything
                if is_cancellation(error):
                    raise
                self._on_decision = None
                self._waiting.clear()
                failed = role_failed("Keeper", "on_decision()", error)
                if isinstance(failed, Aborted):
                    return failed
                return TaskFailed("on_decision()", f"raised {error!r}")
            finally:
                self._called.notify()
            await self._released.wait()

    async def wait(self, within_s: float) -> None:
        """Wait until the callback knows every durable decision, at most for this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._waiting:
                    await self._called.wait()


def _decided(
    record: RecordDecision, committed_at: str | None, task: type[Task]
) -> tuple[RecordedDecision, bytes] | None:
    """A decision from its record, and its value as JSON; None for an election that came to none."""
    path = record.id.path
    verdict = record.verdict
    if verdict.outcome in (*OPEN_OUTCOMES, "climbed") or verdict.winner is None:
        return None
    decision = recorded_decision(
        path,
        verdict.outcome,
        verdict.winner,
        verdict.ballots,
        cost_usd=verdict.cost_usd,
        settled_at=record.settled,
        decided_at=committed_at,
        reply=None if verdict.outcome == "once" else task.reply_at(path.partition("/")[2]),
    )
    return decision, verdict.winner
