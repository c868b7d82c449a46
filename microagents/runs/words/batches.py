"""Batches of a run as text."""

from __future__ import annotations

import time
from collections.abc import Iterator

from microagents.elections.sample_batches import OPEN_STATES, BatchSums, SampleBatch
from microagents.journal.messages import Account
from microagents.journal.reading import Reader
from microagents.runs.words.money import Price
from microagents.runs.words.verdict import clock, counted

MAX_LISTED = 10
"""Number of batches that are listed."""


def batches_text(account: Account, price: Price) -> str | None:
    """Write the sums over the batches of a run; None without one."""
    parts = list(_parts(account.batches, price))
    if not parts:
        return None
    if account.bound_usd is not None and account.bound_usd != account.cost_usd:
        parts.append(f"with these the run costs at most {price(account.bound_usd)}")
    return "; ".join(parts)


def open_text(account: Account) -> Iterator[str]:
    """Yield the calls that wait in batches; nothing without one."""
    if account.batches.open:
        yield f"{account.batches.open_lines:,} in {counted(account.batches.open, 'batch', 'batches')}"


def _parts(sums: BatchSums, price: Price) -> Iterator[str]:
    if sums.open:
        yield f"{counted(sums.open, 'batch', 'batches')} with {counted(sums.open_lines, 'call')} not ended, at most {price(sums.open_usd)}"
    if sums.ended:
        failed = f", of which {sums.failed:,} failed" if sums.failed else ""
        saved = "saved an unknown amount" if sums.unpriced else f"saved {price(sums.saved_usd)}"
        yield f"{counted(sums.lines, 'call')} in {counted(sums.ended, 'batch', 'batches')}{failed}: {saved}"
    if sums.unclaimed_usd:
        yield f"results that no election needed: {price(sums.unclaimed_usd)}"
    if sums.lost:
        lost = counted(sums.lost, "batch was", "batches were")
        lines = counted(sums.lost_lines, "call")
        yield f"{lost} sent without an answer and not found: {lines} may be bought twice, at most {price(sums.lost_usd)}"


def batch_lines(reader: Reader, price: Price) -> list[str]:
    """Write a line for each of the last batches of a run: state, calls, age, and saving."""
    now_s = time.time()
    return [_line(each, price, now_s) for each in reader.last_batches(MAX_LISTED)]


def _line(batch: SampleBatch, price: Price, now_s: float) -> str:
    named = f"batch {batch.number}: {batch.state}, {counted(batch.lines, 'call')}, {clock(max(0.0, now_s - batch.made_at))} old"
    if batch.state in OPEN_STATES:
        return f"{named}, {batch.id or 'without a name so far'}"
    if batch.saved_usd is None:
        return named
    return f"{named}, saved {price(batch.saved_usd)}"
