"""The time of loops of an agent through the endpoint, and the cost of their prompts, beside one sample a call and beside the law."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import pairwise
from math import sqrt
from random import Random
from statistics import fmean, median
from typing import NamedTuple

from microagents.web.endpoint.policy import Policy
from tests.benchmarks.endpoint_clients import SDKS, Loop
from tests.benchmarks.endpoint_laws import Law, law_of
from tests.benchmarks.endpoint_turns import ALTERNATIVES, STEPS, results_in, steps_of, voted
from tests.doubles.acting import Request, Said, acting

K = 3
HEDGE = 2
FIRST_S, REST_S = 0.4, 0.6
"""Seconds to the first event of a reply, and from it to the last."""
WRITE, READ = 1.25, 0.1
"""Price of a token that is written to the cache, and of one that is read from it."""
ONE, AT_ONCE, STAGGERED, HEDGED = "one sample", "at once", "staggered", f"at once with a hedge of {HEDGE}"
CLIENTS = [client for name, (_, client) in SDKS.items() if name.endswith("streamed")]
KINDS = {ONE: (0, "off", 0), AT_ONCE: (K, "off", 0), STAGGERED: (K, "on", 0), HEDGED: (K, "off", HEDGE)}
"""By name the k of an endpoint, whether it staggers samples, and its hedge."""
ASKED = {AT_ONCE: 1.3, STAGGERED: 2.2, HEDGED: 1.3}
"""Times one sample's time at most, where no reply is wrong."""
ASKED_PROMPTS = 1.25
"""Times one sample's prompts that staggered ones may cost, where the cache holds whole prompts and no reply is wrong."""
OWN = 0.15
"""Time of the endpoint and of clients that a measurement may have beyond the law, in times of one sample."""
OWN_PROMPTS = 0.05
"""The same for the cost of prompts, which the last ones of a loop, with three samples each, count most for."""


class Cache:
    """A provider's cache, of prompts whose replies have begun: it reads what both have in front, or equal prompts only."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.cost = 0.0
        self.whole_cost = 0.0
        """Cost where only equal prompts are read."""

    def ask(self, prompt: str) -> None:
        """Add the price of a prompt."""
        read = max((shared(prompt, each) for each in self.held), default=0)
        self.cost += READ * read + WRITE * (len(prompt) - read)
        self.whole_cost += (READ if prompt in self.held else WRITE) * len(prompt)


def shared(prompt: str, held: str) -> int:
    """Count the characters with which both begin."""
    return next(
        (at for at, (a, b) in enumerate(zip(prompt, held, strict=False)) if a != b), min(len(prompt), len(held))
    )


class Taken(NamedTuple):
    """What loops took, each figure a mean."""

    call_s: float
    median_s: float
    """Median of the calls, without the last one of each loop."""
    samples: float
    """Samples a call."""
    cost: float
    """Cost of the prompts of one client's loops."""
    whole_cost: float


async def taken_by(client: Loop, loops: int, wrong: float, kind: str) -> tuple[list[float], list[float], int, Cache]:
    """Run loops of a client side by side; returns the times of loops and of calls, the number of samples, and the cache."""
    k, stagger, hedge = KINDS[kind]
    next_step, cache = steps_of(Random(kind), wrong), Cache()
    loop_s, call_s = list[float](), list[float]()

    async def answer(request: Request) -> Said:
        asked = request.json
        prompt = json.dumps(asked.get("messages", asked.get("input")))[:-1]
        cache.ask(prompt)
        await asyncio.sleep(FIRST_S)
        cache.held.append(prompt)
        if results_in(request) >= STEPS:
            return "All steps are done."
        return [("step", {"number": next_step(request)})]

    async def run(url: str) -> None:
        times_s = [time.monotonic()]

        def step(_: int) -> str:
            times_s.append(time.monotonic())
            return "done"

        await client(url, step)
        loop_s.append(time.monotonic() - times_s[0])
        call_s.extend(after - before for before, after in pairwise(times_s))

    async with acting(answer) as double, voted(double, k, stagger=stagger, policy=Policy(hedge=hedge)) as url:
        double.pause_s = REST_S
        await asyncio.gather(*[run(url) for _ in range(loops)])
    return loop_s, call_s, len(double.requests), cache


