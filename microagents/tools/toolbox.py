"""The tools of one task: by name, with the checks of a call that need no model."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from microagents.base.errors import InvalidDefinition
from microagents.base.user_code import shown
from microagents.replies.tool_calls import ToolCall, with_whole_numbers
from microagents.replies.turns import Arguments
from microagents.tools.customers import ask
from microagents.tools.json_schemas import schema_check
from microagents.tools.mcp_servers import McpServer
from microagents.tools.tool import BadArguments, FunctionTool, ToolSpec

UNKNOWN_TOOL, BAD_ARGUMENTS, FORBIDDEN = "unknown_tool", "bad_arguments", "forbidden"
"""Red flags of a call: the tool is unknown; its arguments do not fit; the table of allowed values forbids it."""
GivenTool = Callable[..., Any] | McpServer | str
"""A function, or an MCP server; a text names a server, ``mcp:COMMAND`` or ``mcp:https://...``."""


class Toolbox:
    """Tools of one task: functions, and the tools of each server, by the text that names it.

    Raises:
        InvalidDefinition: two tools have one name, or a reserved one, the tools of a server are not known, or a part of ``allowed``,
            values by tool and argument, forbids nothing.
    """

    def __init__(
        self,
        given: Sequence[GivenTool],
        mcp_tools: Mapping[str, Sequence[Mapping[str, Any]]],
        allowed: Mapping[str, Mapping[str, Collection[Any]]],
        reserved: Collection[str] = (),
    ) -> None:
        functions = [FunctionTool(each) for each in checked_tools(given) if callable(each)]
        servers = servers_in(given)
        texts = [server.text for server in servers]
        twice = next((text for text in texts if texts.count(text) > 1), None)
        if twice:
            raise InvalidDefinition(
                f"{twice} stands twice among the tools; name it once, or give one a prefix of its own"
            )
        unlisted = [server.text for server in servers if server.text not in mcp_tools]
        if unlisted:
            raise InvalidDefinition(
                f"the tools of {', '.join(unlisted)} are not known yet; they are read when a run begins"
            )
        listed = [
            (server, spec) for server in servers for spec in msgspec.convert(mcp_tools[server.text], list[ToolSpec])
        ]
        self.functions = {each.spec.name: each for each in functions}
        self.server_of = {server.shown(spec.name): (server, spec.name) for server, spec in listed}
        """The server of each tool that is not a function, and the server's name of the tool."""
        of_servers = [server.as_stated(spec) for server, spec in listed]
        self.specs = _by_name([*(each.spec for each in functions), *of_servers], reserved)
        self._allowed = allowed
        self._check_allowed()

    def asks_customer(self, name: str) -> bool:
        """Return whether the tool of a name is the shipped `ask`."""
        given = self.functions.get(name)
        return given is not None and given.function is ask

    def as_declared(self, call: ToolCall) -> ToolCall:
        """Return a call with its arguments as its tool declares them; one that does not fit as it is."""
        function, arguments = self.functions.get(call.tool), call.arguments
        if function is not None:
            with suppress(BadArguments):
                arguments = function.as_declared(call.arguments)
        elif call.tool in self.specs:
            arguments = with_whole_numbers(call.arguments)
        return ToolCall(call.tool, arguments)

    def flag_of(self, name: str, arguments: Arguments) -> str | None:
        """Name the red flag of a call; None if it may be made."""
        if name not in self.specs:
            return UNKNOWN_TOOL
        read = self._read(name, arguments)
        if read is None:
            return BAD_ARGUMENTS
        for argument, values in self._allowed.get(name, {}).items():
            if not (_is_in(arguments.get(argument), values) or _is_in(read.get(argument), values)):
                return FORBIDDEN
        return None

    def _check_allowed(self) -> None:
        for name, table in self._allowed.items():
            if name not in self.specs:
                raise InvalidDefinition(f"allowed names {name!r}, which is not a tool; tools: {', '.join(self.specs)}")
            if not isinstance(table, Mapping):
                raise InvalidDefinition(
                    f"allowed of {name} must be a table of arguments and values, not {table!r:.100}"
                )
            for argument, values in table.items():
                if argument not in self.specs[name].parameters.get("properties", {}):
                    raise InvalidDefinition(f"allowed names the argument {argument!r}, which {name} lacks")
                if isinstance(values, str | bytes) or not isinstance(values, Collection):
                    raise InvalidDefinition(
                        f"the allowed values of {name}.{argument} must be a tuple or a set, such as ({values!r:.100},), not {values!r:.100}"
                    )

    def _read(self, name: str, arguments: Arguments) -> Arguments | None:
        """Return the arguments in the types of a function; None if they do not fit."""
        function = self.functions.get(name)
        if function is None:
            fits = schema_check(json.dumps(self.specs[name].parameters)).fits(arguments)
            if not fits:
                return None
            return arguments
        try:
            return dict(function.validated(arguments))
        except BadArguments:
            return None


def _is_in(value: object, values: Collection[Any]) -> bool:
    try:
        return value in values
    except TypeError:  # a list, say, is in no set
        return False


def checked_tools(given: Any) -> Sequence[GivenTool]:
    """Return tools as a class names them, checked.

    Raises:
        InvalidDefinition: they are not in a sequence, or one is neither a function nor an MCP server.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidDefinition(f"tools stand in a tuple, such as tools = (look,), not {shown(given)}")
    for each in given:
        if not callable(each) and not isinstance(each, McpServer | str):
            raise InvalidDefinition(f"a tool is a function or an MCP server, not {shown(each)}")
    return given


def servers_in(given: Sequence[GivenTool]) -> list[McpServer]:
    """List the MCP servers among tools."""
    servers = [each for each in given if isinstance(each, McpServer | str)]
    return [McpServer.parse(each) if isinstance(each, str) else each for each in servers]


def _by_name(specs: Sequence[ToolSpec], reserved: Collection[str]) -> dict[str, ToolSpec]:
    found: dict[str, ToolSpec] = {}
    for spec in specs:
        if spec.name in found:
            raise InvalidDefinition(
                f"two tools are called {spec.name}; give one of them another name: @tool(..., name='other') for a function, "
                "McpServer(..., prefix='other_') or rename={...} for the tools of a server; or leave one out: "
                "mcp:COMMAND#NAME,NAME takes the named ones"
            )
        if spec.name in reserved:
            raise InvalidDefinition(f"give the tool {spec.name} another name: {', '.join(reserved)} is not a tool's")
        found[spec.name] = spec
    return found
