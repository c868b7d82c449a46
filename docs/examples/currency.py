"""A role and a strategy of one's own: look up an exchange rate for every line, and take hard lines to a stronger model."""

from decimal import Decimal
from functools import partial

from ledger import Booked, Ledger, Page

from microagents import Conductor, Deployment, FirstToAheadBy, Prompt, Request, Role, Strategy


class RateOf(Request[Decimal], frozen=True):
    """Ask what one unit of a currency is worth in euros. The message's class is its address."""

    currency: str


class RateDesk(Role):
    """Answers it. Another replica could stand on another machine."""

    async def start(self) -> None:
        self.rates = {"USD": Decimal("0.86"), "CHF": Decimal("1.07")}

    async def rate(self, request: RateOf) -> Decimal:
        return self.rates[request.currency]


class AbroadConductor(Conductor[Ledger, "Abroad"]):
    """Walks the ledger. Apart from `once` and `elect` it must be deterministic: it may be replayed."""

    asks = (RateOf,)

    async def conduct(self) -> Page:
        state = self.task.start()
        while not self.task.done(state):
            at, asked = f"line/{state.line}", self.task.prompt(state)
            rate = await self.once(f"{at}/rate", RateOf(currency=self.strategy.currency))
            prompt = Prompt(system=asked.system, user=f"{asked.user}\nFor reference: 1 {self.strategy.currency} is {rate} EUR")
            judge = partial(self.task.correct, state)  # counts wrong decisions; optional
            booked = await self.elect(at, prompt, Booked, rule=FirstToAheadBy(self.strategy.k), max_draws=20, correct=judge)
            if not booked.decided:
                booked = await self.elect(f"{at}/strong", prompt, Booked, model=self.strategy.strong, correct=judge)
            state = self.task.advance(state, booked.require())  # Undecided, if it still is
            self.progress(state.line, self.task.steps())
        return state


class Abroad(Strategy):
    """microagents run ledger.py:Ledger -o bookings=@bookings.csv --strategy currency.py:Abroad -s strong=openai:o4-mini"""

    solves, conductor = (Ledger,), AbroadConductor
    k: int = 3
    currency: str = "USD"
    strong: str

    def deployments(self) -> list[Deployment]:
        return [*super().deployments(), Deployment(role=RateDesk, num_replicas=2)]
