"""What every runtime owes to roles. One suite for all of them: roles speak with the test through messages and files, never through memory.

Roles meet on a `Stage`: whoever ``Mark``s a name there lets those go on who wait until it is ``Marked``, in whatever process they live.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar
from uuid import uuid4

import msgspec
import pytest
from msgspec import Struct
from structlog.testing import capture_logs

from microagents import Context, Deployment, MicroagentsError, Request, Role, Stopped
from microagents.actors.registry import RUNTIMES
from microagents.base.errors import DeadlinePassed, InvalidUsage, ModelUnavailable, NoHandler, RoleFailed, Undecided
from microagents.base.messages import Message, Stream
from microagents.runs.driver.execute import runtime_of
from microagents.runtimes import role_group
from microagents.runtimes.dispatcher import Dispatcher, RoleMessenger, Route
from microagents.runtimes.local import LoopLink
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift

ROBUST_S = 60.0
"""A time that is not meant to pass."""
TINY_S = 0.02
"""One that is."""
SOON_S = 1.0
"""One that is, after an answer."""

T = TypeVar("T")
Opened = Callable[..., AbstractAsyncContextManager[RoleMessenger]]


@pytest.fixture(params=["local", "linked"])
def runtime(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def opened(runtime: str) -> Opened:
    """Opens the runtime with some roles and gives the driver's post."""

    @asynccontextmanager
    async def opened(*deployments: Deployment | type[Role]) -> AsyncIterator[RoleMessenger]:
        asked = [each if isinstance(each, Deployment) else Deployment(role=each) for each in deployments]
        given = [each.model_copy(update={"num_replicas": each.num_replicas}) for each in asked]  # no shared actors
        context = Context(run_id="suite", seed=0, tasks=[Drift(length=1)], strategy=Maker())
        async with asyncio.timeout(ROBUST_S), runtime_of(runtime, context, given) as roles:
            yield roles.messenger

    return opened


quick_on_ray = pytest.mark.parametrize("runtime", RUNTIMES.shipped, indirect=True)
"""For a first look at Ray, where every replica is a process that has to start."""
also_on_ray = pytest.mark.parametrize("runtime", ["local", "linked", "ray"], indirect=True)
"""For what a link or a process has a part in. The dispatcher decides the rest, and its code is that of the runtime ``linked``."""
needs_encoding = pytest.mark.parametrize(
    "runtime", [name for name in RUNTIMES.shipped if name != "local"], indirect=True
)
"""For what holds only where messages are encoded; within one dispatcher they are handed over as they are."""


# -- where roles meet --------------------------------------------------------------------------------------------------


class Mark(Request[None], frozen=True):
    name: str


class Marked(Request[None], frozen=True):
    name: str


class Marks(Request[list[str]], frozen=True):
    """All that has happened, in order."""


class Turn(Request[None], frozen=True):
    """Let others have a turn."""


class Stage(Role):
    async def start(self) -> None:
        self._marks: list[str] = []
        self._news = asyncio.Condition()

    async def mark(self, request: Mark) -> None:
        async with self._news:
            self._marks.append(request.name)
            self._news.notify_all()

    async def marked(self, request: Marked) -> None:
        async with self._news:
            await self._news.wait_for(lambda: request.name in self._marks)

    async def marks(self, _: Marks) -> list[str]:
        return list(self._marks)

    async def turn(self, _: Turn) -> None:
        await asyncio.sleep(0)


async def settled(messenger: RoleMessenger) -> None:
    """Some round trips: whatever can happen meanwhile, without anything else being said, has happened."""
    for _ in range(10):
        await messenger.ask(Turn())


async def read(items: AsyncIterator[T], into: list[T] | None = None) -> list[T]:
    """A stream to its end."""
    so_far: list[T] = [] if into is None else into
    async for item in items:
        so_far.append(item)  # noqa: PERF401 - what was read before an error counts
    return so_far


# -- handlers that need no task of their own ---------------------------------------------------------------------------------


class Noted(Request[list[str]], frozen=True):
    """What a role was told, in order."""


class Notes(Role):
    """Notes what it is told at once. A list in its options is shared by memory with a test."""

    asks: ClassVar[tuple[type[Message], ...]] = (Mark,)

    async def start(self) -> None:
        self.told: list[str] = self.context.options.get("told", [])

    def note(self, request: Mark) -> None:
        if request.name.startswith("tell"):
            self.tell(Mark(name="told"))
        if request.name == "cancel":
            raise asyncio.CancelledError
        if request.name == "leave":
            raise GeneratorExit
        if request.name.endswith("fail"):
            raise ValueError("told to")
        self.told.append(request.name)

    async def noted(self, _: Noted) -> list[str]:
        return list(self.told)


