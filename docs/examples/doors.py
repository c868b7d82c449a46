"""A part of each kind, as small as it can be: a rule, a role, a strategy, a model, a tool and a runtime."""

import re
from functools import cached_property
from typing import Any, Literal, Self

from microagents import Call, ChainTask, Deployment, Request, Role, Rule, Strategy, Tally, Work, tool
from microagents.runtimes import LocalRuntime
from microagents.systems import ChainConductor, step_by_step


class Unopposed(Rule, frozen=True):
    """Decided by n equal votes; the first dissent ends it without a decision."""

    n: int = 2

    def votes_needed(self, tally: Tally) -> int:
        return 0 if len(tally.counts) > 1 else self.n - tally.counted

    def outcome(self, tally: Tally) -> Literal["decided", "argmax"]:
        return "decided" if len(tally.counts) == 1 else "argmax"


class UnitOf(Request[str], frozen=True):
    """A message: it names the type of its reply."""

    task: str


class UnitDesk(Role):
    """A role: it handles the messages that its methods are annotated with."""

    async def unit(self, request: UnitOf) -> str:
        return f"the unit of {request.task} is a piece"


class CarefulConductor(ChainConductor["Careful"]):
    asks = (*ChainConductor.asks, UnitOf)

    async def conduct(self, work: Work[ChainTask[Any, Any], "Careful"]) -> object:
        unit = await work.once("unit", UnitOf(task=type(work.task).__name__))
        return {"state": await step_by_step(self.chain(work)), "unit": unit}


class Careful(Strategy):
    """A strategy: it names what it solves, its conductor, and the roles beside those of an election."""

    solves, conductor = (ChainTask,), CarefulConductor
    n: int = 2

    @cached_property
    def default_rule(self) -> Rule:
        return Unopposed(n=self.n)

    def deployments(self) -> list[Deployment]:
        return [*super().deployments(), Deployment(role=UnitDesk)]


async def adder(call: Call) -> str:
    """A model: one attempt, which returns the text of a reply."""
    return f"total = {sum(map(int, re.findall(r'-?[0-9]+', call.prompt.user)))}"


@tool("read_only")
def rate_of(currency: str) -> float:
    """Look up what one unit of a currency is worth in euros."""
    return {"USD": 0.86, "CHF": 1.07}[currency]


class Loud(LocalRuntime):
    """A runtime: it is built from a context and deployments, and carries messages between roles."""

    async def __aenter__(self) -> Self:
        print("the roles start")
        return await super().__aenter__()
