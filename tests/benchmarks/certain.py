"""Elections that the probabilities of replies decide: ``python -m tests.benchmarks.certain [--models tiny:hanoi] [--disks 6] [--runs 4]``,
and on a server of llama.cpp: ``python -m tests.benchmarks.certain --server [--draws 300] [--only dog]``.

The replies of a trained model at temperature 1 are enumerated in every state of a tower, and elections are drawn from these laws.

- laws: calls a decision, ahead by 3 and with masses; certified decisions that are not the mode; the largest sum of masses in an election;
  and how many certified decisions a plurality of 400 votes overturns, beside the number that the laws imply.
- chain: the virtual time of a tower, with calls of 1 s (log-normal, sigma .5).
- cost: the time of the rule in an election that the first reply decides.
- server: small questions to a small model at temperature 1, without samplers. Elections are drawn from the draws of each question; masses
  are compared with frequencies by the mean of z^2, which is 1 if they agree.
"""

from __future__ import annotations

import asyncio
import timeit
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from functools import cache, partial
from itertools import cycle
from math import exp, log
from random import Random
from statistics import NormalDist, fmean, median
from typing import Any

from msgspec import Struct

from microagents import Call, Model, Result, Sample, Usage, run
from microagents.elections.certainty import FLAGGED, SeenMasses, is_audited
from microagents.elections.election import ElectionId, SampleId
from microagents.elections.rules import Certain, FirstToAheadBy, Rule, Tally
from microagents.models.model import ModelSpec
from microagents.models.openai import OpenAIModel
from microagents.models.tiny.trained import TinyModel
from microagents.replies.chat import Prompt
from microagents.replies.masses import Mass, digest_of_text
from microagents.replies.reply import Reply
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.hanoi import Hanoi, Towers
from tests.benchmarks.harness import options_of
from tests.benchmarks.tiny import WarmHanoi, replies, states
from tests.models.llama import serving_llama

MANY = 400
NATS = 0.3
"""Difference of two log-probabilities of one text that the shape of a batch and what is cached explain."""
K = 3
CAP = 100


class Step(Struct):
    """The law of the replies in one state."""

    texts: dict[str, float]
    """What is not enumerated is one more text, which is flagged and has no mass."""
    votes: dict[str, Hashable]
    """The vote of each text; `FLAGGED` if it has none."""

    @property
    def shares(self) -> dict[Hashable, float]:
        """The probability of each vote, likeliest first."""
        found: dict[Hashable, float] = {}
        for text, p in self.texts.items():
            if self.votes[text] is not FLAGGED:
                found[self.votes[text]] = found.get(self.votes[text], 0.0) + p
        return dict(sorted(found.items(), key=lambda share: -share[1]))

    def draw(self, random: Random) -> str:
        """Draw a text; empty for one that is not enumerated."""
        rest = max(0.0, 1 - sum(self.texts.values()))
        return random.choices([*self.texts, ""], [*self.texts.values(), rest])[0]


def step_of(model: TinyModel, task: Hanoi, state: Towers) -> Step:
    """Enumerate the replies in a state."""
    found = list(replies(model, task, state))
    votes = {text: FLAGGED if reply is None else reply.vote() for text, _, reply in found}
    return Step({text: p for text, p, _ in found}, votes)


def mass_of(step: Step, text: str) -> Mass:
    """The mass of an enumerated text."""
    return Mass(log=min(0.0, log(step.texts[text])), text=digest_of_text(text))


Drawn = tuple[Hashable, Mass | None]
"""The vote of a reply, and its mass."""


def draw_of(step: Step, random: Random) -> Drawn:
    """Draw a reply of a state."""
    text = step.draw(random)
    return step.votes.get(text, FLAGGED), mass_of(step, text) if text else None


def hold(rule: Rule, draw: Callable[[], Drawn], *, is_audited: bool = False) -> tuple[Tally, int, float]:
    """Hold an election; returns its tally, its calls, and the sum of the masses in it."""
    tally, calls, told = Tally(rule), 0, dict[bytes, float]()
    masses = SeenMasses(rule.margin, by_branches=rule.branches) if isinstance(rule, Certain) else None
    tally.masses = None if is_audited else masses
    while tally.votes_needed and calls < CAP:
        vote, mass = draw()
        calls += 1
        if mass is not None:
            told[mass.text] = exp(mass.log)
            if masses is not None:
                masses.add(0, 1.0, vote, mass)
        if vote is FLAGGED:
            tally.flag()
        else:
            tally.count(vote)
    return tally, calls, sum(told.values())


def overturned(step: Step, vote: Hashable, random: Random) -> tuple[bool, float]:
    """Whether another vote has more of many votes than a certified one, and the probability of that by the law."""
    shares = step.shares
    rest = max(0.0, 1 - sum(shares.values()))
    votes = Counter(random.choices([*shares, FLAGGED], [*shares.values(), rest], k=MANY))
    del votes[FLAGGED]
    rival = max((p for each, p in shares.items() if each != vote), default=0.0)
    lead = shares[vote] - rival
    spread = (shares[vote] + rival - lead * lead) * MANY
    return max(votes, key=votes.__getitem__) != vote, NormalDist(MANY * lead, spread**0.5 or 1e-9).cdf(0)


