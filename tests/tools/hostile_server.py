"""An MCP server that misbehaves: ``python hostile_server.py WHEN WHAT``, at its ``start``, ``list`` or ``call``; else it does as asked.

It has the tools of the file ``tools.json`` in its working folder, by default `act`. It needs no package, so it is up at once.
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


def result_of_call(what: str) -> dict[str, Any]:
    """Results that are hard to read."""
    match what:
        case "many texts":
            return {"content": [{"type": "text", "text": ""}] * 200_000}
        case "many values":
            return {"content": [], "structuredContent": {"a": [[]] * 1_000_000}}
        case "deep":
            return {"content": [], "structuredContent": json.loads('{"a":' * 900 + "1" + "}" * 900)}
        case "own schema":
            return {"content": [], "structuredContent": {"a": "a" * 40 + "!"}}
    return {"content": [{"type": "text", "text": "done"}]}


def result_of(method: str) -> dict[str, Any] | None:
    match method:
        case "initialize":
            info = {"name": "hostile", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            given = Path("tools.json")
            return {"tools": json.loads(given.read_text()) if given.exists() else [ACT]}
        case "tools/call":
            return result_of_call(WHAT if WHEN == "call" else "")
    return None


def main() -> None:
    if WHEN == "start":
        WAYS[WHAT]()
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            method = request["method"]
            if method == f"tools/{WHEN}" and WHAT in WAYS:
                Path("reached.txt").write_text(WHAT)
                WAYS[WHAT]()
            result = result_of(method)
            error = {"code": -32601, "message": "no such method"}
            write(message(id=request["id"], **({"error": error} if result is None else {"result": result})))
    if WHEN == "end" and WHAT in WAYS:
        WAYS[WHAT]()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WHEN WHAT")
    parser.parse_args()
    main()