class Lingering(Request[None], frozen=True):
    name: str


class BothWays(Notes):
    asks = (Noted, Lingering)

    def note(self, request: Mark) -> None:
        if request.name.startswith("tell"):
            self.tell(Lingering(name="told"))
        super().note(Mark(name=request.name.removeprefix("tell and ")))

    async def linger(self, request: Lingering) -> None:
        await asyncio.sleep(0)
        await self.ask(Noted())  # of its own replica, which must not wait for this message
        self.told.append(request.name)


class OneAtATime(Role):
    concurrency = 1

    async def start(self) -> None:
        self.told: list[str] = self.context.options.get("told", [])

    def note(self, request: Mark) -> None:
        self.told.append(request.name)

    async def noted(self, _: Noted) -> list[str]:
        return list(self.told)

    async def linger(self, request: Lingering) -> None:
        await asyncio.sleep(0)
        self.told.append(request.name)


@pytest.mark.parametrize(("role", "at_once"), [(Notes, True), (OneAtATime, False)])
async def test_a_plain_handler_takes_a_one_way_message_in_the_same_turn(role: type[Role], *, at_once: bool) -> None:
    told, context = list[str](), Context(run_id="suite", seed=0, tasks=[], strategy=Maker())
    async with runtime_of("local", context, [Deployment(role=role, options={"told": told})]) as roles:
        roles.messenger.tell(Mark(name="a"))
        assert told == (["a"] if at_once else [])
        assert await roles.messenger.ask(Noted()) == ["a"]


@pytest.mark.parametrize("role", [BothWays, OneAtATime])
async def test_one_way_messages_keep_their_order_if_handlers_wait_or_not(opened: Opened, role: type[Role]) -> None:
    async with opened(role) as messenger:
        messenger.tell(Mark(name="a"))
        messenger.tell(Lingering(name="b"))
        messenger.tell(Mark(name="c"))
        messenger.tell(Lingering(name="d"))
        assert await messenger.ask(Noted()) == ["a", "b", "c", "d"]
        messenger.tell(Lingering(name="e"))
        messenger.tell(Mark(name="f"))
        assert await messenger.ask(Noted()) == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize("role", [Notes, BothWays])
@pytest.mark.parametrize(
    ("name", "said"),
    [("fail", "told to"), ("cancel", "CancelledError"), ("leave", "GeneratorExit"), ("tell and fail", "told to")],
)
async def test_a_plain_handlers_error_reaches_the_next_ask(
    opened: Opened, role: type[Role], name: str, said: str
) -> None:
    async with opened(role) as messenger:
        messenger.tell(Mark(name=name))
        with pytest.raises(RoleFailed, match=said):
            await messenger.ask(Noted())


async def test_what_a_plain_handler_tells_its_own_role_is_handled_after_it(opened: Opened) -> None:
    async with opened(Notes) as messenger:
        messenger.tell(Mark(name="tell"))
        await messenger.ask(Noted())
        assert await messenger.ask(Noted()) == ["tell", "told"]


# -- asking ------------------------------------------------------------------------------------------------------------


class Inner(Struct, frozen=True, kw_only=True, tag=True):
    amount: Decimal


class Other(Struct, frozen=True, kw_only=True, tag=True):
    name: str


class Everything(Request["Everything"], frozen=True, kw_only=True):
    """A message of many types, and its own reply."""

    whole: int = 2**63 - 1
    real: float = 0.1
    amount: Decimal = Decimal("1.00")
    text: str = 'ä\n"\u2028\x00'
    raw: bytes = b"\x00\xff"
    one_of: Literal["left", "right"] = "right"
    nothing: int | None = None
    parts: tuple[Inner | Other, ...] = (Inner(amount=Decimal("1e-7")), Other(name="x"))
    by_name: dict[str, tuple[int, ...]] = msgspec.field(default_factory=lambda: {"a": (1, 2)})


class Double(Request[int], frozen=True):
    number: int


class Unheard(Request[int], frozen=True):
    """A message that nobody handles."""


class UnheardStream(Stream[int], frozen=True):
    """A stream that nobody handles."""


class UnheardNote(Request[None], frozen=True):
    """A note that nobody handles."""


class Doubler(Role):
    async def double(self, request: Double) -> int:
        return 2 * request.number

    async def everything(self, request: Everything) -> Everything:
        return request


