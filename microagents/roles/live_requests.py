"""Requests of other processes to a live run, as the keeper takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from microagents.base.errors import JournalGone, MicroagentsError
from microagents.elections.election import input_of
from microagents.journal.requests import Decide, LiveRequest
from microagents.journal.store import Store
from microagents.journal.writer import Writer

READ_EVERY_S = 0.2
"""Interval of looks whether there are requests."""


class LiveRequests:
    """Takes the requests to a run, and gives them effect in it.

    Args:
        writer: the journal, which records them first; None if no other process asks the run.
        on_control: called with each request that controls the run, once it is recorded.
        on_decision: called after each decision of a person.
        on_gone: called if the journal was taken away, also from a run that commits nothing for a while.
    """

    def __init__(
        self,
        writer: Writer | None,
        on_control: Callable[[LiveRequest], None],
        on_decision: Callable[[], None],
        on_gone: Callable[[JournalGone], None],
    ) -> None:
        self._writer = writer
        self._one_at_a_time = asyncio.Lock()
        self.decisions: dict[str, bytes] = {}
        """Decisions of persons on elections, by path, as far as voters have to know them."""
        self._untold: set[str] = set()
        """Paths of decisions that `decided_inputs` has not returned."""
        self._on_control, self._on_decision = on_control, on_decision
        self._on_gone = on_gone

    async def start(self) -> None:
        """Take up the requests that took effect in an earlier sitting, and newer ones."""
        if self._writer is None:
            return
        self.decisions = await self._writer.do(lambda store: store.decisions_on_open_elections())
        await self._take(is_left=True)

    async def keep_taking(self) -> None:
        """Take requests as they come, until the journal cannot be written: the keeper's next commit says why."""
        while self._writer is not None:
            await asyncio.sleep(READ_EVERY_S)
            try:
                await self.take()
            except JournalGone as error:
                self._on_gone(error)
                await asyncio.Event().wait()
            except MicroagentsError:
                await asyncio.Event().wait()

    async def take(self) -> None:
        """Take the requests that are there now."""
        await self._take(is_left=False)

    async def _take(self, *, is_left: bool) -> None:
        if self._writer is None:
            return
        async with self._one_at_a_time:
            requests = await self._writer.do(_new)
            for request in requests:
                refused = await self._writer.do(partial(_record, request, is_left))
                if refused is not None:
                    continue
                if isinstance(request.ask, Decide):
                    self._decide(request.ask)
                else:
                    self._on_control(request)
            if requests:
                await self._writer.do(lambda store: store.inbox.clear())

    def _decide(self, ask: Decide) -> None:
        self.decisions[ask.path] = ask.value.encode()
        self._untold.add(ask.path)
        self._on_decision()

    def decided_inputs(self, undecided: Sequence[str]) -> list[int]:
        """Inputs with one of these undecided elections that a person has decided since this was last asked."""
        found = self._untold.intersection(undecided)
        self._untold -= found
        return sorted({input_of(path) for path in found})


def _new(store: Store) -> list[LiveRequest]:
    store.check()
    return store.inbox.new()


def _record(request: LiveRequest, is_left: bool, store: Store) -> str | None:  # noqa: FBT001 - `partial` gives it
    return store.take_request(request, is_left=is_left)
