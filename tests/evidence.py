"""What the package does on errors that nobody wrote: ``python -m tests.evidence [NAME...] [--write] [--check]``.

Each figure stands beside what was expected of it, by enumeration of a trained model's replies or by a Monte Carlo of its own, or by a
promise that is put to the test. Its interval is the one in which it lies in 99 of 100 such experiments if the expectation is true. With
``--write`` docs/notebooks/evidence.md is written, with ``--check`` the program exits with 1 if a figure has left its interval.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from math import exp, inf, log, sqrt
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from msgspec import Struct

from microagents import Rates, Strategy, Task, plan, run_sync
from microagents.elections.dissent import alpha_of, is_improbable
from microagents.elections.election import input_of
from microagents.elections.rules import FirstToAheadBy, Tally
from microagents.journal.messages import Account
from microagents.journal.sharded import reader_of
from microagents.models.tiny.trained import TinyModel
from microagents.replies.parsing import Malformed, parse
from microagents.replies.rollouts import rollout_of
from microagents.runs.inspection.rebuilding import wrong_steps
from microagents.runs.strategies import Models
from microagents.systems.chains.lead import Lead
from microagents.systems.chains.maker import Maker
from microagents.task import ChainTask
from microagents.tasks.checkers import Board, Checkers, CheckersStep
from microagents.tasks.hanoi import Hanoi
from tests.benchmarks import step_rates
from tests.benchmarks.desk import ROWS as DESK_ROWS
from tests.benchmarks.desk import Measured, by_engine, by_monte_carlo, law
from tests.benchmarks.stopping import recorded
from tests.benchmarks.tiny import FLAGGED, NOT_ENUMERATED, RIGHT, WarmHanoi, shares, states

PAGE = Path(__file__).parents[1] / "docs" / "notebooks" / "evidence.md"
SIGMAS = 2.576
"""Standard errors within which 99 % of differences lie."""
CAP = 100
ELECTIONS, WALKS = 400, 200
"""Elections of each step in the Monte Carlo, and chains."""

S = TypeVar("S")
Table = tuple[Sequence[object], Sequence[float]]
"""Votes, and the sums of their shares up to each."""
Shares = Mapping[object, float]
"""Probability of each vote by one sample; `RIGHT`, `FLAGGED`."""


class Figure(Struct, frozen=True, kw_only=True):
    """A row of the page."""

    says: str
    ours: float
    expected: float
    low: float
    """Ends of the 99 % interval around the expectation."""
    high: float
    n: str
    paid: str
    """Calls, cost and time."""
    is_against: bool = False
    """Whether it shows where the package or a promise of it falls short."""

    @property
    def holds(self) -> bool:
        """Whether it lies in its interval."""
        return self.low - 1e-9 <= self.ours <= self.high + 1e-9


def of_trials(
    says: str, right: int, trials: int, expected: Sequence[float], paid: str, *, is_against: bool = False
) -> Figure:
    """A share of trials beside a chance with its bounds: the interval has the numbers that are likely by one of them."""
    within = [each for chance in expected for each in _likely(trials, chance)]
    return Figure(
        says=says,
        ours=right / trials,
        expected=fmean(expected),
        low=min(within) / trials,
        high=max(within) / trials,
        n=f"{trials:,}",
        paid=paid,
        is_against=is_against,
    )


def _likely(trials: int, chance: float) -> list[int]:
    below = [0.0, *accumulate(_binomial(each, trials, chance) for each in range(trials + 1))]
    return [each for each in range(trials + 1) if below[each + 1] > 0.005 and 1 - below[each] > 0.005]


def _binomial(count: int, trials: int, chance: float) -> float:
    ways = 1
    for each in range(count):
        ways = ways * (trials - each) // (each + 1)
    return ways * chance**count * (1 - chance) ** (trials - count)


def paid(account: Account, began: float, runs: int) -> str:
    """Calls, cost and time of each of some runs."""
    return f"{account.calls / runs:,.0f} calls a run, $0.00, {(time.perf_counter() - began) / runs:.2f} s"


# -- trained models ----------------------------------------------------------------------------------------------------


Ends = Callable[[Counter[object]], bool | None]
"""A rule: whether the leader of the votes so far is taken; False if the next rung has the step, None if more votes are needed."""
Rung = tuple[Sequence[Sequence[Shares]], Ends]
"""Laws of the models that take turns, each with its shares at each step, and the rule."""


def ahead(k: int, a_round: int = 1) -> Ends:
    """A lead of k, looked for at the ends of rounds of so many votes."""

    def ends(counts: Counter[object]) -> bool | None:
        first, *others = sorted(counts.values(), reverse=True)
        return (first - max(others, default=0) >= k and counts.total() % a_round == 0) or None

    return ends


def improbable(ends: Ends, p: float, alpha: float) -> Ends:
    """Another rule, until the votes are improbable at a share p of right ones."""

    def first(counts: Counter[object]) -> bool | None:
        votes = counts.total()
        return ends(counts) or (False if is_improbable(votes - max(counts.values()), votes, p, alpha) else None)

    return first


def unanimous(n: int) -> Ends:
    """The agreement of n votes."""
    return lambda counts: False if len(counts) > 1 else counts.total() >= n or None


def voted(*rungs: Rung) -> tuple[float, float]:
    """Bounds of the chance that all steps are right, by a Monte Carlo of its own: the steps that a rung leaves are for the next one.

    Returns:
        The chance if every reply that is not enumerated casts one wrong vote, and if each has a red flag.
    """
    steps = [*zip(*[[(models, ends) for models in zip(*laws, strict=True)] for laws, ends in rungs], strict=True)]
    low, high = [
        exp(sum(_won(step, flags, random.Random(number)) for number, step in enumerate(steps)))
        for flags in ((FLAGGED,), (FLAGGED, NOT_ENUMERATED))
    ]
    return low, high


def _won(rungs: Sequence[tuple[Sequence[Shares], Ends]], flags: Sequence[str], rng: random.Random) -> float:
    """Logarithm of the chance that one step is decided right. Steps have draws of their own, or rare errors would come at all of them."""
    won = 0
    tables = [([*map(_table, models)], ends) for models, ends in rungs]
    for _ in range(ELECTIONS):
        vote = _elected(tables, flags, rng)
        won += vote == RIGHT
    return log(won / ELECTIONS) if won else -inf


def _table(law: Shares) -> Table:
    return [*law], [*accumulate(law.values())]


def _elected(rungs: Iterable[tuple[Sequence[Table], Ends]], flags: Sequence[str], rng: random.Random) -> object:
    """The vote by which one step is decided; None if it stays undecided."""
    for models, ends in rungs:
        counts, turn = Counter[object](), rng.randrange(len(models))
        for _ in range(CAP):
            names, bounds = models[turn % len(models)]
            (vote,) = rng.choices(names, cum_weights=bounds)
            turn += 1
            if vote not in flags:
                counts[vote] += 1
                if (is_taken := ends(counts)) is not None:
                    break
        else:
            return None
        if is_taken:
            return counts.most_common(1)[0][0]
    return None


def laws_of(name: str, task: ChainTask[S, Any, Any]) -> list[Shares]:
    """The shares of a trained model at every step. A wrong move is wrong, also with the right state after it."""
    model = TinyModel(name)
    return [shares(model, task, state) for state in states(task)]


def all_right(models: Models, task: Task, runs: int, strategy: Strategy) -> tuple[int, Account]:
    """Number of tasks of which all steps are right: of those completed, and of those left open because the models contradict each other."""
    with TemporaryDirectory() as folder:
        result = run_sync([task] * runs, models=models, strategy=strategy, runs_dir=folder)
        contested = {input_of(path) for path in result.account.contested_at}
        ended = [number for number, value in enumerate(result.value) if value is not None or number in contested]
        with reader_of(Path(folder), result.run_id) as reader:
            right = sum(not wrong_steps(reader, number, inf)[0] for number in ended)
    return right, result.account


def votes_help() -> Iterator[Figure]:
    """k against success: models whose likeliest reply is right in every state; and both by turns."""
    task, runs = WarmHanoi(disks=6), 60
    laws = {name: laws_of(name, task) for name in ("hanoi", "hanoi-b")}
    for names, ks in ((["hanoi"], (1, 2, 3)), (["hanoi-b"], (1,)), (["hanoi", "hanoi-b"], (1, 2))):
        for k in ks:
            began = time.perf_counter()
            models = [f"tiny:{name}" for name in names]
            right, account = all_right(models, task, runs, Maker(k=k))
            who = " and ".join(f"`{model}`" for model in models) + " by turns" * (len(models) > 1)
            says = f"{who}, {task.steps()} steps, temperature 1: all steps right at k = {k}"
            chances = voted(([laws[name] for name in names], ahead(k)))
            yield of_trials(says, right, runs, chances, paid(account, began, runs))


def votes_do_not_help() -> Iterator[Figure]:
    """A model that is mostly wrong in a few states: no k mends that; a second model or a ladder may."""
    task, runs = WarmHanoi(disks=9), 6
    weak, other = laws_of("hanoi-weak", task), laws_of("hanoi-b", task)
    steps, pool = f"{task.steps()} steps", ["tiny:hanoi-weak", "tiny:hanoi-b"]
    alpha = alpha_of(0, task.steps(), 10)
    climbing = Maker(k=5, ladder=f"model={pool[1]}", p=0.9, false_alarms=10)
    voting = f"`{pool[0]}`, {steps}, two of them mostly wrong: all steps right at k ="
    by_turns = f"a pool of both by turns: all steps right, or right and then left open as contested, {steps}, k = 3"
    first_rung = [weak], improbable(ahead(5), 0.9, alpha)
    ways: Sequence[tuple[str, Sequence[str], Strategy, Sequence[Rung]]] = [
        *[(f"{voting} {k}", pool[:1], Maker(k=k), [([weak], ahead(k))]) for k in (1, 3, 5)],
        (f"`{pool[1]}` by itself, {steps}: all steps right at k = 3", pool[1:], Maker(k=3), [([other], ahead(3))]),
        (by_turns, pool, Maker(k=3), [([weak, other], ahead(3))]),
        (
            f"a ladder from the first to the second, {steps}: all steps right at k = 5",
            pool[:1],
            climbing,
            [first_rung, ([other], ahead(5))],
        ),
    ]
    for says, models, strategy, rungs in ways:
        began = time.perf_counter()
        right, account = all_right(models, task, runs, strategy)
        yield of_trials(
            says,
            right,
            runs,
            voted(*rungs),
            paid(account, began, runs),
            is_against=(models, len(rungs)) == (pool[:1], 1),
        )


class Walks:
    """Chains of steps by a trained model's laws, up to the first error."""

    def __init__(self, name: str, task: Checkers, horizon: int, starts: int) -> None:
        self._model, self._task, self._starts = TinyModel(name), task, starts
        self._horizon, self._kind = horizon, rollout_of(CheckersStep, horizon)
        self._laws: dict[tuple[Board, int], Table] = {}

    def chances(self, *rungs: tuple[bool, Ends]) -> tuple[float, float]:
        """Bounds of the chance that all steps are right, as `voted` has them. A rung may vote by rollouts, by turns from each start."""
        low, high = [
            fmean(self._is_right(rungs, flags, random.Random(seed)) for seed in range(WALKS))
            for flags in ((FLAGGED,), (FLAGGED, NOT_ENUMERATED))
        ]
        return low, high

    def _is_right(self, rungs: Sequence[tuple[bool, Ends]], flags: Sequence[str], rng: random.Random) -> bool:
        walked = [self._task.start()]
        while not self._task.done(walked[-1]):
            starts = [*enumerate(reversed(walked[-self._starts :]))]
            laws = (
                ([self._law(state, back) for back, state in starts] if looks_ahead else [self._law(walked[-1])], ends)
                for looks_ahead, ends in rungs
            )
            reply = _elected(laws, flags, rng)
            if not isinstance(reply, CheckersStep) or not self._task.correct(walked[-1], reply):
                return False
            walked.append(self._task.advance(walked[-1], reply))
        return True

    def _law(self, state: Board, back: int | None = None) -> Table:
        """Shares of the replies to one step, or of what rollouts say of the step so many steps after their start."""
        key = state, -1 if back is None else back
        if key not in self._laws:
            prompt = self._task.prompt(state) if back is None else self._task.rollout_prompt(state, self._horizon)
            found = dict[object, float]()
            for text, mass in self._model.law(prompt, least=1e-3).items():
                vote: object = FLAGGED
                with suppress(Malformed, IndexError):
                    vote = parse(text, CheckersStep) if back is None else parse(text, self._kind).steps[back]
                found[vote] = found.get(vote, 0.0) + mass
            self._laws[key] = _table({**found, NOT_ENUMERATED: max(0.0, 1 - sum(found.values()))})
        return self._laws[key]


