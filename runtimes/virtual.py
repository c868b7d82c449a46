"""Virtual time: an event loop whose clock jumps from timer to timer, and which steps its tasks in an order that a seed decides.

The engine runs on it unchanged, so that a week of waiting takes milliseconds and an interleaving is replayed from its seed. Operations
outside the process's own memory are refused: threads, sockets, subprocesses and signals. The clock moves only when no callback is ready: a
coroutine that polls the time with ``sleep(0)`` polls for ever.
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

from microagents.base.errors import InvalidUsage, MicroagentsError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

VIRTUAL = frozenset(
    [
        *(
            "call_at",
            "call_exception_handler",
            "call_later",
            "call_soon",
            "call_soon_threadsafe",
            "close",
            "create_future",
        ),
        *("create_task", "default_exception_handler", "get_debug", "get_exception_handler", "get_task_factory"),
        *("is_closed", "is_running", "run_forever", "run_until_complete", "set_debug", "set_exception_handler"),
        *("set_task_factory", "shutdown_asyncgens", "shutdown_default_executor", "stop", "time"),
    ]
)
"""The methods of an event loop that need nothing outside the process; all other methods of asyncio's loops are refused."""


class NotVirtual(MicroagentsError):
    """Code in virtual time called a method that needs threads, files or the network; args: the call."""

    def __str__(self) -> str:
        (called,) = self.args
        return f"{called} was called in virtual time, where only memory may be used; nothing was started; simulate it, or use asyncio.run"


class Deadlocked(MicroagentsError):
    """All tasks wait, no callback is ready and no timer is set; args: virtual time in seconds, one line per task in order of creation."""

    def __str__(self) -> str:
        time_s, waiting = self.args
        return "\n  ".join(
            [f"nothing is ready and no timer is set at virtual time {time_s!r} s, and these tasks wait:", *waiting]
        )


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time, which starts at 0.0.

    Args:
        seed: decides the order in which the tasks that are ready in one iteration are stepped. All other callbacks keep their positions in
            the iteration. None: tasks are stepped in the order in which they became ready, as in asyncio's own loop.
    """

    has_threads = False
    # The base class has these; its type stubs do not know them.
    _check_closed: Callable[[], None]
    _ready: deque[Any]
    _stopping: bool

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._scheduled: list[tuple[float, int, Any]] = []
        # Open generators are closed in the order of iteration, and the base class's WeakSet iterates in the order of memory addresses.
        self._asyncgens = _OrderedWeakSet()
        # The base class holds tasks weakly, so the garbage collector would decide when a task without another reference vanishes.
        self._tasks: dict[asyncio.Task[Any], tuple[int, str]] = {}
        """The tasks that are not done: number and name in the trace, in the order of creation."""
        self._task_numbers = count(1)
        self._timer_numbers = count(1)
        self._timers_cancelled = 0
        """Number of cancelled timers that are still in the heap."""
        self._thread = threading.get_ident()
        self._now = 0.0
        self._random = None if seed is None else Random(seed)  # noqa: S311 - seeded on purpose
        self._trace = sha256()
        self._untraced: list[str] = []
        """Lines of the trace that are not hashed yet."""

    @property
    def trace_sha256(self) -> str:
        """SHA-256 of all iterations so far: the virtual time, then the name of each callback, or of a task its coroutine and number."""
        self._hash_trace()
        return self._trace.hexdigest()

    @property
    def pending(self) -> list[asyncio.Task[Any]]:
        """Tasks that are not done, in the order of their creation."""
        return [task for task in self._tasks if not task.done()]

    def time(self) -> float:
        """Return the virtual seconds since the loop was created."""
        return self._now

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back at a virtual time, in seconds; callbacks with equal times run in the order of these calls."""
        self._check_closed()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._scheduled, (when, next(self._timer_numbers), timer))
        return timer

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call back in the next iteration; refused for other threads, since their timing is real."""
        if threading.get_ident() != self._thread:
            raise NotVirtual("call_soon_threadsafe() from another thread")
        return self.call_soon(callback, *args, context=context)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Run a coroutine as a task; without a given name the task is named by its number on this loop."""
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        if not task.done():  # an eager task may have ended already
            number, _ = self._numbered(task)
            if options.get("name") is None:
                task.set_name(f"Task-{number}")
        return task

    def _run_once(self) -> None:
        """Run the callbacks that are ready at the beginning of one iteration. The base class calls this in a loop."""
        self._hash_trace()
        self._take_due_timers()
        ready, trace = self._ready, self._untraced
        tasks = [_stepped(handle._callback) for handle in ready]  # noqa: SLF001 - only the callback knows its task
        if self._random is not None and len(tasks) > 1:
            tasks = self._shuffled(tasks, self._random)
        trace.append(repr(self._now))
        for task in tasks:
            handle = ready.popleft()
            if not handle.cancelled():
                trace.append(_name(handle._callback) if task is None else self._numbered(task)[1])  # noqa: SLF001 - as above
                handle._run()  # noqa: SLF001 - a loop calls it
                if task is not None and task.done():
                    del self._tasks[task]

    def _hash_trace(self) -> None:
        self._trace.update("\n".join([*self._untraced, ""]).encode())
        self._untraced.clear()

    def _take_due_timers(self) -> None:
        """Make due timers ready; if no callback is ready, move the clock to the next timer first."""
        timers = self._scheduled
        if self._timers_cancelled * 2 > len(timers):  # else cancelled timeouts fill the memory until their time
            timers[:] = [entry for entry in timers if not entry[2].cancelled()]
            heapify(timers)
            self._timers_cancelled = 0
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not self._ready and not self._stopping:
            if not timers or timers[0][0] == inf:
                waiting = [f"{task.get_name()}: {_where(task)}" for task in self.pending]
                raise Deadlocked(self._now, tuple(waiting))
            self._now = max(self._now, timers[0][0])
        while timers and not timers[0][0] > self._now:  # as in asyncio, NaN is due
            self._ready.append(heappop(timers)[2])

    def _timer_handle_cancelled(self, _: asyncio.TimerHandle) -> None:
        self._timers_cancelled += 1

    def _shuffled(self, tasks: list[asyncio.Task[Any] | None], random: Random) -> list[asyncio.Task[Any] | None]:
        """Shuffle the steps of tasks among their positions in the iteration: for each ready callback the task that it steps, or None."""
        steps = [(self._numbered(task)[0], position) for position, task in enumerate(tasks) if task is not None]
        # Sorted by number before the draw: asyncio.TaskGroup cancels the tasks of a set, which become ready in the order of addresses.
        drawn = sorted(sorted(steps), key=lambda _: random.random())
        origins = list(range(len(tasks)))
        for (_, position), (_, origin) in zip(steps, drawn, strict=True):
            origins[position] = origin
        iteration = list(self._ready)
        self._ready.clear()
        self._ready.extend(iteration[origin] for origin in origins)
        return [tasks[origin] for origin in origins]

    def _numbered(self, task: asyncio.Task[Any]) -> tuple[int, str]:
        """Number a task, and name it in the trace; a task created without the loop's `create_task` gets both here."""
        found = self._tasks.get(task)
        if found is None:
            found = self._tasks[task] = (number := next(self._task_numbers), f"{_name(task.get_coro())}#{number}")
        return found


