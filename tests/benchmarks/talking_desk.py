"""A desk that asks its customers, with 17 tools: ``python -m tests.benchmarks.talking_desk [--trials 100] [--seed 0 --seed 1 ...]``.

Sixty tickets name neither the order nor the wish, so the agent looks the customer up, asks, reads what the wish needs, asks whether it
shall do it, and does what the policy allows: pays back, ships another one, cancels, or moves the address. A script plays the customer.
One sample is right in .9 and else takes a wrong argument, a wrong tool, an effect too early, or the end too early, each independently of
the others; once arguments and tools are most of the errors, once the four kinds are equally frequent. The world's database judges a trial
by the gold actions of its ticket. The calls of an action are counted by its effect. A read takes one call unless its first sample is an
effect or the end: that leads until two reads stand against it.
Where samples err together, the share that is right stands beside the one that `measure` and `plan` expected.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from math import sqrt
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any, Literal

import msgspec
from msgspec import Struct

from microagents import (
    Action,
    AgentState,
    AgentTask,
    EffectKey,
    Prompt,
    Reply,
    RunInput,
    ToolCall,
    ask,
    measure,
    plan,
    run_sync,
    tool,
)
from microagents.base.foreign_text import fenced_in
from microagents.roles.executor import CustomerQuestion
from microagents.systems.agents.act import Act
from microagents.tools.toolbox import GivenTool
from tests.benchmarks.harness import options_of

TICKETS = 60
MODEL = "sim:perfect@error=0.1,alternatives=9"
GOODS = ("lamp", "kettle", "chair", "bell", "desk", "coat", "radio", "tea set")
WISHES = ("refund", "exchange", "cancel", "move")
SHARED = "sim:perfect@error=0.02,alternatives=9,hard=0.02"
"""A model whose samples err together at some questions: each of these has one wrong reply, more likely than the right one."""
BOUNDED = "mostly arguments and tools"
MISTAKES = {BOUNDED: (5, 3, 1, 1), "all kinds alike": (1, 1, 1, 1)}
"""Weights of a wrong argument, a wrong tool, an effect too early, and the end too early."""
WHICH, SHALL = "Which order is it, and what do you want?", "Shall I do this?"
LEAST_RIGHT = 0.99
"""The least share of right trials with the margins by harm; the trials of a command may have two standard errors less."""
MOST_CALLS = {"read": 1.1, "idempotent": 2.7, "destructive": 5.3, "end": 4.1}
"""The greatest means of calls of an action, by its effect, where arguments and tools are most of the errors.

Fewer trials than `TRIALS` may have two standard errors more.
"""
TRIALS = 100
Outcome = Literal["done", "declined", "left"]
NOT_ALLOWED = ("",)
OUTCOMES: dict[str, Outcome] = {"Yes, do": "done", "No, leave": "left", "": "declined"}


class Order(Struct, frozen=True):
    """An order of a customer."""

    order: int
    goods: str
    cents: int
    days: int
    """Days since its delivery; -1 if it is not sent yet."""
    stock: int


class Case(Struct, frozen=True):
    """A ticket: its customer, the order and the wish in the customer's mind, and whether the customer agrees in the end."""

    customer: int
    email: str
    orders: tuple[Order, ...]
    wanted: Order
    wish: str
    agrees: bool
    street: str

    @property
    def outcome(self) -> Outcome:
        """What becomes of it by the policy."""
        if not is_allowed(self.wish, self.wanted.days, self.wanted.stock):
            return "declined"
        return "done" if self.agrees else "left"

    def gold(self) -> tuple[Counter[str], set[str]]:
        """The destructive effects and the idempotent ones that are right."""
        order, outcome = self.wanted.order, self.outcome
        made: dict[str, list[tuple[object, ...]]] = {
            "refund": [("refund", order, self.wanted.cents)],
            "exchange": [("ship", order)],
            "cancel": [("cancel", order)],
            "move": [],
        }
        kept: dict[str, list[tuple[object, ...]]] = {
            "refund": [],
            "exchange": [("reserve", order)],
            "cancel": [],
            "move": [("set_address", self.customer, self.street)],
        }
        is_done = outcome == "done"
        destructive = [*(made[self.wish] if is_done else []), ("send_mail", self.customer, outcome)]
        idempotent = [*(kept[self.wish] if is_done else []), ("set_status", order, outcome)]
        return Counter(map(json.dumps, destructive)), set(map(json.dumps, idempotent))


