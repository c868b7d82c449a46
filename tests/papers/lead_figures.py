"""Figures of LEAD."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import fmean
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import structs

from microagents import ChainTask, Prompt, Reply, Strategy
from microagents.elections.laws import Proportion, proportion
from microagents.replies.chat import Sampling
from microagents.runs.driver.forecast import mean_if_known
from microagents.studies.comparison import Row
from microagents.studies.measured import ModelMeasurement
from microagents.studies.measuring import MeasuredStep
from microagents.systems import IterativeRestart, Lead, Maker, SingleShot
from microagents.tasks.checkers import Board, Cell, Checkers, CheckersResult, Move
from microagents.tasks.hanoi import Hanoi
from tests.benchmarks import lead
from tests.papers.figures import Figure, Lab, Line, share, word_of

A = TypeVar("A", bound=Reply)
SIMULATED = lead.spec(lead.TABLE)
CHECKERS, HANOI = "tiny:checkers@temperature=1", "tiny:hanoi@temperature=1"
FEWEST = 20
"""Number of errors below which nothing is said of their kinds and places."""
LARGEST, HORIZON = 8, 3
"""Checkers of a colour at most, of the trained model, and the steps of its rollouts."""
AS_PUBLISHED = {history: Lead(history=history, reuse=False, contradicting="count") for history in (3, 4)}
BY_STEP: dict[str, Strategy] = {"AD": Maker(k=1), "AD, ahead by 3": Maker(k=3), "LEAD, h = 3": AS_PUBLISHED[3]}
LONG: dict[str, Strategy] = {"one reply": SingleShot(), "iterative restart": IterativeRestart()}
WARM_UP = (
    "Before the first move, as an exercise, write out all moves of the game with 2 checkers of each colour, each with its board. "
    "Then begin with the board that you are given."
)
SAMPLING = Sampling(first_temperature=None, temperature=None, max_output_tokens=4096, flag_above_tokens=2048)


class WithWarmUp(Checkers):
    """A game whose long replies begin with a small one (figure 1)."""

    def rollout_prompt(self, state: Board, horizon: int) -> Prompt:
        asked = super().rollout_prompt(state, horizon)
        return structs.replace(asked, system=f"{asked.system}\n{WARM_UP}")


class FoundMove(Reply, frozen=True):
    """A move by itself."""

    move: Move


class ExecutedMove(Reply, frozen=True):
    """The board after a move."""

    board: tuple[Cell, ...]


class PartOfMove(ChainTask[Board, A, CheckersResult], Generic[A]):
    """One part of each move of a game; code does the other."""

    sampling: ClassVar[Sampling] = SAMPLING
    n: int = 8

    @property
    def game(self) -> Checkers:
        """The whole game."""
        return Checkers(n=self.n)

    def start(self) -> Board:
        return self.game.start()

    def steps(self) -> int:
        return self.game.steps()

    def done(self, state: Board) -> bool:
        return self.game.done(state)

    def result(self, state: Board) -> CheckersResult:
        return self.game.result(state)


class FindMove(PartOfMove[FoundMove]):
    """Find each move; code executes it (figure 4)."""

    def prompt(self, state: Board) -> Prompt:
        rules = self.game.prompt(state)
        system = rules.system.rpartition("\n")[0]
        return structs.replace(rules, system=f"{system}\nGive only that move as [colour, from cell, to cell].")

    def oracle(self, state: Board) -> FoundMove:
        return FoundMove(move=self.game.oracle(state).move)

    def advance(self, state: Board, reply: FoundMove) -> Board:
        colour, source, target = reply.move
        cells = [*state.cells]
        cells[source], cells[target] = "_", colour
        return Board(cells=tuple(cells), moves=state.moves + 1)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> FoundMove:  # noqa: ARG002 - it has one kind of reply
        return self.oracle(self.game.state_in(prompt))

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> FoundMove:  # noqa: ARG002 - any other move
        assert isinstance(right, FoundMove)
        colour, source, target = right.move
        return FoundMove(move=(colour, target, source))


class ExecuteMove(PartOfMove[ExecutedMove]):
    """Execute each move, which code has found (figure 4)."""

    def prompt(self, state: Board) -> Prompt:
        _, source, target = self.game.oracle(state).move
        system = (
            f"A row of {2 * self.n + 1} cells, numbered from 0, holds red checkers (R), blue ones (B) and one empty cell (_). Move the "
            "given checker, and write the whole board after it like the one before."
        )
        user = f"{self.game.prompt(state).user}\nMove the checker in cell {source} into the empty cell {target}."
        return Prompt(system=system, user=user)

    def oracle(self, state: Board) -> ExecutedMove:
        return ExecutedMove(board=self.game.oracle(state).board)

    def advance(self, state: Board, reply: ExecutedMove) -> Board:
        return Board(cells=reply.board, moves=state.moves + 1)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> ExecutedMove:  # noqa: ARG002 - it has one kind of reply
        return self.oracle(self.game.state_in(structs.replace(prompt, user=prompt.user.partition("\n")[0])))

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> ExecutedMove:  # noqa: ARG002 - a checker too many
        assert isinstance(right, ExecutedMove)
        return ExecutedMove(board=(right.board[0], *right.board))


async def warm_up(lab: Lab) -> list[Line]:
    """Figure 1."""
    lines = []
    for name, kind in (("direct", Checkers), ("with a warm-up", WithWarmUp)):
        for n in (3, 4):
            (row,) = await lab.rows(kind(n=n), SIMULATED, [SingleShot()])
            lines.append(
                solved(f"{name}, n = {n}", row, lab.spec(SIMULATED), "below direct" if kind is WithWarmUp else "-")
            )
    return lines


def solved(what: str, row: Row, spec: str, published: str = "-", *, expected: float | None = None) -> Line:
    """Return the line of a row of a comparison."""
    return share(what, row.solved or 0, row.repeat, spec, published, expected=expected)


async def _over_sizes(lab: Lab, games: Sequence[ChainTask[Any, Any, Any]], sizes: Sequence[int]) -> list[Line]:
    strategies, spec = {**LONG, **BY_STEP}, lab.spec(SIMULATED)
    rates: dict[str, list[float]] = {name: [] for name in strategies}
    for game in games:
        for name, row in zip(strategies, await lab.rows(game, SIMULATED, [*strategies.values()]), strict=True):
            rates[name].append(row.rate or 0.0)
    return [
        Line(
            what=f"{name}, {', '.join(map(str, sizes))}",
            published="longer than one reply and restarts" if name == "AD" else "-",
            ours=", ".join(f"{rate:.2f}" for rate in each),
            interval=f"each within {0.98 / lab.size(10) ** 0.5:.2f}",
            n=lab.size(10),
            model=word_of(spec),
            holds=sum(each) > max(sum(rates[other]) for other in LONG) if name == "AD" else None,
        )
        for name, each in rates.items()
    ]


async def checkers_over_n(lab: Lab) -> list[Line]:
    """Figure 2a."""
    sizes = (2, 4, 6, 8, 10, 12)
    return await _over_sizes(lab, [Checkers(n=n) for n in sizes], sizes)


async def hanoi_over_n(lab: Lab) -> list[Line]:
    """Figure 2b."""
    sizes = (3, 4, 5, 6, 7)
    return await _over_sizes(lab, [Hanoi(disks=n) for n in sizes], sizes)


def wrong_share(step: MeasuredStep) -> float:
    """Return the error rate of a step."""
    return step.wrong / step.valid if step.valid else 1.0


async def on_checkers(lab: Lab, n: int = LARGEST) -> ModelMeasurement:
    """Measure all steps of a game."""
    task = Checkers(n=n)
    return (await lab.measured(task, CHECKERS, steps=lab.size(task.steps()), draws=20)).models[0]


async def on_hanoi(lab: Lab) -> ModelMeasurement:
    """Measure all steps of a tower."""
    task = Hanoi(disks=6)
    return (await lab.measured(task, HANOI, steps=lab.size(task.steps()), draws=20)).models[0]


def _histogram(found: ModelMeasurement, said: str, *, low: float = 0.0, high: float = 1.0) -> list[Line]:
    """Count the steps by their errors; `low` and `high` are the published bounds of the greatest error."""
    rates, spec = [wrong_share(each) for each in found.steps], found.model
    hard = sum(rate > 0.5 for rate in rates)
    most = Line(
        what="greatest error of a step",
        published=said,
        ours=f"{max(rates):.2f}",
        n=found.draws,
        model=word_of(spec),
        holds=low < max(rates) <= high,
    )
    return [
        share("steps without an error", sum(rate == 0 for rate in rates), len(rates), spec, "most"),
        share("steps that err in more than half", hard, len(rates), spec, "a few" if low else "0"),
        most,
    ]


async def checkers_histogram(lab: Lab) -> list[Line]:
    """Figure 3."""
    return _histogram(await on_checkers(lab), "above .5 at n = 15", low=0.5)


async def large_histogram(lab: Lab) -> list[Line]:
    """Figure 9."""
    found = {n: _histogram(await on_checkers(lab, n), "above .5 from n = 12 on", high=0.5) for n in (5, 7)}
    return [structs.replace(line, what=f"n = {n}: {line.what}") for n, lines in found.items() for line in lines]


async def hanoi_histogram(lab: Lab) -> list[Line]:
    """Figure 8."""
    return _histogram(await on_hanoi(lab), "below .08", high=0.08)


async def competence(lab: Lab) -> list[Line]:
    """Figure 4: the most frequent of 32 votes."""
    lines, spec = [], lab.spec(SIMULATED)
    parts: dict[str, ChainTask[Any, Any, Any]] = {
        "whole steps": Checkers(n=LARGEST),
        "finding": FindMove(n=LARGEST),
        "executing": ExecuteMove(n=LARGEST),
    }
    for name, task in parts.items():
        (found,) = (await lab.measured(task, SIMULATED, steps=lab.size(10), draws=32)).models
        right = sum(wrong_share(each) < 0.5 for each in found.steps)
        lines.append(share(f"{name}: steps right by votes", right, len(found.steps), spec, "whole steps as executing"))
    return lines


def distances_between(models: Sequence[ModelMeasurement]) -> list[list[float | None]]:
    """The total variation distances between the errors of models over the steps.

    Each is between halves of samples, so that all have the same noise. Of one model: between its two halves; of two: the mean over four
    pairs. None if a half has no errors.
    """
    wrong = [[[sum(step.errors[half::2]) for step in each.steps] for half in (0, 1)] for each in models]
    halves = [[[each / sum(half) for each in half] if any(half) else None for half in of_model] for of_model in wrong]

    def apart(one: Sequence[float] | None, other: Sequence[float] | None) -> float | None:
        if one is None or other is None:
            return None
        return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2

    matrix = []
    for mine in halves:
        between = [
            [apart(mine[0], mine[1])] if mine is theirs else [apart(a, b) for a in mine for b in theirs]
            for theirs in halves
        ]
        matrix.append([mean_if_known(each) for each in between])
    return matrix


async def distances(lab: Lab) -> list[Line]:
    """Figure 5: two trained models, apart and within themselves."""
    specs = [lab.spec(name, at) for at, name in enumerate((HANOI, "tiny:hanoi-weak@temperature=1"))]
    found = await lab.measured(Hanoi(disks=6), *specs, steps=lab.size(63), draws=20)
    matrix, n = distances_between(found.models), sum(each.draws for each in found.models)
    fewest = min(sum(step.wrong for step in each.steps) for each in found.models)
    own, between = [matrix[0][0], matrix[1][1]], matrix[0][1]
    ours = ", ".join("-" if each is None else f"{each:.2f}" for each in (between, *own))
    known = [each for each in own if each is not None]
    return [
        Line(
            what="distance of the two; of each from itself",
            published="between models above within",
            ours=ours,
            n=n,
            model=" and ".join(map(word_of, specs)),
            holds=between > max(known) if between is not None and fewest >= FEWEST else None,
        )
    ]


async def on_rollouts(lab: Lab) -> tuple[ModelMeasurement, Sequence[Proportion | None]]:
    """Measure steps by themselves and in rollouts."""
    task = Checkers(n=LARGEST)
    found = await lab.measured(task, CHECKERS, steps=lab.size(task.steps()), draws=10, rollouts=10, horizon=HORIZON)
    return found.models[0], found.models[0].lookahead


def predicted(steps: Sequence[MeasuredStep], at: int, *, after_right: bool = False) -> dict[int, float]:
    """Shares of right predictions at a position of rollouts, perhaps only of those whose first step is right, by the predicted step."""
    found = {}
    for start in steps:
        said = [each[at - 1] for each in start.rollouts if len(each) >= at and (each[0] or not after_right)]
        given = [verdict for verdict in said if verdict is not None]
        if given:
            found[start.number + at - 1] = fmean(given)
    return found


def hardest_in(found: ModelMeasurement) -> tuple[int, list[float]]:
    """Return the hardest step with its accuracy by itself, then at each of the first four positions of rollouts that reach it."""
    hardest = max(found.steps, key=wrong_share)
    ahead = [predicted(found.steps, at).get(hardest.number) for at in range(1, 5)]
    return hardest.number, [1 - wrong_share(hardest), *[rate for rate in ahead if rate is not None]]


def _mean(what: str, found: Proportion | None, n: int, spec: str, published: str = "-") -> Line:
    if found is None:
        return Line(what=what, published=published, ours="-", model=word_of(spec))
    return Line(
        what=what,
        published=published,
        ours=f"{found.share:.3f}",
        interval=f"{found.low:.3f} to {found.high:.3f}",
        n=n,
        model=word_of(spec),
    )


async def by_position(lab: Lab) -> list[Line]:
    """Figure 7."""
    found, positions = await on_rollouts(lab)
    n, spec = len(found.steps), found.model
    ends = (1, len(positions) - 1)
    lines = [_mean(f"accuracy at +{at}", positions[at], n, spec) for at in ends]
    for at in ends:
        rates = [*predicted(found.steps, at, after_right=True).values()]
        mean = proportion(sum(rates), len(rates)) if rates else None
        lines.append(_mean(f"accuracy at +{at}, the first step right", mean, n, spec))
    first, last = positions[1], positions[-1]
    assert first is not None
    assert last is not None
    falls = Line(
        what="accuracy falls with the position",
        published="yes (o4-mini)",
        ours="yes" if last.share < first.share else "no",
        n=n,
        model=word_of(spec),
        holds=last.share < first.share,
    )
    return [*lines, falls]


async def by_rank(lab: Lab) -> list[Line]:
    """Figure 6."""
    found, positions = await on_rollouts(lab)
    steps, spec = len(found.steps), found.model
    return [
        _mean("mean over all steps, by themselves", positions[0], steps, spec),
        _mean(
            f"mean over all steps, at +{len(positions) - 1}",
            positions[-1],
            steps,
            spec,
            "slightly below, at +8",
        ),
        *_gain(found),
    ]


async def at_hardest(lab: Lab) -> list[Line]:
    """Table 2 and figure 11: the hardest step in rollouts that begin before it."""
    found, _ = await on_rollouts(lab)
    published, (number, rates) = {1: ".5", 2: ".74", 3: "1.0"}, hardest_in(found)
    lines = [
        share(f"step {number} at +{at}", rate * 10, 10, found.model, published.get(at, "-"))
        for at, rate in enumerate(rates)
    ]
    return [*lines, *_gain(found)]


def _gain(found: ModelMeasurement) -> list[Line]:
    _, rates = hardest_in(found)
    holds = rates[-1] > rates[0]
    ours = ", ".join(f"{rate:.1f}" for rate in rates)
    what = "the hardest step gains in rollouts from before"
    return [Line(what=what, published="yes", ours=ours, n=10, model=word_of(found.model), holds=holds)]


async def kinds_of_errors(lab: Lab) -> list[Line]:
    """Figure 10."""
    lines = []
    for name, found, field, said in (
        ("checkers", await on_checkers(lab), "move", "mostly executing"),
        ("hanoi", await on_hanoi(lab), "move", "mostly finding"),
    ):
        wrong, total = found.mistakes.get(field, 0), sum(found.mistakes.values())
        line = share(f"{name}: errors in finding the move", wrong, total, found.model, said) if total else None
        is_finding = total and wrong > total / 2
        holds = bool(is_finding) == (name == "hanoi") if total >= FEWEST else None
        lines += [] if line is None else [structs.replace(line, holds=holds)]
    return lines


TABLE_1 = {
    "o4-mini": {"AD": "0.14 0.00 0.00", "AD, ahead by 3": "0.76 0.16 0.00", "LEAD, h = 3": "1.00 0.52 0.80"},
    "GPT-5.2": {
        "AD": "0.00 0.36 0.00 0.04",
        "AD, ahead by 3": "0.20 1.00 0.00 0.96",
        "LEAD, h = 4": "1.00 1.00 0.87 1.00",
    },
}
"""Published rates, at n = 11, 12, 13 and at n = 13, 14, 15, 16."""


async def table_1(lab: Lab) -> list[Line]:
    """Table 1."""
    strategies = {**BY_STEP, "LEAD, h = 4": AS_PUBLISHED[4]}
    published: dict[tuple[int, str], list[str]] = {}
    for model, least in (("o4-mini", 11), ("GPT-5.2", 13)):
        for name, rates in TABLE_1[model].items():
            for n, rate in enumerate(rates.split(), least):
                published.setdefault((n, name), []).append(f"{rate}, {model}")
    lines, spec, count = dict[tuple[int, str], Line](), lab.spec(SIMULATED), lab.size(10)
    for n, name in sorted(published):
        right, result = await lead.solved(Checkers(n=n), strategies[name], spec, repeat=count, seed=0, **lab.given)
        what = f"n = {n}, {name}; {result.calls / count:,.0f} calls"
        lines[n, name] = share(what, right, count, spec, "; ".join(published[n, name]))
    gains = [
        float(line.ours) - float(lines[n, "AD, ahead by 3"].ours) for (n, name), line in lines.items() if "LEAD" in name
    ]
    holds, what = min(gains) >= 0, "LEAD at least votes at every n"
    said = f"{'yes' if holds else 'no'}; above in {sum(each > 0 for each in gains)} of {len(gains)}"
    last = Line(what=what, published="yes; above in 6 of 7", ours=said, model=word_of(spec), holds=holds)
    return [*lines.values(), last]


async def listing_2(lab: Lab) -> list[Line]:
    """Listing 2: the replies at the two hardest steps."""
    found = await on_checkers(lab)
    hardest = sorted(found.steps, key=wrong_share, reverse=True)[:2]
    return [
        share(
            f"most frequent reply at step {each.number}",
            max(map(each.votes.count, each.votes)),
            each.valid,
            found.model,
            said,
        )
        for each, said in zip(hardest, ("78 of 100", "76 of 100"), strict=False)
        if each.votes
    ]


_SIM = (
    "Simulated: errors .01, 1 % of the steps hard (.6 by themselves, .1 from two steps before), fixed before the first run. This tests the "
    "engine and no model."
)
_CHANCE = f"{_SIM} Which sizes have a hard step is chance, so rates do not fall evenly."
_TINY = (
    f"A trained model of {LARGEST} checkers a colour, at temperature 1, which was seldom asked about every ninth state: at some of them "
    f"its likeliest reply is wrong. Its rollouts have {HORIZON} steps."
)
_BLIND = "A simulated model does not read the prompt."
FIGURES = [
    Figure(paper="lead", name="1", subject="a warm-up in the prompt", compute=warm_up, needs="model", why=_BLIND),
    Figure(paper="lead", name="2a", subject="checkers over n", compute=checkers_over_n, why=_CHANCE),
    Figure(paper="lead", name="2b", subject="Hanoi over disks", compute=hanoi_over_n, why=_CHANCE),
    Figure(paper="lead", name="3", subject="errors of the steps, checkers", compute=checkers_histogram, why=_TINY),
    Figure(paper="lead", name="4", subject="finding and executing", compute=competence, needs="model", why=_BLIND),
    Figure(
        paper="lead",
        name="5",
        subject="distance of two models' errors",
        compute=distances,
        why="Two trained models of Hanoi instead of large ones of checkers. `tiny:hanoi` errs too rarely here to say.",
    ),
    Figure(paper="lead", name="6", subject="accuracy by rank", compute=by_rank, why=_TINY),
    Figure(paper="lead", name="7", subject="accuracy by position", compute=by_position, why=_TINY),
    Figure(
        paper="lead",
        name="8",
        subject="errors of the steps, Hanoi",
        compute=hanoi_histogram,
        why="A model of 6 disks, at temperature 1, which errs more often than the paper's.",
    ),
    Figure(paper="lead", name="9", subject="errors of the steps over n", compute=large_histogram, why=_TINY),
    Figure(
        paper="lead",
        name="10",
        subject="kinds of errors",
        compute=kinds_of_errors,
        why="Trained models, which have errors of their own: the model of checkers mostly finds a wrong move. Of Hanoi there are too few.",
    ),
    Figure(paper="lead", name="11", subject="the hardest step", compute=at_hardest, why=_TINY),
    Figure(
        paper="lead",
        name="table-1",
        subject="solved games",
        compute=table_1,
        why=f"{_SIM} Without a hard step, as at n = 12, votes are enough; the rates of these models cannot be expected. evidence.md "
        "has the three on a trained model with hard steps.",
    ),
    Figure(paper="lead", name="table-2", subject="the hardest step by position", compute=at_hardest, why=_TINY),
    Figure(paper="lead", name="listing-2", subject="replies at the hardest steps", compute=listing_2, why=_TINY),
]
