"""An MCP server that misbehaves: ``python hostile_server.py WHEN WHAT``, at its ``start``, ``list`` or ``call``; else it does as asked.

It has the tools of the file ``tools.json`` in its working folder, by default `act`, and returns the one of ``result.json``. It needs no
package, so it is up at once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WHEN, WHAT = [*sys.argv[1:], "never", "nothing"][:2]
OUT = sys.stdout.buffer
ACT = {"name": "act", "description": "Act.", "inputSchema": {"type": "object"}}


def write(data: bytes) -> None:
    OUT.write(data)
    OUT.flush()


def forever(data: bytes) -> None:
    while True:
        write(data)


def sleep() -> None:
    while True:
        time.sleep(60)


def drip() -> None:
    while True:
        write(b"{")
        time.sleep(0.05)


def ignore_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep()


def message(**parts: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **parts}).encode() + b"\n"


def answer_others() -> None:
    for number in itertools.count(10_000):
        write(message(id=number, result={}))


def close_output() -> None:
    os.close(1)
    sleep()


def log_to_stdout() -> None:
    write("2026-11-27 INFO \u00e4rger\n".encode("latin-1") * 20 + b"{}\n[1]\n\n")


def die_with_words() -> None:
    sys.stderr.write(f"no such file: config.toml; key {os.environ.get('SHOP_KEY')}\n")
    sys.exit(3)


def flood_stderr() -> None:
    while True:
        os.write(2, b"\x1b]0;owned\x07\x1b[2J" + b"x" * 60_000 + b"\n")


WAYS: dict[str, Callable[[], None]] = {
    "rubbish": lambda: forever(b"rubbish " * 8 + b"\n"),
    "blanks": lambda: forever(b"\n" * 8_000),
    "notifications": lambda: forever(message(method="notifications/message", params={"level": "info", "data": "x"})),
    "pings": lambda: forever(message(id=1, method="ping")),
    "answers": answer_others,
    "silence": sleep,
    "drip": drip,
    "endless line": lambda: forever(b"x" * 65_536),
    "deafness": ignore_signals,
    "death": lambda: os._exit(3),
    "closed output": close_output,
    "stderr": flood_stderr,
}
OTHERS: dict[str, Callable[[], None]] = {"words and death": die_with_words, "logs": log_to_stdout}


def result_of_call(what: str) -> dict[str, Any]:
    """Results that are hard to read."""
    given = Path("result.json")
    if given.exists():
        return dict(json.loads(given.read_text()))
    match what:
        case "many texts":
            return {"content": [{"type": "text", "text": ""}] * 50_000}
        case "many values":
            return {"content": [], "structuredContent": {"a": [[]] * 250_000}}
        case "deep":
            return {"content": [], "structuredContent": json.loads('{"a":' * 900 + "1" + "}" * 900)}
        case "own schema":
            return {"content": [], "structuredContent": {"a": "a" * 40 + "!"}}
    return {"content": [{"type": "text", "text": "done"}]}


def tools_at(cursor: str) -> dict[str, Any]:
    """Return a page of the tools; ``tools.json`` has either the tools or pages of them. At "endless pages" each page has a next one."""
    given = Path("tools.json")
    tools = json.loads(given.read_text()) if given.exists() else [ACT]
    pages = tools if tools and isinstance(tools[0], list) else [tools]
    at = int(cursor)
    if WHAT == "endless pages":
        return {"tools": [{**ACT, "name": f"act_{at}"}], "nextCursor": str(at + 1)}
    return {"tools": pages[at], **({"nextCursor": str(at + 1)} if at + 1 < len(pages) else {})}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            info = {"name": "hostile", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return tools_at(params.get("cursor", "0"))
        case "tools/call":
            with Path("called.txt").open("a") as called:
                called.write(f"{params['name']}\n")
            return result_of_call(WHAT if WHEN == "call" else "")
    return None


def main() -> None:
    if WHEN == "start":
        {**WAYS, **OTHERS}[WHAT]()
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            method = request["method"]
            if method == f"tools/{WHEN}" and WHAT in WAYS:
                Path("reached.txt").write_text(WHAT)
                WAYS[WHAT]()
            result = result_of(method, request.get("params") or {})
            error = {"code": -32601, "message": "no such method"}
            answer = {"error": error} if result is None else {"result": result}
            write(message(id=request["id"], **(result if result is not None and "error" in result else answer)))
    if WHEN == "end" and WHAT in WAYS:
        WAYS[WHAT]()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WHEN WHAT")
    parser.parse_args()
    main()