def is_allowed(wish: str, days: int, stock: int) -> bool:
    """Return what the policy says of a wish."""
    return {"refund": 0 <= days <= 30, "exchange": days >= 0 and stock > 0, "cancel": days < 0, "move": True}[wish]


def case_of(ticket: int) -> Case:
    """Make the case of a ticket."""
    random, customer = Random(ticket), 100 + ticket
    orders = tuple(
        Order(
            order=1_000 + 10 * ticket + number,
            goods=goods,
            cents=random.choice((1_990, 4_500, 8_990, 15_000)),
            days=random.choice((-1, 2, 9, 27, 45)),
            stock=random.choice((0, 1, 7)),
        )
        for number, goods in enumerate(random.sample(GOODS, 3))
    )
    return Case(
        customer=customer,
        email=f"c{customer}@example.org",
        orders=orders,
        wanted=random.choice(orders),
        wish=WISHES[ticket % len(WISHES)],
        agrees=random.random() < 0.8,
        street=f"{ticket} Mill Lane",
    )


class World:
    """Tools of one ticket, and the database of the effects of all."""

    def __init__(self, path: str, ticket: int) -> None:
        self._path = path
        self._case = case_of(ticket)

    def _order(self, number: int) -> Order:
        found = [each for each in self._case.orders if each.order == number]
        if not found:
            raise ValueError(f"unknown order {number}")
        return found[0]

    def write(self, run: str, kind: str, *what: object) -> str:
        """Record an effect."""
        with closing(sqlite3.connect(self._path, timeout=60)) as db, db:
            db.execute("INSERT INTO effect VALUES (?, ?, ?)", (run, kind, json.dumps(what)))
        return "ok"

    def effects(self, run: str) -> tuple[Counter[str], set[str]]:
        """The destructive effects and the idempotent ones of a run and input."""
        with closing(sqlite3.connect(self._path, timeout=60)) as db:
            found = list(db.execute("SELECT kind, what FROM effect WHERE run = ?", (run,)))
        return Counter(what for kind, what in found if kind == "destructive"), {
            what for kind, what in found if kind == "idempotent"
        }

    @tool("read_only")
    def find_customer(self, email: str) -> dict[str, Any]:
        """Find a customer by the address of a mail."""
        if email != self._case.email:
            raise ValueError(f"unknown address {email}")
        return {"customer": self._case.customer}

    @tool("read_only")
    def get_customer(self, customer: int) -> dict[str, Any]:
        """Get the address of a customer."""
        return {"customer": customer, "street": "1 Old Road"}

    @tool("read_only")
    def list_orders(self, customer: int) -> list[dict[str, Any]]:
        """List the orders of a customer."""
        if customer != self._case.customer:
            return []
        return [{"order": each.order, "goods": each.goods} for each in self._case.orders]

    @tool("read_only")
    def get_order(self, order: int) -> dict[str, Any]:
        """Get the goods of an order."""
        return {"order": order, "goods": self._order(order).goods}

    @tool("read_only")
    def get_payment(self, order: int) -> dict[str, int]:
        """Get what was paid for an order."""
        return {"order": order, "paid_cents": self._order(order).cents}

    @tool("read_only")
    def get_shipment(self, order: int) -> dict[str, int]:
        """Get the days since an order was delivered; -1 if it is not sent yet."""
        return {"order": order, "days": self._order(order).days}

    @tool("read_only")
    def get_stock(self, order: int) -> dict[str, int]:
        """Get the number of the goods of an order in stock."""
        return {"order": order, "stock": self._order(order).stock}

    @tool("read_only")
    def get_policy(self, wish: str) -> dict[str, str]:
        """Read the policy on a wish."""
        return {"policy": f"policy on {wish}"}

    @tool("idempotent")
    def set_status(self, order: int, status: Outcome, run: RunInput) -> str:
        """Set the status of an order."""
        return self.write(run, "idempotent", "set_status", order, status)

    @tool("idempotent")
    def set_address(self, customer: int, street: str, run: RunInput) -> str:
        """Set the address of a customer."""
        return self.write(run, "idempotent", "set_address", customer, street)

    @tool("idempotent")
    def reserve(self, order: int, run: RunInput) -> str:
        """Reserve the goods of an order."""
        return self.write(run, "idempotent", "reserve", order)

    @tool("idempotent")
    def add_note(self, order: int, text: str, key: EffectKey) -> str:  # noqa: ARG002 - nobody reads it
        """Add a note to an order."""
        return "ok"

    @tool("destructive")
    def refund(self, order: int, cents: int, run: RunInput) -> str:
        """Pay money back."""
        return self.write(run, "destructive", "refund", order, cents)

    @tool("destructive")
    def ship(self, order: int, run: RunInput) -> str:
        """Ship the goods of an order once more."""
        return self.write(run, "destructive", "ship", order)

    @tool("destructive")
    def cancel(self, order: int, run: RunInput) -> str:
        """Cancel an order."""
        return self.write(run, "destructive", "cancel", order)

    @tool("destructive")
    def send_mail(self, customer: int, template: Outcome, run: RunInput) -> str:
        """Send a mail to a customer."""
        return self.write(run, "destructive", "send_mail", customer, template)


