"""Agents with native calls under kill -9: ``python -m tests.benchmarks.native_kills [--kills 60]``.

The ticket of the shop is closed by an agent on each wire, and by a pool of all three, against the strict double. The agent's process is
killed at one of its requests and started again, until it ends. Every effect is made once, and no request is refused: reasoning goes back
to its model also after a kill.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from itertools import count
from pathlib import Path

from microagents import run_sync
from tests.benchmarks.harness import is_killed, options_of
from tests.doubles.dialects import Call, Said
from tests.doubles.histories import Heard
from tests.doubles.strict_wires import StrictWires, strict_wires
from tests.systems.agents.shop import Ticket, done

PLAN = [
    Call("look_up", {"order": 7}),
    Call("label", {"order": 7, "text": "refund"}),
    Call("refund", {"order": 7, "cents": 700}),
    Call("mail", {"order": 7}),
    Call("end", {"answer": "done"}),
]
OF_ONE: dict[str, tuple[tuple[str, str, str], ...]] = {
    "chat": (("openai", "chat", "openai"),),
    "chat of DeepSeek": (("openai", "chat", "deepseek"),),
    "responses": (("openai-responses", "responses", "openai"),),
    "messages": (("anthropic", "messages", "openai"),),
}
POOLS = {**OF_ONE, "all three": (*OF_ONE["chat"], *OF_ONE["responses"], *OF_ONE["messages"])}
"""Models by provider, wire and family."""
LAST = 12
"""Number of the last request at which a process is killed: a run makes 14."""


class Killer:
    """Gives the next call, and kills the process that asks for the n-th one."""

    def __init__(self) -> None:
        self.kill_at, self.asked = 0, 0

    def begin(self, kill_at: int) -> None:
        """Kill at this request, counted from now; 0 for never."""
        self.kill_at, self.asked = kill_at, 0

    def __call__(self, heard: Heard) -> Said:
        self.asked += 1
        if self.asked == self.kill_at:
            for child in children():
                os.kill(child, signal.SIGKILL)
        return Said(calls=(PLAN[heard.steps],), reasoning="this is next")


def children() -> list[int]:
    """The children of this process."""
    return [int(each) for each in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


@contextmanager
def serving(killer: Killer) -> Iterator[StrictWires]:
    """Run the double in a thread, so that processes can be forked beside it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    block = strict_wires(killer)
    server = asyncio.run_coroutine_threadsafe(block.__aenter__(), loop).result()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(block.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def killed_once(server: StrictWires, killer: Killer, pool: str, kill_at: int, number: int) -> bool:
    """Close one ticket, killed at a request; returns whether it was killed.

    Raises:
        AssertionError: an effect was not made once, or a request was refused.
    """
    models = [f"{provider}:m@base_url={server.base_url(wire, family)}" for provider, wire, family in POOLS[pool]]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):

        def work() -> None:
            run_sync(Ticket(), models=models, runs_dir="runs", run_id=f"r{number}", durability="normal")

        killer.begin(kill_at)
        was_killed = is_killed(work)
        killer.begin(0)
        assert not is_killed(work)
        made = [each["what"] for each in done()]
    assert made == ["label", "refund", "mail"], (pool, kill_at, made)
    assert not server.refused, (pool, kill_at, server.refused)
    return was_killed


def main() -> None:
    """Kill, and print what was found."""
    options = options_of(__doc__, kills=60)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        os.environ[name] = "none"
    killer, kills, runs = Killer(), 0, count()
    with serving(killer) as server:
        while kills < options.kills:
            number = next(runs)
            pool = list(POOLS)[number % len(POOLS)]
            kills += killed_once(server, killer, pool, 1 + number // len(POOLS) % LAST, number)
    print(f"{kills} kills over {', '.join(POOLS)}: each effect made once, no request refused")


if __name__ == "__main__":
    main()
