"""The executor: runs the tools of tasks. It writes down what it is about to do, does it, and writes down what came of it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field, structs

from microagents.actors import Context, Messenger
from microagents.aio import Notifier, TaskScope
from microagents.elections.admission import PAUSES, FollowAdmission
from microagents.elections.election import Ballot, ElectionId, SampleId
from microagents.errors import NotSent
from microagents.journal.messages import RecallOpen, RecordDraws, RecordSample
from microagents.messages import Message
from microagents.tools.calling import Called, LookedUp, Tools
from microagents.tools.tool import Effect, EffectKey, RunInput, ToolSpec
from microagents.work.durable import DurableRequest, DurableRole, Work

TRIES = 3
"""Number of times in all that a call which may be repeated is made where its outcome is unknown."""
WAIT_S = 0.5
"""The wait before the second time; it grows by as much each time."""
LOOKED_UP = "look-up"
"""First component of the places of calls that are made before a reply."""
MAX_KEPT = 20_000
"""Outcomes of look-ups that an executor remembers: of the oldest ones the inputs are mostly done."""
KEPT = b"kept outcome\0\0\0\0"
"""In place of the digest of a question, where the outcome of a call is kept."""
LOST = Called(outcome="unknown", text="the process that made the call died before it heard of the outcome")


class LookedUpBefore(Called, frozen=True, kw_only=True):
    """What the journal keeps of a call that a model made before its reply."""

    tool: str = ""
    """Empty in journals that kept only the outcome."""
    arguments: dict[str, Any] = field(default_factory=dict)


class Intention(Struct, frozen=True, kw_only=True):
    """What the journal says of a call that changes the world, before it is made."""

    tool: str
    arguments: dict[str, Any]
    effect: Effect


class Execute(DurableRequest[Called], frozen=True, kw_only=True):
    """Make one call of a tool. One that changes the world is made at most once, or under one key; what came of it is recorded.

    Its intention is recorded at its place, and its outcome at ``outcome`` below that. What led to it must be durable before.
    """

    tool: str
    arguments: dict[str, Any]
    key: str
    """The key of its effect (`microagents.tools.effect_keys.effect_key`)."""
    most_chars: int
    """Length of the observation."""
    timeout_s: float
    """Time after which the outcome of the call is unknown, unless its tool states another."""
    is_kept: bool = False
    """Whether a call that only reads is made once at its place, and its outcome kept for the whole run."""


class Executor(DurableRole):
    """Runs tools: functions, and those of MCP servers, whose connections live here. Keys and other secrets come from its environment."""

    asks: ClassVar[tuple[type[Message], ...]] = (FollowAdmission, RecallOpen, RecordDraws)

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._tools = Tools()
        self._scope = TaskScope()
        self._effects: dict[str, asyncio.Task[Called]] = {}
        """Effects under way, by path. The end of the run waits for them."""
        self._kept: dict[str, asyncio.Future[Called]] = {}
        """Calls that only read and are made once, by path; the last `MAX_KEPT` of them."""
        self._effect_ended = Notifier()
        self._is_ending = False
        self._may_begin = asyncio.Event()
        """Set but while the run is paused."""
        self._may_begin.set()

    async def start(self) -> None:
        """Follow the admission, so that nothing begins once the run is ending."""
        await super().start()
        for each in await self.ask(RecallOpen()):
            if each.id.question_digest == KEPT and isinstance(each.ballots[0], Ballot):
                kept = self._kept[each.id.path] = asyncio.get_running_loop().create_future()
                kept.set_result(msgspec.json.decode(each.ballots[0].value, type=LookedUpBefore))
        self._scope.start(self._follow_admission())

    async def stop(self) -> None:
        """Close the connections."""
        await self._scope.close()
        await self._tools.close()

    async def execute(self, request: Execute) -> Called:
        """Make one call.

        Raises:
            NotSent: the run is ending, so it is not made.
        """
        work = self.work_on(request)
        path = work.path_of(request.at)
        await self._may_begin.wait()
        if self._is_ending and path not in self._effects:
            raise NotSent(path)
        spec: ToolSpec = work.task.toolbox.specs[request.tool]
        if spec.timeout_s is not None:
            request = structs.replace(request, timeout_s=spec.timeout_s)
        if spec.effect == "read_only":
            return await (
                self._kept_outcome(work, request, path) if request.is_kept else self._call(work, request, TRIES)
            )
        # In a task of its own: where the one who asks is cancelled, or dies and asks again, the effect goes on and is recorded.
        if path not in self._effects:
            self._effects[path] = self._scope.start(self._effect(work, request, spec), lambda: self._end(path))
        return await asyncio.shield(self._effects[path])

    async def _kept_outcome(self, work: Work[Any, Any], request: Execute, path: str) -> Called:
        if path not in self._kept:
            self._kept[path] = self._scope.start(self._kept_call(work, request, path))
            if len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        return await asyncio.shield(self._kept[path])

    async def _kept_call(self, work: Work[Any, Any], request: Execute, path: str) -> Called:
        """Make a call that only reads, and record its outcome before it is given.

        It enters no digest: which samples are drawn in vain, and what they look up, depends on time. So it stands in the journal like the
        ballot of an election that never ends.
        """
        called = await self._call(work, request, TRIES)
        place = SampleId(election=ElectionId(path=path, question_digest=KEPT), seq=0)
        kept = LookedUpBefore(outcome=called.outcome, text=called.text, tool=request.tool, arguments=request.arguments)
        ballot = Ballot(seq=0, value=msgspec.json.encode(kept), cost_usd=0.0)
        self.tell(RecordDraws(records=(RecordSample(id=place, ballot=ballot),)))
        await work.flush()
        return called

    def _end(self, path: str) -> None:
        del self._effects[path]
        self._effect_ended.notify()

    async def _effect(self, work: Work[Any, Any], request: Execute, spec: ToolSpec) -> Called:
        """Make a call that changes the world, or give its recorded outcome."""
        known = await work.recorded(f"{request.at}/outcome")
        if known is not None and known.value is not None:
            recorded: Called = msgspec.json.decode(known.value, type=Called)
            return recorded
        called = await self._made_once(work, request, spec)
        if called.outcome != "unknown":
            await work.record_answer(f"{request.at}/outcome", called)
        return called

    async def _made_once(self, work: Work[Any, Any], request: Execute, spec: ToolSpec) -> Called:
        """Make a call that changes the world: after its intention is durable, and never again where that may do it twice."""
        is_intended = await work.recorded(request.at) is not None
        if not is_intended:
            await work.record_answer(
                request.at, Intention(tool=request.tool, arguments=request.arguments, effect=spec.effect)
            )
        if spec.effect == "idempotent":
            return await self._call(work, request, TRIES)
        called = LOST if is_intended else await self._call(work, request, 1)
        if called.outcome != "unknown" or not spec.can_be_looked_up:
            return called
        found = await self._look_up(work, request)
        if found is None:
            return called
        if found.was_made:
            return Called(outcome="done", text=found.text)
        # A call of this process may still be under way. One of a process that died is not.
        return await self._call(work, request, 1) if is_intended else called

    async def _call(self, work: Work[Any, Any], request: Execute, tries: int) -> Called:
        """Make a call until its outcome is known, at most so many times."""
        number = 1
        while True:
            called = await self._tools.call(
                work.task.toolbox,
                request.tool,
                request.arguments,
                EffectKey(request.key),
                RunInput(f"{self.context.run_id}/{request.input}"),
                timeout_s=request.timeout_s,
                most_chars=request.most_chars,
            )
            if called.outcome != "unknown" or number == tries:
                return called
            await asyncio.sleep(number * WAIT_S)
            number += 1

    async def _look_up(self, work: Work[Any, Any], request: Execute) -> LookedUp | None:
        """Ask a tool what became of a call; several times where it knows of none, since a server may still be at work on it."""
        number = 1
        while True:
            found = await self._tools.look_up(
                work.task.toolbox,
                request.tool,
                EffectKey(request.key),
                timeout_s=request.timeout_s,
                most_chars=request.most_chars,
            )
            if found is None or found.was_made or number == TRIES:
                return found
            await asyncio.sleep(number * WAIT_S)
            number += 1

    async def _follow_admission(self) -> None:
        async with aclosing(self.stream(FollowAdmission())) as changes:
            async for admission in changes:
                self._is_ending = admission == "nothing"
                if admission in PAUSES:
                    self._may_begin.clear()
                else:
                    self._may_begin.set()
                if self._is_ending:
                    break
            # The end of the run waits until this stream is closed: by then every effect under way is recorded.
            while self._effects:
                await self._effect_ended.wait()