READS = (
    *("find_customer", "get_customer", "list_orders", "get_order", "get_payment", "get_shipment", "get_stock"),
    "get_policy",
)
WRITES = ("set_status", "set_address", "reserve", "add_note")
HARMS = ("refund", "ship", "cancel", "send_mail")


class Closed(Struct, frozen=True):
    """What became of a ticket."""

    outcome: Outcome


class TalkingDesk(AgentTask[Closed]):
    """Do what the customer wants, as far as the policy allows it."""

    ticket: int = 0
    world: str = "world.sqlite"
    mistakes: tuple[int, ...] = (5, 3, 1, 1)

    def variant(self, number: int) -> TalkingDesk:
        return self.model_copy(update={"ticket": self.ticket + number})

    def given_tools(self) -> Sequence[GivenTool]:
        world = World(self.world, self.ticket)
        return [*(getattr(world, name) for name in (*READS, *WRITES, *HARMS)), ask]

    def statement(self) -> str:
        return f"{case_of(self.ticket).email} writes: I need help with something that I ordered. Please call me Sam."

    def check(self, state: AgentState, result: Closed, run: RunInput) -> bool:  # noqa: ARG002 - the world decides
        return World(self.world, self.ticket).effects(run) == case_of(self.ticket).gold()

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - it has one kind of reply
        return Action(calls=[next(_way(prompt.user))])

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:  # noqa: ARG002 - nor does it need the question
        """Err in one of four ways: a wrong argument, a wrong tool, an effect too early, or the end too early."""
        assert isinstance(right, Action)
        (call,), case = right.calls, case_of(self.ticket)
        while True:
            order = rng.choice(case.orders).order
            tools = [
                *(ToolCall(name, {"order": order}) for name in ("get_order", "get_payment", "get_stock", "reserve")),
                ToolCall("add_note", {"order": order, "text": "called"}),
                ToolCall("list_orders", {"customer": case.customer}),
                ToolCall("ask", {"text": rng.choice(("Anything else?", SHALL, WHICH))}),
            ]
            early = [
                ToolCall("refund", {"order": order, "cents": 100 * rng.randrange(1, 200)}),
                *(ToolCall(name, {"order": order}) for name in ("ship", "cancel")),
                ToolCall("send_mail", {"customer": case.customer, "template": rng.choice(("done", "declined"))}),
                ToolCall("set_status", {"order": order, "status": rng.choice(("done", "declined"))}),
            ]
            kinds = [
                ToolCall(call.tool, {**call.arguments, **_other(call, order, rng)}),
                rng.choice(tools),
                rng.choice(early),
                ToolCall("end", {"outcome": rng.choice(("done", "declined", "left"))}),
            ]
            (wrong,) = rng.choices(kinds, self.mistakes)
            if wrong != call:
                return Action(calls=[wrong])


def _other(call: ToolCall, order: int, rng: Random) -> dict[str, Any]:
    """Another value of one argument of a call."""
    values = {
        "order": order,
        "cents": rng.choice((1_990, 4_500, 8_990)),
        "customer": 99,
        "email": "sam@example.org",
        "wish": rng.choice(WISHES),
        "status": rng.choice(("done", "declined")),
        "template": rng.choice(("done", "declined")),
        "outcome": rng.choice(("done", "declined", "left")),
        "street": "1 Old Road",
        "text": "Anything else?",
    }
    name = rng.choice([*call.arguments])
    return {name: values[name]}


