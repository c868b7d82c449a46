"""Calls of tools: of a function, in a thread where it may block, and of an MCP server. Every wait is bounded."""

from __future__ import annotations

import _thread
import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

from msgspec import Struct

from microagents.aio import is_cancelled, loop_has_threads, retrieve_exception
from microagents.tools.mcp_connections import KEY_NAME, RUN_NAME, McpConnections
from microagents.tools.observations import bounded, observation_of
from microagents.tools.tool import BadArguments, EffectKey, RunInput
from microagents.tools.toolbox import Toolbox
from microagents.user_code import described

T = TypeVar("T")


class Called(Struct, frozen=True, kw_only=True):
    """What came of one call."""

    outcome: Literal["done", "error", "unknown"]
    """`done`: it returned. `error`: it raised, or was refused. `unknown`: nothing was heard of it."""
    text: str
    """What it returned, or why not; bounded, with control characters shown as such."""


class LookedUp(Struct, frozen=True, kw_only=True):
    """What a tool says of an earlier call."""

    was_made: bool
    text: str = ""
    """What the call returned."""


class Tools:
    """Calls tools, and keeps the connections to their servers."""

    def __init__(self) -> None:
        self._connections = McpConnections()

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def call(
        self,
        toolbox: Toolbox,
        tool: str,
        arguments: Mapping[str, Any],
        key: EffectKey,
        run: RunInput,
        *,
        timeout_s: float,
        most_chars: int,
    ) -> Called:
        """Make one call.

        Args:
            toolbox: the tools.
            tool: its name.
            arguments: its arguments, as JSON-like values.
            key: the key of its effect.
            run: the run and the input that it is made for.
            timeout_s: time after which its outcome is unknown.
            most_chars: length of the observation.
        """
        function = toolbox.functions.get(tool)
        outcome: Literal["done", "error", "unknown"]
        if function is None:
            outcome, text = await self._connections.call(
                toolbox.server_of[tool], tool, arguments, {KEY_NAME: key, RUN_NAME: run}, timeout_s
            )
            text = bounded(text, most_chars)
        else:
            try:
                bound = function.bind(arguments, key, run)
                outcome, text = "done", observation_of(await _within(timeout_s, function.function, **bound), most_chars)
            except BadArguments as error:
                outcome, text = "error", bounded(str(error), most_chars)
            except TimeoutError:
                outcome, text = "unknown", f"no result within {timeout_s:g} s"
            except (Exception, asyncio.CancelledError, SystemExit) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                outcome, text = "error", bounded(described(error), most_chars)
        return Called(outcome=outcome, text=text)

    async def look_up(
        self, toolbox: Toolbox, tool: str, key: EffectKey, *, timeout_s: float, most_chars: int
    ) -> LookedUp | None:
        """Ask a tool what became of the call with this key; None where it does not answer."""
        lookup = toolbox.functions[tool].lookup
        assert lookup is not None
        try:
            found = await _within(timeout_s, lookup, key)
        except (Exception, asyncio.CancelledError, SystemExit) as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            return None
        return (
            LookedUp(was_made=False)
            if found is None
            else LookedUp(was_made=True, text=observation_of(found, most_chars))
        )


async def _within(timeout_s: float, function: Callable[..., Any], *given: object, **named: object) -> Any:
    """Call a function, plain or async, and wait for it at most so long.

    Raises:
        TimeoutError: it takes longer. An async one is cancelled; a plain one goes on in its thread, and is not waited for.
    """
    if inspect.iscoroutinefunction(function):
        call: asyncio.Future[Any] = asyncio.ensure_future(function(*given, **named))
    elif loop_has_threads():
        call = in_thread(partial(function, *given, **named))
    else:
        return function(*given, **named)
    done, _ = await asyncio.wait([call], timeout=timeout_s)
    if not done:
        call.cancel()
        raise TimeoutError
    return call.result()


def in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """Call a function in a thread of its own, which keeps no process alive: a call that hangs must not hang the end of the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(retrieve_exception)

    def resolve(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        try:
            ended: tuple[T | None, BaseException | None] = function(), None
        except BaseException as error:  # noqa: BLE001 - it reaches the waiter
            # A future takes no StopIteration, and one of a thread's own ends nothing here.
            ended = (
                None,
                error
                if isinstance(error, Exception) and not isinstance(error, StopIteration)
                else RuntimeError(repr(error)),
            )
        try:
            loop.call_soon_threadsafe(resolve, *ended)
        except RuntimeError:  # the loop is closed, so nobody waits
            return

    _thread.start_new_thread(
        run, ()
    )  # `Thread.start` waits until the thread runs, up to a switch interval of the interpreter: 5 ms
    return future