class Sneak(Request[None], frozen=True):
    how: str


class Sneaky(Role):
    async def sneak(self, request: Sneak) -> None:
        double, counting, mark = Double(number=1), Counting(upto=1), Mark(name="sneaked")  # not seen in what it sends
        match request.how:
            case "ask":
                await self.ask(double)
            case "stream":
                async for _ in self.stream(counting):
                    pass
            case "tell":
                self.tell(mark)


async def test_a_message_that_nobody_handles_is_refused_by_name(opened: Opened) -> None:
    async with opened(Doubler) as messenger:
        with pytest.raises(NoHandler, match="Unheard"):
            await messenger.ask(Unheard())
        with pytest.raises(NoHandler, match="UnheardNote"):
            messenger.tell(UnheardNote())
        with pytest.raises(NoHandler, match="UnheardStream"):
            await anext(messenger.stream(UnheardStream()))
        assert await messenger.ask(Double(number=1)) == 2


async def test_what_a_role_does_not_list_it_may_not_send(opened: Opened) -> None:
    async with opened(Sneaky, Doubler, Counter_, Stage) as messenger:
        for how, message in (("ask", "Double"), ("stream", "Counting"), ("tell", "Mark")):
            with pytest.raises(NoHandler, match=rf"Sneaky sends {message} without listing it: add it to Sneaky\.asks"):
                await messenger.ask(Sneak(how=how))


# -- deadlines and cancelling ------------------------------------------------------------------------------------------


class Wait(Request[int], frozen=True):
    """Wait for ever."""


class WaitThere(Request[int], frozen=True):
    """Have another role wait for ever."""


class Patient(Role):
    asks = (Mark, Marked)

    def __init__(self, context: Context, messenger: Any) -> None:
        super().__init__(context, messenger)
        self._times = 0

    async def wait(self, _: Wait) -> int:
        self._times += 1
        number = self._times
        await self.ask(Mark(name=f"started {number}"))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.tell(Mark(name=f"cancelled {number}"))
            raise
        return 1


class Impatient(Role):
    asks = (Wait,)

    async def wait_there(self, _: WaitThere) -> int:
        return await self.ask(Wait())


@also_on_ray
async def test_a_deadline_that_passes_cancels_the_callee_also_behind_another(opened: Opened) -> None:
    waits: Sequence[Request[int]] = (Wait(), WaitThere())
    async with opened(Impatient, Patient, Stage) as messenger:
        for wait in waits:
            with pytest.raises(DeadlinePassed) as raised:
                await messenger.ask(wait, timeout_s=TINY_S)
            assert raised.value.args == (type(wait).__name__, TINY_S)
            for started in [mark for mark in await messenger.ask(Marks()) if mark.startswith("started")]:
                await messenger.ask(Marked(name=f"cancelled {started.rpartition(' ')[2]}"))


async def test_cancelling_the_asker_cancels_the_callee_also_behind_another(opened: Opened) -> None:
    waits: Sequence[Request[int]] = (Wait(), WaitThere())
    async with opened(Impatient, Patient, Stage) as messenger:
        for number, wait in enumerate(waits, 1):
            asking = asyncio.create_task(messenger.ask(wait))
            await messenger.ask(Marked(name=f"started {number}"))
            assert f"cancelled {number}" not in await messenger.ask(Marks())
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await messenger.ask(Marked(name=f"cancelled {number}"))


class Turns(Request[None], frozen=True):
    turns: int


class TurnsItems(Stream[int], frozen=True):
    turns: int


class Tardy(Role):
    async def late(self, request: Turns) -> None:
        for _ in range(request.turns):
            await asyncio.sleep(0)

    async def late_items(self, request: TurnsItems) -> AsyncIterator[int]:
        for number in range(3):
            yield number
        await self.late(Turns(turns=request.turns))


async def test_a_cancel_that_meets_the_reply_on_its_way_waits_for_no_other(opened: Opened) -> None:
    async def cancel_later(messenger: RoleMessenger, other: asyncio.Task[None]) -> None:
        await messenger.ask(Turns(turns=0))
        other.cancel()

    async with opened(Tardy) as messenger:
        for turns in range(10):
            other = asyncio.create_task(messenger.ask(Turns(turns=turns)))
            cancelling = asyncio.create_task(cancel_later(messenger, other))
            await asyncio.wait([cancelling, other], timeout=ROBUST_S)
            assert cancelling.done(), turns
            assert other.done(), turns


# -- streams -----------------------------------------------------------------------------------------------------------


