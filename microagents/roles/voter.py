"""The voter: holds elections. It counts ballots in launch order, and launches only draws that the decision needs."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from microagents.actors.role import Context, Messenger, Role
from microagents.base.aio import Notifier, TaskScope
from microagents.base.errors import MicroagentsError
from microagents.elections.admission import Admission
from microagents.elections.election import (
    AnyBallot,
    Ballot,
    Draw,
    Elect,
    ElectionId,
    Follow,
    Rejected,
    Screen,
    Verdict,
)
from microagents.journal.messages import (
    Conditions,
    Entry,
    Recall,
    Recollection,
    Record,
    Subscribe,
)
from microagents.roles.executor import Execute
from microagents.roles.known_models import KnownModels
from microagents.roles.matcher import MeanTheSame
from microagents.roles.running_election import RunningElection
from microagents.telemetry.tracing import Tracer

MAX_ABANDONED = 1024
"""Number of abandoned elections whose ballots are kept."""


class Voter(Role):
    """Holds elections. A second request for an open election joins it."""

    asks = (Draw, Screen, Record, Recall, Subscribe)
    may_ask = (MeanTheSame, Execute)

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self.admission: Admission = "elections"
        self._open: dict[ElectionId, RunningElection] = {}
        self._paid: OrderedDict[ElectionId, Sequence[AnyBallot | Rejected]] = OrderedDict()
        """Paid samples of elections that are not open: of an earlier sitting, or of a dropped guess that may be asked again."""
        self._are_parked = context.is_in_batches
        """Whether these are left in the journal, since most elections wait there for hours."""
        self._persons: dict[str, bytes] = {}
        """Decisions of persons on elections that are open, or may be opened, by path."""
        self._scope = TaskScope()
        self._loop = asyncio.get_running_loop()
        self._admission_changed = Notifier()
        self._records: list[Entry] = []
        self._closed: list[RunningElection] = []
        """Elections whose count was closed in this iteration of the loop."""
        self._is_flush_due = False
        """Whether `_flush` is due."""
        if context.tracing is None:
            self.tracer = None
        else:
            self.tracer = Tracer(context.tracing, [rung.name for rung in context.strategy.rungs])
        self.keeps_all_texts = context.settings.get("keep_texts") == "all"
        self.known = KnownModels(context)
        self.draws_are_eager = False
        """Whether draws begin in the iteration of the loop in which they are launched, since solver and red-flagger are in this process."""

    async def start(self) -> None:
        """Load the paid ballots of earlier sittings, and follow the conditions of the run."""
        if not self._are_parked:
            self._keep(await self.ask(Recall(with_open_elections=True)))
        conditions = self.stream(Subscribe())
        self._take(await anext(conditions))  # before the first draw
        self._scope.start(self._follow_conditions(conditions))
        self.draws_are_eager = self.reaches_eager(Draw) and self.reaches_eager(Screen)

    async def stop(self) -> None:
        """Stop following the conditions, and send the last records."""
        await self._scope.close()
        self.send_records()

    def record(self, record: Entry) -> None:
        """Queue a record for the keeper. All records of one iteration of the loop go in one message."""
        self._records.append(record)
        self._flush_soon()

    def announce_soon(self, election: RunningElection) -> None:
        """Let followers read the verdict of an election, or its failure, on the next iteration of the loop."""
        # The solver and this role send their records on the next iteration. If the verdict were announced now, a follower that an
        # earlier ballot has woken could report it before the calls that led to it are accounted for.
        self._closed.append(election)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        failure = None
        try:
            self.send_records()
        except MicroagentsError as error:  # the keeper takes no more, and followers must hear of it
            failure = error
        for election in self._closed:
            election.announce(failure)
        self._closed.clear()

    def send_records(self) -> None:
        """Send the queued records."""
        if self._records:
            self.tell(Record.of(*self._records))
            self._records.clear()

    def _keep(self, found: Recollection) -> None:
        self._paid.update({each.id: [*each.ballots, *each.rejected] for each in found.open_elections})

    async def elect(self, request: Elect) -> Verdict:
        """Hold an election, or join the open one; returns its verdict."""
        election = await self._admitted(request)
        try:
            while not election.announced:
                await election.change()
            return election.verdict()
        finally:
            if self._remove_follower(election):
                await election.cancel_draws()

    async def follow(self, request: Follow) -> AsyncGenerator[Ballot | Verdict]:
        """Hold an election, or join the open one; yields all its valid ballots in order of arrival, then the verdict."""
        election = await self._admitted(request)
        sent = 0
        try:
            while True:
                while sent < len(election.arrivals):
                    yield election.arrivals[sent]
                    sent += 1
                if election.announced:
                    break
                await election.change()
            yield election.verdict()
        finally:
            if self._remove_follower(election):
                await election.cancel_draws()

    async def _admitted(self, request: Elect | Follow) -> RunningElection:
        """Join the election of a request once it is open or may be opened."""
        while self.admission != "elections" and request.id not in self._open:
            await self._admission_changed.wait()
        if self._are_parked:
            await self._recall(request)
        return self._join(request)

    async def _recall(self, request: Elect | Follow) -> None:
        """Load the paid ballots of an election that may have been parked."""
        self.send_records()
        found = await self.ask(Recall(path=request.id.path, with_open_elections=True))
        if request.id not in self._open:
            self._keep(found)

    def _join(self, request: Elect | Follow) -> RunningElection:
        """Return the open election of a request; opens it if there is none."""
        election = self._open.get(request.id)
        if election is None:
            hedge = request.hedge if isinstance(request, Follow) else None
            election = self._open[request.id] = RunningElection(self, request.id, request.question, hedge)
            if self._persons and request.id.path in self._persons:
                election.settle(self._persons[request.id.path])
            election.begin(self._paid.pop(request.id, ()))
        election.followers += 1
        return election

    async def _follow_conditions(self, changes: AsyncGenerator[Conditions]) -> None:
        async with aclosing(changes):
            async for conditions in changes:
                self._take(conditions)
                if conditions.admission == "nothing":
                    break
            # The end of the run waits until this stream is closed. By then every paid ballot must be recorded.
            while draws := [draw for election in self._open.values() for draw in election.draws.values()]:
                await asyncio.wait(draws)
            self.send_records()

    def _take(self, conditions: Conditions) -> None:
        self.known.take(conditions)
        decided = [each for each in conditions.decisions.items() if self._persons.get(each[0]) != each[1]]
        self._persons.update(decided)
        for path, value in decided:
            for election in [each for each in self._open.values() if each.id.path == path]:
                election.settle(value)
        if conditions.admission != self.admission:
            self.admission = conditions.admission
            for election in self._open.values():
                election.launch()
            self._admission_changed.notify()

    def _remove_follower(self, election: RunningElection) -> bool:
        """Remove one follower, and the election with its last one; returns whether draws must be cancelled."""
        election.followers -= 1
        if election.followers:
            return False
        del self._open[election.id]
        election.close_count(None)
        election.forget_failure()
        # A guess that is dropped and then asked again must not be paid twice, so its ballots are kept.
        if not self._are_parked:
            self._paid[election.id] = election.paid
        if len(self._paid) > MAX_ABANDONED:
            self._paid.popitem(last=False)
        return bool(election.calls)
