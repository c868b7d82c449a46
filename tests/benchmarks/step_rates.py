"""Whether intervals of step rates hold the truth: python -m tests.benchmarks.step_rates votes|tiny|structures|rivals|named|agents.

--worlds N takes fewer. Steps are made, sampled and decided by code of its own. The truth of every figure is known and counted;
intervals are never compared with intervals.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from microagents import run
from microagents.elections.laws import Proportion
from microagents.elections.step_rates import Interval, SeenStep, StepRates
from microagents.models.tiny.trained import TinyModel
from microagents.studies.compare import variants_of
from microagents.studies.measure import measure
from microagents.studies.measured import ModelMeasurement
from microagents.studies.measuring import MeasuredStep
from microagents.studies.trials import margins_of
from microagents.systems.agents.act import Act
from microagents.task import ChainTask
from microagents.tasks.checkers import Checkers
from microagents.tasks.desk import Desk
from microagents.tasks.hanoi import Hanoi
from tests.benchmarks.harness import parser_of
from tests.benchmarks.tiny import replies, states

Array = NDArray[np.float64]
Law = tuple[float, ...]
"""Shares of the replies to a step, the right one first."""

VOTES = Path(__file__).parent / "votes" / "gsm8k-gpt-4o-mini.txt"
TARGET, CAP = 0.95, 100
FLAGGED = -1
RARE = ".1 %"
"""Name of the structures whose chance has a condition that can be false: steps of the hard kind are among the sampled ones."""
FIRST, MORE = 2, 8
CLOSE = 1e-9
HOPELESS = 0.01
"""Chances below this one count as this one: nobody begins such a run, and of 1e-17 and .007 it says the same."""
KS = (1, 2, 3, 4, 5)


# -- the truth ----------------------------------------------------------------------------------------------------------


class End(NamedTuple):
    right: float
    votes: float


def against_one(error: Array, k: int) -> tuple[Array, Array]:
    """Chance that a step is lost, and votes: the gambler's ruin, without a cap."""
    odds = error / np.maximum(1 - error, 1e-12)
    lost = odds**k / (1 + odds**k)
    drift = np.where(np.abs(1 - 2 * error) < 1e-9, 1.0, 1 - 2 * error)
    return lost, np.where(np.abs(1 - 2 * error) < 1e-9, float(k * k), k * (1 - 2 * lost) / drift)


def ended(law: Law, k: int, rng: np.random.Generator, elections: int = 2_000) -> End:
    """Hold elections. If the right reply is the likeliest, losses are weighed by the elections that it wins, so that rare ones are known.

    Exchange the right reply and a rival in an election that it wins: the rival wins, with a chance that is less by a factor.
    """
    shares = np.array(law) / sum(law)
    counts = np.zeros((elections, len(law)))
    won, votes = np.zeros(elections, bool), np.full(elections, CAP)
    at = np.arange(elections)
    for vote in range(1, CAP + 1):
        counts[at, np.searchsorted(np.cumsum(shares)[:-1], rng.random(len(at)))] += 1
        two = np.partition(np.c_[counts[at], np.zeros(len(at))], -2, axis=1)[:, -2:]
        over = two[:, 1] - two[:, 0] >= k
        won[at[over]], votes[at[over]] = counts[at[over]].argmax(1) == 0, vote
        at = at[~over]
        if not len(at):
            break
    if shares[0] < shares.max():
        return End(float(won.mean()), float(votes.mean()))
    odds = ((shares[1:] / shares[0]) ** (counts[won, :1] - counts[won, 1:])).sum(1)
    return End(1 - float(odds.sum() + len(at)) / elections, float(votes.mean()))


def ends(laws: Sequence[Law], k: int, rng: np.random.Generator, elections: int = 2_000) -> list[End]:
    """Hold elections at steps with several wrong replies; others have a law."""
    found = {}
    for law in dict.fromkeys(laws):
        if len(law) > 2 and k > 1:
            found[law] = ended(law, k, rng, elections)
        else:
            lost, votes = against_one(np.array([1 - law[0] / sum(law)]), k)
            found[law] = End(1 - float(lost[0]), float(votes[0]))
    return [found[law] for law in laws]


