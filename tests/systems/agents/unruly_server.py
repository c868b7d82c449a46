"""An MCP server for tests: ``python unruly_server.py NUMBER``: so many tools, and some that die, count, fail or take long.

It needs no package, so it is up at once.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

WRITING = threading.Lock()


def tool(name: str, description: str, **types: str) -> dict[str, Any]:
    properties = {argument: {"type": kind} for argument, kind in types.items()}
    schema = {"type": "object", "properties": properties, "required": [*types]}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("die", "End the server."),
    tool("count", "Count calls.", to="integer"),
    tool("pay", "Pay, and fail."),
    tool("wait", "Pay slowly.", seconds="number"),
    tool("doze", "Do nothing slowly.", seconds="number"),
    *[tool(f"tool_{number}", f"Return {number}.") for number in range(int(sys.argv[1]))],
]


def note(file: str, text: str) -> None:
    with Path(file).open("a") as noted:
        noted.write(text)


def called(name: str, given: dict[str, Any]) -> str:
    match name:
        case "die":
            note("died.txt", "x")
            os._exit(3)
        case "count":
            note("counted.txt", f"{given['to']} ")
        case "pay":
            note("paid.txt", "x")
            raise TimeoutError("the backend timed out after the payment was sent")
        case "wait" | "doze":
            time.sleep(given["seconds"])
            if name == "wait":
                note("paid.txt", "x")
            return "paid"
    return name


def result_of(method: str, given: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            info = {"name": "unruly", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            try:
                text, failed = called(given["name"], given.get("arguments") or {}), False
            except TimeoutError as error:
                text, failed = str(error), True
            return {"content": [{"type": "text", "text": text}], "isError": failed}
    return {}


def answer(request: dict[str, Any]) -> None:
    result = result_of(request["method"], request.get("params") or {})
    with WRITING:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
        sys.stdout.flush()


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and "method" in asked:
        threading.Thread(target=answer, args=(asked,), daemon=True).start()
