"""The tools of the desk as an MCP server over stdio: ``python -P -m microagents.tasks.desk_server WORLD TICKET``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

from mcp.server.mcpserver import Context, MCPServer

from microagents.tasks.desk import Shop
from microagents.tools.mcp_connections import KEY_NAME, RUN_NAME
from microagents.tools.tool import EffectKey, RunInput


def serve(path: str, ticket: int) -> None:
    """Serve the tools of one desk until stdin closes."""
    server = MCPServer("desk")
    for function in Shop(path, ticket).tools:
        server.tool(name=function.__name__, description=function.__doc__)(with_meta(function))
    server.run()


def with_meta(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as a tool of a server, which takes the key of its effect and its run from the metadata of the call."""
    hints = get_type_hints(function)
    names = {EffectKey: KEY_NAME, RunInput: RUN_NAME}
    hidden = {name: names[kind] for name, kind in hints.items() if kind in names}

    parameters = [
        each.replace(annotation=hints[each.name])
        for each in signature(function).parameters.values()
        if each.name not in hidden
    ]

    def call(ctx: Context[Any], **arguments: Any) -> Any:
        meta: dict[str, Any] = {**(ctx.request_context.meta or {})}
        return function(**arguments, **{name: meta[key] for name, key in hidden.items()})

    # The server reads the schema from the signature.
    given: Any = call
    given.__name__ = function.__name__
    context = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=Context[Any])
    by_name = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    given.__signature__ = Signature([*by_name, context], return_annotation=hints["return"])
    given.__annotations__ = {
        **{each.name: each.annotation for each in parameters},
        "ctx": Context[Any],
        "return": hints["return"],
    }
    return call


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
