"""The tools of one task: by name, with the checks of a call that need no model."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from microagents.aio import loop_has_threads
from microagents.errors import InvalidDefinition
from microagents.tools.json_schemas import schema_check
from microagents.tools.mcp_servers import McpServer
from microagents.tools.threads import in_thread
from microagents.tools.tool import BadArguments, FunctionTool, ToolSpec

UNKNOWN_TOOL, BAD_ARGUMENTS, FORBIDDEN = "unknown_tool", "bad_arguments", "forbidden"
"""Red flags of a call: there is no such tool; its arguments do not fit; the table of allowed values forbids it."""
GivenTool = Callable[..., Any] | McpServer | str
"""A function, or an MCP server; a text names a server, ``mcp:COMMAND`` or ``mcp:https://...``."""

MAX_KNOWN = 64


class Toolbox:
    """Tools of one task.

    Args:
        given: the functions and servers.
        mcp_tools: the tools of each server, by the text that names it.
        allowed: by tool and argument the allowed values.
        reserved: names that no tool may have.

    Raises:
        InvalidDefinition: two tools have one name, or the tools of a server are not known.
    """

    def __init__(
        self,
        given: Sequence[GivenTool],
        mcp_tools: Mapping[str, Sequence[Mapping[str, Any]]],
        allowed: Mapping[str, Mapping[str, Collection[Any]]],
        reserved: Collection[str] = (),
    ) -> None:
        functions = [FunctionTool(each) for each in given if callable(each)]
        servers = servers_in(given)
        unlisted = [server.text for server in servers if server.text not in mcp_tools]
        if unlisted:
            raise InvalidDefinition(
                f"the tools of {', '.join(unlisted)} are not known yet; they are read when a run begins"
            )
        listed = [(server, msgspec.convert(mcp_tools[server.text], list[ToolSpec])) for server in servers]
        self.functions = {each.spec.name: each for each in functions}
        self.server_of = {spec.name: server for server, specs in listed for spec in specs}
        """The server of each tool that is no function."""
        self.specs = _by_name(
            [*(each.spec for each in functions), *(spec for _, specs in listed for spec in specs)], reserved
        )
        self._allowed = allowed
        self._known: dict[tuple[str, str], bool] = {}
        """Whether arguments fit, of the last calls that were checked aside: by tool and JSON."""

    def flag_of(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Name the red flag of a call; None where it may be made."""
        if name not in self.specs:
            return UNKNOWN_TOOL
        if not self._fit(name, arguments):
            return BAD_ARGUMENTS
        return (
            FORBIDDEN
            if any(arguments.get(each) not in values for each, values in self._allowed.get(name, {}).items())
            else None
        )

    async def check_aside(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Check the arguments for tools of servers in a thread, so that none of their schemas holds the loop; `flag_of` then knows."""
        for name, arguments in calls:
            key = name, json.dumps(arguments)
            if name not in self.server_of or key in self._known:
                continue
            check = partial(self._fits_schema, name, arguments)
            fits = await in_thread(check) if loop_has_threads() else check()
            if len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[key] = fits

    def _fit(self, name: str, arguments: Mapping[str, Any]) -> bool:
        function = self.functions.get(name)
        if function is None:
            known = self._known.get((name, json.dumps(arguments)))
            return self._fits_schema(name, arguments) if known is None else known
        try:
            function.check(arguments)
        except BadArguments:
            return False
        return True

    def _fits_schema(self, name: str, arguments: Mapping[str, Any]) -> bool:
        return schema_check(json.dumps(self.specs[name].parameters)).fits(arguments)


def servers_in(given: Sequence[GivenTool]) -> list[McpServer]:
    """List the MCP servers among tools."""
    return [
        McpServer.parse(each) if isinstance(each, str) else each for each in given if isinstance(each, McpServer | str)
    ]


def _by_name(specs: Sequence[ToolSpec], reserved: Collection[str]) -> dict[str, ToolSpec]:
    found: dict[str, ToolSpec] = {}
    for spec in specs:
        if spec.name in found:
            raise InvalidDefinition(
                f"two tools are called {spec.name}; give one of them another name, such as @tool(..., name='other')"
            )
        if spec.name in reserved:
            raise InvalidDefinition(f"give the tool {spec.name} another name: {', '.join(reserved)} is not a tool's")
        found[spec.name] = spec
    return found
