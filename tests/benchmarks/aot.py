"""Atom of Thoughts in figures: ``python -m tests.benchmarks.aot``.

`--part table`: success over transitions beside chain of thought, self-consistency at equal tokens, self-refine and the ablations, each with
the chance by a Monte Carlo that does not use the engine (`aot_monte_carlo`).
`--part votes`: trees whose judge errs in 30 of 100 ballots.
`--part states`: do accepted contractions keep the answer, how long is the last answer, and figures 5 to 7 of the paper (``--svg FILE``).
`--part products`: aot beside recursive, on products of six digits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from math import ceil, sqrt
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct, structs

from microagents import Prompt, Reply, Strategy, run
from microagents.elections.laws import wilson_interval
from microagents.journal.reading import Reader
from microagents.runs.inspection.runs import solution_of
from microagents.systems.questions.aot import Aot, AotTree
from microagents.systems.questions.chain_of_thought import Cot, CotSC, SelfRefine
from microagents.systems.questions.questions import ToChoose, asked_in
from microagents.systems.questions.recursive import Recursive
from microagents.systems.questions.tree import ProblemNode
from microagents.tasks import word_problems
from microagents.tasks.word_problems import WordProblem
from tests.benchmarks.aot_monte_carlo import MonteCarlo, Rates
from tests.benchmarks.harness import options_of
from tests.papers.sums import Sums

MODEL = "sim:perfect@alternatives=1,tokens=1,price_out=1"
"""It errs in the same way whenever it is asked the same, and its replies are as long as their reasoning. A million tokens cost a dollar."""


class TwoTrees(Aot):
    """A forest of two trees."""

    trees = 2


class FourTrees(Aot):
    """A forest of four trees."""

    trees = 4


class EightTrees(Aot):
    """A forest of eight trees."""

    trees = 8


class ForestOfTrees(AotTree):
    """A forest of two trees with branches."""

    trees = 2


FORESTS = (TwoTrees, FourTrees, EightTrees)
RATES = Rates(
    answer=word_problems.ANSWER_ERROR,
    followed=word_problems.FOLLOWED_ERROR,
    trace=word_problems.TRACE_ERROR,
    contraction=word_problems.CONTRACTION_ERROR,
    unguided=word_problems.UNGUIDED_ERROR,
    critique=word_problems.CRITIQUE_ERROR,
    judge=word_problems.JUDGE_ERROR,
)
MISJUDGED = 0.3
TRIALS = 20_000
SIGMAS_99 = 2.5758


class Row(Struct, frozen=True, kw_only=True):
    """What a strategy made of all problems."""

    right: int
    problems: int
    calls: float
    tokens: float


async def solved(tasks: Sequence[Any], strategy: str | Strategy, seed: int, model: str = MODEL, **control: Any) -> Row:
    """Solve all problems."""
    result = await run(list(tasks), models=model, strategy=strategy, seed=seed, runs_dir=None, **control)
    account, n = result.account, len(tasks)
    right = sum(value is not None and value["correct"] for value in result.value)
    return Row(
        right=right, problems=n, calls=result.calls / n, tokens=(account.input_tokens + account.output_tokens) / n
    )


def told(name: str, row: Row, chance: Callable[[MonteCarlo], bool] | None = None, rates: Rates = RATES) -> str:
    """A line of the table: success with its 95 % interval, cost, and the Monte Carlo's chance with 99 % of samples of as many problems."""
    low, high = wilson_interval(row.right, row.problems, 0.95)
    line = f"{name:<28} {row.right / row.problems:.3f} ({low:.3f} to {high:.3f})  {row.calls:>6.1f} calls  {row.tokens:>8,.0f} tokens"
    if chance is None:
        return line
    monte_carlo = MonteCarlo(rates, name)
    expected = mean(chance(monte_carlo) for _ in range(TRIALS))
    half = SIGMAS_99 * sqrt(expected * (1 - expected) / row.problems) + 0.5 / row.problems
    inside = "inside" if abs(row.right / row.problems - expected) <= half else "OUTSIDE"
    return f"{line}  Monte Carlo {expected:.3f} ({expected - half:.3f} to {expected + half:.3f}) {inside}"


