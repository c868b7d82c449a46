"""Tools that hang, spin or fork: a run ends all the same, and says which they are."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from microagents.tools.tool import tool
from tests.cli.commands import COMPLETED, INTERRUPTED, UNDECIDED, started, write
from tests.forking import Forked

WAIT_S = 60.0
MAY_END, ENDED = threading.Event(), threading.Event()


@tool("destructive")
async def block() -> str:
    """Block the loop."""
    MAY_END.wait(WAIT_S)
    ENDED.set()
    return "paid"


@tool("destructive")
async def spin() -> str:
    """Spin."""
    while not MAY_END.is_set():
        pass
    ENDED.set()
    return "paid"


HANGING = """
import asyncio, os, sys, threading, time
from multiprocessing import get_context
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from microagents import Action, AgentTask, ToolCall, tool

LONG_S = 1_000_000


def plain_hang():
    begin()
    time.sleep(LONG_S)

def plain_spin():
    begin()
    while True:
        pass

async def hang():
    begin()
    while True:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            pass

async def block():
    begin()
    time.sleep(LONG_S)

async def spin():
    begin()
    while True:
        pass

async def hang_in_thread():
    begin()
    await asyncio.to_thread(time.sleep, LONG_S)

def fork():
    child = os.fork()
    if not child:
        time.sleep(LONG_S)
    begin(child)
    time.sleep(LONG_S)

async def fork_async():
    child = os.fork()
    if not child:
        time.sleep(LONG_S)
    begin(child)
    time.sleep(LONG_S)

def leave_thread():
    threading.Thread(target=time.sleep, args=(LONG_S,), name="uploads", daemon=False).start()

async def leave_pool():
    ThreadPoolExecutor(thread_name_prefix="uploads").submit(time.sleep, LONG_S)

async def leave_child():
    process = get_context("fork").Process(target=time.sleep, args=(LONG_S,))
    process.start()
    begin(process.pid)

def end_children():
    for _ in range(5):
        process = get_context("fork").Process(target=time.sleep, args=(LONG_S,))
        process.start()
        process.terminate()
        process.join()


def begin(child=0):
    print("a tool", "prints")
    print("to the first stream", file=sys.__stdout__, flush=True)
    os.write(1, b"to the descriptor")
    Path("begun").write_text(str(child))


class Hanging(AgentTask):
    how: str
    effect: str = "destructive"

    def given_tools(self):
        plain = globals()[self.how]

        async def act_async() -> str:
            if Path("hangs").exists():
                await plain()
            return "done"

        def act() -> str:
            if Path("hangs").exists():
                plain()
            return "done"

        function = act_async if asyncio.iscoroutinefunction(plain) else act
        return (tool(self.effect, name="act")(function),)

    def statement(self):
        return "Act."

    def expert(self, prompt, reply):
        ended = "Action " in prompt.user
        return Action(calls=[ToolCall("end", {"answer": "done"}) if ended else ToolCall("act", {})])
"""
INTERRUPTED_IN = (
    "plain_hang",
    "plain_spin",
    "hang",
    "block",
    "spin",
    "hang_in_thread",
    "fork",
    "fork_async",
)
RUN = ("run", "hanging.py", "--model", "sim:perfect", "--run-id", "r", "--json", "--max-wait-effects", "0.5")


@pytest.fixture
def children() -> Iterator[list[int]]:
    """Children of tools, which outlive their run and end with the test."""
    children: list[int] = []
    yield children
    for child in filter(None, children):
        os.kill(child, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "effect"),
    [*[(how, "destructive") for how in INTERRUPTED_IN], ("hang", "idempotent"), ("spin", "read_only")],
)
def test_ctrl_c_ends_a_run_whose_tool_does_not_end(how: str, effect: str, children: list[int]) -> None:
    write("hanging.py", HANGING)
    Path("hangs").touch()
    os.mkfifo("begun")
    words = (*RUN, "-o", f"how={how}", "-o", f"effect={effect}")
    with Path("errors").open("w") as errors, Forked(*words, stderr=errors) as process:  # a child keeps its stderr open
        children.append(int(Path("begun").read_text()))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WAIT_S)
    said = Path("errors").read_text()
    assert (process.returncode, json.loads(out)["outcome"]) == (INTERRUPTED, "interrupted")
    assert "Traceback" not in said
    if effect == "read_only":
        assert how == "hang_in_thread" or '"tools": ["act"]' in said
    else:
        assert f'"calls": ["act ({effect}) at 0/step/0/call/0"], "event": "calls of tools are left under way' in said
    Path("hangs").unlink()
    Path("begun").unlink()
    resumed = started("resume", "r", "--json")
    assert resumed.code == (UNDECIDED if effect == "destructive" else COMPLETED)
    if effect == "destructive":
        assert "(the run ended before it did)" in resumed.json["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["spin"])
def test_a_second_ctrl_c_leaves_at_once(how: str) -> None:
    write("hanging.py", HANGING)
    Path("hangs").touch()
    os.mkfifo("begun")
    with Forked(*RUN[:-1], "600", "-o", f"how={how}") as process:
        Path("begun").read_text()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "waiting for calls of tools" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (INTERRUPTED, "")
    assert "run r was left at once" in err
    assert "(the process that made the call died" in started("resume", "r", "--json").json["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["leave_thread", "leave_pool", "leave_child"])
def test_a_command_ends_though_work_that_a_tool_has_begun_does_not(how: str, children: list[int]) -> None:
    write("hanging.py", HANGING)
    Path("hangs").touch()
    with Path("errors").open("w") as errors, Forked(*RUN, "-o", f"how={how}", stderr=errors) as process:
        out, _ = process.communicate(timeout=WAIT_S)
    if how == "leave_child":
        children.append(int(Path("begun").read_text()))
    assert (process.returncode, json.loads(out)["outcome"]) == (COMPLETED, "completed")
    left = f"process {children[0]}" if children else "thread uploads"
    assert f"the process ends though tools have begun work that has not ended: {left}" in Path("errors").read_text()


def test_sigterm_ends_a_child_of_a_tool_and_not_its_run() -> None:
    write("hanging.py", HANGING)
    Path("hangs").touch()
    assert started(*RUN, "-o", "how=end_children").code == COMPLETED
