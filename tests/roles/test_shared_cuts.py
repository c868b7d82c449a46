"""Cuts of throttles between runs that share a provider."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from microagents.journal.messages import Account, Ended
from microagents.models.rates import Rate
from microagents.models.throttle import CUT
from microagents.roles.limits.leases import Acquire
from microagents.roles.limits.limiter import REPLIES_S, Limiter
from microagents.roles.limits.shared_cuts import SharedCuts
from microagents.runtimes.virtual import run_virtual

THROTTLE = "openai:m, calls in flight"


def limiter(folder: Path) -> Limiter:
    """The limiter of one of two runs."""
    found = Limiter(
        {},
        on_stop=lambda *_: None,
        on_outage=lambda: None,
        on_settled=lambda _, __: None,
        on_short=None,
        sharers=2,
        cuts=SharedCuts(folder / "cuts"),
    )
    found.begin(Account())
    return found


async def end_calls(limiter: Limiter, *ended: Ended) -> None:
    """Send calls, and end them."""
    holder = limiter.admit()
    for each in ended:
        asked = Acquire(holder=holder, number=each.number, path="0", seq=0, amounts={THROTTLE: 1}, throttle=THROTTLE)
        assert await limiter.acquire(asked) is not None
    for each in ended:
        limiter.release(Ended(holder=holder, number=each.number, outcome=each.outcome))


async def places(limiter: Limiter) -> int:
    """Count the calls that get a place at once."""
    holder = limiter.admit()
    asked = [
        Acquire(holder=holder, number=number, path="0", seq=0, amounts={THROTTLE: 1}, throttle=THROTTLE)
        for number in range(99)
    ]
    calls = [asyncio.create_task(limiter.acquire(each)) for each in asked]
    done, waiting = await asyncio.wait(calls, timeout=0.1)
    for each in waiting:
        each.cancel()
    return len(done)


def test_a_refusal_of_one_run_slows_the_other_that_shares_its_provider(tmp_path: Path) -> None:
    async def working() -> list[int]:
        ours, theirs, alone = limiter(tmp_path), limiter(tmp_path), limiter(tmp_path / "elsewhere")
        for each in (theirs, alone):
            await end_calls(each, Ended(number=1, outcome="replied"))
        await end_calls(ours, Ended(number=1, outcome="refused"), Ended(number=2, outcome="refused"))
        for each in (theirs, alone):
            await end_calls(each, Ended(number=2, outcome="replied"))
        await asyncio.sleep(2 * REPLIES_S)
        return [await places(each) for each in (ours, theirs, alone)]

    half = 10  # of the calls in flight that a run alone begins with
    assert run_virtual(working(), seed=0) == [half * CUT, half * CUT, half]


def test_cuts_of_an_earlier_sitting_slow_nothing(tmp_path: Path) -> None:
    before = SharedCuts(tmp_path / "cuts")
    before.tell(THROTTLE)
    after = SharedCuts(tmp_path / "cuts")
    assert (before.heard(), after.heard()) == ([], [])
    before.tell(THROTTLE)
    assert (before.heard(), after.heard()) == ([], [THROTTLE])


def test_each_run_has_its_part_of_what_a_provider_allows_a_minute() -> None:
    assert Rate(each_minute=100, left=50).shared(4) == Rate(each_minute=25, left=12)


def test_a_pipe_or_a_link_in_the_place_of_the_file_keeps_no_run_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("pipe", "link"):
        cuts = SharedCuts(tmp_path / name)
        cuts.tell(THROTTLE)
        assert cuts.heard() == []
    assert not (tmp_path / "elsewhere").exists()
