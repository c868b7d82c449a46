"""Pay an order back: a first agent, with two functions."""

from microagents import Action, AgentTask, Prompt, Reply, ToolCall, tool


@tool("read_only")
def order(number: int) -> dict[str, int]:
    """Look up what was paid for an order."""
    return {"number": number, "paid_cents": 4900}


@tool("destructive")
def refund(number: int, cents: int) -> str:
    """Pay money back to the customer of an order."""
    return f"paid {cents} cents back for order {number}"


class PayBack(AgentTask):
    tools = (order, refund)
    number: int = 7  # an option: -o number=8

    def statement(self) -> str:
        return f"Pay order {self.number} back in full."

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # only for the simulated model
        calls = [
            ToolCall("order", {"number": self.number}),
            ToolCall("refund", {"number": self.number, "cents": 4900}),
            ToolCall("end", {"answer": "paid back"}),
        ]
        return Action(calls=[calls[prompt.user.count("\nAction ")]])