def lookahead() -> Iterator[Figure]:
    """LEAD and a ladder beside votes: no lead mends a step whose likeliest reply is wrong, rollouts from the steps before it do."""
    runs, p, alarms = 20, 0.95, 4.0
    for n in (5, 8):
        task, walks = Checkers(n=n), Walks("checkers", Checkers(n=n), 3, 3)
        hard = sum(max(each, key=lambda vote: each[vote]) != RIGHT for each in laws_of("checkers", task))
        climbing = Maker(k=3, ladder="lookahead", horizon=3, p=p, false_alarms=alarms)
        climbs = improbable(ahead(3), p, alpha_of(0, task.steps(), alarms))
        ways: Sequence[tuple[str, Strategy, Sequence[tuple[bool, Ends]]]] = [
            *[(f"votes, k = {k}", Maker(k=k), [(False, ahead(k))]) for k in (1, 3)],
            ("votes, k = 3, with a ladder", climbing, [(False, climbs), (True, ahead(3, 3))]),
            ("LEAD", Lead(horizon=3), [(False, unanimous(8)), (True, ahead(3, 3))]),
        ]
        for name, strategy, rungs in ways:
            began = time.perf_counter()
            right, account = all_right("tiny:checkers@temperature=1", task, runs, strategy)
            yield of_trials(
                f"`tiny:checkers`, n = {n}, {task.steps()} steps, {hard} of them mostly wrong: all right by {name}",
                right,
                runs,
                walks.chances(*rungs),
                paid(account, began, runs),
                is_against=len(rungs) == 1,
            )


