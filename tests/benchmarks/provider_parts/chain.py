"""A voted chain against an unvoted one over HTTP, on the same server: 1,023 steps of hanoi.

A reply takes 300 ms in the median, with a spread of 0.5 of its logarithm; 1 % of the requests get a 429 and 0.5 % a 500. The unvoted chain
is `maker` with k = 1 and no guesses: it takes the first valid reply of each step, and asks each step after the one before. The voted chain
has k = 3 and guesses ahead, as by default. Both send failed calls again alike.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from microagents import Result, run
from microagents.systems import Maker
from microagents.tasks.hanoi import Hanoi
from tests.benchmarks.quick_server import in_another_process

DISKS = 10
MODEL = "sim:gpt-4.1-mini@latency=0.3"
FAULTS = ("429:0.01", "500:0.005")


async def walk(url: str, strategy: Maker, disks: int) -> Result:
    """One chain, with its journal in memory."""
    return await run(Hanoi(disks=disks), models=f"openai:any@base_url={url}/v1", strategy=strategy, runs_dir=None)


async def measure(disks: int = DISKS) -> None:
    """Print the times of both, and their ratio."""
    faults: Sequence[str] = [word for fault in FAULTS for word in ("--fault", fault)]
    command = [
        *("tests.doubles", "hanoi", "-o", f"disks={disks}", "--model", MODEL, "--port", "0"),
        *faults,
        "--json",
    ]
    with in_another_process(*command) as line:
        url = json.loads(line)["url"]
        took = []
        for name, strategy in (("unvoted, k = 1", Maker(k=1, speculate=False)), ("voted, k = 3", Maker(k=3))):
            result = await walk(url, strategy, disks)
            account = result.account
            took.append(result.wall_s)
            ended = f"{result.outcome}, {account.steps} steps in {result.wall_s:.0f} s, {1e3 * result.wall_s / account.steps:.0f} ms a step"
            print(
                f"{name:<16} {ended}; {account.calls} calls, {sum(account.repeated.values())} sent again, {account.errors} wrong"
            )
            sys.stdout.flush()
    print(f"voted / unvoted: {took[1] / took[0]:.2f} of the time")
