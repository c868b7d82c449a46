"""A desk that asks its customer which order is meant, and pays it back."""

import re
from pathlib import Path

from microagents import Action, AgentTask, Prompt, Reply, ToolCall, ask, tool


@tool("destructive")
def refund(number: int) -> str:
    """Pay an order back in full."""
    with Path("paid.txt").open("a") as paid:
        paid.write(f"order {number}\n")
    return f"paid order {number} back"


class Helpdesk(AgentTask):
    tools = (refund, ask)  # with `ask` a customer is there
    message: str = "My lamp broke, and I want my money back."

    def statement(self) -> str:
        return f"A customer writes: {self.message} Find out the number of the order, and pay it back."

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # only for the simulated model
        number = re.search(r"\border (\d+)", prompt.user)
        if number is None:
            call = ToolCall("ask", {"text": "Which order is it?"})
        elif "paid order" not in prompt.user:
            call = ToolCall("refund", {"number": int(number[1])})
        else:
            call = ToolCall("end", {"answer": f"paid order {number[1]} back"})
        return Action(calls=[call])
