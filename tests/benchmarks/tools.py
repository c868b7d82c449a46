"""What a call of a tool costs: ``python -m tests.benchmarks.tools [--turns 7]``.

A step of an agent with a function tool takes turns with a step of a chain, both of the same simulated model and one sample a step; and a
call of an MCP server over stdio through `Tools` takes turns with the SDK's own. Medians, with the range over the turns. Of steps it is the
time of the processor, which a busy machine does not lengthen; of calls of a server it is the time that passes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import ClassVar

from mcp import Client, StdioServerParameters, stdio_client
from msgspec import structs

from microagents import Prompt, Reply, run
from microagents.replies.tool_calls import ToolCall
from microagents.systems import Maker
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import Action
from microagents.systems.agents.agent import AgentAnswer, AgentTask
from microagents.tasks.drift import Drift
from microagents.tools.calling import Tools
from microagents.tools.mcp_servers import McpServer
from microagents.tools.tool import Effect, EffectKey, RunInput, ToolSpec, tool
from microagents.tools.toolbox import GivenTool, Toolbox
from tests.benchmarks.harness import options_of

MODEL = "sim:perfect"
INPUTS, STEPS = 20, 20
"""Agents, one after the other, and the actions of each."""
CALLS = 200
INSTANT = "an observation of a few words"


@tool("read_only")
def look(number: int) -> str:
    """Look something up."""
    return f"{INSTANT} {number}"


@tool("read_only")
async def look_async(number: int) -> str:
    """Look something up, without a thread."""
    return f"{INSTANT} {number}"


class Steps(AgentTask[AgentAnswer]):
    """Makes so many calls, each another one."""

    tools: ClassVar[tuple[GivenTool, ...]] = (look, look_async)
    name: str = "look"

    def statement(self) -> str:
        return "Make all calls."

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        taken = (
            int(prompt.user.rpartition("\nAction ")[2].partition(" ")[0].strip(":.") or 0)
            if "\nAction " in prompt.user
            else 0
        )
        call = ToolCall("end", {"answer": "done"}) if taken >= STEPS else ToolCall(self.name, {"number": taken})
        return Action(calls=[call])


async def chain_us(folder: Path | None, turn: int) -> float:
    """Microseconds of a step of a chain."""
    began_s = time.process_time()
    tasks = [Drift(length=STEPS)] * INPUTS
    await run(
        tasks,
        models=MODEL,
        strategy=Maker(k=1, speculate=False),
        runs_dir=folder,
        run_id=f"chain-{turn}",
        concurrency=1,
    )
    return (time.process_time() - began_s) / (INPUTS * STEPS) * 1e6


async def agent_us(name: str, folder: Path | None, turn: int) -> float:
    """Microseconds of a step of an agent that calls a function."""
    strategy = Act(k_read=1, k_write=1, k_end=1, max_steps=STEPS + 2)
    began_s = time.process_time()
    tasks = [Steps(name=name)] * INPUTS
    result = await run(tasks, models=MODEL, strategy=strategy, runs_dir=folder, run_id=f"{name}-{turn}", concurrency=1)
    assert result.account.steps == INPUTS * (STEPS + 1), result.reason
    return (time.process_time() - began_s) / (INPUTS * (STEPS + 1)) * 1e6


async def mcp_us() -> tuple[list[float], list[float]]:
    """Microseconds of a call of a server: those of the SDK, and those through `Tools`, in turns of `CALLS`."""
    effect: Effect = "read_only"
    words, name, given = ["-m", "mcp_server_time"], "get_current_time", {"timezone": "UTC"}
    server = McpServer(server=f"{sys.executable} {' '.join(words)}", tools=(name,), effects={name: effect})
    toolbox = Toolbox(
        [server],
        {server.text: [structs.asdict(ToolSpec(name=name, description="", parameters={}, effect=effect))]},
        {},
    )
    tools = Tools()
    own, through = [], []
    async with Client(stdio_client(StdioServerParameters(command=sys.executable, args=words))) as client:

        async def direct() -> None:
            await client.call_tool(name, given)

        async def called() -> None:
            made = await tools.call(
                toolbox, name, given, EffectKey("k"), RunInput("r/0"), timeout_s=10, most_chars=1000
            )
            assert made.outcome == "done", made

        for _ in range(2):
            await direct()
            await called()
        for _ in range(8):
            own.append(await timed_us(direct))
            through.append(await timed_us(called))
    await tools.close()
    return own, through


async def timed_us(call: Callable[[], Awaitable[None]]) -> float:
    """The median over calls, one after the other."""
    found = []
    for _ in range(CALLS):
        began_s = time.perf_counter()
        await call()
        found.append((time.perf_counter() - began_s) * 1e6)
    return median(found)


def text(values: list[float]) -> str:
    """The median and the range."""
    return f"{median(values):,.0f} us ({min(values):,.0f} to {max(values):,.0f})"


def main(turns: int) -> None:
    """Take turns, and print both sides."""
    with TemporaryDirectory() as folder:
        found: dict[str, list[float]] = {}
        for where, runs in (("without a journal", None), ("with a journal", Path(folder))):
            for turn in range(turns + 1):
                sides = {
                    "a chain": chain_us(runs, turn),
                    "plain": agent_us("look", runs, turn),
                    "async": agent_us("look_async", runs, turn),
                }
                for name, side in sides.items():
                    took_us = asyncio.run(side)
                    if turn:  # the first one warms up
                        found.setdefault(f"{name}, {where}", []).append(took_us)
            chain = found[f"a chain, {where}"]
            print(f"{where}: a step of a chain {text(chain)}", flush=True)
            for kind in ("plain", "async"):
                steps = found[f"{kind}, {where}"]
                more = [one - other for one, other in zip(steps, chain, strict=True)]
                print(f"  a step with a function tool, {kind}: {text(steps)}, {text(more)} more", flush=True)
    own, through = asyncio.run(mcp_us())
    ratios = [one / other for one, other in zip(through, own, strict=True)]
    print(f"a call of a server: the SDK {text(own)}, here {text(through)}")
    print(f"that is {median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main(options_of(__doc__.partition("\n")[0], turns=7).turns)
