"""Calls of tools: of a function, in a thread where it may block, and of an MCP server. Every wait is bounded."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from msgspec import Struct

from microagents.aio import is_cancelled, loop_has_threads
from microagents.foreign_text import bounded
from microagents.tools.mcp_connections import KEY_NAME, RUN_NAME, McpConnections
from microagents.tools.observations import observation_of
from microagents.tools.threads import in_thread
from microagents.tools.tool import BadArguments, EffectKey, RunInput
from microagents.tools.toolbox import Toolbox
from microagents.user_code import described


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
            server = toolbox.server_of[tool]
            outcome, text = await self._connections.call(
                server, tool.removeprefix(server.prefix), arguments, {KEY_NAME: key, RUN_NAME: run}, timeout_s
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
    if not inspect.iscoroutinefunction(function):
        if not loop_has_threads():
            return function(*given, **named)
        async with asyncio.timeout(timeout_s):
            return await in_thread(partial(function, *given, **named))
    # In a task of its own, since it may ignore that it is cancelled.
    call = asyncio.ensure_future(function(*given, **named))
    done, _ = await asyncio.wait([call], timeout=timeout_s)
    if not done:
        call.cancel()
        raise TimeoutError
    return call.result()
