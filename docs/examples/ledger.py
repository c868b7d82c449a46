"""A year of bookings, one line a step: name the account of a line, and carry the balance on."""

import csv
import re
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Literal

from msgspec import Struct

from microagents import ChainTask, Prompt, Reply, Unvoted


class Booked(Reply, frozen=True):
    """What the model fills in. Two replies agree when account and balance do; the remark is free."""

    account: Literal["income", "rent", "wages", "other"]
    balance: Decimal
    remark: Annotated[str, Unvoted] = ""


class Page(Struct, frozen=True):
    """What one step hands to the next."""

    line: int
    balance: Decimal


class Ledger(ChainTask[Page, Booked]):
    """microagents run ledger.py:Ledger -o bookings=@bookings.csv"""

    bookings: str
    opening: Decimal = Decimal("0.00")

    @cached_property
    def lines(self) -> list[dict[str, str]]:
        return list(csv.DictReader(self.bookings.splitlines()))

    def start(self) -> Page:
        return Page(0, self.opening)

    def steps(self) -> int:
        return len(self.lines)

    def done(self, state: Page) -> bool:
        return state.line == len(self.lines)

    def prompt(self, state: Page) -> Prompt:
        line = self.lines[state.line]
        rule = "You keep a ledger. Name the account that a line belongs to, and add the line's amount to the balance."
        return Prompt(
            system=rule, user=f"Balance so far: {state.balance}\nAmount: {line['amount']}\nText: {line['text']}"
        )

    def advance(self, state: Page, reply: Booked) -> Page:
        return Page(state.line + 1, reply.balance)

    def oracle(self, state: Page) -> Booked:
        """The right reply, where code can tell: counts wrong decisions, and allows known_inputs. Optional."""
        return Booked(account="other", balance=state.balance + Decimal(self.lines[state.line]["amount"]))

    def correct(self, state: Page, reply: Booked) -> bool:
        """Needed only where right replies may differ from the oracle's: here code cannot tell the account."""
        return reply.balance == self.oracle(state).balance

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Booked:
        """Lets the simulated model stand in for a real one. Optional."""
        balance, amount = re.findall(r": (-?\d+\.\d\d)$", prompt.user, re.MULTILINE)
        return Booked(account="other", balance=Decimal(balance) + Decimal(amount))