def flags_find_errors() -> Iterator[Figure]:
    """Red flags: how many of the wrong samples of a trained model carry one."""
    task, runs = WarmHanoi(disks=6), 60
    laws = laws_of("hanoi", task)
    flagged = fmean(each.get(FLAGGED, 0.0) for each in laws)
    began = time.perf_counter()
    account = run_sync([task] * runs, models="tiny:hanoi", strategy=Maker(k=3), runs_dir=None).account
    found, drawn = sum(account.flagged.values()), account.valid + sum(account.flagged.values())
    most = flagged + fmean(each[NOT_ENUMERATED] for each in laws)
    spread = SIGMAS * sqrt(most * (1 - most) / drawn)
    yield Figure(
        says="`tiny:hanoi`: share of samples with a red flag",
        ours=found / drawn,
        expected=(flagged + most) / 2,
        low=max(0.0, flagged - spread),
        high=most + spread,
        n=f"{drawn:,} samples",
        paid=paid(account, began, runs),
    )


def one_call() -> Iterator[Figure]:
    """Decided by the model's own probabilities: calls a decision, and whether the masses that it claims are repeated."""
    task, runs, began = WarmHanoi(disks=6), 60, time.perf_counter()
    account = run_sync([task] * runs, models="tiny:hanoi", strategy=Maker(k=3, certain="on"), runs_dir=None).account
    bill = paid(account, began, runs)
    says = "`tiny:hanoi`, `certain=on`, temperature 1"
    yield Figure(
        says=f"{says}: calls a decision, those that test the masses included; 3.05 by votes",
        ours=account.calls / account.decided,
        expected=1.077,  # 3.1 % are audited, at 3.06 votes for 1.01
        low=1.05,
        high=1.12,
        n=f"{account.decided:,} elections",
        paid=bill,
    )
    audit = account.masses["tiny:hanoi"]
    spread = SIGMAS * sqrt(audit.claimed * (1 - audit.claimed / audit.draws))
    yield Figure(
        says=f"{says}: second draws that repeat the leading vote, beside what the masses claim at least",
        ours=audit.repeated,
        expected=audit.claimed,
        low=audit.claimed - spread,
        high=audit.draws,
        n=f"{audit.draws} draws",
        paid=bill,
    )


