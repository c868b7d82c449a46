"""An MCP server for tests: ``python unruly_server.py NUMBER [SAYING]``: so many tools, and some that die, count, fail or take long."""

from __future__ import annotations

import asyncio
import os
import sys
import time
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


@server.tool(name="pay", description="Pay, and fail.")
def pay() -> None:
    with Path("paid.txt").open("a") as file:
        file.write("x")
    raise TimeoutError("the backend timed out after the payment was sent")


@server.tool(name="wait", description="Pay slowly.")
def wait(seconds: float) -> str:
    time.sleep(seconds)
    with Path("paid.txt").open("a") as file:
        file.write("x")
    return "paid"


@server.tool(name="doze", description="Do nothing slowly.")
async def doze(seconds: float) -> None:
    await asyncio.sleep(seconds)


for number in range(int(sys.argv[1])):
    server.tool(name=f"tool_{number}", description=f"Return {number}.")(lambda number=number: number)
server.run()
