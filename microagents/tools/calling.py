"""Calls of tools: of a function, in a thread since it may block, and of an MCP server. Async functions share the loop of one thread.

Every wait is bounded, but for the result of a call that acts: its caller bounds that wait, and never cancels the call.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal, TypeVar

from msgspec import Struct, structs

from microagents.base.aio import is_cancellation, loop_has_threads, retrieve_exception
from microagents.base.errors import OWN_FAILURES
from microagents.base.foreign_text import bounded
from microagents.base.user_code import described
from microagents.replies.turns import Arguments
from microagents.tools.mcp_connections import KEY_NAME, RUN_NAME, McpConnections
from microagents.tools.observations import Called, files_in, observation_of, without_files
from microagents.tools.threads import LoopThread, in_thread
from microagents.tools.tool import BadArguments, EffectKey, RunInput, called_in
from microagents.tools.toolbox import Toolbox

T = TypeVar("T")


class LookedUp(Struct, frozen=True, kw_only=True):
    """Answer of a tool about an earlier call."""

    was_made: bool
    text: str = ""
    """What the call returned."""


class Tools:
    """Calls tools, and keeps the connections to their servers."""

    def __init__(self) -> None:
        self._connections = McpConnections()
        self._coroutines = LoopThread()
        self._left: dict[asyncio.Future[Any], str] = {}
        """Names of functions whose caller waits no more for them, and which have not ended."""

    async def close(self) -> list[str]:
        """Close the connections, and end the loop of async functions; returns the names of functions that have not ended."""
        try:
            await self._connections.close()
        finally:
            await self._coroutines.close()
        return list(self._left.values())

    async def call(
        self,
        toolbox: Toolbox,
        tool: str,
        arguments: Arguments,
        key: EffectKey,
        run: RunInput,
        *,
        timeout_s: float | None,
        most_chars: int,
    ) -> Called:
        """Make one call.

        Args:
            toolbox: the tools.
            tool: its name.
            arguments: its arguments, as JSON-like values.
            key: the key of its effect.
            run: the run and the input that it is made for.
            timeout_s: time after which it is cancelled, and its outcome is unknown; None to wait until it ends.
            most_chars: length of the observation.
        """
        function, acts = toolbox.functions.get(tool), toolbox.specs[tool].effect == "destructive"
        outcome: Literal["done", "error", "unknown"]
        if function is None:
            server, own_name = toolbox.server_of[tool]
            called = await self._connections.call(
                server,
                own_name,
                arguments,
                {KEY_NAME: key, RUN_NAME: run},
                timeout_s,
                acts=acts,
            )
            return structs.replace(called, text=bounded(called.text, most_chars))
        try:
            given = function.bind(arguments, key, run)
        except BadArguments as error:
            return Called(outcome="error", text=bounded(str(error), most_chars))
        try:
            returned = await self._within(timeout_s, tool, function.function, **given)
            if inspect.isawaitable(returned):  # of an async function inside a plain one
                returned = await self._within(timeout_s, tool, _awaited, returned)
        except OWN_FAILURES as error:
            if is_cancellation(error):
                raise
            # How far a destructive call came that raised is unknown, except after the errors raised before it does anything.
            is_unknown = isinstance(error, TimeoutError) or acts
            if is_unknown and not isinstance(error, function.not_made):
                outcome = "unknown"
            else:
                outcome = "error"
            return Called(outcome=outcome, text=bounded(described(error), most_chars))
        files = files_in(returned)
        return Called(outcome="done", text=observation_of(without_files(returned), most_chars), files=files)

    async def look_up(
        self, toolbox: Toolbox, tool: str, key: EffectKey, *, timeout_s: float, most_chars: int
    ) -> LookedUp | None:
        """Ask a tool for the outcome of the call with this key; None if it does not answer."""
        lookup = toolbox.functions[tool].lookup
        assert lookup is not None
        try:
            found = await self._within(timeout_s, f"the look-up of {tool}", lookup, key)
        except OWN_FAILURES as error:
            if is_cancellation(error):
                raise
            return None
        if found is None:
            return LookedUp(was_made=False)
        return LookedUp(was_made=True, text=observation_of(found, most_chars))

    async def _within(
        self, timeout_s: float | None, name: str, function: Callable[..., Any], *given: object, **named: object
    ) -> Any:
        """Call a function and wait for it at most so long. An async one is then cancelled; a plain one continues in its thread."""
        begin, is_async = partial(function, *given, **named), inspect.iscoroutinefunction(called_in(function))
        call: asyncio.Future[Any]
        if not loop_has_threads():
            if not is_async:
                return begin()
            # A task of its own, since it may ignore that it is cancelled.
            call = asyncio.ensure_future(begin())
            call.add_done_callback(retrieve_exception)
        elif is_async:
            call = self._coroutines.call(begin, is_kept=timeout_s is None)
        else:
            call = in_thread(begin)
        try:
            await asyncio.wait([call], timeout=timeout_s)
            if not call.done():
                raise TimeoutError(f"no result within {timeout_s:g} s")
            return call.result()
        finally:
            if timeout_s is not None and not call.done():
                self._left[call] = name
                call.add_done_callback(self._left.pop)
                if is_async:
                    call.cancel()


async def _awaited(given: Awaitable[T]) -> T:
    return await given
