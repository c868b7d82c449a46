"""Effects of agents under kill -9: ``python -m tests.benchmarks.effects [--kills 1000]``.

An agent reads an order, puts a label on it (idempotent), pays it back (destructive), and writes a mail (destructive, can be looked up).
Its executor is killed at a named point of one of these calls, in this process's child, or in an actor of Ray; the tools are functions, or
those of an MCP server over stdio. The run is resumed, and a person says of a call of unknown outcome what became of it. The world's own
log is the judge: idempotent and looked-up effects exactly once, others never twice, and unknown are exactly those that were killed between
their intention and their record.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from msgspec import Struct

from microagents import Prompt, Reply, Result, run_sync
from microagents.actors.role import Deployment
from microagents.replies.tool_calls import ToolCall
from microagents.roles.executor import Execute, Executor
from microagents.runs.inspection.runs import decide, inspect_run
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import Action
from microagents.systems.agents.agent import AgentTask
from microagents.tools.mcp_servers import McpServer
from microagents.tools.tool import EffectKey, RunInput, tool
from microagents.tools.toolbox import GivenTool
from tests.benchmarks.harness import is_killed, options_of, until

FOLDER = Path(tempfile.gettempdir(), "microagents-effects")
RUNS = FOLDER / "runs"
POINTS = ("before the intention", "after the intention", "during the call", "before the record", "after the record")
"""Where a process is killed; a call during which it is killed has not changed the world yet, but a server still may."""
WINDOW = POINTS[1:4]
TOOLS = ("label", "refund", "mail")
HOW = {"functions, local": 0.7, "server, local": 0.2, "functions, Ray": 0.06, "server, Ray": 0.04}
"""Where the tools and their executor are, and the share of the kills: a server takes 5 s to start twice, an actor 8 s."""


def name_of(run: str) -> str:
    """The run of a ``RUN/INPUT``."""
    return run.partition("/")[0]


def done(run: str) -> Counter[str]:
    """What the world's log says was done."""
    log = FOLDER / f"{name_of(run)}.log"
    return Counter(json.loads(line)["what"] for line in log.read_text().splitlines()) if log.exists() else Counter()


def was_made(run: str, key: str) -> bool:
    """Whether the log has an effect with this key."""
    log = FOLDER / f"{name_of(run)}.log"
    return log.exists() and any(json.loads(line)["key"] == key for line in log.read_text().splitlines())


def write(run: str, what: str, key: str) -> None:
    """Change the world."""
    with (FOLDER / f"{name_of(run)}.log").open("a") as log:
        log.write(json.dumps({"what": what, "key": key}) + "\n")


def fault_of(run: str, of_tool: str, point: str, number: signal.Signals = signal.SIGKILL) -> Path:
    """Want a process of a run to get a signal at a point of a call; returns the file that is renamed to ``.hit`` then."""
    FOLDER.mkdir(exist_ok=True)
    fault = FOLDER / f"{run}.fault"
    fault.write_text(json.dumps([of_tool, point, number]))
    return fault


def killed_at(run: str, of_tool: str, point: str, process: int) -> bool:
    """Kill or stop a process if that is wanted here; once a run."""
    fault = FOLDER / f"{name_of(run)}.fault"
    wanted = json.loads(fault.read_text()) if fault.exists() else None
    if wanted is None or wanted[:2] != [of_tool, point]:
        return False
    fault.rename(fault.with_suffix(".hit"))
    os.kill(process, wanted[2])
    if wanted[2] == signal.SIGSTOP:
        time.sleep(1.0)  # another thread may take the signal; this one stops here at the latest
    return True


def change(run: str, what: str, key: str) -> None:
    """Change the world; of a server the caller may die before, which the server does not notice."""
    if IS_SERVER:
        (FOLDER / f"{name_of(run)}.server").write_text(str(os.getpid()))
    if killed_at(run, what, "during the call", os.getppid() if IS_SERVER else os.getpid()):
        time.sleep(0.05)
        while (FOLDER / f"{name_of(run)}.hold").exists():
            time.sleep(0.01)
    write(run, what, key)


IS_SERVER = False
"""Whether this process is the MCP server."""


def find_mail(key: EffectKey) -> str | None:
    """Tell what became of a mail."""
    for log in FOLDER.glob("*.log"):
        if was_made(log.stem, key):
            return "wrote of 7"  # what the call returned
    return None


@tool("read_only")
def look(order: int) -> dict[str, int]:
    """Look up an order."""
    return {"order": order, "paid_cents": 100 * order}


@tool("idempotent")
def label(order: int, key: EffectKey, run: RunInput) -> str:
    """Put a label on an order."""
    if not was_made(run, key):
        change(run, "label", key)
    return f"labelled {order}"


@tool("destructive")
def refund(order: int, key: EffectKey, run: RunInput) -> str:
    """Pay an order back."""
    change(run, "refund", key)
    return f"paid back {order}"


@tool("destructive", lookup=find_mail)
def mail(order: int, key: EffectKey, run: RunInput) -> str:
    """Write to the customer of an order."""
    change(run, "mail", key)
    return f"wrote of {order}"


class Closed(Struct, frozen=True, kw_only=True):
    """What became of a ticket."""

    answer: str


class Ticket(AgentTask[Closed]):
    """Look an order up, label it, pay it back, and write to the customer."""

    tools: ClassVar[tuple[GivenTool, ...]] = (look, label, refund, mail)

    def statement(self) -> str:
        return "Pay order 7 back."

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        names = ("look", *TOOLS)
        calls = [*[ToolCall(each, {"order": 7}) for each in names], ToolCall("end", {"answer": "done"})]
        return Action(calls=[calls[prompt.user.count("\nAction ")]])


