"""Rows about towns, and a model whose replies depend on the question and the number of the draw alone: in whichever run it is asked."""

from __future__ import annotations

import asyncio
import os
from hashlib import blake2b
from pathlib import Path
from typing import Any

from microagents import Call, Model, Prompt, Reply, RowTask, Sample, Usage

SPEC = "tests.shards.towns:Seller@log={log}"


class Town(Reply, frozen=True):
    name: str
    inhabitants: int | None


class Towns(RowTask[Town]):
    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(user=f"Which town is {row['town']}?")

    def expert(self, prompt: Prompt, _: type[Reply]) -> Town:
        return Town(name=prompt.user.removeprefix("Which town is ").partition("?")[0].title(), inhabitants=1000)


class Seller(Model):
    """Is wrong in a fifth of all draws, flagged about towns of Atlantis, and of two minds about those of Utopia."""

    priced = True

    def __init__(self, log: str, latency: float = 0.0) -> None:
        self._file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._latency_s = float(latency)

    async def complete(self, call: Call) -> Sample:
        line = f"{os.getpid()} {call.prompt.user}\n"
        os.write(self._file, line.encode())  # one write, so that a killed process leaves no part of a line
        await asyncio.sleep(self._latency_s)
        name = call.prompt.user.removeprefix("Which town is ").partition("?")[0]
        drawn = blake2b(f"{name}/{call.id.seq}".encode(), digest_size=1).digest()[0]
        text = f'name = "{name.title()}"\ninhabitants = {1000 if drawn < 204 else drawn}'
        if "utopia" in name:
            text = f'name = "{name}"\ninhabitants = {call.id.seq}'
        if "atlantis" in name:
            text = "It sank."
        return Sample(text=text, usage=Usage(input_tokens=10, output_tokens=10, cost_usd=0.001), model="towns")


def asked(log: Path) -> list[str]:
    """The questions that the model was asked, in order."""
    return [line.partition(" ")[2] for line in log.read_text().splitlines()] if log.exists() else []
