"""What the framework adds to a chain: ``python -m tests.benchmarks.chain``.

Both sides run in this process and take turns: the framework (`microagents.run`), and a bare loop with the same prompt, parser and model,
which calls them directly and gathers as many samples at a time as votes are needed. k = 3, 20 disks, the first steps of the tower.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Hashable
from statistics import median

from microagents import Prompt, run
from microagents.actors import Context
from microagents.chat import system_with_instructions
from microagents.elections.election import ElectionId, SampleId
from microagents.elections.red_flags import flag_unread
from microagents.models.model import Call, Model, open_model
from microagents.parsing import Malformed, parse
from microagents.strategies import Maker
from microagents.tasks.hanoi import Step, Towers
from tests.benchmarks.first_steps import FirstSteps

MODEL = "sim:gpt-4.1-mini"
K = 3


async def bare_loop(task: FirstSteps, model: Model) -> Towers:
    """First-to-ahead-by-k over red-flagged replies, with nothing around it."""
    state, step = task.start(), 0
    while not task.done(state):
        asked = task.prompt(state)
        prompt = Prompt(system=system_with_instructions(asked.system, Step, task.format), user=asked.user)
        election = ElectionId(path=f"0/step/{step}", question_digest=b"")
        votes: dict[Hashable, int] = {}
        first: dict[Hashable, Step] = {}
        seq, needed = 0, K
        while needed:
            samples = await asyncio.gather(*(model.complete(_call(task, election, seq + ahead, prompt)) for ahead in range(needed)))
            seq += needed
            for sample in samples:
                if flag_unread(sample, task.sampling.flag_above_tokens) is not None:
                    continue
                try:
                    reply = parse(sample.text, Step, task.format)
                except Malformed:
                    continue
                if task.flag(state, reply) is None:
                    vote = reply.vote()
                    votes[vote] = votes.get(vote, 0) + 1
                    first.setdefault(vote, reply)
            leading, second = sorted((0, 0, *votes.values()))[:-3:-1]
            needed = K - (leading - second)
        state = task.advance(state, first[max(votes, key=votes.__getitem__)])
        step += 1
    return state


def _call(task: FirstSteps, election: ElectionId, seq: int, prompt: Prompt) -> Call:
    return Call(
        id=SampleId(election=election, seq=seq),
        prompt=prompt,
        reply=Step,
        temperature=task.sampling.temperature_of(seq),
        max_output_tokens=task.sampling.max_output_tokens,
    )


def _us_a_step(task: FirstSteps, runtime: str) -> float:
    gc.collect()
    started = time.perf_counter()
    if runtime == "bare":
        asyncio.run(bare_loop(task, open_model(MODEL, Context(run_id="bare", seed=0, tasks=[task], strategy=Maker()))))
    else:
        asyncio.run(run(task, models=MODEL, k=K, speculate=False, runs_dir=None))
    return (time.perf_counter() - started) / task.length * 1e6


def main() -> None:
    """Print microseconds a step of both sides, and their ratio turn by turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="steps a turn (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=9, help="turns of each side (default: %(default)s)")
    options = parser.parse_args()
    task = FirstSteps(disks=20, length=options.steps)
    _us_a_step(task, "bare"), _us_a_step(task, "local")  # warm-up
    turns = [(_us_a_step(task, "bare"), _us_a_step(task, "local")) for _ in range(options.turns)]
    bare, framework, ratios = zip(*((bare, framework, framework / bare) for bare, framework in turns), strict=True)
    for name, values, unit in (
        ("bare loop", bare, " us a step"),
        ("framework", framework, " us a step"),
        ("ratio", ratios, ""),
    ):
        print(f"{name:<10} median {median(values):7.2f}  min {min(values):7.2f}  max {max(values):7.2f}{unit}")


if __name__ == "__main__":
    main()