class ServedTicket(Ticket):
    """The same with the tools of a server."""

    tools: ClassVar[tuple[GivenTool, ...]] = (
        McpServer(
            server=f"env PYTHONPATH={Path(__file__).parents[2]} {sys.executable} -m tests.benchmarks.effects --serve",
            effects={"look": "read_only", "label": "idempotent", "refund": "destructive", "mail": "destructive"},
        ),
    )


class MortalExecutor(Executor):
    """An executor that is killed at one point of one call."""

    def work_on(self, request: Any) -> Any:
        """Watch what it records."""
        work = super().work_on(request)
        if isinstance(request, Execute):
            _watch(work, request, self.context.run_id)
        return work


def _watch(work: Any, request: Execute, run: str) -> None:
    record = work.record_answer

    async def recorded(at: str, value: object) -> None:
        what = "record" if at.endswith("/outcome") else "intention"
        killed_at(run, request.tool, f"before the {what}", os.getpid())
        await record(at, value)
        killed_at(run, request.tool, f"after the {what}", os.getpid())

    work.record_answer = recorded


class MortalAct(Act):
    """`Act` with such an executor."""

    def deployments(self, *given: Any, **more: Any) -> list[Deployment]:
        """Put it in the place of the usual one."""
        found = super().deployments(*given, **more)
        return [each.model_copy(update={"role": MortalExecutor}) if each.role is Executor else each for each in found]


def sitting(run: str, how: str) -> Result:
    """A sitting of the run."""
    task = ServedTicket() if how.startswith("server") else Ticket()
    runtime = "ray" if how.endswith("Ray") else "local"
    given: Any = {"deploy": {"mortalexecutor": {"colocate": ""}}} if runtime == "ray" else {}
    return run_sync(
        task, models="sim:perfect", strategy=MortalAct(), run_id=run, runs_dir=RUNS, runtime=runtime, **given
    )


def in_child(run: str, how: str) -> bool:
    """A sitting in a process of its own; whether it was killed."""
    return is_killed(lambda: sitting(run, how))


def until_server_ends(run: str) -> None:
    """Wait until the server of a killed process has ended: until then it may change the world."""
    found = FOLDER / f"{run}.server"
    if found.exists():
        process = Path("/proc", found.read_text(), "exe")
        until(lambda: not process.exists(), "the server ends", 0.01)


@cache
def undisturbed(how: str) -> str:
    """The digest of decisions of a run that is not killed."""
    return sitting(f"effects-{uuid4().hex[:12]}", how.replace("Ray", "local")).account.decisions_sha256


def check(how: str, of_tool: str, point: str) -> None:
    """Kill a run at a point, resume it, and let the world's log judge.

    Raises:
        AssertionError: an effect was lost or made twice, or its outcome was unknown where it was not, or known where it was not.
    """
    run = f"effects-{uuid4().hex[:12]}"
    fault = fault_of(run, of_tool, point)
    if how.endswith("local"):
        assert in_child(run, how), "it was not killed"
        until_server_ends(run)
    result = sitting(run, how)
    assert fault.with_suffix(".hit").exists(), "nothing was killed"
    can_be_looked_up = of_tool == "mail" and how.startswith("functions")
    is_unknown = point in WINDOW and of_tool != "label" and not can_be_looked_up
    assert (result.outcome == "undecided") == is_unknown, f"{result.outcome}: {result.reason}"
    if is_unknown:
        until_server_ends(run)
        ((path, call, _),) = inspect_run(RUNS, run).waiting
        assert call.tool == of_tool
        decide(RUNS, run, path, 'done "it was made"' if done(run)[of_tool] else "not-done")
        result = sitting(run, how)
    assert result.outcome == "completed", result.reason
    assert done(run) == Counter(TOOLS), done(run)
    assert is_unknown or result.account.decisions_sha256 == undisturbed(how), (
        "its decisions are others than without a kill"
    )
    for each in (*FOLDER.glob(f"{run}.*"), *RUNS.glob(f"{run}.*")):  # those of a run that failed are kept
        each.unlink()


def main(kills: int, ways: tuple[str, ...]) -> None:
    """Kill so many runs, of each way in turn."""
    began_s, counts = time.monotonic(), Counter[str]()
    cases = list(product(TOOLS, POINTS))
    for way in ways:
        for number in range(round(kills * HOW[way] / sum(HOW[each] for each in ways))):
            check(way, *cases[number % len(cases)])
            counts[way] += 1
        print(f"{way}: {counts[way]} kills, {time.monotonic() - began_s:.0f} s so far", flush=True)
    unknown = "calls of unknown outcome were exactly those killed between their intention and their record"
    print(f"{sum(counts.values())} kills at {len(POINTS)} points: every effect exactly once; {unknown}")


def serve() -> None:
    """Serve the tools over stdio."""
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - of the server alone

    from microagents.tasks.desk_server import with_meta  # noqa: PLC0415 - likewise

    global IS_SERVER  # noqa: PLW0603 - what this process is
    IS_SERVER = True
    server = MCPServer("effects")
    for function in (look, label, refund, mail):
        server.tool(name=function.__name__, description=function.__doc__)(with_meta(function))
    server.run()


if __name__ == "__main__":
    arguments = options_of(__doc__.partition("\n")[0], kills=1000, only=HOW, serve=False)
    if arguments.serve:
        serve()
    else:
        # Under its own name, so that the journal finds its classes again.
        import_module("tests.benchmarks.effects").main(arguments.kills, tuple(arguments.only))