def measurements() -> Iterator[Figure]:
    """Whether intervals of `measure` hold the enumerated truth: all steps are sampled, or a third of them."""
    worlds = 40
    laws, flagged = step_rates.laws_of(TinyModel("hanoi-weak"), Hanoi(disks=6), 1.0)
    for share, words in ((1.0, "all 63 steps"), (1 / 3, "a third of 63 steps")):
        began = time.perf_counter()
        held = step_rates.check_laws(laws, share, worlds, ks=(3,), flagged=flagged, elections=10_000)
        for name, what in (("chance 3", "the chance at k = 3"), ("calls 3", "the calls at k = 3")):
            yield of_trials(
                f"`tiny:hanoi-weak`, {words} measured: intervals (95 %) that hold {what}",
                held.held[name],
                held.times[name],
                (0.93, 1.0),
                f"no calls, {(time.perf_counter() - began) / worlds:.2f} s a measurement",
            )


# -- recorded votes ----------------------------------------------------------------------------------------------------

PUBLISHED = {1: 0.8923, 2: 0.9385, 3: 0.9393, 4: 0.9408, 5: 0.9393}
"""Share of questions that the first vote to lead by k decides right, counted from the recordings of arXiv 2503.17587."""


def recorded_votes() -> Iterator[Figure]:
    """gpt-4o-mini on GSM8K, 40 recorded votes a question, decided by our rule; beside what independent errors would promise."""
    questions = recorded(step_rates.VOTES.read_text(encoding="utf-8"))
    p = fmean(each.votes.count(each.right) / len(each.votes) for each in questions)
    for k, published in PUBLISHED.items():
        right = votes = 0
        for question in questions:
            tally = Tally(FirstToAheadBy(k))
            for vote in question.votes:
                tally.count(vote)
                if not tally.votes_needed:
                    right += tally.plurality == question.right
                    break
            votes += tally.counted
        share, n = right / len(questions), f"{len(questions):,} questions"
        bill = f"{votes / len(questions):.2f} votes a question"
        says = f"gpt-4o-mini, GSM8K: decided right by a lead of {k}"
        yield Figure(
            says=says, ours=share, expected=published, low=published - 5e-5, high=published + 5e-5, n=n, paid=bill
        )
        if k == 3:
            promised = 1 / (1 + ((1 - p) / p) ** k)
            yield Figure(
                says=f"{says}, beside the promise if all questions were alike and errors independent",
                ours=share,
                expected=promised,
                low=-inf,
                high=promised,
                n=n,
                paid=bill,
                is_against=True,
            )