def _way(text: str) -> Iterator[ToolCall]:
    """Yield the right calls that the prompt does not show as made."""
    made = [
        (msgspec.json.decode(action, type=ToolCall), returned)
        for action, returned in zip(
            re.findall(r"^Action \d+: (.*)\n<observation ", text, re.MULTILINE),
            fenced_in(text, "observation"),
            strict=True,
        )
    ]

    def value_of(call: ToolCall) -> Any:
        return next((msgspec.json.decode(returned) for each, returned in made if each == call), None)

    def said(pattern: str) -> re.Match[str] | None:
        found = (re.search(pattern, returned) for call, returned in made if call.tool == "ask")
        return next(filter(None, found), None)

    email = re.search(r"(\S+@\S+) writes", text)
    assert email is not None
    found = value_of(finding := ToolCall("find_customer", {"email": email[1]}))
    if found is None:
        yield finding
    who = {"customer": found["customer"]}
    orders = value_of(listing := ToolCall("list_orders", who))
    if orders is None:
        yield listing
    wish = said(r"It is the (.+); I want: (\w+)(?:, to (.+))?")
    if wish is None:
        yield ToolCall("ask", {"text": WHICH})
        return
    order = {"order": next(each["order"] for each in orders if each["goods"] == wish[1])}
    read = {}
    for name, field in (("get_shipment", "days"), ("get_stock", "stock"), ("get_payment", "paid_cents")):
        call = ToolCall(name, order)
        if value_of(call) is None:
            yield call
        read[field] = value_of(call)[field]
    policy = ToolCall("get_policy", {"wish": wish[2]})
    if value_of(policy) is None:
        yield policy
    agreed = said("Yes, do|No, leave") if is_allowed(wish[2], read["days"], read["stock"]) else NOT_ALLOWED
    if agreed is None:
        yield ToolCall("ask", {"text": SHALL})
        return
    outcome = OUTCOMES[agreed[0]]
    calls = [call for call, _ in made]
    right = _effects(who, order, read["paid_cents"], wish, outcome)
    yield from (each for each in right if each not in calls)


def _effects(
    who: dict[str, Any], order: dict[str, int], cents: int, wish: re.Match[str], outcome: Outcome
) -> list[ToolCall]:
    """List the right calls once the outcome is known."""
    effects = {
        "refund": [ToolCall("refund", {**order, "cents": cents})],
        "exchange": [ToolCall("reserve", order), ToolCall("ship", order)],
        "cancel": [ToolCall("cancel", order)],
        "move": [ToolCall("set_address", {**who, "street": wish[3]})],
    }
    last = [ToolCall("set_status", {**order, "status": outcome}), ToolCall("send_mail", {**who, "template": outcome})]
    end = ToolCall("end", {"outcome": outcome})
    return [*(effects[wish[2]] if outcome == "done" else []), *last, end]


def answer(ticket: int, text: str) -> str:
    """What the customer of a ticket says to a question."""
    case = case_of(ticket)
    if text == WHICH:
        where = f", to {case.street}" if case.wish == "move" else ""
        return f"It is the {case.wanted.goods}; I want: {case.wish}{where}"
    if text == SHALL:
        return "Yes, do it." if case.agrees else "No, leave it."
    return "What do you mean?"


def world_in(folder: Path) -> str:
    """Make the database of the effects of a run."""
    folder.mkdir(exist_ok=True)
    world = str(folder / "world.sqlite")
    with closing(sqlite3.connect(world)) as db, db:
        db.execute("PRAGMA journal_mode = wal")
        db.execute("CREATE TABLE effect (run TEXT, kind TEXT, what TEXT)")
    return world


async def customer(question: CustomerQuestion) -> str:
    """Answer as the customer of the ticket, whose number follows from that of the input."""
    return answer(int(question.path.partition("/")[0]) % TICKETS, question.text)


class Done(Struct, frozen=True, kw_only=True):
    """Trials that were done."""

    right: int
    calls: dict[str, float]
    """Mean calls of an action, by its effect."""
    errors: dict[str, float]
    """Standard errors of these means."""
    asked: int
    """Questions to customers."""
    at_once: float
    """Share of the reads that one call decides."""