def run_virtual(coroutine: Coroutine[Any, Any, T], *, seed: int | None = None) -> T:
    """Run a coroutine in virtual time, as `asyncio.run` does in real time.

    At the end remaining tasks are cancelled in the order of their creation, and open async generators are closed.

    Args:
        coroutine: the main coroutine.
        seed: decides the order of tasks; see `VirtualLoop`.

    Raises:
        Deadlocked: the coroutine waits, and no callback or timer is left that could wake it.
        InvalidUsage: an event loop runs already in this thread.
    """
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 - as asyncio.run does
        coroutine.close()
        raise InvalidUsage(
            "run_virtual() cannot be called while an event loop runs; await the coroutine, or call this from plain code"
        )
    with closing(VirtualLoop(seed)) as loop:
        try:
            return loop.run_until_complete(coroutine)
        finally:
            loop.run_until_complete(_shut_down(loop, loop.pending))


async def _shut_down(loop: VirtualLoop, left: list[asyncio.Task[Any]]) -> None:
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    for task in left:
        if not task.cancelled() and (error := task.exception()) is not None:
            loop.call_exception_handler(
                {"message": "a task failed while it was cancelled", "exception": error, "task": task}
            )
    await loop.shutdown_asyncgens()


def _stepped(callback: Any) -> asyncio.Task[Any] | None:
    """Return the task that a callback steps, or None for any other callback.

    A step is bound to its task under a name that the task has no public method for, in asyncio's C and its Python version alike.
    """
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task) and not hasattr(owner, getattr(callback, "__name__", "")):
        return owner
    return None


def _name(called: Any) -> str:
    if isinstance(called, partial):
        return _name(called.func)
    return str(getattr(called, "__qualname__", None) or type(called).__qualname__)


def _where(task: asyncio.Task[Any]) -> str:
    """Describe the chain of coroutines in which a task waits, outermost first, each with its file and line."""
    frames = []
    awaiting: Any = task.get_coro()
    while (frame := getattr(awaiting, "cr_frame", None)) is not None:
        frames.append(f"{_name(awaiting)} ({frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno})")
        awaiting = awaiting.cr_await
    return " > ".join(frames) or _name(awaiting)


class _OrderedWeakSet(WeakKeyDictionary[Any, None]):
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
