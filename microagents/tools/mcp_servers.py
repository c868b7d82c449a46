"""MCP servers as sources of tools: which one, which of its tools, and what is known of their effects."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from microagents.errors import InvalidUsage
from microagents.tools.tool import EFFECTS, Effect

PREFIX = "mcp:"


class McpServer(Struct, frozen=True, kw_only=True):
    """An MCP server whose tools agents may call.

    Its hints on effects are taken only where it is trusted. A tool whose effect is not stated counts as destructive.
    """

    server: str
    """Its command, or its address (``https://...``)."""
    tools: tuple[str, ...] = ()
    """Names of the tools to take; empty for all."""
    trusted: bool = False
    """Whether its own hints on effects are believed."""
    effects: Mapping[str, Effect] = {}
    """The effects of its tools, by name, as its user knows them."""
    errors: Literal["unknown", "not_made"] = "unknown"
    """What the error of a destructive tool says: nothing, so that the outcome of the call is unknown; or that the call was not made,
    because the server validates it before it acts."""
    repeatable: tuple[str, ...] = ()
    """Names of destructive tools of which an agent may make one call twice without asking a person."""
    env: tuple[str, ...] = ()
    """Names of the variables of the executor's environment that it gets, such as a key. By default it gets HOME, PATH and the like."""

    def __post_init__(self) -> None:
        for name, effect in self.effects.items():
            if effect not in EFFECTS:
                raise InvalidUsage(
                    f"the effect of the tool {name} of {self.server} is one of {', '.join(EFFECTS)}, not {effect!r}"
                )
        if self.errors not in ("unknown", "not_made"):
            raise InvalidUsage(f"errors of {self.server} is unknown or not_made, not {self.errors!r}")

    @property
    def text(self) -> str:
        """Text that names it: ``mcp:SERVER``."""
        return f"{PREFIX}{self.server}"

    @property
    def is_remote(self) -> bool:
        """Whether it is reached over HTTP."""
        return self.server.startswith(("http://", "https://"))

    @property
    def command(self) -> list[str]:
        """Command that starts it."""
        return shlex.split(self.server)

    @staticmethod
    def parse(text: str) -> McpServer:
        """Read ``mcp:SERVER``, or ``mcp:SERVER#TOOL,TOOL`` for some of its tools.

        Raises:
            InvalidUsage: it is no such text.
        """
        server, _, names = text.removeprefix(PREFIX).partition("#")
        if not text.startswith(PREFIX) or not server.strip():
            raise InvalidUsage(
                f"a tool is FILE.py:function, or mcp:COMMAND or mcp:https://... for an MCP server, not {text!r}"
            )
        return McpServer(server=server.strip(), tools=tuple(name for name in names.split(",") if name))