async def table(problems: int, seed: int) -> None:
    """Print figure 3 in numbers."""
    tasks = [WordProblem(instance=instance) for instance in range(problems)]
    print(f"{problems} word problems of depth 2 to 5, {MODEL}, seed {seed}")
    cot = await solved(tasks, Cot(), seed)
    print(told("cot", cot, lambda each: each.most_frequent(1)), flush=True)
    for without in ("nothing", "decomposition", "guidance"):
        for transitions in range(4):
            if without != "nothing" and not transitions:
                continue
            row = await solved(tasks, Aot(transitions=transitions, without=without), seed)
            name = f"aot, {transitions} transitions" if without == "nothing" else f"  without {without}, {transitions}"
            print(told(name, row, lambda each, t=transitions, w=without: each.chain(t, w)[0]), flush=True)  # type: ignore[misc]
            if without == "nothing" and transitions:
                samples = ceil(row.tokens / cot.tokens)
                same = await solved(tasks, CotSC(samples=samples), seed)
                chance = partial(MonteCarlo.most_frequent, samples=samples)
                print(told(f"  cot-sc, {samples} samples", same, chance), flush=True)
    print(
        told("self-refine, 3 rounds", await solved(tasks, SelfRefine(), seed), lambda each: each.refined(3)), flush=True
    )
    others: Mapping[str, Strategy] = {
        "aot, adaptive": Aot(transitions="adaptive"),
        **{f"aot, k = 2, {transitions} transitions": Aot(k=2, transitions=transitions) for transitions in range(4)},
        "aot+tree (3 branches)": AotTree(),
        **{f"forest of {kind.trees} trees": kind() for kind in FORESTS},
    }
    for name, strategy in others.items():
        print(told(name, await solved(tasks, strategy, seed)), flush=True)


class FiveBranches(Aot):
    """A tree search with five branches."""

    branches = 5


class Misjudged(WordProblem):
    """A problem whose judge errs in 30 of 100 ballots."""

    def difficulty(self, prompt: Prompt, reply: type[Reply]) -> float:
        return MISJUDGED if isinstance(asked_in(prompt), ToChoose) else super().difficulty(prompt, reply)


async def votes(problems: int, seed: int) -> None:
    """Print trees of several widths and depths with a judge that often errs."""
    tasks = [Misjudged(instance=instance) for instance in range(problems)]
    for transitions in (1, 2, 3):
        for kind in (Aot, AotTree, FiveBranches):
            row = await solved(tasks, kind(transitions=transitions), seed)
            told_rates = structs.replace(RATES, judge=MISJUDGED)
            chance = partial(MonteCarlo.tree, branches=kind.branches, transitions=transitions)
            print(told(f"{transitions} transitions, {kind.branches} branches", row, chance, told_rates), flush=True)


class Walk(Struct, frozen=True, kw_only=True):
    """The states of one problem."""

    questions: list[str]
    """Of accepted states, the first one first."""
    tokens: list[float]
    """Output tokens of the answer to each."""
    depth: int
    subquestions: int
    correct: bool


def walk_of(task: WordProblem, node: ProblemNode, transitions: int, *, correct: bool) -> Walk:
    """Follow the accepted states of a chain."""
    graph = task.expert_subquestions(task.statement())
    questions, tokens = list[str](), list[float]()
    here: ProblemNode | None = node
    while here is not None and len(questions) <= transitions:
        questions.append(here.problem)
        tokens.append((here.turns[0].cost_usd or 0) * 1e6)
        here = here.children[0] if here.children else None
    return Walk(
        questions=questions, tokens=tokens, depth=graph.longest_path, subquestions=len(graph.nodes), correct=correct
    )


async def walks(problems: int, seed: int, transitions: int, model: str = MODEL, **control: Any) -> list[Walk]:
    """The states of all problems, from the journal of a run."""
    tasks = [WordProblem(instance=instance) for instance in range(problems)]
    found = []
    with TemporaryDirectory() as folder:
        result = await run(
            tasks,
            models=model,
            strategy=Aot(transitions=transitions),
            seed=seed,
            runs_dir=folder,
            run_id="states",
            **control,
        )
        with Reader(Path(folder, "states.sqlite")) as reader:
            for number, (task, value) in enumerate(zip(tasks, result.value, strict=True)):
                node = solution_of(reader, number)
                assert isinstance(node, ProblemNode)
                found.append(walk_of(task, node, value["transitions"][0], correct=value["correct"]))
    return found


