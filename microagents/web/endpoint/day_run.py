"""The run of one day: its journal, its open elections, and what a person says of their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

from msgspec import Struct, field

from microagents.base.aio import Notifier
from microagents.base.logs import log
from microagents.journal.ending import RunEnding
from microagents.journal.messages import Recall, Record, RecordDecision, Report, Subscribe, put_to_person
from microagents.replies.persons import Approval
from microagents.replies.reply_forms import decoder_of, encode_reply
from microagents.roles.keeper import End
from microagents.runtimes.local import LocalRuntime
from microagents.web.endpoint.exchange import Exchange, ForwardingModel
from microagents.web.endpoint.wires import Withheld

APPROVAL_S = 600.0
"""Seconds that a call waits for an approval: SDKs wait as long for a reply."""
UNANSWERED = Approval(approved=False, text=f"no one has approved it in {APPROVAL_S:g} s")


class DayRun(Struct, eq=False, kw_only=True):
    """The run of one day, in a journal of its own."""

    runtime: LocalRuntime
    """Its roles."""
    run_id: str
    day: str
    """The day, in UTC."""
    open: dict[str, Exchange]
    """The exchanges of its open elections, by their paths."""
    models: Mapping[str, ForwardingModel]
    """Its models, by their specs."""
    done: int = 0
    """Number of its elections that have ended."""
    changed: Notifier = field(default_factory=Notifier)
    """Notifies of elections that have ended."""

    async def begin(self) -> None:
        """Begin it."""
        await self.runtime.__aenter__()
        await self.runtime.messenger.ask(Recall(path="0"))  # the journal of a run in which nothing begins is removed

    async def end(self) -> None:
        """End it once its elections have ended."""
        try:
            while self.open:
                await self.changed.wait()
            await self.runtime.flush()
            await self.runtime.messenger.ask(End(ending=RunEnding(outcome="completed", result="null")))
        finally:
            await self.runtime.__aexit__(None, None, None)

    async def approve(self, path: str, tool: str) -> None:
        """Wait until a person has approved a call.

        Raises:
            Withheld: it is rejected, or nobody has answered in time.
        """
        await self.record(put_to_person(path, Approval))
        log().warning(
            "a call waits for an approval", tool=tool, decide=f"microagents decide {self.run_id} {path} approve"
        )
        try:
            answer = await self._decision_at(path)
            settled = put_to_person(path, Approval, answer)
        except TimeoutError:
            answer = encode_reply(UNANSWERED)
            settled = put_to_person(path, Approval, answer, by="leader")
        await self.record(settled)
        approval = decoder_of(Approval).decode(answer)
        if not approval.approved:
            raise Withheld(403, f"a call of {tool} was not approved: {approval.text or 'a person has rejected it'}")

    async def record(self, decision: RecordDecision) -> None:
        """Record a decision; returns once it is durable.

        Raises:
            Stopped: the journal cannot be written.
        """
        messenger = self.runtime.messenger
        messenger.tell(Record.of(decision))
        await messenger.ask(Report(when="durable"))

    async def _decision_at(self, path: str) -> bytes:
        """Wait for the decision of a person at a place; `TimeoutError` if there is none in time."""
        changes = self.runtime.messenger.stream(Subscribe())
        async with aclosing(changes), asyncio.timeout(APPROVAL_S):
            async for conditions in changes:
                if path in conditions.decisions:
                    return conditions.decisions[path]
        raise TimeoutError
