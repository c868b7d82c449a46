"""Hand-offs under kill -9: ``python -m tests.benchmarks.handed_kills [--kills 100] [--seed N]``.

An agent hands work off to a second one, which hands each of two orders off to a third one; then it hands work off to an agent that fails
behind an effect. The process is killed by turns before an effect, behind one, and at any moment, and started again until it ends; a person
answers whether an effect was made that no tool can tell of. Every effect must be made once, and the result must be that of an undisturbed
run. Exit code 1 if not.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections import Counter
from contextlib import chdir
from functools import partial
from random import Random
from time import perf_counter
from typing import Any, ClassVar

from microagents import Result, run_sync
from microagents.tools.toolbox import GivenTool
from tests.benchmarks.harness import is_killed, options_of
from tests.cli.commands import COMPLETED, microagents
from tests.systems.agents import shop
from tests.systems.agents.test_hand_offs import EFFECTS, front, get_stuck

MADE = [*EFFECTS, *EFFECTS, "label"]
MODEL = "sim:perfect@error=0.05,alternatives=9"
write = shop.write


class House(shop.Script):
    """Hands the front's work off, and then work to an agent that gets stuck."""

    tools: ClassVar[tuple[GivenTool, ...]] = (front, get_stuck)
    calls: tuple[tuple[str, dict[str, Any]], ...] = (("front", {}), ("get_stuck", {"first": "label"}))


def work(run_id: str) -> Result[Any]:
    """Begin a run, or resume it."""
    return run_sync(House(), models=MODEL, runs_dir="runs", run_id=run_id)


def mortal(run_id: str, kind: str, at: float) -> None:
    """Work until the process is killed.

    Args:
        run_id: name of the run.
        kind: ``before`` or ``behind`` an effect, or at a ``moment``.
        at: number of the effect, or seconds.
    """

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def fatal(what: str, **more: Any) -> None:
        is_last = len(shop.done()) + 1 == at
        if is_last and kind == "before":
            die()
        write(what, **more)
        if is_last:
            die()

    if kind == "moment":
        threading.Timer(at, die).start()
    else:
        vars(shop)["write"] = fatal
    work(run_id)


def ended(run_id: str) -> int:
    """End a run, and answer for the effects of which no tool can tell whether they were made, by the world; returns how many.

    Raises:
        AssertionError: the run does not end as an undisturbed one, or an effect was not made once.
    """
    answers, result = 0, work(run_id)
    while result.outcome == "undecided":
        (path,) = result.account.undecided_at
        was_made = shop.done()[-1]["what"] == "refund"
        words = ("done", "paid back") if was_made else ("not-done",)
        assert microagents("decide", run_id, path.partition("/call/")[0], *words).code == COMPLETED
        answers += 1
        result = work(run_id)
    assert (result.outcome, result.value["errors"]) == ("completed", 1), (result.outcome, result.reason)
    made = [each["what"] for each in shop.done()]
    assert made == MADE, made
    return answers


def main() -> int:
    """Kill, and print what was found."""
    of = options_of(__doc__, kills=100, seed=1)
    random, runs, persons, began_s = Random(of.seed), 0, 0, perf_counter()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        persons += ended("undisturbed")
        lasts_s = perf_counter() - began_s
    kills = Counter[str]()
    while kills.total() < of.kills:
        runs += 1
        run_id = f"run{runs}"
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            for _ in range(random.randint(1, 3)):
                kind = random.choice(("before", "behind", "moment"))
                at = (
                    random.uniform(0, lasts_s)
                    if kind == "moment"
                    else random.randint(len(shop.done()) + 1, len(MADE) + 1)
                )
                kills[kind] += is_killed(partial(mortal, run_id, kind, at))
            persons += ended(run_id)
    print(
        f"{kills.total()} kills over {runs} runs of three hand-offs in {perf_counter() - began_s:.0f} s "
        f"({', '.join(f'{number} {kind}' for kind, number in sorted(kills.items()))}), {persons} answers of a person: each of "
        f"{len(MADE)} effects made once in every run"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