class Counting(Stream[int], frozen=True):
    upto: int


class Torn(Stream[int], frozen=True):
    ours: bool


class Lasting(Stream[int], frozen=True):
    """One item, then nothing for ever."""


class Torrent(Stream[int], frozen=True):
    """Very many items without a pause."""


class Made(Request[int], frozen=True):
    """How many were made, once the torrent has ended."""


TORRENT = 20_000


class Counter_(Role):  # noqa: N801 - collections has the other
    asks = (Mark,)

    def __init__(self, context: Context, messenger: Any) -> None:
        super().__init__(context, messenger)
        self._made = 0
        self._ended = asyncio.Event()

    async def counting(self, request: Counting) -> AsyncIterator[int]:
        for number in range(request.upto):
            yield number

    async def torn(self, request: Torn) -> AsyncIterator[int]:
        yield 1
        yield 2
        raise Stopped("enough") if request.ours else ValueError("no third")

    async def lasting(self, _: Lasting) -> AsyncIterator[int]:
        try:
            yield 0
            await asyncio.Event().wait()
        finally:
            self.tell(Mark(name="closed"))

    async def torrent(self, _: Torrent) -> AsyncIterator[int]:
        try:
            while self._made < TORRENT:
                self._made += 1
                yield self._made
        finally:
            self._ended.set()

    async def made(self, _: Made) -> int:
        await self._ended.wait()
        return self._made


@also_on_ray
async def test_the_items_of_a_stream_arrive_in_order_and_end(opened: Opened) -> None:
    async with opened(Counter_, Stage) as messenger:
        for upto in (0, 1, 1000):
            for timeout_s in (None, ROBUST_S):
                assert await read(messenger.stream(Counting(upto=upto), timeout_s=timeout_s)) == list(range(upto))


@pytest.mark.slow
async def test_a_deadline_bounds_the_wait_for_each_item_and_ends_the_callee(opened: Opened) -> None:
    async with opened(Counter_, Stage) as messenger:
        items = messenger.stream(Lasting(), timeout_s=SOON_S)
        assert await anext(items) == 0
        with pytest.raises(DeadlinePassed) as raised:
            await anext(items)
        assert raised.value.args == ("Lasting", SOON_S)
        await messenger.ask(Marked(name="closed"))


async def test_an_error_in_the_middle_of_a_stream_comes_after_the_items_before_it(opened: Opened) -> None:
    async with opened(Counter_, Stage) as messenger:
        for ours in (True, False):
            items: list[int] = []
            with pytest.raises(Stopped if ours else RoleFailed) as raised:
                await read(messenger.stream(Torn(ours=ours)), items)
            assert items == [1, 2]
            assert ("enough" if ours else "Torn: ValueError: no third") in str(raised.value)


async def test_a_stream_that_never_pauses_is_stopped_by_closing_it(opened: Opened) -> None:
    async with opened(Counter_, Stage) as messenger:
        async with aclosing(messenger.stream(Torrent())) as items:
            assert await anext(items) == 1
        assert await messenger.ask(Made()) < TORRENT


# -- errors ------------------------------------------------------------------------------------------------------------


class Vanished(MicroagentsError):
    def __init__(self, what: str, times: int, share: float | None) -> None:
        super().__init__(what, times, share)


OURS: Sequence[MicroagentsError] = (
    Undecided("0/step/17", 100, "3 x left"),
    ModelUnavailable("busy", "slow down", 429, 1.5, "req-1"),
    ModelUnavailable("refused", "no such model"),
    DeadlinePassed("Wait", 2.5),
    Stopped("the budget is spent"),
    RoleFailed("Inner/0", "Ask", "KeyError: 'x'"),
    Vanished("the file", 2, None),
    MicroagentsError(),
)


class Raise(Request[int], frozen=True):
    which: int


class Fail(Request[int], frozen=True):
    """Raise something else."""


class AwkwardError(MicroagentsError):
    """One whose argument is hard to send."""


AWKWARD: Sequence[object] = (object(), ("a", ["tuple"]), 2**70, "\udc80 from a file")


class RaiseAwkward(Request[int], frozen=True):
    which: int


class Misfit(Request[int], frozen=True):
    """A reply of the wrong type."""


class MisfitNothing(Request[None], frozen=True):
    """A reply where none belongs."""


class MisfitStruct(Request[Inner], frozen=True):
    """A struct of another class."""


class MisfitItems(Stream[int], frozen=True):
    """An item of the wrong type."""


