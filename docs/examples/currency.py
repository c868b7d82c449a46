"""A role and a strategy of your own: look up an exchange rate for every line, and take hard lines to a stronger model."""

from decimal import Decimal
from functools import partial

from ledger import Booked, Ledger, Page

from microagents import Conductor, Deployment, FirstToAheadBy, Prompt, Request, Role, Strategy, Work


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
    """Walks the ledger. Apart from the calls of `work` it is deterministic, since a resumed run replays it."""

    asks = (RateOf,)

    async def conduct(self, work: Work[Ledger, "Abroad"]) -> Page:
        task, strategy = work.task, work.strategy
        state = task.start()
        while not task.done(state):
            at, asked = f"line/{state.line}", task.prompt(state)
            rate = await work.once(f"{at}/rate", RateOf(currency=strategy.currency))
            prompt = Prompt(
                system=asked.system, user=f"{asked.user}\nFor reference: 1 {strategy.currency} is {rate} EUR"
            )
            judge = partial(task.correct, state)  # counts wrong decisions; optional
            booked = await work.elect(at, prompt, Booked, rule=FirstToAheadBy(strategy.k), max_draws=20, correct=judge)
            if not booked.decided:
                booked = await work.elect(f"{at}/strong", prompt, Booked, model=strategy.strong, correct=judge)
            state = task.advance(state, booked.require())  # Undecided, if it still is
            work.progress(state.line, task.steps())
        return state


class Abroad(Strategy):
    """microagents run ledger.py:Ledger -o bookings=@bookings.csv --strategy currency.py:Abroad -s strong=openai:gpt-6.1-sol"""

    solves, conductor = (Ledger,), AbroadConductor
    k: int = 3
    currency: str = "USD"
    strong: str

    def deployments(self) -> list[Deployment]:
        return [*super().deployments(), Deployment(role=RateDesk, num_replicas=2)]
