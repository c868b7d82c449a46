"""Extract supplier, price and term from contracts, by a pool of three models: what one misreads, the others outvote."""

import re
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from microagents import ChainTask, Prompt, Reply

RULES = "Read the contract. Give the name of the supplier, the yearly price in cents, and the last day as YYYY-MM-DD."
TEXT = """This agreement is made between {buyer} ("the Customer") and {supplier} ("the Supplier"). The Supplier shall
deliver {goods}. The Customer pays {month} euros a month, in advance; a late payment costs {fine} euros. The agreement begins on
1 January {first} and ends with the year {last}."""


class Terms(Reply, frozen=True):
    supplier: str
    cents_a_year: int
    last_day: str


class Extracted(Struct, frozen=True):
    found: tuple[Terms, ...] = ()


class Register(Extracted, frozen=True):
    solved: bool = False


class Contracts(ChainTask[Extracted, Terms, Register]):
    """microagents run contracts.py --model A --model B --model C"""

    contracts: int = 30
    seed: int = 1

    def text(self, number: int) -> str:
        """A contract. For your own, read it from a file."""
        rng = Random(f"{self.seed} {number}")
        first = rng.randint(2020, 2026)
        buyer, supplier = rng.sample(["Alder & Co", "Brook Ltd", "Cedar GmbH", "Dune SA"], 2)
        goods = rng.choice(["printer paper", "spring water", "cloud storage"])
        month, fine = rng.randrange(90, 4000, 5), rng.randrange(10, 60, 5)
        last = first + rng.randint(0, 4)
        return TEXT.format(**locals() | {"self": None})

    def start(self) -> Extracted:
        return Extracted()

    def done(self, state: Extracted) -> bool:
        return len(state.found) == self.contracts

    def prompt(self, state: Extracted) -> Prompt:
        return Prompt(system=RULES, user=self.text(len(state.found)))

    def flag(self, state: Extracted, reply: Terms) -> str | None:  # a name that is not in it was made up
        return None if reply.supplier in self.text(len(state.found)) else "not_in_text"

    def advance(self, state: Extracted, reply: Terms) -> Extracted:
        return Extracted(found=(*state.found, reply))

    def result(self, state: Extracted) -> Register:
        right = [self.read(self.text(number)) for number in range(self.contracts)]
        return Register(found=state.found, solved=list(state.found) == right)

    def oracle(self, state: Extracted) -> Terms:
        return self.read(self.text(len(state.found)))

    def read(self, text: str) -> Terms:
        supplier, month, last = re.search(r'(?s)and (.*) \("the Su.* pays (\d+) euros.* year (\d+)', text).groups()
        return Terms(supplier=supplier, cents_a_year=12 * 100 * int(month), last_day=f"{last}-12-31")

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Terms:
        return self.read(prompt.user)

    def mistake(self, prompt: Prompt, right: Terms, rng: Random) -> Terms:
        """What models do: take the customer, the price of a month, or the year before."""
        buyer, year = re.search(r"between (.*) \(\"the Cus", prompt.user)[1], int(right.last_day[:4])
        wrong = [{"supplier": buyer}, {"cents_a_year": right.cents_a_year // 12}, {"last_day": f"{year - 1}-12-31"}]
        return replace(right, **rng.choice(wrong))