def laws(name: str, disks: int, seed: int) -> Iterator[str]:
    """The figures of elections in all states."""
    model, task, random = TinyModel(name), WarmHanoi(disks=disks), Random(seed)
    steps = [(step_of(model, task, state), task.oracle(state)) for state in states(task)]
    wrong = fmean(1 - step.shares.get(right.vote(), 0.0) for step, right in steps)
    yield f"tiny:{name}, {disks} disks: {len(steps):,} states, one sample is wrong or flagged: {wrong:.4f}"
    for title, rule in (
        ("ahead by 3", FirstToAheadBy(K)),
        ("certified or ahead by 3", Certain(FirstToAheadBy(K), margin=0.0)),
    ):
        errors, calls, sums, certified, missed, changed, implied = 0, 0, [0.0], 0, 0, 0, 0.0
        for step, right in steps:
            tally, drawn, total = hold(rule, partial(draw_of, step, random))
            winner = None if tally.leader is None else list(tally.counts)[tally.leader]
            errors += winner != right.vote()
            calls += drawn
            sums.append(total)
            if tally.probability is not None:
                certified += 1
                missed += winner != next(iter(step.shares))
                is_overturned, chance = overturned(step, winner, random)
                changed, implied = changed + is_overturned, implied + chance
        yield (
            f"  {title}: {errors / len(steps):.4f} wrong, {calls / len(steps):.3f} calls a decision"
            + f", {certified / len(steps):.2f} certified, {missed} of them not the mode, masses sum to {max(sums):.6f} at most; "
            f"{MANY} votes overturn {changed}, by the laws {implied:.2f}" * bool(certified)
        )


class Recorded(Model):
    """Draws from enumerated laws, after a time."""

    priced = True

    def __init__(self, name: str, disks: int, seed: int) -> None:
        model, task = TinyModel(name), WarmHanoi(disks=disks)
        self._seed = seed
        self._task = task
        self._of = cache(lambda prompt: step_of(model, task, task.state_in(prompt)))

    async def complete(self, call: Call) -> Sample:
        """Draw a reply."""
        random = Random(f"{self._seed} {call.id.election.path} {call.id.election.question_digest.hex()} {call.id.seq}")
        await asyncio.sleep(exp(0.5 * random.gauss(0, 1)))
        step = self._of(Prompt(system=self._task.system, user=call.prompt.user))
        text = step.draw(random)
        mass = mass_of(step, text) if text and call.needs_mass else None
        return Sample(text=text, usage=Usage(cost_usd=0.0), mass=mass)


def timed(model: Recorded, disks: int, strategy: Maker) -> tuple[float, Result]:
    """The virtual duration of a tower in seconds, and its result."""

    async def running() -> tuple[float, Result]:
        result = await run(WarmHanoi(disks=disks), models=model, strategy=strategy, runs_dir=None)
        return asyncio.get_running_loop().time(), result

    return run_virtual(running())


def chain(name: str, disks: int, runs: int) -> Iterator[str]:
    """The time of a tower, several ways."""
    ways = {
        "k = 3, step by step": Maker(speculate=False),
        "k = 3": Maker(),
        "k = 3, hedge 1": Maker(hedge=1),
        "certified, step by step": Maker(speculate=False, certain="on"),
        "certified": Maker(certain="on"),
        "certified, hedge 1": Maker(certain="on", hedge=1),
        "certified, hedge 2": Maker(certain="on", hedge=2),
    }
    models = [Recorded(name, disks, seed) for seed in range(runs)]
    for title, strategy in ways.items():
        found = [timed(model, disks, strategy) for model in models]
        steps = fmean(result.account.steps for _, result in found)
        seconds, calls = fmean(time_s for time_s, _ in found), fmean(result.calls for _, result in found)
        yield f"  {title}: {seconds / steps:.3f} s and {calls / steps:.3f} calls a step"


def cost() -> str:
    """The time of an election that its first reply decides."""
    mass, rule = Mass(log=log(0.9), text=b"12345678"), Certain(FirstToAheadBy(K))

    def certified() -> None:
        tally = Tally(rule)
        tally.masses = SeenMasses(rule.margin, by_branches=False)
        tally.masses.add(0, 1.0, "a", mass)
        tally.count("a")
        assert tally.leader == 0

    def voted() -> None:
        tally = Tally(rule.otherwise)
        for _ in range(K):
            tally.count("a")
        assert tally.leader == 0

    one, other = [min(timeit.repeat(each, number=10_000, repeat=7)) * 100 for each in (certified, voted)]
    return f"the rule takes {one:.1f} us an election that one reply decides, a vote of three {other:.1f} us"


QUESTIONS = {
    "apple=apple house=house river=river": "stone cloud lemon chair window bread horse garden",
    "dog=dogs house=houses tree=trees": "car mouse child book table hand city bird",
    "Spain=Madrid Italy=Rome Japan=Tokyo": "France Norway Germany Greece",
    "3=4 11=12 6=7": "8 21 14 17",
    "grass=green snow=white blood=red": "sky banana orange",
    "2,9=9 7,1=7 3,5=5": "6,8 9,4 30,12",
}
"""Questions after examples of a question and its answer."""
ELECTIONS = 400
CLASSES = (0.8, 0.6, 0.4, 0.0)


