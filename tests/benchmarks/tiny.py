"""How fast and how right the trained models are: ``python -m tests.benchmarks.tiny [--runs 100] [--model tiny:hanoi]``.

Printed are draws a second at temperature 1, one at a time and side by side of one core; the exact chance, by enumeration of the replies in
every state, that a tower of ten disks is right with one sample a step and with votes; and how many of some runs are. Each run is an input
of one job, so all have draws of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from math import exp, log
from typing import Any, ClassVar, TypeVar

from microagents import run
from microagents.elections.election import ElectionId, SampleId
from microagents.models.model import Call
from microagents.models.tiny.trained import TinyModel
from microagents.models.tiny.vocabulary import STOP, Unreadable, Vocabulary
from microagents.replies.chat import Prompt, Sampling
from microagents.replies.parsing import Malformed, parse
from microagents.task import ChainTask, chain_types
from microagents.tasks.hanoi import Hanoi, HanoiResult, HanoiStep
from tests.benchmarks.harness import options_of

S = TypeVar("S")
UNSEEN = 1e-4
"""Probability below which replies are not enumerated: all of them together are taken for one wrong vote."""


def reply_tokens(words: Vocabulary, text: str) -> list[int]:
    """Read a reply, and put the stop behind it.

    Raises:
        Unreadable: the model cannot write this text.
    """
    read = words._ids(words._token.findall(text.removeprefix(words.opening)), words.reply_slots - 1)
    reply = [*(reversed(read) if words.is_sum else read), STOP]
    if words.write(reply) != text:
        raise Unreadable("the reply has another form")
    return reply


class WarmHanoi(Hanoi):
    """Towers whose samples are all drawn at temperature 1."""

    sampling: ClassVar[Sampling] = Sampling(first_temperature=1.0, temperature=1.0)


def states(task: ChainTask[S, Any, Any]) -> Iterator[S]:
    """All states of the right way."""
    state = task.start()
    while not task.done(state):
        yield state
        state = task.advance(state, task.oracle(state))


def calls(prompts: Sequence[Prompt], temperature: float | None = 1.0) -> list[Call]:
    """One call for each prompt."""
    return [
        Call(
            id=SampleId(election=ElectionId(path=f"0/step/{at}", question_digest=b""), seq=1),
            prompt=prompt,
            reply=HanoiStep,
            temperature=temperature,
            max_output_tokens=2048,
        )
        for at, prompt in enumerate(prompts)
    ]


RIGHT, FLAGGED, NOT_ENUMERATED = "right", "flagged", "not enumerated"


def replies(
    model: TinyModel, task: ChainTask[S, Any, Any], state: S, temperature: float = 1.0
) -> Iterator[tuple[str, float, Any]]:
    """Enumerate the replies in a state: the text of each, its probability, and the reply that is read from it; None for a flagged one."""
    kind = chain_types(type(task))[1]
    for text, mass in model.law(task.prompt(state), temperature, UNSEEN).items():
        try:
            reply = parse(text, kind)
        except Malformed:
            yield text, mass, None
        else:
            yield text, mass, reply if task.flag(state, reply) is None else None


def shares(model: TinyModel, task: ChainTask[S, Any, Any], state: S) -> dict[object, float]:
    """Probability of each vote by one sample: `RIGHT`, `FLAGGED`, `NOT_ENUMERATED`, and the wrong ones."""
    found = dict[object, float]()
    for _, mass, reply in replies(model, task, state):
        vote = FLAGGED if reply is None else RIGHT if task.correct(state, reply) else task.vote_of(reply)
        found[vote] = found.get(vote, 0.0) + mass
    return {**found, NOT_ENUMERATED: max(0.0, 1 - sum(found.values()))}


def chance(model: TinyModel, task: Hanoi, k: int) -> tuple[float, float, float, float]:
    """The mean error of a sample; the chance that all steps are right with one sample a step, and with one valid one; least with votes.

    Against several wrong replies a race is won at least as often as against one that has all their votes.
    """
    missed = single = once = voted = 0.0
    for state in states(task):
        found = shares(model, task, state)
        right, valid = found[RIGHT], 1 - found.get(FLAGGED, 0.0)
        missed += 1 - right
        single += log(right)
        once += log(right / valid)
        voted -= log(1 + ((valid - right) / right) ** k)
    return missed / task.steps(), exp(single), exp(once), exp(voted)


async def speed(name: str) -> tuple[float, float]:
    """Draws a second of one core's time, one at a time and side by side."""
    prompts = [Hanoi(disks=10).prompt(state) for state in states(Hanoi(disks=10))][:512]
    found = []
    for rows in (1, len(prompts)):
        model = TinyModel(name)
        wanted = calls(prompts)[: max(rows, 200)]
        began = time.process_time()
        for start in range(0, len(wanted), rows):
            await asyncio.gather(*[model.complete(each) for each in wanted[start : start + rows]])
        found.append(len(wanted) / (time.process_time() - began))
        await model.close()
    return found[0], found[1]


async def main() -> None:
    """Print the figures."""
    given = options_of(__doc__, model="tiny:hanoi", runs=0, k=3, disks=10)
    name = given.model.removeprefix("tiny:")
    alone, together = await speed(name)
    print(f"{given.model}: {alone:,.0f} draws a second of one core, one at a time, {together:,.0f} side by side")
    missed, single, once, voted = chance(TinyModel(name), WarmHanoi(disks=given.disks), given.k)
    print(f"one sample is wrong or flagged: {missed:.4f}; all {2**given.disks - 1:,} steps are right")
    print(
        f"with one sample a step {single:.2g}, with flagged ones drawn again {once:.2g}, ahead by {given.k} {voted:.4f} at least"
    )
    if given.runs:
        began = time.perf_counter()
        tasks = [WarmHanoi(disks=given.disks) for _ in range(given.runs)]
        result = await run(tasks, models=given.model, k=given.k, runs_dir=None)
        values: list[HanoiResult | None] = [*(result.value or [])]
        right = sum(each is not None and each["solved"] for each in values)
        print(
            f"{right} of {given.runs} runs without an error, {result.account.calls:,} calls, {time.perf_counter() - began:.0f} s"
        )


if __name__ == "__main__":
    asyncio.run(main())
