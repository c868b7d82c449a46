"""What the framework adds to a chain: ``python -m tests.benchmarks.chain [--parts]``.

Both sides run in this process and take turns: the framework (`microagents.run`), and a bare loop with the same prompt, parser and model,
which calls them directly and gathers as many samples at a time as votes are needed. k = 3, 20 disks, the first steps of the tower.

With ``--parts`` parts of the framework are left out, one at a time, which tells what each of them costs in its place.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

from microagents import Prompt, run
from microagents.actors.role import Context
from microagents.elections.election import ElectionId, SampleId
from microagents.elections.red_flags import flag_unread
from microagents.journal.books import Books
from microagents.journal.messages import RecordDecision
from microagents.models.model import Call, Model, open_model
from microagents.replies.parsing import Malformed, parse
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import system_with_instructions
from microagents.roles import redflagger
from microagents.roles.running_election import RunningElection
from microagents.roles.solver.call_accounts import CallAccounts
from microagents.roles.voter import Voter
from microagents.systems import Maker
from microagents.systems.chains.chain import Chain
from microagents.tasks.hanoi import HanoiStep, Towers
from microagents.work.durable import Work
from microagents.work.elections import decision_of
from tests.benchmarks.first_steps import FirstSteps
from tests.benchmarks.harness import options_of

MODEL = "sim:gpt-4.1-mini"
K = 3


async def bare_loop(task: FirstSteps, model: Model) -> Towers:
    """First-to-ahead-by-k over red-flagged replies, with nothing around it."""
    state, step = task.start(), 0
    while not task.done(state):
        asked = task.prompt(state)
        prompt = Prompt(system=system_with_instructions(asked.system, HanoiStep, task.format), user=asked.user)
        election = ElectionId(path=f"0/step/{step}", question_digest=b"")
        votes: dict[Hashable, int] = {}
        first: dict[Hashable, HanoiStep] = {}
        seq, needed = 0, K
        while needed:
            samples = await asyncio.gather(
                *(model.complete(_call(task, election, seq + ahead, prompt)) for ahead in range(needed))
            )
            seq += needed
            for sample in samples:
                if flag_unread(sample, task.sampling.flag_above_tokens) is not None:
                    continue
                try:
                    reply = parse(sample.text, HanoiStep, task.format)
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
        reply=HanoiStep,
        temperature=task.sampling.temperature_of(seq),
        max_output_tokens=task.sampling.max_output_tokens,
    )


def _nothing(*_: object, **__: object) -> None:
    """Stands for a part that is left out."""


def _forget(voter: Voter, election: RunningElection) -> bool:
    del voter._open[election.id]
    return False


def _uncommitted(
    _: Work[Any, Any], resolution: RecordDecision, reply: type[Reply], *__: object, **___: object
) -> object:
    return decision_of(resolution.id.path, resolution.verdict, reply)


PARTS: dict[str, list[tuple[Any, str, Callable[..., object]]]] = {
    "the record of a decision: books, digests, oracle": [(Work, "commit", _uncommitted)],
    "  of these the digests": [(Books, "take_in", _nothing)],
    "  of these the oracle, for the account of errors": [(Chain, "correct", _nothing)],
    "the records of samples": [(Voter, "record", _nothing)],
    "the account of calls": [(CallAccounts, "send", _nothing), (CallAccounts, "end_answered", _nothing)],
    "the task's own flag": [(redflagger, "flag_of", _nothing)],
    "the memory of paid samples": [(Voter, "_remove_follower", _forget)],
    "the progress of the input": [(Work, "progress", _nothing)],
}


@contextmanager
def _without(part: str) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, put in PARTS[part]:
            stack.enter_context(patch.object(owner, name, put))
        yield


def _print_parts(task: FirstSteps, turns: int) -> None:
    took: dict[str, list[float]] = {part: [] for part in PARTS}
    for _ in range(turns):
        for part in PARTS:
            whole = _us_a_step(task, "local")
            with _without(part):
                took[part].append(whole - _us_a_step(task, "local"))
    for part, saved in took.items():
        print(f"{part:<52} {median(saved):5.1f} ({min(saved):.1f} to {max(saved):.1f}) us a step")


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
    options = options_of(__doc__, steps=10000, turns=9, parts=False)
    task = FirstSteps(disks=20, length=options.steps)
    _us_a_step(task, "bare"), _us_a_step(task, "local")  # warm-up
    if options.parts:
        _print_parts(task, options.turns)
        return
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
