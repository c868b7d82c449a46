"""microagents: an agent with a function that pays. The program begins the run, or goes on with it, and says why it stopped."""

import asyncio
from pathlib import Path

from pay import pay

from microagents import Action, AgentTask, Prompt, Reply, ToolCall, resume, run, tool


@tool("destructive")
def refund(cents: int) -> str:  # noqa: ARG001 - the model says it
    """Pay money back to the customer."""
    pay()
    return "paid back"


class Order(AgentTask):
    tools = (refund,)

    def statement(self) -> str:
        return "Pay order 7 back."

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # for the simulated model
        is_paid = "<observation " in prompt.user
        return Action(calls=[ToolCall("end", {"answer": "done"}) if is_paid else ToolCall("refund", {"cents": 4900})])


is_begun = Path("runs/order-7.sqlite").exists()
work = resume("order-7") if is_begun else run(Order(), models="sim:perfect", run_id="order-7")
print(asyncio.run(work).reason)