class Failing(Role):
    async def ours(self, request: Raise) -> int:
        raise OURS[request.which]

    async def awkward(self, request: RaiseAwkward) -> int:
        raise AwkwardError(AWKWARD[request.which])

    async def fail(self, _: Fail) -> int:
        raise ValueError("seven is no colour")

    async def misfit(self, _: Misfit) -> int:
        return "one"  # type: ignore[return-value]

    async def misfit_nothing(self, _: MisfitNothing) -> None:
        return 1  # type: ignore[return-value]

    async def misfit_struct(self, _: MisfitStruct) -> Inner:
        return Other(name="x")  # type: ignore[return-value]

    async def misfit_items(self, _: MisfitItems) -> AsyncIterator[int]:
        yield 1
        yield "two"  # type: ignore[misc]


@quick_on_ray
async def test_what_a_handler_raises_names_the_role_the_message_and_the_cause(opened: Opened) -> None:
    async with opened(Failing) as messenger:
        with pytest.raises(RoleFailed) as raised:
            await messenger.ask(Fail())
        role, message, cause, traceback = raised.value.args
        assert role.startswith("Failing")
        assert message == "Fail"
        assert cause.startswith("ValueError: seven is no colour in Failing.fail (test_runtime.py:")
        assert "in fail\n    raise ValueError" in traceback
        with pytest.raises(RoleFailed):
            await messenger.ask(Fail())


async def test_our_own_errors_arrive_as_themselves_with_what_they_hold(opened: Opened) -> None:
    async with opened(Failing) as messenger:
        for which, sent in enumerate(OURS):
            with pytest.raises(MicroagentsError) as raised:
                await messenger.ask(Raise(which=which))
            assert type(raised.value) is type(sent)
            assert raised.value.args == sent.args
            assert str(raised.value) == str(sent)


async def test_an_error_whose_arguments_cannot_travel_arrives_all_the_same(opened: Opened) -> None:
    async with opened(Failing, Doubler) as messenger:
        for which in range(len(AWKWARD)):
            with pytest.raises(AwkwardError):
                await messenger.ask(RaiseAwkward(which=which), timeout_s=ROBUST_S)
            assert await messenger.ask(Double(number=1), timeout_s=ROBUST_S) == 2


async def test_a_reply_of_the_wrong_type_is_a_failure_of_the_role(opened: Opened) -> None:
    misfits: Sequence[Request[Any]] = (Misfit(), MisfitNothing(), MisfitStruct())
    async with opened(Failing) as messenger:
        for misfit in misfits:
            with pytest.raises(RoleFailed) as raised:
                await messenger.ask(misfit)
            assert raised.value.args[0].startswith("Failing")
            assert raised.value.args[1] == type(misfit).__name__
        with pytest.raises(RoleFailed, match="Failing"):
            await read(messenger.stream(MisfitItems()))


# -- telling -----------------------------------------------------------------------------------------------------------


class Jot(Request[None], frozen=True):
    text: str
    after: str = ""


class Written(Request[list[str]], frozen=True):
    """What is written down."""


class Spill(Request[None], frozen=True):
    """Fail to write something down."""


class Diary(Role):
    asks = (Mark, Marked)

    def __init__(self, context: Context, messenger: Any) -> None:
        super().__init__(context, messenger)
        self._written: list[str] = []

    async def jot(self, request: Jot) -> None:
        if request.after:
            await self.ask(Mark(name=f"{request.text} begun"))
            await self.ask(Marked(name=request.after))
        self._written.append(request.text)

    async def spill(self, _: Spill) -> None:
        await self.ask(Mark(name="spilt"))
        raise ValueError("no ink")

    async def written(self, _: Written) -> list[str]:
        return self._written


@also_on_ray
async def test_what_one_sender_tells_keeps_its_order_and_is_handled_before_what_it_then_asks(opened: Opened) -> None:
    async with opened(Diary, Stage) as messenger:
        for number in range(100):
            messenger.tell(Jot(text=f"{number}"))
        assert await messenger.ask(Written()) == [f"{number}" for number in range(100)]


@pytest.mark.parametrize("tells", [False, True])
async def test_a_told_message_that_failed_a_while_ago_shows_at_the_next_tell_or_ask(
    opened: Opened, *, tells: bool
) -> None:
    async with opened(Diary, Stage) as messenger:
        messenger.tell(Spill())
        await messenger.ask(Marked(name="spilt"))
        await settled(messenger)
        with pytest.raises(RoleFailed, match="no ink"):  # noqa: PT012 - the first where nothing lies between
            if tells:
                messenger.tell(Jot(text="a"))
            await messenger.ask(Written(), timeout_s=ROBUST_S)