def sampled(draw: Callable[[int], Sequence[int]], number: int, *, is_own: bool) -> SeenStep:
    """Draw two samples, and eight more after an error; a sample is 0 if it is right, and `FLAGGED` with a red flag."""
    drawn = [*draw(FIRST)]
    if any(drawn):
        drawn += draw(MORE)
    wrong = Counter(each for each in drawn if each)
    flagged = wrong.pop(FLAGGED, 0)
    return SeenStep(right=drawn.count(0), wrong=tuple(wrong.values()), flagged=flagged, number=number, is_own=is_own)


def drawing(rng: np.random.Generator, law: Law, flagged: float = 0.0) -> Callable[[int], list[int]]:
    """Draw samples by the shares of the replies, and of the flagged ones."""
    bounds = np.cumsum([flagged, *np.array(law) / sum(law) * (1 - flagged)])[:-1]
    return lambda count: (np.searchsorted(bounds, rng.random(count)) - 1).tolist()


def dealing(deck: list[int]) -> Callable[[int], list[int]]:
    """Draw recorded samples without replacement."""
    return lambda count: [deck.pop() for _ in range(count)]


class Held:
    """Counts how often intervals hold the truth."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self.held: Counter[str] = Counter()
        self.low: Counter[str] = Counter()

    def count(self, name: str, told: Interval | Proportion, truth: float) -> None:
        low, true, high = (max(each, HOPELESS) if "chance" in name else each for each in (told.low, truth, told.high))
        self.is_true(name, is_held=low - CLOSE <= true <= high + CLOSE)
        self.low[name] += true < low - CLOSE

    def is_true(self, name: str, *, is_held: bool) -> None:
        self.times[name] += 1
        self.held[name] += is_held

    def __str__(self) -> str:
        parts = [
            f"{name} {self.held[name] / times:.3f}" + (f" (-{self.low[name] / times:.2f})" if self.low[name] else "")
            for name, times in self.times.items()
        ]
        return "  ".join(parts)


# -- laws of given steps ----------------------------------------------------------------------------------------------


def check_laws(
    laws: Sequence[Law],
    share: float,
    worlds: int,
    *,
    ks: Sequence[int] = (1, 3, 5),
    flagged: Sequence[float] = (),
    elections: int = 2_000,
) -> Held:
    """Measure a task of which all steps are known, again and again: the chance, the calls and the hard steps.

    Args:
        laws: of the valid replies to each step.
        share: of the steps that are sampled.
        worlds: number of measurements.
        ks: of the chances.
        flagged: share of flagged replies to each step; none by default.
        elections: number of elections that are held at each step to know the truth.
    """
    flagged = flagged or [0.0] * len(laws)
    true = {k: ends(laws, k, np.random.default_rng(1), elections) for k in ks}
    held = Held()
    for world in range(worlds):
        rng = np.random.default_rng([5, world])
        chosen = rng.choice(len(laws), size=max(1, round(share * len(laws))), replace=False)
        seen = [sampled(drawing(rng, laws[at], flagged[at]), int(at), is_own=True) for at in chosen]
        if not any(each.valid for each in seen):
            continue
        found = StepRates(seen, len(laws), seed=world)
        held.count("p", found.p, float(np.mean([law[0] / sum(law) for law in laws])))
        for k in ks:
            held.count(f"chance {k}", found.chance(k), math.prod(end.right for end in true[k]))
            calls = sum(end.votes / (1 - lost) for end, lost in zip(true[k], flagged, strict=True))
            held.count(f"calls {k}", found.calls(k), calls)
        held.is_true("hard", is_held=sum(law[0] / sum(law) <= 0.5 for law in laws) <= found.hard.high)
    return held


def laws_of(model: TinyModel, task: ChainTask[Any, Any], temperature: float) -> tuple[list[Law], list[float]]:
    """Enumerate the replies of a trained model in every state of the right way: their shares, and those of flagged ones."""
    laws, flagged = list[Law](), list[float]()
    for state in states(task):
        shares, lost = defaultdict[object, float](float), 0.0
        for _, mass, reply in replies(model, task, state, temperature):
            if reply is None:
                lost += mass
            else:
                shares[0 if task.correct(state, reply) else task.vote_of(reply)] += mass
        laws.append((shares.pop(0, 0.0), *shares.values()))
        flagged.append(lost / (lost + sum(laws[-1])))
    return laws, flagged


def check_tiny(worlds: int) -> None:
    """Measure the trained models by their enumerated replies, all steps and a third of them."""
    tasks: tuple[tuple[str, ChainTask[Any, Any]], ...] = (
        ("hanoi-weak", Hanoi(disks=6)),
        ("hanoi-weak", Hanoi(disks=8)),
        ("checkers", Checkers(n=7)),
    )
    for name, task in tasks:
        laws, flagged = laws_of(TinyModel(name), task, 1.0)
        true = ", ".join(
            f"{math.prod(end.right for end in ends(laws, k, np.random.default_rng(1), 50_000)):.4f} at k = {k}"
            for k in (1, 3, 5)
        )
        print(f"tiny:{name}, {len(laws)} steps, chance {true}")
        for share in (1.0, 1 / 3):
            held = check_laws(laws, share, worlds, flagged=flagged, elections=50_000)
            print(f"tiny:{name}, {share:.0%} of {len(laws)} steps, {worlds} measurements: {held}", flush=True)


# -- recorded votes -----------------------------------------------------------------------------------------------------


def check_votes(path: Path, sets: range, size: int = 200) -> Held:
    """Measure random questions of recorded votes, drawn without replacement, and plan for them and for others."""
    lines = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    votes = [[int(each, 36) for each in line] for line in lines]
    laws = [tuple(float(line.count(reply)) for reply in range(max(line) + 1)) for line in votes]
    p = np.array([law[0] / sum(law) for law in laws])
    true = {k: np.array(ends(laws, k, np.random.default_rng(k))) for k in (2, 3, 5)}
    held = Held()
    for world in sets:
        rng = np.random.default_rng([7, world])
        chosen = rng.permutation(len(laws))[: 2 * size]
        own, others = chosen[:size], chosen[size:]
        decks = {int(at): [int(each) for each in rng.permutation(votes[at])] for at in own}
        for name, of in (("own", own), ("others", others)):
            seen = [
                sampled(dealing([*deck]), number, is_own=name == "own") for number, deck in enumerate(decks.values())
            ]
            found = StepRates(seen, size, seed=world)
            held.count(f"{name}: p", found.p, float(p[of].mean()))
            for k, both in true.items():
                held.count(f"{name}: decided {k}", found.decided(k), float(both[of, 0].mean()))
                held.count(f"{name}: calls {k}", found.calls(k), float(both[of, 1].sum()))
            held.is_true(f"{name}: hard", is_held=int((p[of] < 0.5).sum()) <= found.hard.high)
        if world % 50 == 49 or world == sets[-1]:
            print(f"votes, sets {sets[0]} to {world}: {held}", flush=True)
    return held


# -- structures ---------------------------------------------------------------------------------------------------------


def stretches(rng: np.random.Generator, size: int) -> Array:
    """A chain that is easy and difficult by turns."""
    state = np.cumsum(rng.random(size) < 1 / 50) + rng.integers(2)
    is_bad = np.where(state % 4 == 0, 1.0, 0.0)
    return np.where(is_bad > 0, 0.1, 0.003)


STRUCTURES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "one rate": lambda _, size: np.full(size, 0.01),
    "beta(.5, 25)": lambda rng, size: rng.beta(0.5, 25, size),
    "stretches": stretches,
    ".1 % at .7": lambda rng, size: np.where(rng.random(size) < 0.001, 0.7, 0.005),
    "2 % at .45": lambda rng, size: np.where(rng.random(size) < 0.02, 0.45, 0.003),
    "drift": lambda _, size: 0.001 * np.exp(np.linspace(0, math.log(50), size)),
    "lognormal": lambda rng, size: np.minimum(np.exp(rng.normal(math.log(0.004), 1.0, size)), 0.9),
}


def check_structure(
    name: str, make: Callable[[np.random.Generator, int], Array], total: int, size: int, worlds: range
) -> str:
    """Measure random steps of chains, and say what holds. Worlds in which the printed condition is false are counted apart."""
    held, excluded, marked = Held(), 0, Counter[int | None]()
    for world in worlds:
        rng = np.random.default_rng([3, world, total])
        errors = make(rng, total)
        chosen = rng.choice(total, size=size, replace=False)
        if name.startswith(RARE) and (errors >= 0.5).any() and not (errors[chosen] >= 0.5).any():
            excluded += 1
            continue
        seen = [sampled(drawing(rng, (1 - errors[at], errors[at])), int(at), is_own=True) for at in chosen]
        found = StepRates(seen, total, seed=world)
        true = {k: math.exp(np.log1p(-against_one(errors, k)[0]).sum()) for k in range(1, 31)}
        held.count("p", found.p, 1 - float(errors.mean()))
        for k in KS:
            held.count(f"k={k}", found.chance(k), true[k])
            held.count(f"calls {k}", found.calls(k), float(against_one(errors, k)[1].sum()))
        held.is_true("hard", is_held=int((errors >= 0.5).sum()) <= found.hard.high)
        enough = (k for k in true if found.chance(k).low >= TARGET)
        taken = None if found.unseen_hard else next(enough, None)
        least = next((each for each in true if true[each] >= TARGET), None)
        held.is_true("mark", is_held=taken is None or true[taken] >= TARGET)
        marked[None if taken is None or least is None else taken - least] += 1
    return (
        f"{held}  excluded {excluded} of {len(worlds)}  marked above the least: {dict(sorted(marked.items(), key=str))}"
    )


def check_rivals(worlds: int) -> None:
    """Measure chains with three equal rivals, or one, at 3 % of 300 steps."""
    for hard in ((0.4, 0.2, 0.2, 0.2), (0.7, 0.1, 0.1, 0.1), (0.6, 0.4)):
        laws = [hard if at % 33 == 0 else (0.995, 0.005) for at in range(300)]
        print(f"{hard} at 10 of 300 steps: {check_laws(laws, 1.0, worlds, ks=(3, 5), elections=20_000)}", flush=True)


# -- changes of errors --------------------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "one rate": STRUCTURES["one rate"],
    "beta(.5, 25)": STRUCTURES["beta(.5, 25)"],
    "2 % at .45": STRUCTURES["2 % at .45"],
    "drift": STRUCTURES["drift"],
    "linear, .01 to .05": lambda _, size: np.linspace(0.01, 0.05, size),
    "up to 6 % at .45": lambda rng, size: np.where(rng.random(size) < np.linspace(0, 0.06, size), 0.45, 0.005),
}
"""Error rates along a chain, or by the length of the prompt: three that do not change, and three that do."""


def check_named(make: Callable[[np.random.Generator, int], Array], size: int, worlds: range) -> str:
    """Measure all steps of chains, and count those of which a change of errors along the chain and one with the length is told.

    And those in which the stated bound of errors in the last third holds, which a plan for a longer chain names. Lengths are the positions
    of a shuffled chain.
    """
    held = Held()
    for world in worlds:
        rng = np.random.default_rng([4, world, size])
        errors, steps = make(rng, size), list[MeasuredStep]()
        lengths = rng.permutation(size)
        for apart, rates in ((0, errors), (size, errors[lengths])):
            for at, error in enumerate(rates):
                wrong = [int(each) for each in sampled(drawing(rng, (1 - error, error)), at, is_own=True).wrong]
                count = FIRST + MORE * bool(wrong)
                votes = (*[1] * sum(wrong), *[0] * (count - sum(wrong)))
                length = 1_000 + (int(lengths[at]) if apart else 0)
                steps.append(MeasuredStep(at, count, FIRST, votes, (True, False), {}, names=(0, 1), length=length))
        whole: dict[str, Any] = {
            "model": "sim:m",
            "run_id": "r",
            "calls": 1,
            "input_tokens": 1,
            "output_tokens": 1,
            "cost_usd": None,
        }
        chain = ModelMeasurement(total=size, steps=tuple(steps[:size]), **whole)
        mixed = ModelMeasurement(total=size, steps=tuple(steps[size:]), **whole)
        held.is_true("change along the chain", is_held=chain.trend is not None)
        held.is_true("along a shuffled one", is_held=mixed.trend is not None)
        held.is_true("with the length", is_held=mixed.by_length is not None)
        held.is_true("end", is_held=chain.most_at_end >= errors[-(size // 3) :].mean())
    return str(held)


# -- agents -------------------------------------------------------------------------------------------------------------


async def check_agents(worlds: range, folder: str, trials: int = 40) -> None:
    """Measure an agent with hard actions by few trials, with its default margins and with larger ones, and hold them against many runs."""
    model, held = "sim:perfect@error=0.05,hard=0.05,hard_error=0.8", Held()
    true = {}
    for more in (0, 1):
        margins = {kind: k + more for kind, k in margins_of(Act()).items()}
        act = Act.model_validate({f"k_{kind}": k for kind, k in margins.items()})
        share, calls = await _rates_of(f"{folder}/true-{more}", model, act)
        true[more] = (margins, share, calls)
    for world in worlds:
        for more, (margins, share, calls) in true.items():
            desk = Desk(world=f"{folder}/{world}-{more}.sqlite", ticket=10_000 + trials * world)
            options = {f"k_{kind}": k for kind, k in margins.items()}
            (agent,) = (await measure(desk, model, steps=trials, options=options, runs_dir=folder, seed=world)).agents
            held.count(f"margins + {more}", agent.success, share)
            held.is_true(f"calls + {more} within a fifth", is_held=abs(agent.calls / agent.trials / calls - 1) < 0.2)
    print(
        f"agents, {len(worlds)} measurements, truth {', '.join(f'{share:.3f}' for _, share, _ in true.values())}: {held}"
    )


async def _rates_of(folder: str, model: str, act: Act) -> tuple[float, float]:
    """Share of 1,500 tickets that end right, and calls for one. A hundred at once: more wait for each other at the lock of one world."""
    right = calls = 0
    for part in range(15):
        desk = Desk(world=f"{folder}-{part}.sqlite", ticket=1_000 + 100 * part)
        found = await run(variants_of(desk, 100), models=model, strategy=act, runs_dir=Path(folder), seed=1_000 + part)
        assert found.outcome == "completed", found.reason
        right += sum(each["correct"] for each in found.value)
        calls += found.calls
    return right / 1_500, calls / 1_500


def main() -> None:
    parser = parser_of(__doc__, worlds=int)
    parser.add_argument("what", choices=("votes", "tiny", "structures", "rivals", "named", "agents"))
    of = parser.parse_args()
    if of.what == "votes":
        check_votes(VOTES, range(of.worlds or 1_000))
    elif of.what == "tiny":
        check_tiny(of.worlds or 400)
    elif of.what == "rivals":
        check_rivals(of.worlds or 400)
    elif of.what == "named":
        for name, make in CHANGES.items():
            for size in (300, 1_000):
                print(f"{name}, {size:,}: {check_named(make, size, range(of.worlds or 400))}", flush=True)
    elif of.what == "agents":
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(check_agents(range(of.worlds or 100), folder))
    else:
        for name, make in STRUCTURES.items():
            for total in (1_000, 10_000):
                says = check_structure(name, make, total, 1_000, range(of.worlds or 400))
                print(f"{name}, {total:,}: {says}", flush=True)


if __name__ == "__main__":
    main()
