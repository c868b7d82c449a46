"""Virtual time: an event loop whose clock jumps from timer to timer, and which steps its tasks in an order that a seed decides.

The real engine runs on it unchanged, so that a week of waiting takes milliseconds and an interleaving is replayed from its seed. Nothing
real may happen in virtual time: threads, sockets, subprocesses and signals are refused. The clock moves only when nothing is ready: a
coroutine that polls with ``sleep(0)`` until some time has come polls forever.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import closing
from contextvars import Context
from functools import partial, partialmethod
from hashlib import sha256
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Any, NoReturn, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from microagents.errors import InvalidUsage, MicroagentsError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

VIRTUAL = frozenset(
    {"call_at", "call_exception_handler", "call_later", "call_soon", "call_soon_threadsafe", "close", "create_future", "create_task"}
    | {"default_exception_handler", "get_debug", "get_exception_handler", "get_task_factory", "is_closed", "is_running", "run_forever"}
    | {"run_until_complete", "set_debug", "set_exception_handler", "set_task_factory", "shutdown_asyncgens", "shutdown_default_executor"}
    | {"stop", "time"}
)
"""What an event loop can do without touching the world; everything else that asyncio knows, now or later, is refused."""


class NotVirtual(MicroagentsError):
    """Code in virtual time reached for the real world; args: what it called."""

    def __str__(self) -> str:
        (called,) = self.args
        return f"{called} was called in virtual time, where nothing real may happen; nothing was started; simulate it, or use asyncio.run"


class Deadlocked(MicroagentsError):
    """Tasks wait and nothing will ever wake them; args: virtual time in seconds, a line for each task, in the order of their creation."""

    def __str__(self) -> str:
        time_s, waiting = self.args
        return "\n  ".join([f"nothing is ready and no timer is set at virtual time {time_s!r} s, and these tasks wait:", *waiting])


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time, which starts at 0.0.

    Args:
        seed: decides in which order the tasks that are ready in one turn are stepped. All other callbacks keep their order and their
            places. None: first come, first served, as in asyncio's own loop.
    """

    # The base class has these; its type stubs do not know them.
    _check_closed: Callable[[], None]
    _ready: deque[Any]
    _stopping: bool

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._scheduled: list[tuple[float, int, Any]] = []
        # What is left here is closed in the order of iteration, which in the base class's WeakSet is that of addresses.
        self._asyncgens = _InOrder()
        # The base class holds tasks weakly: when a forgotten one vanishes would depend on the garbage collector.
        self._tasks: dict[asyncio.Task[Any], tuple[int, str]] = {}
        self._task_numbers = count(1)
        self._timer_numbers = count(1)
        self._timers_cancelled = 0
        self._thread = threading.get_ident()
        self._now = 0.0
        self._random = None if seed is None else Random(seed)  # noqa: S311 - seeded on purpose
        self._trace = sha256()
        self._untraced: list[str] = []

    @property
    def trace_sha256(self) -> str:
        """SHA-256 of what has run so far: each turn's virtual time, then the name of each callback, or a task's coroutine and number."""
        self._take_in_trace()
        return self._trace.hexdigest()

    @property
    def pending(self) -> list[asyncio.Task[Any]]:
        """The tasks that are not done, in the order of their creation."""
        return [task for task in self._tasks if not task.done()]

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def call_at(self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.TimerHandle:
        """Call back at a virtual time; equal times in the order of these calls."""
        self._check_closed()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._scheduled, (when, next(self._timer_numbers), timer))
        return timer

    def call_soon_threadsafe(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.Handle:
        """Call back in the next turn; only from the loop's own thread, after all."""
        if threading.get_ident() != self._thread:
            raise NotVirtual("call_soon_threadsafe() from another thread")
        return self.call_soon(callback, *args, context=context)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Run a coroutine as a task, called after its number on this loop unless it is given a name."""
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        if not task.done():  # an eager one may be
            number, _ = self._numbered(task)
            if options.get("name") is None:
                task.set_name(f"Task-{number}")
        return task

    def _run_once(self) -> None:
        """One turn: what is ready when it begins is run. The base class calls it over and over."""
        self._take_in_trace()
        self._take_due_timers()
        ready, trace = self._ready, self._untraced
        tasks = [_stepped(handle._callback) for handle in ready]  # noqa: SLF001 - asyncio itself looks there for the task
        if self._random is not None and len(tasks) > 1:
            tasks = self._shuffled(tasks, self._random)
        trace.append(repr(self._now))
        for task in tasks:
            handle = ready.popleft()
            if not handle.cancelled():
                trace.append(_name(handle._callback) if task is None else self._numbered(task)[1])  # noqa: SLF001 - as above
                handle._run()  # noqa: SLF001 - it is a loop's to call
                if task is not None and task.done():
                    del self._tasks[task]

    def _take_in_trace(self) -> None:
        self._trace.update("\n".join([*self._untraced, ""]).encode())
        self._untraced.clear()

    def _take_due_timers(self) -> None:
        """Make due timers ready; where nothing is ready, jump to the next one first."""
        timers = self._scheduled
        if self._timers_cancelled * 2 > len(timers):  # timeouts that were met must not fill the memory until their time
            timers[:] = [entry for entry in timers if not entry[2].cancelled()]
            heapify(timers)
            self._timers_cancelled = 0
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not self._ready and not self._stopping:
            if not timers or timers[0][0] == inf:
                raise Deadlocked(self._now, tuple(f"{task.get_name()}: {_where(task)}" for task in self.pending))
            self._now = max(self._now, timers[0][0])
        while timers and not timers[0][0] > self._now:  # as in asyncio, NaN is due
            self._ready.append(heappop(timers)[2])

    def _timer_handle_cancelled(self, _: asyncio.TimerHandle) -> None:
        self._timers_cancelled += 1

    def _shuffled(self, tasks: list[asyncio.Task[Any] | None], random: Random) -> list[asyncio.Task[Any] | None]:
        """Put the steps of tasks into another order, each in the place of another one; gives the tasks of all that is ready."""
        steps = [(self._numbered(task)[0], place) for place, task in enumerate(tasks) if task is not None]
        # By number first: who cancels the tasks of a set, as asyncio.TaskGroup does, makes them ready in the order of addresses.
        drawn = sorted(sorted(steps), key=lambda _: random.random())
        origins = list(range(len(tasks)))
        for (_, place), (_, origin) in zip(steps, drawn, strict=True):
            origins[place] = origin
        turn = list(self._ready)
        self._ready.clear()
        self._ready.extend(turn[origin] for origin in origins)
        return [tasks[origin] for origin in origins]

    def _numbered(self, task: asyncio.Task[Any]) -> tuple[int, str]:
        """A task's number and its name in the trace; also of one that was made without the loop's `create_task`."""
        found = self._tasks.get(task)
        if found is None:
            found = self._tasks[task] = (number := next(self._task_numbers), f"{_name(task.get_coro())}#{number}")
        return found


def run_virtual(coroutine: Coroutine[Any, Any, T], *, seed: int | None = None) -> T:
    """`asyncio.run` in virtual time: run a coroutine, then cancel what is left in the order of its creation and close async generators.

    Raises:
        Deadlocked: it waits and nothing will ever wake it.
        InvalidUsage: an event loop runs already in this thread.
    """
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 - as asyncio.run does
        coroutine.close()
        raise InvalidUsage("run_virtual() cannot be called while an event loop runs; await the coroutine, or call this from plain code")
    with closing(VirtualLoop(seed)) as loop:
        try:
            return loop.run_until_complete(coroutine)
        finally:
            loop.run_until_complete(_wind_up(loop, loop.pending))


async def _wind_up(loop: VirtualLoop, left: list[asyncio.Task[Any]]) -> None:
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    for task in left:
        if not task.cancelled() and (error := task.exception()) is not None:
            loop.call_exception_handler({"message": "a task failed while it was cancelled", "exception": error, "task": task})
    await loop.shutdown_asyncgens()


def _stepped(callback: Any) -> asyncio.Task[Any] | None:
    """The task that a callback steps: it is bound to the task, and the task has no method of that name, in C as in Python."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task) and not hasattr(owner, getattr(callback, "__name__", "")):
        return owner
    return None


def _name(called: Any) -> str:
    if isinstance(called, partial):
        return _name(called.func)
    return str(getattr(called, "__qualname__", None) or type(called).__qualname__)


def _where(task: asyncio.Task[Any]) -> str:
    """The coroutines that await one another, outermost first, each with its file and line."""
    places = []
    awaiting: Any = task.get_coro()
    while (frame := getattr(awaiting, "cr_frame", None)) is not None:
        places.append(f"{_name(awaiting)} ({frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno})")
        awaiting = awaiting.cr_await
    return " > ".join(places) or _name(awaiting)


class _InOrder(WeakKeyDictionary[Any, None]):
    """A weak set that iterates in the order of insertion."""

    def add(self, item: object) -> None:
        self[item] = None

    def discard(self, item: object) -> None:
        self.pop(item, None)


def _refuse(_: VirtualLoop, called: str, *_args: object, **_options: object) -> NoReturn:
    raise NotVirtual(f"{called}()")


for _each in vars(asyncio.AbstractEventLoop):
    if not _each.startswith("_") and _each not in VIRTUAL:
        setattr(VirtualLoop, _each, partialmethod(_refuse, _each))