async def test_what_is_sent_behind_a_message_to_a_role_that_failed_arrives(opened: Opened) -> None:
    async with opened(Diary, Doubler, Stage) as messenger:
        messenger.tell(Spill())
        await messenger.ask(Marked(name="spilt"))
        await settled(messenger)
        with suppress(RoleFailed):  # where nothing lies between, the teller is told
            messenger.tell(Jot(text="a"))
        assert await messenger.ask(Double(number=3), timeout_s=ROBUST_S) == 6


# -- concurrency -------------------------------------------------------------------------------------------------------


class Enter(Request[None], frozen=True):
    """Come in, look who is there, go."""


class EnterItems(Stream[int], frozen=True):
    """The same while items are read."""


class MostInside(Request[int], frozen=True):
    """How many were inside at most."""


class Room(Role):
    asks = (Turn,)
    concurrency: ClassVar[int | None] = 1

    def __init__(self, context: Context, messenger: Any) -> None:
        super().__init__(context, messenger)
        self._inside = self._most = 0

    async def enter(self, _: Enter) -> None:
        self._inside += 1
        self._most = max(self._most, self._inside)
        try:
            for _turn in range(3):
                await self.ask(Turn())
        finally:
            self._inside -= 1

    async def enter_items(self, _: EnterItems) -> AsyncIterator[int]:
        await self.enter(Enter())
        yield 1

    async def most_inside(self, _: MostInside) -> int:
        return self._most


async def test_streams_and_told_messages_count_for_the_bound(opened: Opened) -> None:
    async with opened(Room, Stage) as messenger:
        await asyncio.gather(
            *(read(messenger.stream(EnterItems())) for _ in range(5)), *(messenger.ask(Enter()) for _ in range(5))
        )
        for _ in range(2):
            messenger.tell(Enter())
            await settled(messenger)
            await asyncio.gather(*(messenger.ask(Enter()) for _ in range(3)))
        assert await messenger.ask(MostInside()) == 1


# -- replicas ----------------------------------------------------------------------------------------------------------


class Where(Request[str], frozen=True):
    route_by = "key"
    key: tuple[str, int]


class WhereTold(Request[None], frozen=True):
    route_by = "key"
    key: tuple[str, int]


class WhereItems(Stream[str], frozen=True):
    route_by = "key"
    key: tuple[str, int]


class Anywhere(Request[str], frozen=True):
    """Which replica: any."""


class WhereThere(Request[str], frozen=True):
    key: tuple[str, int]


class Replica(Role):
    def __init__(self, context: Context, messenger: Any) -> None:
        super().__init__(context, messenger)
        self._name = uuid4().hex
        self._told: list[tuple[str, int]] = []

    async def where(self, request: Where) -> str:
        return f"{self._name}{' told' * (request.key in self._told)}"

    async def where_told(self, request: WhereTold) -> None:
        self._told.append(request.key)

    async def where_items(self, _: WhereItems) -> AsyncIterator[str]:
        yield self._name

    async def anywhere(self, _: Anywhere) -> str:
        return self._name


class AskingWhere(Role):
    asks = (Where,)

    async def where_there(self, request: WhereThere) -> str:
        return await self.ask(Where(key=request.key))


KEYS = [(f"0/step/{number}", number % 3) for number in range(200)]


async def test_equal_keys_reach_one_replica_whoever_asks_and_however(opened: Opened) -> None:
    async with opened(AskingWhere, Deployment(role=Replica, num_replicas=4)) as messenger:
        for key in KEYS[:20]:
            home = await messenger.ask(Where(key=key))
            assert await messenger.ask(Where(key=key)) == home
            assert await messenger.ask(WhereThere(key=key)) == home
            assert await read(messenger.stream(WhereItems(key=key))) == [home]
            messenger.tell(WhereTold(key=key))
            assert await messenger.ask(Where(key=key)) == f"{home} told"


async def test_the_messages_of_a_lane_stay_in_it(opened: Opened) -> None:
    async with opened(
        Deployment(role=AskingWhere, num_replicas=2), Deployment(role=Replica, num_replicas=4)
    ) as messenger:
        homes = [{await messenger.ask_replica(lane, WhereThere(key=key)) for key in KEYS[:40]} for lane in (0, 1)]
    assert [len(each) for each in homes] == [2, 2], "each lane has two of the four"
    assert not homes[0] & homes[1]


# -- starting and stopping ---------------------------------------------------------------------------------------------


