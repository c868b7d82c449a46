"""A cap on models of one's own, which state no maximum: `python -m tests.benchmarks.caps [--runs N]`.

Each run has random prices, latencies, faults and a random cap, and asks one or two models through one or two replicas of the solver. The
seller knows the price of a call when it is sent, the run only by the reply. With prices of a model within a factor of three no run may go
above its cap by more than its dearest call, for each call that ended without a reply before any price was known; else by no more than the
calls in flight when the last one was sent, and those that were cancelled. Some of the processes are killed, and their runs resumed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import structlog
from msgspec import Struct

from microagents import Call, Sample
from microagents.base.errors import ModelUnavailable
from microagents.models.model import Model
from microagents.replies.chat import Usage
from microagents.runs.driver.begin import run
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift
from tests.benchmarks.harness import is_killed, options_of

FACTOR = 3
"""The dearest call of a model costs as many times its cheapest."""
LEAST_USD = 2e-6
"""Smaller amounts are rounding errors."""
BEYOND = 300
"""The same in runs with other prices."""


class Manners(Struct, frozen=True, kw_only=True):
    """How a seller sells."""

    cheapest_usd: float
    factor: float
    gifts: int
    """Number of first calls that cost nothing."""
    malformed: float
    """Share of replies that cannot be read."""
    untold: float
    """Share of later replies without a cost."""
    unanswered: float
    """Share of calls without a reply, which are billed."""
    slowest_s: float


class Till:
    """The bills of all sellers of a run, one line in a file for each call that is sent and for each reply."""

    def __init__(self, book: Path) -> None:
        self._book = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.open: dict[int, float] = {}
        """Costs of the calls in flight by their numbers."""
        self.exposed_usd = 0.0
        """Their sum when the last call was sent."""
        self.cancelled_usd = 0.0
        """Cost of the calls that were cancelled, which no reply tells."""

    def write(self, line: str) -> None:
        os.write(self._book, f"{line}\n".encode())


class Pricey(Model):
    """A seller who says what a call has cost, and never what it will.

    Args:
        name: name of the model.
        till: takes the bills.
        manners: how it sells.
        seed: decides all that is random.
        dies_at: number of the call at which the process is killed; None for none.
    """

    priced = True

    def __init__(self, name: str, till: Till, manners: Manners, seed: int, dies_at: int | None = None) -> None:
        self.spec = name
        self._till, self._manners, self._random = till, manners, Random(f"{name} {seed}")
        self._dies_at = dies_at
        self._sold = self._told = 0

    async def complete(self, call: Call) -> Sample:
        manners, chance, till = self._manners, self._random, self._till
        self._sold += 1
        number, is_gift = self._sold, self._sold <= manners.gifts
        cost_usd = 0.0 if is_gift else manners.cheapest_usd * manners.factor ** chance.random()
        till.write(f"sent {cost_usd!r}")
        till.open[id(call)] = cost_usd
        till.exposed_usd = sum(till.open.values())
        if number == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            await asyncio.sleep(chance.uniform(manners.slowest_s / 10, manners.slowest_s))
        except asyncio.CancelledError:
            till.cancelled_usd += cost_usd
            raise
        finally:
            del till.open[id(call)]
        if chance.random() < manners.unanswered:
            raise ModelUnavailable("timeout", "paid for nothing", None, 0.001)
        is_told = not self._told or chance.random() >= manners.untold
        self._told += 1
        till.write("told")
        value = (int(call.prompt.user.removeprefix("Number: ")) * 17 + 5) % 1009
        text = "no idea" if chance.random() < manners.malformed else f"number = {value}"
        usage = Usage(input_tokens=50, output_tokens=10, cost_usd=cost_usd if is_told else None)
        return Sample(text=text, usage=usage, model=self.spec)


class Bills(Struct, frozen=True):
    """What all sellers of a run have billed."""

    sum_usd: float
    dearest_usd: float
    calls: int
    unpriced: int
    """Calls that were sent before the first reply."""


def billed(book: Path) -> Bills:
    lines = [line.split() for line in book.read_text(encoding="utf-8").splitlines()] if book.exists() else []
    costs = [float(line[1]) for line in lines if line[0] == "sent"]
    first = next((at for at, line in enumerate(lines) if line[0] == "told"), len(lines))
    return Bills(sum(costs), max(costs, default=0.0), len(costs), max(1, first))


class Found(Struct):
    """What all runs together showed."""

    runs: int = 0
    calls: int = 0
    stopped: int = 0
    """Runs that their cap stopped."""
    kills: int = 0
    above: int = 0
    """Runs that went above their cap."""
    worst: float = 0.0
    """The largest excess in dearest calls; of prices within the factor, with a reply to the first call."""
    worst_unpriced: float = 0.0
    """The same if the first calls had no reply."""
    worst_in_flight: float = 0.0
    """The largest excess as a share of the calls in flight; of other prices."""
    failed: list[str] = []
    """Runs beyond their bound, and those whose first line does not say that they are above their cap, though they know all bills."""
    used: float = 0.0
    """Sum of the shares of caps that were used when they stopped a run."""


def _manners(chance: Random, *, is_close: bool, is_alone: bool) -> Manners:
    return Manners(
        cheapest_usd=10 ** chance.uniform(-4, -1),
        factor=FACTOR if is_close else chance.choice([10, BEYOND]),
        gifts=0 if is_close else chance.choice([0, 0, 1, 10]),
        malformed=chance.choice([0.0, 0.0, 0.0, 0.3, 1.0]),
        untold=chance.choice([0.0, 0.2]) if is_close else 0.0,
        unanswered=chance.choice([0.0, 0.0, 0.2]) if is_close and is_alone else 0.0,
        slowest_s=chance.choice([0.1, 0.5, 5.0]),
    )


def sit(
    folder: Path, sellers: dict[str, Manners], seed: int, dies_at: int | None, settings: dict[str, Any]
) -> tuple[str, str, Till]:
    """One sitting of a run; returns its outcome, the first line of its summary, and the bills."""
    till, chance = Till(folder / "book"), Random(seed)
    models = [Pricey(name, till, manners, seed, dies_at) for name, manners in sellers.items()]
    work = [Drift(length=chance.randint(2, 10))] * chance.choice([2, 10, 60])
    result = run_virtual(
        run(
            work,
            models=models if len(models) > 1 else chance.choice([models[0], _function_of(models[0])]),
            strategy=Maker(k=chance.randint(1, 3), speculate=chance.random() < 0.7),
            runtime="linked",
            deploy={"solver": {"num_replicas": chance.randint(1, 2)}},
            concurrency=chance.choice([None, None, 4]),
            run_id="r",
            runs_dir=folder / "runs" if dies_at is not None else None,
            durability="normal",
            max_outage_s=60.0,
            **settings,
        ),
        seed=seed,
    )
    return result.outcome, str(result).partition("\n")[0], till


def _function_of(model: Pricey) -> Any:
    """A seller as an object that is no `Model`."""

    class Seller:
        spec, priced, complete = model.spec, True, model.complete

    return Seller()


def try_run(seed: int, folder: Path, found: Found) -> None:
    chance = Random(seed)
    is_close, is_alone = chance.random() < 0.6, chance.random() < 0.7
    names = ["one"] if is_alone else ["one", "two"]
    sellers = {name: _manners(chance, is_close=is_close, is_alone=is_alone) for name in names}
    cap_usd = sellers["one"].cheapest_usd * 10 ** chance.uniform(-0.5, 3)
    dies_at = chance.choice([None, None, 1, 2, chance.randint(3, 60)]) if is_close and is_alone else None
    settings = {"max_cost_usd": cap_usd}
    if dies_at is not None:
        found.kills += is_killed(lambda: sit(folder, sellers, seed, dies_at, settings))
        dies_at = 0
    outcome, line, till = sit(folder, sellers, seed, dies_at, settings)
    bills = billed(folder / "book")
    excess = max(0.0, bills.sum_usd - cap_usd)
    found.runs += 1
    found.calls += bills.calls
    found.above += excess > 0
    is_all_told = not till.cancelled_usd and dies_at is None
    is_all_told &= not any(each.untold or each.unanswered for each in sellers.values())
    is_unsaid = is_all_told and excess > LEAST_USD and "above --max-cost" not in line
    if outcome == "stopped":
        found.stopped += 1
        found.used += min(1.0, bills.sum_usd / cap_usd)
    bound = bills.dearest_usd * bills.unpriced if is_close else till.exposed_usd + till.cancelled_usd
    share = excess / bound if bound else 0.0
    if is_close and bills.unpriced == 1:
        found.worst = max(found.worst, excess / bills.dearest_usd)
    elif is_close:
        found.worst_unpriced = max(found.worst_unpriced, excess / bills.dearest_usd)
    else:
        found.worst_in_flight = max(found.worst_in_flight, share)
    if share > 1 + 1e-9 or is_unsaid:
        found.failed.append(f"run {seed}: ${excess:.6f} above ${cap_usd:.6f}, {share:.2f} of its bound; {line}")


def measure(runs: int, first: int = 0) -> Found:
    found = Found()
    for seed in range(first, first + runs):
        with tempfile.TemporaryDirectory(prefix="caps-") as folder:
            try_run(seed, Path(folder), found)
    return found


def main() -> None:
    options = options_of(__doc__, runs=500, first=0)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    found = measure(options.runs, options.first)
    print(*found.failed, sep="\n")
    print(
        f"{found.runs} runs, {found.calls:,} calls, {found.kills} kills: {found.above} went above their cap, {len(found.failed)} beyond "
        f"the bound or without a word; at worst by {found.worst:.2f} of the dearest call with prices within a factor of "
        f"{FACTOR} ({found.worst_unpriced:.2f} if the first calls had no reply), and by {found.worst_in_flight:.0%} of the calls in flight "
        f"with others; {found.stopped} runs were stopped, with "
        f"{found.used / max(1, found.stopped):.1%} of the cap used on average"
    )
    raise SystemExit(bool(found.failed))


if __name__ == "__main__":
    main()
