"""Two agents: a desk hands the paying back off to the agent of payback.py."""

from payback import PayBack

from microagents import Action, AgentTask, Prompt, Reply, ToolCall, tool


@tool("agent")
def pay_back(number: int) -> PayBack:
    """Let the agent of the till pay an order back in full."""
    return PayBack(number=number)


class FrontDesk(AgentTask):
    tools = (pay_back,)

    def statement(self) -> str:
        return "A customer sends order 7 back. See to it."

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # only for the simulated model
        calls = [ToolCall("pay_back", {"number": 7}), ToolCall("end", {"answer": "seen to"})]
        return Action(calls=[calls[prompt.user.count("\nAction ")]])