class Chronicled(Role):
    """Writes into a file when it starts and stops, since a file outlives every process."""

    fails_to: ClassVar[str] = ""

    def _write(self, what: str) -> None:
        with Path(self.context.options["file"]).open("a") as file:
            file.write(f"{type(self).__name__} {what}\n")

    async def start(self) -> None:
        self._write("starts")

    async def stop(self) -> None:
        self._write("stops")


class First(Chronicled):
    """The first to start."""


class Second(Chronicled):
    """The second."""


class Third(Chronicled):
    """The third."""


class NeverStarts(Chronicled):
    async def start(self) -> None:
        raise ValueError("no port")


class NotMeantToStart(Chronicled):
    """Refuses to start, for a reason that is the user's to mend."""

    async def start(self) -> None:
        raise InvalidUsage("there is no model of that name")


class NeverBuilt(Chronicled):
    def __init__(self, context: Context, messenger: Any) -> None:
        super().__init__(context, messenger)
        raise KeyError("colour")


class StopsBadly(Chronicled):
    async def stop(self) -> None:
        await super().stop()
        raise ValueError("still busy")


class NeverStops(Chronicled):
    async def stop(self) -> None:
        await super().stop()
        await asyncio.Event().wait()


class StopsWhatWasCancelled(Chronicled):
    """Waits for a task of its own that was cancelled, when it stops."""

    async def stop(self) -> None:
        await super().stop()
        own = asyncio.get_running_loop().create_future()
        own.cancel()
        await own


@pytest.fixture
def chronicle(tmp_path: Path) -> Path:
    return tmp_path / "chronicle"


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def chronicled(file: Path, *roles: type[Role]) -> list[Deployment]:
    return [Deployment(role=role, options={"file": str(file)}) for role in roles]


