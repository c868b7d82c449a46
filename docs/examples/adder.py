"""A first model of your own: an async function that gets a question and returns the text of a reply."""

import re

from microagents import Call


async def adder(call: Call) -> str:
    """Reply to the questions of adding.py. Ask your own model here, with `call.prompt.system` and `call.prompt.user`."""
    numbers = re.findall(r"-?\d+", call.prompt.user)
    return f"total = {sum(map(int, numbers))}"