async def states(problems: int, seed: int, svg: Path | None) -> None:
    """Print what becomes of states, and figures 5 to 7; draw these into a file if one is given."""
    found = await walks(problems, seed, 3)
    tasks = [WordProblem(instance=instance) for instance in range(problems)]
    kept = [
        [task.correct(task.expert_answer(question)) for question in walk.questions[1:]]
        for task, walk in zip(tasks, found, strict=True)
    ]
    accepted, right = sum(map(len, kept)), sum(map(sum, kept))
    low, high = wilson_interval(right, accepted, 0.95)
    monte_carlo = MonteCarlo(RATES, "states")
    trials = [monte_carlo.chain(3, "nothing") for _ in range(TRIALS)]
    expected = 1 - sum(each[2] for each in trials) / sum(each[1] for each in trials)
    print(
        f"accepted transitions that keep the answer: {right} of {accepted}, {right / accepted:.4f} ({low:.4f} to {high:.4f}); ",
        end="",
    )
    print(f"Monte Carlo {expected:.4f}")
    simpler = sum(
        task.steps_of(after) < task.steps_of(before)
        for task, walk in zip(tasks, found, strict=True)
        for before, after in zip(walk.questions, walk.questions[1:], strict=False)
    )
    print(f"accepted transitions that take fewer steps: {simpler} of {accepted}")
    for transitions in range(4):
        lengths = [walk.tokens[transitions] for walk in found if len(walk.tokens) > transitions]
        print(f"state {transitions}: mean output tokens of its answer {mean(lengths):6.1f}, {len(lengths)} problems")
    _shares("depth (figures 5 and 7b)", [(walk.depth, walk) for walk in found])
    _shares("subquestions (figures 6 and 7a)", [(walk.subquestions, walk) for walk in found])
    if svg is not None:
        _draw(found, svg)


def _shares(title: str, found: Sequence[tuple[int, Walk]]) -> None:
    for value in sorted({size for size, _ in found}):
        these = [walk for size, walk in found if size == value]
        solved_share, last = mean(walk.correct for walk in these), mean(walk.tokens[-1] for walk in these)
        print(
            f"{title} {value}: {len(these):>3} problems, solved {solved_share:.3f}, tokens of the last answer {last:.1f}"
        )


def _draw(found: Sequence[Walk], file: Path) -> None:
    """Draw figures 5, 6, 7a and 7b of the paper, and the length of the last answer."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, which only --svg needs
    from matplotlib.figure import Figure  # noqa: PLC0415

    style = {
        "svg.hashsalt": "microagents",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.grid": True,
    }
    blue, orange = "#0072b2", "#d55e00"

    with mpl.rc_context(style):
        figure = Figure(figsize=(11, 5.6), layout="constrained")
        (depths, sizes, lengths), (by_depth, by_size, rest) = figure.subplots(2, 3)
        for panel, below, title, number, values in (
            (depths, by_depth, "depth of the graph", ("5", "7b"), [walk.depth for walk in found]),
            (sizes, by_size, "subquestions", ("6", "7a"), [walk.subquestions for walk in found]),
        ):
            counts = Counter(values)
            for each in (panel, below):
                each.set_xticks(sorted(counts))
            panel.bar([*counts], [*counts.values()], color=blue)
            panel.set_title(f"figure {number[0]}: problems by {title}")
            for value, count in counts.items():
                right = sum(walk.correct for walk, each in zip(found, values, strict=True) if each == value)
                low, high = wilson_interval(right, count, 0.95)
                share = right / count
                shade = 0.3 + 0.7 * count / max(counts.values())
                below.errorbar(
                    [value],
                    [share],
                    yerr=[[share - low], [high - share]],
                    color=orange,
                    marker="o",
                    capsize=2,
                    alpha=shade,
                )
            below.set_title(f"figure {number[1]}: share solved, 95 %")
            below.set_xlabel(title)
            below.set_ylim(0, 1.05)
        most = max(len(walk.tokens) for walk in found)
        drawn = [[walk.tokens[number] for walk in found if len(walk.tokens) > number] for number in range(most)]
        lengths.boxplot(drawn, positions=range(most), showfliers=False)
        lengths.set_title("tokens of the answer to each state")
        lengths.set_xlabel("transitions")
        rest.set_visible(False)
        figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})


async def products(problems: int, seed: int) -> None:
    """Print aot beside recursive."""
    tasks = [Sums(digits=6, instance=instance) for instance in range(problems)]
    print(f"{problems} products of 6x6 digits, sim:perfect, seed {seed}")
    rows: list[tuple[str, Strategy]] = [
        ("recursive, k = 1", Recursive(k=1)),
        ("recursive, k = 2", Recursive(k=2)),
        ("recursive, k = 3", Recursive(k=3)),
        ("aot", Aot()),
        ("aot, k = 2", Aot(k=2)),
        ("aot, k = 3", Aot(k=3)),
    ]
    for name, strategy in rows:
        print(told(name, await solved(tasks, strategy, seed, "sim:perfect")), flush=True)


PARTS: Mapping[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "table": table,
    "votes": votes,
    "states": states,
    "products": products,
}


def main() -> None:
    """Print the parts."""
    options = options_of(__doc__, part=PARTS, problems=300, seed=0, svg=Path)
    for part in options.part:
        more = [options.svg] if part == "states" else []
        asyncio.run(PARTS[part](options.problems, options.seed, *more))


if __name__ == "__main__":
    main()