@also_on_ray
@pytest.mark.parametrize(
    ("role", "error", "sentence"),
    [
        (NeverStarts, RoleFailed, r"role NeverStarts\S* failed on start: ValueError: no port"),
        (NotMeantToStart, InvalidUsage, "^there is no model of that name$"),
    ],
)
async def test_a_start_that_fails_is_named_and_stops_that_role_and_those_before_it(
    opened: Opened, chronicle: Path, role: type[Role], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        async with opened(*chronicled(chronicle, First, Second, role, Third)):
            pytest.fail("it must not open")
    stopped = [f"{each} stops" for each in (role.__name__, "Second", "First")]
    assert lines(chronicle) == ["First starts", "Second starts", *stopped]


async def test_a_role_that_cannot_be_built_is_named(opened: Opened, chronicle: Path) -> None:
    with pytest.raises(RoleFailed, match=r"NeverBuilt\S* .*KeyError: 'colour'"):
        async with opened(*chronicled(chronicle, First, NeverBuilt)):
            pytest.fail("it must not open")


@also_on_ray
async def test_a_role_that_does_not_stop_keeps_no_other_from_stopping(
    opened: Opened, runtime: str, chronicle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_group, "STOP_S", TINY_S)  # nobody should wait 30 s for a test
    if runtime == "ray":  # the driver waits as long for the actor's answer, which takes more time
        monkeypatch.setattr("microagents.runtimes.ray.actor_group.STOP_S", 3 * SOON_S)
    with capture_logs() as logs:
        async with opened(*chronicled(chronicle, First, StopsBadly, NeverStops, StopsWhatWasCancelled, Third)):
            pass
    stopped = ["Third", "StopsWhatWasCancelled", "NeverStops", "StopsBadly", "First"]
    assert lines(chronicle)[5:] == [f"{role} stops" for role in stopped]
    assert [(log["log_level"], log["role"]) for log in logs] == [("warning", role) for role in stopped[1:4]]


# -- what travels ------------------------------------------------------------------------------------------------------


class Opaque(Request[int], frozen=True):
    content: Any


class OpaqueNote(Request[None], frozen=True):
    content: Any


class OpaqueItems(Stream[int], frozen=True):
    content: Any


class GiveBack(Request[Any], frozen=True):
    which: int


class GiveItems(Stream[Any], frozen=True):
    which: int


class Grow(Request[list[int]], frozen=True):
    numbers: list[int]


UNSENDABLE: Sequence[object] = (object(), 2**70, "\udc80", {1: "one", (2, 3): object()})


class Open(Role):
    def __init__(self, context: Context, messenger: Any) -> None:
        super().__init__(context, messenger)
        self._numbers: list[int] = []

    async def opaque(self, _: Opaque) -> int:
        return 1

    async def opaque_note(self, _: OpaqueNote) -> None: ...

    async def opaque_items(self, _: OpaqueItems) -> AsyncIterator[int]:
        yield 1

    async def give_back(self, request: GiveBack) -> Any:
        return UNSENDABLE[request.which]

    async def give_items(self, request: GiveItems) -> AsyncIterator[Any]:
        yield 1
        yield UNSENDABLE[request.which]

    async def grow(self, request: Grow) -> list[int]:
        request.numbers.append(len(request.numbers))
        self._numbers += [0]
        return self._numbers


@needs_encoding
async def test_a_message_that_cannot_travel_fails_where_it_is_sent(opened: Opened) -> None:
    async with opened(Open) as messenger:
        for content in UNSENDABLE:
            with pytest.raises(MicroagentsError, match="Opaque cannot travel"):
                await messenger.ask(Opaque(content=content))
            with pytest.raises(MicroagentsError, match="OpaqueNote cannot travel"):
                messenger.tell(OpaqueNote(content=content))
            with pytest.raises(MicroagentsError, match="OpaqueItems cannot travel"):
                await anext(messenger.stream(OpaqueItems(content=content)))
            assert await messenger.ask(Opaque(content=1), timeout_s=ROBUST_S) == 1


@needs_encoding
async def test_a_reply_that_cannot_travel_is_one_failure_of_the_role(opened: Opened) -> None:
    async with opened(Open) as messenger:
        for which in range(len(UNSENDABLE)):
            with pytest.raises(RoleFailed, match=r"^role Open\S* failed on \S*GiveBack: "):
                await messenger.ask(GiveBack(which=which), timeout_s=ROBUST_S)
            with pytest.raises(RoleFailed, match=r"^role Open\S* failed on \S*GiveItems: "):
                await read(messenger.stream(GiveItems(which=which), timeout_s=ROBUST_S))
            assert await messenger.ask(Opaque(content=1), timeout_s=ROBUST_S) == 1


@needs_encoding
async def test_nothing_is_shared_by_memory(opened: Opened) -> None:
    numbers = [7]
    async with opened(Open) as messenger:
        given = await messenger.ask(Grow(numbers=numbers))
        assert (numbers, given) == ([7], [0])
        given.append(1)
        assert await messenger.ask(Grow(numbers=numbers)) == [0, 0]


# -- one-way messages before a reply -----------------------------------------------------------------------------------------------


class Promised(Request[None], frozen=True):
    """Its reply says that the mark has been made."""

    replies_after_tells = True
    name: str


class Unpromised(Request[None], frozen=True):
    name: str


class Promiser(Role):
    asks = (Mark,)

    async def promised(self, request: Promised) -> None:
        self.tell(Mark(name=request.name))

    async def unpromised(self, request: Unpromised) -> None:
        self.tell(Mark(name=request.name))


def test_messages_that_soon_follow_another_linger_and_a_reply_that_rests_on_them_comes_after_them() -> None:
    async def marks_at_the_replies() -> tuple[list[str], ...]:
        names = ("keeper", "worker", "caller")
        keeper, worker, caller = everyone = [Dispatcher(name) for name in names]
        for one in everyone:
            for name, other in zip(names, everyone, strict=True):
                link = LoopLink(names[everyone.index(one)], other)
                link.linger_s = 0.2 if other is keeper else 0.0
                one.connect(name, link)
        context = Context(run_id="suite", seed=0, tasks=[], strategy=Maker())
        marks, asks = RoleMessenger("Promiser/0"), RoleMessenger("caller")
        stage = Stage(context, marks)
        await stage.start()
        keeper.host("Stage/0", stage)
        worker.host("Promiser/0", Promiser(context, marks))
        marks.connect({Mark: Route([worker.ref("Stage/0", "keeper")], None)})
        promiser = Route([caller.ref("Promiser/0", "worker")], None)
        asks.connect({Promised: promiser, Unpromised: promiser})

        async def marked() -> list[str]:
            return list(await stage.marks(Marks()))

        await asyncio.sleep(1.0)
        await asks.ask(Unpromised(name="alone"))
        await asyncio.sleep(0.05)
        alone = await marked()
        await asks.ask(Unpromised(name="soon after"))
        await asyncio.sleep(0.05)
        soon_after = await marked()
        await asks.ask(Promised(name="before its reply"))
        return alone, soon_after, await marked()

    assert run_virtual(marks_at_the_replies(), seed=0) == (
        ["alone"],
        ["alone"],
        ["alone", "soon after", "before its reply"],
    )