class WithExamples(OpenAIModel):
    """A model that sees earlier turns before each question."""

    turns: Sequence[dict[str, str]] = ()

    def _content(self, call: Call, parameters: dict[str, Any]) -> dict[str, Any]:
        content = super()._content(call, parameters)
        return {**content, "messages": [*self.turns, *content["messages"]]}


async def answers(address: str, draws: int, only: str) -> AsyncIterator[tuple[str, Sequence[Drawn]]]:
    """Draw the replies to each question, each with a request of its own."""
    model = WithExamples(ModelSpec.parse(f"openai:smollm2@base_url={address}/v1"))
    slots = asyncio.Semaphore(4)

    async def draw(question: str, seq: int) -> Drawn:
        sample = SampleId(election=ElectionId(path="0/q", question_digest=b""), seq=seq)
        call = Call(
            id=sample, prompt=Prompt(user=question), reply=Reply, temperature=1.0, max_output_tokens=6, needs_mass=True
        )
        async with slots:
            found = await model.complete(call)
        return found.text.strip(" .").lower() if found.finish == "stop" else FLAGGED, found.mass

    try:
        for examples, questions in [each for each in QUESTIONS.items() if only in each[0]]:
            texts = examples.replace("=", " ").split()
            model.turns = [
                {"role": role, "content": text} for role, text in zip(cycle(("user", "assistant")), texts, strict=False)
            ]
            for question in questions.split():
                yield question, await asyncio.gather(*[draw(question, seq) for seq in range(draws)])
    finally:
        await model.close()


def squares(drawn: Sequence[Drawn]) -> list[float]:
    """z^2 of the frequency of each text in its usual tokens, if it comes neither too seldom nor nearly always."""
    logs, n, found = defaultdict[bytes, list[float]](list), len(drawn), list[float]()
    for _, mass in drawn:
        if mass is not None:
            logs[mass.text].append(mass.log)
    for of_text in logs.values():
        usual = median(of_text)
        p, came = exp(usual), sum(abs(log - usual) < NATS for log in of_text)
        if n * p * (1 - p) > 3:
            found.append((came - n * p) ** 2 / (n * p * (1 - p)))
    return found


async def served(address: str, draws: int, only: str) -> None:
    """Print the figures of a server: of each question, and of each class of the greatest mass of a text."""
    random, found, tested = Random(0), defaultdict[float, list[tuple[float, ...]]](list), list[float]()
    votes, rule = FirstToAheadBy(K), Certain(FirstToAheadBy(K))
    async for question, drawn in answers(address, draws, only):
        likeliest = max((exp(mass.log) for _, mass in drawn if mass is not None), default=0.0)
        mode, came = Counter(vote for vote, _ in drawn if vote is not FLAGGED).most_common(1)[0]
        draw = partial(random.choice, drawn)
        voted = fmean(hold(votes, draw)[1] for _ in range(ELECTIONS))
        held = [hold(rule, draw)[:2] for _ in range(ELECTIONS)]
        calls = fmean(each for _, each in held)
        missed = fmean(tally.certain is not None and tally.certain[0] != mode for tally, _ in held)
        audited = fmean(hold(rule, draw, is_audited=is_audited(f"0/step/{n}"))[1] for n in range(100))
        tested += (of_texts := squares(drawn))
        found[next(least for least in CLASSES if likeliest >= least)].append((voted, calls, audited, missed))
        print(
            f"  {question} p = {likeliest:.3f}, {mode!r} {came} of {draws}: {voted:.2f} calls, certified {calls:.2f}",
            flush=True,
        )
        print(f"    {len(of_texts)} texts with a mean z^2 of {fmean(of_texts or [0]):.2f}", flush=True)
    for least, of_class in sorted(found.items(), reverse=True):
        voted, calls, audited, missed = map(fmean, zip(*of_class, strict=True))
        print(
            f"p from {least}: {len(of_class)} questions; calls ahead by 3 {voted:.2f}, certified {calls:.2f}, of 100 with their "
            f"audit {audited:.2f}; certified and not the mode {missed:.4f} of elections"
        )
    print(f"{len(tested)} texts with a mean z^2 of {fmean(tested):.2f}, {draws} draws of each question")


def main() -> None:
    """Print the figures."""
    given = options_of(
        __doc__, models="tiny:hanoi,tiny:hanoi-weak", disks=10, runs=3, seed=0, server=False, draws=300, only=""
    )
    if given.server:
        with serving_llama() as address:
            asyncio.run(served(address, given.draws, given.only))
        return
    for model in given.models.split(","):
        name = model.removeprefix("tiny:")
        for line in laws(name, given.disks, given.seed):
            print(line)
        for line in chain(name, min(given.disks, 7), given.runs) if given.runs else ():
            print(line)
    print(cost())


if __name__ == "__main__":
    main()