# -- agents ------------------------------------------------------------------------------------------------------------


def agents() -> Iterator[Figure]:
    """Agents at a desk: tickets done right, beside a Monte Carlo; and beside the law of the worst case."""
    tickets, trials = 60, 4
    for name, strategy in DESK_ROWS.items():
        began = time.perf_counter()
        with TemporaryDirectory() as folder:
            engine: Measured = by_engine(strategy, tickets, trials, 0, Path(folder))
        simulated = by_monte_carlo(strategy, tickets, 0)
        spread = SIGMAS * sqrt(engine.pass_1[1] ** 2 + simulated.pass_1[1] ** 2)
        yield Figure(
            says=f"`desk` by {name}, 3 % of actions wrong (simulated): tickets done right; the law says {law(strategy, tickets)}",
            ours=engine.pass_1[0],
            expected=simulated.pass_1[0],
            low=simulated.pass_1[0] - spread,
            high=simulated.pass_1[0] + spread,
            n=f"{tickets * trials} tickets",
            paid=f"{engine.calls[0]:.1f} calls a ticket, {(time.perf_counter() - began) / tickets / trials:.2f} s",
        )


# -- promises ----------------------------------------------------------------------------------------------------------


def promises() -> Iterator[Figure]:
    """A chance computed from one mean rate, beside the truth of a model whose errors are not alike."""
    laws = laws_of("hanoi-weak", WarmHanoi(disks=9))
    valid = [1 - each.get(FLAGGED, 0.0) for each in laws]
    p = fmean(each.get(RIGHT, 0.0) / share for each, share in zip(laws, valid, strict=True))
    promised = plan(None, Rates(p=p), steps=len(laws), k=3).runs[0].chance.share
    yield Figure(
        says="`tiny:hanoi-weak`, k = 3: the truth, beside `plan` by its mean rate, which takes errors to be alike",
        ours=voted(([laws], ahead(3)))[1],
        expected=promised,
        low=-inf,
        high=promised,
        n=f"{len(laws)} steps, enumerated",
        paid="no calls",
        is_against=True,
    )


