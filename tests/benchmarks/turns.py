"""Processor time of a step of an agent with 40 actions, by native calls and as text: ``python -m tests.benchmarks.turns [--rounds 25]``.

The model is OpenAI's wire with a client that answers in this process; each reply is a call that reads, and one vote decides. Each round
takes both, the first in turns, and the median of the ratios counts: other work on the machine then matters little.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from microagents import run
from microagents.models.http.sending import OnLine, Response
from microagents.models.model import ModelSpec
from microagents.models.openai import OpenAIModel
from microagents.systems.agents.agent import AgentTask
from microagents.tools.tool import tool
from tests.benchmarks.harness import options_of

ACTIONS = 40
RESULT = "paid " * 60


@tool("read_only")
def look_up(order: int) -> str:
    """Look an order up."""
    return f"{order}: {RESULT}"


class Reading(AgentTask):
    """Reads one order after the other."""

    tools: ClassVar[Any] = (look_up,)

    def statement(self) -> str:
        return "Read all orders."


class Here:
    """A client that answers at once, with the next order, or with the end."""

    def __init__(self) -> None:
        self.orders = 0

    async def post(
        self,
        path: str,  # noqa: ARG002
        body: dict[str, Any],
        headers: Mapping[str, str],  # noqa: ARG002
        on_line: OnLine | None = None,  # noqa: ARG002
    ) -> Response:
        """Answer a request."""
        sent = msgspec.json.encode(body)
        self.orders += 1
        name, arguments = ("look_up", {"order": self.orders}) if self.orders <= ACTIONS else ("end", {"answer": "done"})
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if "tools" in body:
            function = {"name": name, "arguments": json.dumps(arguments)}
            message["tool_calls"] = [{"id": f"call_{self.orders}", "type": "function", "function": function}]
        else:
            message["content"] = f"calls = {json.dumps([{'tool': name, 'arguments': arguments}])}"
        usage = {"prompt_tokens": len(sent) // 4, "completion_tokens": 20}
        reply = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
        return Response(status_code=200, headers={}, content=json.dumps(reply).encode())

    async def get(self, path: str) -> Response:
        raise NotImplementedError(path)

    async def close(self) -> None:
        """Do nothing."""


class InThisProcess(OpenAIModel):
    """OpenAI's wire with that client."""

    def _connect(self) -> Any:
        return Here()


def processor_s(**options: str) -> float:
    """Seconds of processor time of a step, on average over a run of an agent."""
    spec = ModelSpec(provider="openai", name="m", options={"base_url": "http://localhost:1", **options})
    began = time.process_time()
    result = asyncio.run(run(Reading(), models=[InThisProcess(spec)], strategy="act", runs_dir=None))
    took = time.process_time() - began
    assert (result.outcome, result.value["actions"]) == ("completed", ACTIONS), result
    return took / (ACTIONS + 1)


def main() -> None:
    """Print both times and their ratio."""
    options = options_of(__doc__, rounds=25)
    os.environ.setdefault("OPENAI_API_KEY", "none")
    processor_s()
    processor_s(calls="text")
    pairs = []
    for number in range(options.rounds):
        if number % 2:
            text_s, native_s = processor_s(calls="text"), processor_s()
        else:
            native_s, text_s = processor_s(), processor_s(calls="text")
        pairs.append((native_s, text_s))
    native, text = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratio = statistics.median(native / text for native, text in pairs)
    print(
        f"a step of an agent of {ACTIONS} actions: native {1e3 * native:.2f} ms, text {1e3 * text:.2f} ms, ratio {ratio:.2f}"
    )


if __name__ == "__main__":
    main()
