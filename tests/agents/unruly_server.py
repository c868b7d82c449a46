"""An MCP server for tests: ``python unruly_server.py NUMBER [SAYING]``: so many tools, one that dies in mid-call, and one that counts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("unruly")


@server.tool(name="die", description="End the server.")
def die() -> str:
    with Path("died.txt").open("a") as file:
        file.write("x")
    os._exit(3)


@server.tool(name="count", description=f"Count calls. {' '.join(sys.argv[2:])}".strip())
def count(to: int) -> int:
    with Path("counted.txt").open("a") as file:
        file.write(f"{to} ")
    return to


for number in range(int(sys.argv[1])):
    server.tool(name=f"tool_{number}", description=f"Return {number}.")(lambda number=number: number)
server.run()
