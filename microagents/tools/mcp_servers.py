"""MCP servers as sources of tools: which one, which of its tools, and their known effects."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from string import Template
from typing import Literal

from msgspec import Struct, structs

from microagents.base.errors import InvalidUsage
from microagents.tools.tool import EFFECTS, Effect, ToolSpec, check_bounds

PREFIX = "mcp:"
_PREFIX = re.compile(r"[A-Za-z0-9_-]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class McpServer(Struct, frozen=True, kw_only=True):
    """An MCP server whose tools agents may call.

    Its hints on effects are taken only if it is trusted. A tool whose effect is not stated counts as destructive.
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
    """Names of destructive tools that an agent may call twice alike without asking a person."""
    env: tuple[str, ...] = ()
    """Names of the variables of the executor's environment that it gets, such as a key. By default it gets HOME, PATH and the like."""
    headers: Mapping[str, str] = {}
    """Headers of the requests to a server at an address. ``$NAME`` in a value is a variable of the executor's environment. They are in no
    journal and no log."""
    prefix: str = ""
    """Text before the names of its tools, as models and all but the other fields of this class know them."""
    rename: Mapping[str, str] = {}
    """Other names for its tools, to follow the prefix: by the server's name, as in ``{"files.read": "read_file"}``."""
    prose: Mapping[str, Collection[str]] = {}
    """By tool, the arguments whose wording casts no vote."""
    timeouts: Mapping[str, float] = {}
    """By tool, the seconds after which the outcome of a call is unknown, in place of the strategy's ``tool_timeout``."""
    margins: Mapping[str, int] = {}
    """By tool, the lead that an action with it needs, in place of its effect's."""

    def __post_init__(self) -> None:
        for name, effect in self.effects.items():
            if effect not in EFFECTS:
                raise InvalidUsage(
                    f"the effect of the tool {name} of {self.server} is one of {', '.join(EFFECTS)}, not {effect!r}"
                )
        if self.errors not in ("unknown", "not_made"):
            raise InvalidUsage(f"errors of {self.server} is unknown or not_made, not {self.errors!r}")
        for name in (*self.timeouts, *self.margins):
            check_bounds(f"the tool {name} of {self.server}", self.timeouts.get(name), self.margins.get(name))
        for name, arguments in self.prose.items():
            if isinstance(arguments, str):
                raise InvalidUsage(f"write prose={{{name!r}: [{arguments!r}]}} of {self.server}: a list of arguments")
        if not _PREFIX.fullmatch(self.prefix):
            raise InvalidUsage(f"a prefix has letters (a to z, A to Z), digits, _ and -, not {self.prefix!r}")
        if self.headers and not self.is_remote:
            raise InvalidUsage(
                f"{self.server} is a command, which takes no headers; name variables of its environment: env=(...)"
            )

    def __repr__(self) -> str:
        return f"McpServer({self.text})"  # its headers may have secrets

    @property
    def text(self) -> str:
        """Text that names it: ``mcp:SERVER``, and its prefix if it has one."""
        return f"{PREFIX}{self.server}{f' (prefix {self.prefix})' if self.prefix else ''}"

    @property
    def named_tools(self) -> tuple[str, ...]:
        """The tools that its fields name, as the server calls them."""
        return (*self.tools, *self.effects, *self.repeatable, *self.prose, *self.timeouts, *self.margins, *self.rename)

    def shown(self, name: str) -> str:
        """Return the name by which models know a tool."""
        return f"{self.prefix}{self.rename.get(name, name)}"

    def as_stated(self, listed: ToolSpec) -> ToolSpec:
        """Return a tool that it lists as models know it, with the statements of its user."""
        name = listed.name
        return structs.replace(
            listed,
            name=self.shown(name),
            prose=tuple(self.prose.get(name, ())),
            timeout_s=self.timeouts.get(name),
            margin=self.margins.get(name),
        )

    def headers_from(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Write its headers, with the variables that they name.

        Raises:
            InvalidUsage: a variable is missing, or a value is not a header. The message has no value.
        """
        return {name: self._header(name, value, environment) for name, value in self.headers.items()}

    def _header(self, name: str, value: str, environment: Mapping[str, str]) -> str:
        try:
            written = Template(value).substitute(environment)
        except KeyError as missing:
            raise InvalidUsage(
                f"set {missing.args[0]} in the environment of the executor; the header {name} of {self.text} needs it"
            ) from None
        except ValueError:
            raise InvalidUsage(
                f"the header {name} of {self.text} has a $ that names no variable; write $NAME, or $$ for a $"
            ) from None
        if not (written.isascii() and written.isprintable() and _HEADER.fullmatch(name)):
            raise InvalidUsage(f"the header {name!r} of {self.text} must be printable ASCII in one line")
        return written

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
            InvalidUsage: the text has another form.
        """
        server, _, names = text.removeprefix(PREFIX).partition("#")
        if not text.startswith(PREFIX) or not server.strip():
            raise InvalidUsage(
                f"a tool is FILE.py:function, or mcp:COMMAND or mcp:https://... for an MCP server, not {text!r}"
            )
        tools = filter(None, names.split(","))
        return McpServer(server=server.strip(), tools=tuple(tools))
