"""Limits of cost against a seller who counts for himself: `python -m tests.benchmarks.budget [--runs N] [--kills N]`.

Each run has a random ceiling and meets random faults: calls that time out, are cut off or turned away, replies without usage, and kills of
the process. It is resumed until it ends, then with a higher ceiling, then without one. The seller bills every call that reaches him, also
those whose reply nobody gets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from microagents import Call, Sample
from microagents.base.errors import ModelUnavailable
from microagents.elections.red_flags import known_finish
from microagents.journal.messages import Account
from microagents.journal.reading import Reader
from microagents.models.model import Model, Most, most_tokens
from microagents.models.prices import flat_tariff
from microagents.replies.chat import Usage
from microagents.runs.driver.begin import run
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import Drift
from tests.benchmarks.harness import options_of

MAX_OUTPUT_TOKENS = 400
TARIFF = flat_tariff(20.0, 100.0)
MAX_KILLS = 3
WAYS = ("answer", "answer", "answer", "answer", "answer", "no usage", "timeout", "garbled", "busy", "network")


class Seller(Model):
    """A seller who writes each bill down before he delivers.

    Args:
        book: the file of bills, one amount in US dollars a line.
        seed: decides what becomes of each call.
        has_faults: whether calls fail.
        dies_at: number of the call in this process at which it is killed; None for none.
    """

    spec = "seller"
    priced = True

    def __init__(self, book: Path, seed: int, *, has_faults: bool, dies_at: int | None) -> None:
        self._book = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._random = Random(seed)
        self._has_faults = has_faults
        self._left = dies_at

    def at_most(self, call: Call) -> Most:
        read = most_tokens(call.prompt)
        return Most(tokens=read + call.max_output_tokens, cost_usd=TARIFF.most_usd(read, call.max_output_tokens))

    async def complete(self, call: Call) -> Sample:
        chance = self._random
        way = chance.choice(WAYS) if self._has_faults else "answer"
        if way in ("busy", "network"):
            raise ModelUnavailable(way, "not sold", 429, 0.001)
        written = chance.randint(20, MAX_OUTPUT_TOKENS)
        usage = Usage(input_tokens=len(call.prompt.system + call.prompt.user) // 4, output_tokens=written)
        cost_usd = TARIFF.cost_usd(usage)
        os.write(self._book, f"{cost_usd!r} {(usage.input_tokens or 0) + written}\n".encode())
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(chance.uniform(0, 0.01))
        if way in ("timeout", "garbled"):
            raise ModelUnavailable(way, "paid for nothing", None, 0.001)
        number = (int(call.prompt.user.removeprefix("Number: ")) * 17 + 5) % 1009
        wrong = chance.random() < 0.1
        text = f"number = {number + wrong}"
        told = (
            Usage()
            if way == "no usage"
            else Usage(input_tokens=usage.input_tokens, output_tokens=written, cost_usd=cost_usd)
        )
        return Sample(text=text, finish=known_finish("stop"), usage=told, model="seller")


class Sitting(Struct, frozen=True, kw_only=True):
    """How one sitting of a run ended."""

    outcome: str
    reason: str | None
    account: Account


class Bills(Struct, frozen=True):
    """What the seller has billed."""

    cost_usd: float
    tokens: int
    calls: int


def billed(book: Path) -> Bills:
    lines = [line.split() for line in book.read_text(encoding="utf-8").splitlines()] if book.exists() else []
    return Bills(sum(float(usd) for usd, _ in lines), sum(int(tokens) for _, tokens in lines), len(lines))


def sit(folder: Path, seller: dict[str, Any], task: dict[str, Any], settings: dict[str, Any]) -> Sitting | None:
    """One sitting in a process of its own; None if it was killed."""
    told = folder / "told.json"
    told.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            work = [Drift(**task) for _ in range(settings.pop("inputs"))]
            result = run_virtual(
                run(
                    work,
                    models=Seller(folder / "book", **seller),
                    strategy=Maker(k=settings.pop("k"), speculate=settings.pop("speculate")),
                    run_id="r",
                    runs_dir=folder / "runs",
                    max_output_tokens=MAX_OUTPUT_TOKENS,
                    durability="normal",
                    **settings,
                ),
                seed=seller["seed"],
            )
            told.write_bytes(
                msgspec.json.encode(Sitting(outcome=result.outcome, reason=result.reason, account=result.account))
            )
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return None
    return msgspec.json.decode(told.read_bytes(), type=Sitting)


class Found(Struct):
    """What all runs together showed."""

    runs: int = 0
    sittings: int = 0
    kills: int = 0
    stopped: int = 0
    calls: int = 0
    lost: int = 0
    passed: int = 0
    """Sittings after which the seller had billed more than the ceiling."""
    largest_share: float = 0.0
    """The largest part of a ceiling that was billed."""
    off_by_usd: float = 0.0
    """The largest difference between account and bills in runs whose calls were all answered."""
    unbounded: int = 0
    """Sittings after which the seller had billed more than the account says at most, or less than it knows for sure."""
    used: float = 0.0
    """Sum of the parts of ceilings that were billed when they stopped a run."""


def _bounds_cost(account: Account, bills: Bills) -> bool:
    """Whether the bills are between what the account knows for sure and what it says at most."""
    assert account.cost_usd is not None
    assert account.cost_at_most_usd is not None
    return account.cost_usd - account.estimated_usd - 1e-9 <= bills.cost_usd <= account.cost_at_most_usd + 1e-9


def _bounds_tokens(account: Account, bills: Bills) -> bool:
    return account.input_tokens + account.output_tokens <= bills.tokens <= account.tokens_at_most


def try_run(seed: int, folder: Path, found: Found) -> None:
    """One run with all its sittings."""
    random = Random(seed)
    has_faults, kills = random.random() < 0.7, random.choice([0, 0, 1, MAX_KILLS])
    by_tokens = random.random() < 0.3
    worst_usd = 0.06  # about the most that a call can cost
    ceiling = random.choice([0.01, 0.1, 0.3, 1.0, 3.0]) * random.uniform(0.5, 1.5)
    task = {"length": random.randint(1, 12)}
    common = {"inputs": random.choice([1, 1, 5, 20]), "k": random.choice([1, 2, 3]), "speculate": random.random() < 0.7}
    book = folder / "book"
    ceilings: list[float | None] = [ceiling, ceiling * 2 + worst_usd, None]
    for limit in ceilings:
        while True:
            dies_at = random.randint(1, 40) if kills else None
            kills -= dies_at is not None
            amount = (
                {} if limit is None else {"max_tokens": int(limit * 50_000)} if by_tokens else {"max_cost_usd": limit}
            )
            lifted = {"max_tokens": None, "max_cost_usd": None} | amount
            seller = {"seed": random.randrange(1 << 30), "has_faults": has_faults, "dies_at": dies_at}
            ended = sit(folder, seller, task, {**common, **lifted})
            found.sittings += 1
            found.kills += ended is None
            bills = billed(book)
            if limit is not None:
                share = bills.tokens / amount["max_tokens"] if by_tokens else bills.cost_usd / limit
                found.largest_share = max(found.largest_share, share)
                found.passed += share > 1 + 1e-9
                if ended is not None and ended.outcome == "stopped":
                    found.used += share
                    found.stopped += 1
            if ended is None:
                continue
            found.unbounded += limit is not None and not (
                _bounds_tokens(ended.account, bills) if by_tokens else _bounds_cost(ended.account, bills)
            )
            if not has_faults and not ended.account.lost_in_flight and not ended.account.unanswered:
                found.off_by_usd = max(found.off_by_usd, abs((ended.account.cost_usd or 0.0) - bills.cost_usd))
            break
        if ended.outcome == "completed":
            break
    else:
        raise AssertionError(f"run {seed} did not complete without a limit: {ended}")
    with Reader(folder / "runs" / "r.sqlite") as reader:
        found.lost += reader.account().lost_in_flight
    found.calls += billed(book).calls
    found.runs += 1


def measure(runs: int, first: int = 0, kills: int = 0) -> Found:
    """Try so many runs, and more until so many kills hit."""
    found = Found()
    for seed in count(first):
        if found.runs >= runs and found.kills >= kills:
            break
        with tempfile.TemporaryDirectory(prefix="budget-") as folder:
            try_run(seed, Path(folder), found)
    return found


def main() -> None:
    options = options_of(__doc__, runs=500, first=0, kills=0)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    found = measure(options.runs, options.first, options.kills)
    print(
        f"{found.runs} runs in {found.sittings} sittings, {found.kills} kills, {found.calls:,} calls billed: the ceiling was passed "
        f"{found.passed} times (at most {found.largest_share:.2%} of it were billed); {found.stopped} sittings were stopped by it, with "
        f"{found.used / max(1, found.stopped):.1%} of it billed on average; the account and the bills differ by at most "
        f"${found.off_by_usd:.9f} where all calls were answered, and bills were outside of the account's bounds {found.unbounded} times; "
        f"{found.lost} calls counted as lost in flight"
    )
    assert not found.passed, "a ceiling was passed"
    assert not found.unbounded, "bills are outside of the account's bounds"


if __name__ == "__main__":
    main()
