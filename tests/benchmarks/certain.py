"""Elections that the probabilities of replies decide: ``python -m tests.benchmarks.certain [--models tiny:hanoi] [--disks 6] [--runs 4]``.

The replies of a trained model at temperature 1 are enumerated in every state of a tower, and elections are drawn from these laws.

- laws: calls a decision, ahead by 3 and with masses; certified decisions that are not the mode; the largest sum of masses in an election;
  and how many certified decisions a plurality of 400 votes overturns, beside the number that the laws imply.
- chain: the virtual time of a tower, with calls of 1 s (log-normal, sigma .5).
- cost: the time of the rule in an election that the first reply decides.
"""

from __future__ import annotations

import argparse
import asyncio
import timeit
from collections import Counter
from collections.abc import Hashable, Iterator
from functools import cache
from math import exp, log
from random import Random
from statistics import NormalDist, fmean

from msgspec import Struct

from microagents import Call, Model, Result, Sample, Usage, run
from microagents.elections.certainty import FLAGGED, SeenMasses
from microagents.elections.rules import Certain, FirstToAheadBy, Rule, Tally
from microagents.models.tiny.trained import TinyModel
from microagents.replies.chat import Prompt
from microagents.replies.masses import Mass, digest_of_text
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.hanoi import Hanoi, Towers
from tests.benchmarks.tiny import WarmHanoi, replies, states

MANY = 400
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


def hold(step: Step, rule: Rule, random: Random) -> tuple[Tally, int, float]:
    """Hold an election; returns its tally, its calls, and the sum of the masses in it."""
    tally, drawn = Tally(rule), Counter[str]()
    masses = SeenMasses(rule.margin, by_branches=False) if isinstance(rule, Certain) else None
    tally.masses = masses
    while tally.votes_needed and drawn.total() < CAP:
        text = step.draw(random)
        drawn[text] += 1
        vote = step.votes.get(text, FLAGGED)
        if masses is not None and text:
            masses.add(0, 1.0, vote, mass_of(step, text))
        if vote is FLAGGED:
            tally.flag()
        else:
            tally.count(vote)
    return tally, drawn.total(), sum(step.texts[text] for text in drawn if text)


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
            tally, drawn, total = hold(step, rule, random)
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


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="tiny:hanoi,tiny:hanoi-weak")
    parser.add_argument("--disks", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for model in given.models.split(","):
        name = model.removeprefix("tiny:")
        for line in laws(name, given.disks, given.seed):
            print(line)
        for line in chain(name, min(given.disks, 7), given.runs) if given.runs else ():
            print(line)
    print(cost())


if __name__ == "__main__":
    main()