PARTS: dict[str, Callable[[], Iterator[Figure]]] = {
    "weak": votes_do_not_help,
    "promises": promises,
    "recorded": recorded_votes,
    "votes": votes_help,
    "lookahead": lookahead,
    "certain": one_call,
    "flags": flags_find_errors,
    "measure": measurements,
    "agents": agents,
}


def line(name: str, figure: Figure) -> str:
    """Write a row of the table."""
    low, high = ("any" if each in (inf, -inf) else f"{each:.4g}" for each in (figure.low, figure.high))
    cells = (
        figure.says,
        f"**{figure.ours:.4g}**" if figure.holds else f"**{figure.ours:.4g}, OUTSIDE**",
        f"{figure.expected:.4g}",
        f"{figure.ours - figure.expected:+.4f}",
        f"{low} to {high}",
        figure.n,
        figure.paid,
        f"`{name}`",
    )
    return f"| {' | '.join(cells)} |"


def part_of(row: str) -> str:
    """Return the part that a row of the table is of; a word that is no part for its head."""
    return row.rsplit("|", 2)[-2].strip(" `")


HEAD = """# Evidence

Written by `python -m tests.evidence --write`: what the package does on the errors of trained models, on recorded
votes and at tasks whose truth is known. Figures that speak against it, or against a promise of it, come first. The
interval is the one in which 99 of 100 such experiments end if the expectation is true; `python -m tests.evidence
--check` fails if a figure has left it. The last column is the part of the command: `python -m tests.evidence weak`.
"""
COLUMNS = "| what | ours | expected | difference | interval | n | calls, cost, time | part |\n|---|---|---|---|---|---|---|---|"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)}; by default all")
    parser.add_argument(
        "--write", action="store_true", help="write docs/notebooks/evidence.md: of named parts only their rows"
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure has left its interval")
    given = parser.parse_args(arguments)
    if unknown := {*given.part} - {*PARTS}:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    found: list[tuple[str, Figure]] = []
    for name in given.part or PARTS:
        for figure in PARTS[name]():
            found.append((name, figure))
            sys.stdout.write(line(name, figure) + "\n")
            sys.stdout.flush()
    if given.write:
        written = PAGE.read_text(encoding="utf-8").partition("## As expected")
        blocks = []
        for title, before, is_against in (("Against us", written[0], True), ("As expected", written[2], False)):
            rows = [line(*each) for each in found if each[1].is_against is is_against]
            kept = [row for row in before.splitlines() if row.startswith("| ") and part_of(row) in PARTS]
            rows += [row for row in kept if part_of(row) not in given.part] if given.part else []
            rows.sort(key=lambda row: [*PARTS].index(part_of(row)))
            blocks.append(f"## {title}\n\n{COLUMNS}\n" + "\n".join(rows))
        PAGE.write_text("\n\n".join([HEAD.rstrip(), *blocks]) + "\n", encoding="utf-8")
    return int(given.check and not all(figure.holds for _, figure in found))


if __name__ == "__main__":
    sys.exit(main())