async def taken(loops: int, wrong: float, kind: str) -> Taken:
    """Run loops of all streaming SDKs side by side."""
    found = await asyncio.gather(*[taken_by(client, loops, wrong, kind) for client in CLIENTS])
    calls = len(CLIENTS) * loops * (STEPS + 1)
    return Taken(
        call_s=sum(sum(loop_s) for loop_s, _, _, _ in found) / calls,
        median_s=median([each for _, call_s, _, _ in found for each in call_s]),
        samples=sum(samples for _, _, samples, _ in found) / calls,
        cost=fmean([cache.cost for _, _, _, cache in found]),
        whole_cost=fmean([cache.whole_cost for _, _, _, cache in found]),
    )


def a_call(of_step: float, of_end: float) -> float:
    """Return the mean over a loop, whose last call has no error."""
    return (STEPS * of_step + of_end) / (STEPS + 1)


async def measure_times(loops: int, wrong: float) -> int:
    """Print the time of loops and the cost of their prompts, in times of one sample; returns an exit code.

    It is 1 if they are above what is asked where no reply is wrong, or beyond the law, its noise and `OWN` where some are.
    """
    above = 0
    for share in (0.0, wrong):
        print(f"replies wrong in {share:g} of steps, {loops} loops of each SDK side by side")
        for kind in ASKED:
            # Side by side, so that other work of the machine disturbs both.
            one, found = await asyncio.gather(taken(loops, share, ONE), taken(loops, share, kind))
            above += _above(kind, found, one, share, loops)
    return int(above > 0)


def _above(kind: str, found: Taken, one: Taken, wrong: float, loops: int) -> bool:
    """Print the figures of a kind; returns whether one is above its bound."""
    _, stagger, hedge = KINDS[kind]
    law = law_of(K, wrong, ALTERNATIVES, hedge)
    wait = (FIRST_S / (FIRST_S + REST_S)) * (stagger == "on")
    by_law = a_call(law.rounds, 1.0) + wait
    noise = 3 * law.deviation / sqrt(STEPS * loops * len(CLIENTS))
    times = found.call_s / one.call_s
    bound = by_law + OWN + noise if wrong else ASKED[kind]
    is_above = times > bound
    print(
        f"  {kind}: {times:.2f} times {one.call_s:.2f} s, its median call {found.median_s / one.median_s:.2f}; by the law {by_law:.2f}, "
        f"asked {ASKED[kind]}, bound here {bound:.2f}; {found.samples:.2f} samples a call; prompts {found.cost / one.cost:.2f}"
    )
    if stagger == "on":
        prompts = found.whole_cost / one.whole_cost
        prompts_by_law = a_call(_whole_prompts(law), _whole_prompts(law_of(K, 0.0, ALTERNATIVES)))
        bound = prompts_by_law + OWN_PROMPTS if wrong else ASKED_PROMPTS
        is_above = is_above or prompts > bound
        print(
            f"    whole prompts {prompts:.2f}; by the law {prompts_by_law:.2f}, asked {ASKED_PROMPTS}, bound here {bound:.2f}"
        )
    if wrong and not hedge:
        least = a_call(2 - law.at_once, 1.0) + wait
        print(
            f"    the first round decides {law.at_once:.2f}: no rule takes less than {least:.2f} without further samples in it"
        )
    print("    ABOVE" if is_above else "    within", flush=True)
    return is_above


def _whole_prompts(law: Law) -> float:
    """Return the cost of the prompts of a staggered election, in those of one sample."""
    return (WRITE + READ * (law.samples - 1)) / WRITE
