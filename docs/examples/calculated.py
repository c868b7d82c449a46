"""Recursive decomposition with a role of your own: a turn that code can do needs no model."""

import re

import msgspec
from msgspec import Raw

from microagents import Deployment
from microagents.systems import Recursive
from microagents.systems.questions import Compose, Composer
from microagents.tasks.multiplication import Product


class Calculator(Composer):
    """Takes the composer's place, since it handles the same message."""

    async def compose(self, request: Compose) -> tuple[Raw, ...]:
        """One candidate needs no vote. A composition that it cannot read goes to models, as before."""
        asked = request.asked
        scale = re.fullmatch(r"Multiply the first answer by (\d+) and add the second answer\.", asked.compose)
        if scale is None:
            return await self.put(request)
        first, second = (
            msgspec.json.decode(each, type=Product).product for each in (asked.answer_to_first, asked.answer_to_second)
        )
        return (Raw(msgspec.json.encode(Product(product=first * int(scale[1]) + second))),)


class Calculated(Recursive):
    """microagents run multiplication --strategy calculated.py:Calculated"""

    def deployments(self) -> list[Deployment]:
        return [*(each for each in super().deployments() if each.role is not Composer), Deployment(role=Calculator)]
