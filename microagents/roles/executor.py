"""The executor: runs the tools of tasks. It records a call before it makes it, and its outcome afterwards."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from microagents.actors.role import Context, Messenger
from microagents.base import exits
from microagents.base.aio import TaskScope, is_cancellation, loop_has_threads, retrieve_exception
from microagents.base.errors import OWN_FAILURES, NotSent, TaskFailed
from microagents.base.logs import log
from microagents.base.messages import Request
from microagents.base.processes import ProcessIdentity
from microagents.base.user_code import traceback_of
from microagents.elections.admission import PAUSES
from microagents.elections.election import Ballot, ElectionId, SampleId
from microagents.journal.messages import Recall, Record, RecordSample, Subscribe
from microagents.replies.persons import CustomerAnswer, FoundOutcome
from microagents.replies.turns import Arguments
from microagents.tools.calling import LookedUp, Tools
from microagents.tools.effect_keys import MAKING
from microagents.tools.observations import Called
from microagents.tools.threads import in_thread
from microagents.tools.tool import EffectKey, Kind, RunInput, ToolSpec
from microagents.work.durable import DurableRequest, DurableRole, Work

TRIES = 3
"""Number of attempts in all at a repeatable call whose outcome is unknown."""
WAIT_S = 0.5
"""The wait before the second time; it grows by as much each time."""
LOOKED_UP = "look-up"
"""First component of the places of calls that are made before a reply."""
MAX_KEPT = 20_000
"""Outcomes of look-ups that an executor remembers: of the oldest ones the inputs are mostly done."""
KEPT = b"kept outcome\0\0\0\0"
"""Stands for the digest of a question in the record of a kept outcome."""
MAKER = b"maker of a call\0"
"""Stands for the digest of a question in the record of a process that begins a call."""
LEFT = (
    "calls of tools are left under way, and their outcome is unknown: `resume` makes an idempotent one again with its key, and asks the "
    "look-up of a destructive one, or else a person"
)
RECORD_S = 5.0
"""Time for the record of a call that is left, when the run ends."""
OUTCOME = "/outcome"
"""Last component of the place at which the outcome of a call is recorded."""
LOST = Called(outcome="unknown", text="the process that made the call died before it heard of the outcome")
UNANSWERED = Called(outcome="unknown", text="the customer has not answered")
_acting: set[asyncio.Task[Called]] = set()
"""Destructive calls under way in this process. Nothing cancels them, not even the end of their run."""


class LookedUpBefore(Called, frozen=True, kw_only=True):
    """Record of a call that a model made before its reply."""

    tool: str = ""
    """Empty in journals that kept only the outcome."""
    arguments: Arguments = field(default_factory=dict)


class Intention(Struct, frozen=True, kw_only=True):
    """Record of a call that changes the world, before it is made."""

    tool: str
    arguments: Arguments
    effect: Kind


class Execute(DurableRequest[Called], frozen=True, kw_only=True):
    """Make one call of a tool. One that changes the world is made at most once, or under one key; its outcome is recorded.

    A call that changes the world has the place of its making (`making_at`). Its intention is recorded there, its ``outcome`` below
    it. If the outcome of a destructive call is unknown, the reason stands at ``unknown``; the word of a person or of the call itself
    later, at ``found``. The decision for the call must be durable before. A call of `ask` goes to the callback of the run's caller, and
    the answer is recorded at the place; it is unknown while there is none.
    """

    as_json = True

    tool: str
    arguments: Arguments
    key: str
    """The key of its effect (`microagents.tools.effect_keys.effect_key`)."""
    most_chars: int
    """Length of the observation."""
    timeout_s: float
    """Time after which the outcome of the call is unknown, unless its tool states another."""
    is_kept: bool = False
    """Whether a call that only reads is made once at its place, and its outcome kept for the whole run."""


class CustomerQuestion(Struct, frozen=True, kw_only=True):
    """A question of an agent to its customer."""

    path: str
    """The place of the answer: the same if the question is asked again, by another process."""
    text: str


OnAsk = Callable[[CustomerQuestion], Awaitable[str | None] | str | None]
"""Asks the customer, and returns the answer; None to let the input wait for one. A function or an async one; a plain one has a thread."""


class EndEffects(Request[list[int]], frozen=True, kw_only=True):
    """Wait until nothing that changes the world is under way, at most ``--max-wait-effects``.

    The reply names the inputs whose work can go on, since a call ended after its time-out. The outcome of a call that takes longer than
    the wait is recorded as unknown.
    """


class Executor(DurableRole):
    """Runs functions and the tools of MCP servers, whose connections live here. Keys and other secrets come from its environment."""

    asks = (Recall, Record, Subscribe)

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._tools = Tools()
        self._scope = TaskScope()
        self._effects: dict[str, asyncio.Task[Called]] = {}
        """Effects that are asked for, by the path of their making."""
        self._under_way: dict[str, asyncio.Task[Called]] = {}
        """Destructive calls without a recorded outcome, by the path of the call, including calls that ended after their time-out."""
        self._makers: dict[str, list[ProcessIdentity]] = {}
        """Processes that began a destructive call without a recorded outcome, by the path of its making."""
        self._late: dict[str, asyncio.Task[None]] = {}
        """Records of destructive calls that go on after their time-out, by the path of their making."""
        self._ended_late: list[int] = []
        """Inputs with a call that ended after its time-out."""
        self._max_wait_s: float = context.settings["max_wait_effects_s"]
        self._waits_no_more = asyncio.Event()
        self._left: set[asyncio.Task[Any]] = set()
        """Tasks of effects that the end of the run waits for no more."""
        self._kept: dict[str, asyncio.Future[Called]] = {}
        """Calls that only read and are made once, by path; the last `MAX_KEPT` of them."""
        self._on_ask: OnAsk | None = context.options.get("on_ask")
        self._is_ending = False
        self._may_begin = asyncio.Event()
        """Set but while the run is paused."""
        self._may_begin.set()

    async def start(self) -> None:
        """Follow the admission, so that nothing begins once the run is ending."""
        await super().start()
        for each in (await self.ask(Recall(with_open_elections=True))).open_elections:
            values = [ballot.value for ballot in each.ballots if isinstance(ballot, Ballot)]
            if each.id.question_digest == MAKER:
                makers = [msgspec.json.decode(value, type=ProcessIdentity) for value in values]
                self._makers[each.id.path.removesuffix(OUTCOME)] = makers
            elif each.id.question_digest == KEPT and values:
                kept = self._kept[each.id.path] = asyncio.get_running_loop().create_future()
                kept.set_result(msgspec.json.decode(values[0], type=LookedUpBefore))
        self._scope.start(self._follow_conditions())

    async def stop(self) -> None:
        """Wait for the calls under way, and close the connections."""
        try:
            await self._wait_for_effects()
        finally:
            await self._scope.close()
            left = await self._tools.close()
            if left:
                log().warning("calls of tools have not ended, and are left; the run waits for none of them", tools=left)
            exits.bound_end(0.0 if left or self._left else self._max_wait_s)

    async def execute(self, request: Execute) -> Called:
        """Make one call.

        Raises:
            NotSent: the run is ending, so it is not made.
            TaskFailed: the callback that asks the customer raised, or its answer is none.
        """
        work = self.work_on(request)
        path = work.path_of(request.at)
        if work.task.toolbox.asks_customer(request.tool):
            return await self._ask_customer(work, request)
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
        # In a task of its own: if the asker is cancelled, or dies and asks again, the effect continues and is recorded.
        if path not in self._effects:
            effect = self._effect(work, request, spec)
            self._effects[path] = self._scope.start(effect, partial(_forget, self._effects, path))
            self._effects[path].set_name(f"{spec.name} ({spec.effect}) at {path.partition(MAKING)[0]}")
        return await asyncio.shield(self._effects[path])

    async def _ask_customer(self, work: Work, request: Execute) -> Called:
        """Let the caller ask the customer, and record the answer; a person's counts if it was first."""
        if self._on_ask is None:
            return UNANSWERED
        question = CustomerQuestion(path=work.path_of(request.at), text=request.arguments["text"])
        try:
            given = await _asked(self._on_ask, question)
        except OWN_FAILURES as error:  # a caller's code may raise anything
            if is_cancellation(error):
                raise
            raise TaskFailed("on_ask()", f"raised {error!r}", traceback_of(error)) from error
        if given is None:
            return UNANSWERED
        try:
            answer = msgspec.convert({"text": given}, CustomerAnswer)
        except msgspec.ValidationError as error:
            raise TaskFailed("on_ask()", f"gave no answer to {question.path}: {error}") from None
        await work.record_answer(request.at, answer)
        return Called(outcome="done", text=answer.text)

    async def end_effects(self, request: EndEffects) -> list[int]:  # noqa: ARG002 - the message is the address
        """Wait for the calls under way; returns the inputs whose work can go on."""
        await self._wait_for_effects()
        ended, self._ended_late = sorted({*self._ended_late}), []
        if self._is_ending:
            return []
        return ended

    async def _wait_for_effects(self) -> None:
        loop, pending = asyncio.get_running_loop(), self._pending()
        until_s = loop.time() + self._max_wait_s
        if pending:
            waiting, at_most_s = _names(pending), self._max_wait_s
            log().warning("waiting for calls of tools that are under way", calls=waiting, at_most_s=at_most_s)
        while pending and (left_s := until_s - loop.time()) > 0:
            await asyncio.wait(pending, timeout=left_s)
            pending = self._pending()
        if pending:
            self._waits_no_more.set()
            recording = [each for path, each in self._effects.items() if path in self._makers]
            if recording:
                await asyncio.wait(recording, timeout=RECORD_S)
            self._waits_no_more.clear()
            pending = self._pending()
            self._left.update(pending)
        if pending:
            log().warning(LEFT, calls=_names(pending))

    def _pending(self) -> list[asyncio.Task[Any]]:
        return [each for each in (*self._effects.values(), *self._late.values()) if each not in self._left]

    async def _kept_outcome(self, work: Work, request: Execute, path: str) -> Called:
        if path not in self._kept:
            self._kept[path] = self._scope.start(self._kept_call(work, request, path))
            if len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        return await asyncio.shield(self._kept[path])

    async def _kept_call(self, work: Work, request: Execute, path: str) -> Called:
        """Make a call that only reads, and record its outcome before it is given.

        It enters no digest: the samples drawn in vain, and their look-ups, depend on time. So it stands in the journal like the
        ballot of an election that never ends.
        """
        called = await self._call(work, request, TRIES)
        place = SampleId(election=ElectionId(path=path, question_digest=KEPT), seq=0)
        kept = LookedUpBefore(
            outcome=called.outcome, text=called.text, files=called.files, tool=request.tool, arguments=request.arguments
        )
        ballot = Ballot(seq=0, value=msgspec.json.encode(kept), cost_usd=0.0)
        self.tell(Record.of(RecordSample(id=place, ballot=ballot)))
        await work.flush()
        return called

    async def _effect(self, work: Work, request: Execute, spec: ToolSpec) -> Called:
        """Make a call that changes the world, or give its recorded outcome."""
        known = await _recorded(work, f"{request.at}{OUTCOME}")
        if known is not None:
            return known
        if spec.effect != "idempotent":
            return await self._made_once(work, request, spec)
        await _intend(work, request, spec)
        called = await self._call(work, request, TRIES)
        if called.outcome != "unknown":
            await work.record_answer(f"{request.at}{OUTCOME}", called)
        return called

    async def _made_once(self, work: Work, request: Execute, spec: ToolSpec) -> Called:
        """Make a destructive call after its intention is durable, and never again if that may do it twice."""
        at, path, place = request.at, work.path_of(request.at), _call_of(work, request)
        unknown = await _recorded(work, f"{at}/unknown")
        is_begun = unknown is None and await work.recorded(at) is not None
        called = unknown or (self._unheard_of(path) if is_begun else await self._make(work, request, spec))
        if called.outcome == "unknown" and spec.can_be_looked_up:
            found = await self._look_up(work, request)
            if found is not None and found.was_made:
                called = Called(outcome="done", text=found.text)
            # A call of a living process may still be under way. One of a process that died is not.
            elif found is not None and called is LOST:
                is_begun, called = False, await self._begin(work, request, spec)
        call = self._under_way.get(place)
        if called.outcome == "unknown" and call is not None and call.done():
            called = call.result()
        if called.outcome != "unknown":
            self._under_way.pop(place, None)
            self._makers.pop(path, None)
            if (late := self._late.get(path)) is not None:
                late.cancel()
            await _record(work, at, called, is_asked=await work.recorded(f"{at}/found") is not None)
            return called
        if unknown is None and not is_begun:
            await work.record_answer(f"{at}/unknown", called)
        if call is not None and path not in self._late:
            late_record = self._record_late(work, request, call)
            self._late[path] = self._scope.start(late_record, partial(_forget, self._late, path))
            self._late[path].set_name(f"{spec.name} ({spec.effect}) at {place}")
        return called

    async def _make(self, work: Work, request: Execute, spec: ToolSpec) -> Called:
        """Begin a destructive call, unless an earlier making of it has ended after all, or is still under way: persons may err."""
        earlier = self._under_way.get(_call_of(work, request))
        if earlier is not None:
            called = await self._outcome_of(earlier, request)
            if not earlier.done() or called.outcome != "unknown":
                return called
        return await self._begin(work, request, spec)

    async def _begin(self, work: Work, request: Execute, spec: ToolSpec) -> Called:
        """Begin a destructive call, and wait for its outcome until its time-out. The call itself continues.

        It is durable before which process makes the call. A process that has lost the lease cannot record this, so it begins nothing.
        """
        self._record_maker(work.path_of(request.at))
        await _intend(work, request, spec)
        call = asyncio.get_running_loop().create_task(self._called(work, request, None))
        self._under_way[_call_of(work, request)] = call
        _acting.add(call)
        call.add_done_callback(_acting.discard)
        call.add_done_callback(retrieve_exception)
        return await self._outcome_of(call, request)

    def _unheard_of(self, path: str) -> Called:
        """Return the outcome of a call that was begun, and of which nothing is recorded."""
        if path not in self._makers:
            return Called(outcome="unknown", text="nothing is known of the process that began the call")
        maker = self._makers[path][-1]
        if maker.state() == "dead":
            return LOST
        remedy = maker.remedy() or "it may still make the call, unless it has ended, which is not known here"
        return Called(outcome="unknown", text=f"{maker} has begun the call and not recorded an outcome; {remedy}")

    def _record_maker(self, path: str) -> None:
        """Record this process as the one that makes a call. It enters no digest, and the record of the outcome removes it."""
        makers, maker = self._makers.setdefault(path, []), ProcessIdentity.here()
        place = SampleId(election=ElectionId(path=f"{path}{OUTCOME}", question_digest=MAKER), seq=len(makers))
        ballot = Ballot(seq=place.seq, value=msgspec.json.encode(maker), cost_usd=0.0)
        makers.append(maker)
        self.tell(Record.of(RecordSample(id=place, ballot=ballot)))

    async def _outcome_of(self, call: asyncio.Task[Called], request: Execute) -> Called:
        """Wait for the outcome of a destructive call, until its time-out or the end of the run."""
        end = self._scope.start(self._waits_no_more.wait())
        try:
            await asyncio.wait([call, end], timeout=request.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()
        if call.done():
            return call.result()
        is_left = self._waits_no_more.is_set()
        return Called(
            outcome="unknown",
            text="the run ended before it did" if is_left else f"no result within {request.timeout_s:g} s",
        )

    async def _record_late(self, work: Work, request: Execute, call: asyncio.Task[Called]) -> None:
        """Record the outcome of a call that ends after its time-out, as a finding about it."""
        await asyncio.wait([call])
        called = call.result()
        if called.outcome == "unknown":
            self._under_way.pop(_call_of(work, request), None)
        else:  # it stays among those under way: a person may have said that it was not made
            await _record(work, request.at, called, is_asked=True)
            self._ended_late.append(request.input)

    async def _call(self, work: Work, request: Execute, tries: int) -> Called:
        """Make a call until its outcome is known, at most ``tries`` times."""
        number = 1
        while True:
            called = await self._called(work, request, request.timeout_s)
            if called.outcome != "unknown" or number == tries:
                return called
            await asyncio.sleep(number * WAIT_S)
            number += 1

    async def _called(self, work: Work, request: Execute, timeout_s: float | None) -> Called:
        called = await self._tools.call(
            work.task.toolbox,
            request.tool,
            request.arguments,
            EffectKey(request.key),
            RunInput(f"{self.context.run_id}/{request.input}"),
            timeout_s=timeout_s,
            most_chars=request.most_chars,
        )
        work.keep(called.files)
        for each in called.files:
            each.forget_source()
        return called

    async def _look_up(self, work: Work, request: Execute) -> LookedUp | None:
        """Ask a tool for the outcome of a call; repeatedly if it knows of none, since a server may still be working on it."""
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

    async def _follow_conditions(self) -> None:
        async with aclosing(self.stream(Subscribe())) as changes:
            async for conditions in changes:
                self._is_ending = conditions.admission == "nothing"
                if conditions.admission in PAUSES:
                    self._may_begin.clear()
                else:
                    self._may_begin.set()
                if self._is_ending:
                    break


def _names(calls: list[asyncio.Task[Any]]) -> list[str]:
    names = [each.get_name() for each in calls]
    return list(dict.fromkeys(names))


def _forget(tasks: dict[str, asyncio.Task[Any]], path: str) -> None:
    del tasks[path]


def _call_of(work: Work, request: Execute) -> str:
    """Return the path of the call that a request makes."""
    return work.path_of(request.at).partition(MAKING)[0]


async def _asked(on_ask: OnAsk, question: CustomerQuestion) -> str | None:
    """Call the callback: a plain one in a thread, which keeps no process alive, since a customer may never answer."""
    if inspect.iscoroutinefunction(on_ask) or not loop_has_threads():
        given = on_ask(question)
    else:
        given = await in_thread(partial(on_ask, question))
    if inspect.isawaitable(given):
        return await given
    return given


async def _recorded(work: Work, at: str) -> Called | None:
    found = await work.recorded(at)
    if found is None or found.value is None:
        return None
    return msgspec.json.decode(found.value, type=Called)


async def _intend(work: Work, request: Execute, spec: ToolSpec) -> None:
    """Record a call before it is made. If it was begun before, this changes nothing."""
    intention = Intention(tool=request.tool, arguments=request.arguments, effect=spec.effect)
    await work.record_answer(request.at, intention)


async def _record(work: Work, at: str, called: Called, *, is_asked: bool) -> None:
    """Record the outcome of a call; if a person is asked for it, as the answer."""
    if is_asked:
        found = FoundOutcome(was_made=called.outcome == "done", value=called.text)
        await work.record_answer(f"{at}/found", found)
    else:
        await work.record_answer(f"{at}{OUTCOME}", called)
