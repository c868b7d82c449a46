"""Usages that cannot be right, and streams that are cut, through to the journal: `python -m tests.benchmarks.usages [--replies N]`.

A server on 127.0.0.1 speaks the wires of chat completions, responses and messages, whole and streamed. Each of its replies states a usage
at random: parts that are missing, negative, too large, texts, or more than their whole; streams end anywhere. After each run, under a
limit or none, and after its resume without a limit, its journal is verified.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import structlog
from msgspec import Struct, field

from microagents import InvalidUsage, resume, run
from microagents.journal.reading import Reader
from microagents.roles.solver import outages
from microagents.systems import Maker
from microagents.tasks.drift import Drift
from tests.benchmarks.harness import options_of
from tests.models.server import Answer, Connection, Server, raw, reply, serving
from tests.models.wires import OPENAI, RESPONSES, WIRES, Provider

TOO_LARGE = "too large for a float"
COUNTS: Sequence[object] = (
    *(0, 1, 60, 60, 60, 60, 3000, 3000, 10**6, 999_999_999, 10**9, 2**63, 10**30, 1e30, TOO_LARGE),
    *(-1, -3000, 1.5, -0.0, "7", "", "many", True, False, None, [], {}),
)
USAGES: Sequence[object] = (None, [], "many", 3, {}, {"total_tokens": 60})
LIMITS: Sequence[Mapping[str, Any]] = (
    *({}, {"max_calls": 7}, {"max_tokens": 4_000}, {"max_tokens": 40_000}),
    *({"max_cost_usd": 0.01}, {"max_cost_usd": 0.2}, {"max_cost_usd": 50.0, "max_tokens": 10**6}),
)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class Found(Struct):
    """What all runs together showed."""

    runs: int = 0
    replies: int = 0
    cut: int = 0
    """Streams that were cut."""
    miscounted: int = 0
    """Replies whose usage the runs called impossible."""
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: list[str] = []
    """Why a journal was refused, or is not what its rows make."""


class Fuzzer:
    """A server's replies to one run.

    Args:
        provider: its wire.
        random: what it draws from.
        found: counts the replies.
    """

    def __init__(self, provider: Provider, random: Random, found: Found) -> None:
        self._provider = provider
        self._random = random
        self._found = found

    def answer(self, body: dict[str, Any]) -> Answer:
        """Return the right reply to a request, with any usage."""
        asked: str = body["input"] if self._provider is RESPONSES else body["messages"][-1]["content"]
        text = f"number = {(int(asked.removeprefix('Number: ')) * 17 + 5) % 1009}"
        self._found.replies += 1
        if body.get("stream"):
            return self._streamed(text, body["n"])
        whole = self._provider.good(text, usage=self._usage())
        if "choices" in whole:
            whole["choices"] = [{**whole["choices"][0], "index": each} for each in range(body.get("n", 1))]
        return reply(_encoded(whole))

    def _streamed(self, text: str, number: int) -> Answer:
        parts: list[dict[str, object]] = [
            {"choices": [{"index": each, "delta": {"content": text}, "finish_reason": "stop"}]}
            for each in range(number)
        ]
        self._random.shuffle(parts)
        if self._random.random() < 0.8:
            parts.append({"choices": [], "usage": self._usage()})
        events = [b"data: " + _encoded(each) + b"\n\n" for each in parts] + [b"data: [DONE]\n\n"]
        data = b"".join(events)
        if self._random.random() < 0.4:
            self._found.cut += 1
            data = data[: self._random.randrange(len(data))]
        return raw(STREAM_HEAD + data)

    def _usage(self) -> object:
        if self._random.random() < 0.1:
            return self._random.choice(USAGES)
        provider = self._provider
        cached = {"cached_tokens": self._count(), "cache_write_tokens": self._count()}
        usage = {
            provider.input_tokens: self._count(),
            provider.output_tokens: self._count(),
            f"{provider.input_tokens}_details": self._random.choice([cached, None, [], 3]),
            provider.details: self._random.choice([{provider.reasoning_tokens: self._count()}, None, [], 3]),
            "cache_read_input_tokens": self._count(),
            "cache_creation_input_tokens": self._count(),
        }
        stated = self._random.choice([1, 2, 2, 2, len(usage)])
        names = (
            [provider.input_tokens, provider.output_tokens] if stated == 2 else self._random.sample([*usage], stated)
        )
        return {name: usage[name] for name in names}

    def _count(self) -> object:
        return self._random.choice(COUNTS)


def _encoded(body: object) -> bytes:
    return json.dumps(body).replace(f'"{TOO_LARGE}"', "1e400").encode()


async def try_run(seed: int, folder: Path, found: Found) -> None:
    """One run under a limit, or none, and its resume without one."""
    random = Random(seed)
    provider, limits = random.choice([*WIRES, OPENAI]), random.choice(LIMITS)
    fuzzer = Fuzzer(provider, random, found)

    async def answer(connection: Connection) -> None:
        await fuzzer.answer(server.received[-1].json)(connection)

    server: Server
    async with serving(answer) as server:
        several = ",votes_per_request=3" if provider is OPENAI and random.random() < 0.7 else ""
        priced = ",price_in=10,price_out=50" if "max_cost_usd" in limits or random.random() < 0.7 else ""
        common: dict[str, Any] = {"flag_above_tokens": 0, "max_output_tokens": 64, "max_outage_s": 60.0}
        result = await run(
            [Drift(length=3)] * random.choice([1, 2, 4]),
            models=f"{provider.name}:m@base_url={server.url}{several}{priced}",
            strategy=Maker(k=random.choice([1, 2, 3])),
            run_id=f"r{seed}",
            runs_dir=folder,
            **common,
            **limits,
        )
        _check(folder / f"r{seed}.sqlite", f"seed {seed}, {result.outcome}", found)
        found.outcomes[result.outcome] += 1
        again = await resume(f"r{seed}", runs_dir=folder, max_calls=None, max_tokens=None, max_cost_usd=None)
        _check(folder / f"r{seed}.sqlite", f"seed {seed}, resumed", found)
        found.outcomes[f"{again.outcome} after a resume"] += 1
    found.runs += 1
    found.miscounted += again.account.miscounted


def _check(journal: Path, what: str, found: Found) -> None:
    try:
        with Reader(journal) as reader:
            problems = reader.verify()
    except InvalidUsage as error:
        problems = [str(error)]
    found.refused += [f"{what}: {problem}" for problem in problems]


async def measure(replies: int, first: int = 0) -> Found:
    """Try runs until the server has given this number of replies."""
    found, seed = Found(), first
    while found.replies < replies:
        with tempfile.TemporaryDirectory(prefix="usages-") as folder:
            try:
                await try_run(seed, Path(folder), found)
            except* InvalidUsage as errors:
                found.refused += [f"seed {seed}: {error}" for error in errors.exceptions]
        seed += 1
    return found


def main() -> None:
    options = options_of(__doc__, replies=2000, first=0)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    outages.BACKOFF_S = (0.001, 0.002)
    found = asyncio.run(measure(options.replies, options.first))
    ended = ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.outcomes.items()))
    print(
        f"{found.replies:,} replies with a usage at random, {found.cut} streams among them cut, in {found.runs} runs ({ended}): "
        f"{found.miscounted} named as impossible; {len(found.refused)} journals refused"
    )
    for each in found.refused[:10]:
        print(each)


if __name__ == "__main__":
    main()