def do(
    trials: int, strategy: Act, seed: int, folder: Path, *, model: str = MODEL, mistakes: tuple[int, ...] = (5, 3, 1, 1)
) -> Done:
    """Do tickets."""
    world = world_in(folder)
    inputs = [TalkingDesk(ticket=number % TICKETS, world=world, mistakes=mistakes) for number in range(trials)]
    asked = []

    async def on_ask(question: CustomerQuestion) -> str:
        asked.append(question)
        return await customer(question)

    runs: Any = {"runs_dir": folder / "runs", "on_ask": on_ask, "seed": seed, "on_undecided": "stop"}
    result = run_sync(inputs, models=model, strategy=strategy, **runs)
    calls = defaultdict[str, list[int]](list)
    for each in result.decisions():
        if re.fullmatch(r"\d+/step/\d+", each.path):
            kind = _kind_of(each.value["calls"][0].tool)
            calls[kind].append(sum(number for _, number in each.votes) + sum(each.flags.values()))
    right = sum(bool(value and value["correct"]) for value in result.value)
    means = {kind: fmean(found) for kind, found in sorted(calls.items())}
    errors = {kind: stdev(found) / sqrt(len(found)) for kind, found in calls.items()}
    return Done(
        right=right, calls=means, errors=errors, asked=len(asked), at_once=fmean(each == 1 for each in calls["read"])
    )


def _kind_of(name: str) -> str:
    if name in READS:
        return "read"
    if name in HARMS:
        return "destructive"
    return "end" if name == "end" else "idempotent"


def main(trials: int, seeds: Sequence[int]) -> None:
    """Do so many trials for each seed, with the margins by harm and with single calls."""
    single = Act(k_read=1, k_write=1, k_destructive=1, k_end=1)
    for kinds, mistakes in MISTAKES.items():
        for name, strategy in (("margins by harm", Act()), ("single calls", single)):
            found = [done_of(trials, strategy, seed, mistakes, f"{kinds}, {name}") for seed in seeds]
            if strategy is single:
                continue
            number = trials * len(seeds)
            assert sum(each.right for each in found) >= LEAST_RIGHT * number - 2 * sqrt(
                number * LEAST_RIGHT * (1 - LEAST_RIGHT)
            )
            if kinds == BOUNDED:
                slack = 2 * (trials < TRIALS)
                for each, (kind, most) in itertools.product(found, MOST_CALLS.items()):
                    assert each.calls[kind] - slack * each.errors[kind] <= most, kind
    with TemporaryDirectory() as folder:
        shared(trials * len(seeds), seeds[0], Path(folder))


def done_of(trials: int, strategy: Act, seed: int, mistakes: tuple[int, ...], name: str) -> Done:
    """Do trials, and print the figures."""
    began_s = time.monotonic()
    with TemporaryDirectory() as folder:
        done = do(trials, strategy, seed, Path(folder), mistakes=mistakes)
    each = ", ".join(f"{kind} {mean:.3f}" for kind, mean in done.calls.items())
    print(
        f"{name}, seed {seed}: {done.right} of {trials} right; calls an action: {each}; reads by one call {done.at_once:.3f}; "
        f"{done.asked} questions, {time.monotonic() - began_s:.0f} s",
        flush=True,
    )
    return done


def shared(trials: int, seed: int, folder: Path) -> None:
    """Measure a model whose samples err together in one trial of each ticket, and compare the plan with other trials."""
    runs: Any = {"runs_dir": folder / "runs", "on_ask": customer, "seed": seed + 1}
    desk = TalkingDesk(world=world_in(folder / "measured"))
    measured = asyncio.run(measure(desk, models=SHARED, steps=TICKETS, **runs))
    chance = plan(desk, measured).runs[0].chance
    right = do(trials, Act(), seed, folder, model=SHARED).right
    print(
        f"errors shared: {right} of {trials} right ({right / trials:.3f}); planned from {TICKETS} measured trials {chance.share:.3f} "
        f"({chance.low:.3f} to {chance.high:.3f})"
    )
    assert chance.low <= right / trials <= chance.high


if __name__ == "__main__":
    arguments = options_of(__doc__.partition("\n")[0], trials=TRIALS, seed=[0, 1, 2])
    main(arguments.trials, arguments.seed)
