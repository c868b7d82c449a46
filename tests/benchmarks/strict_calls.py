"""Tickets of an agent with tools through a double that is as strict as real servers: ``python -m tests.benchmarks.strict_calls``.

Each pool has models of two wires, which reason and err (a wrong argument, a wrong tool, an early end, words beside a call), so an action
that one wire gave goes into the history of the other. Exit code 1 if a request is refused, or a ticket is not done.
"""

from __future__ import annotations

import asyncio
import os
import sys
from random import Random
from typing import Any

from microagents import Result, run
from microagents.systems.agents.act import Act
from tests.benchmarks.harness import options_of
from tests.doubles.clerk import Clerk, right
from tests.doubles.dialects import PLAIN, STREAMED, Call, Said
from tests.doubles.histories import Heard
from tests.doubles.strict_wires import StrictWires, strict_wires

POOLS = (
    (("chat", "openai", PLAIN), ("responses", "openai", PLAIN)),
    (("chat", "openai", "streamed without index"), ("messages", "openai", STREAMED)),
    (("responses", "openai", STREAMED), ("messages", "openai", "empty texts")),
    (("chat", "mistral", "one id"), ("messages", "openai", "no id")),
    (("chat", "mistral", "text"), ("responses", "openai", "parts twice")),
    (("chat", "openai", "streamed lists so far"), ("responses", "openai", "an empty text for no arguments")),
)
"""Wire, family and dialect of the two models of each pool."""
WRONG = (
    Said(calls=(Call("look_up", {"order": 9}),)),
    Said(calls=(Call("orders", {}), Call("orders", {}))),
    Said(calls=(Call("tag", {"order": 7, "labels": [], "box": {}, "note": "no"}),)),
    Said(calls=(Call("end", {"answer": "nothing to do"}),)),
    Said(calls=(Call("look_up", {}),), text="I do not know which."),
)


class Model:
    """A model that is right but for some of its replies."""

    def __init__(self, error: float, seed: int) -> None:
        self._error = error
        self._random = Random(seed)

    def __call__(self, heard: Heard) -> Said:
        """Reply to a conversation."""
        thought = f"{self._random.random()} it is"
        found = Said(calls=right(heard).calls, text=self._random.choice(("", "Well.")))
        if self._random.random() < self._error:
            found = self._random.choice(WRONG)
        return Said(calls=found.calls, text=found.text, reasoning=thought)


async def tickets(server: StrictWires, pool: Any, number: int) -> Result:
    """Do tickets with the models of a pool."""
    models = [server.spec(*each) for each in pool]
    return await run([Clerk() for _ in range(number)], models=models, strategy=Act(), runs_dir=None)


async def main() -> int:
    """Print a line for each pool; returns the exit code."""
    options = options_of(__doc__, tickets=300, error=0.05, seed=0)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        os.environ.setdefault(name, "none")
    refused, left, calls = list[str](), 0, 0
    for place, pool in enumerate(POOLS):
        async with strict_wires(Model(options.error, options.seed + place)) as server:
            number = options.tickets // len(POOLS)
            result = await tickets(server, pool, number)
        account, ended = result.account, result.account.inputs_done
        words = " + ".join(f"{wire} of {family}, {dialect}" for wire, family, dialect in pool)
        told = f"{account.calls} calls, {account.outvoted} outvoted, {sum(account.flagged.values())} flagged"
        print(f"{words}: {ended} of {number} tickets done, {told}, {len(server.refused)} refused")
        refused += server.refused
        left += number - ended
        calls += len(server.bodies)
    print(f"{len(refused)} of {calls} requests refused; {left} tickets not done")
    for each in sorted(set(refused)):
        print(f"  {each}")
    return int(bool(refused) or left > 0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
