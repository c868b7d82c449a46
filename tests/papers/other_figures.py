"""Figures of the swarm's document, of SeqCV and of Atom of Thoughts."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

from msgspec import json

from microagents import Strategy, Task
from microagents.runs.settings import validated
from microagents.systems import SingleShot
from microagents.systems.documents.seqcv import SeqCV
from microagents.systems.documents.subtask_baselines import Sequential
from microagents.systems.questions.aot import Aot, AotTree
from microagents.systems.questions.chain_of_thought import Analogical, Cot, CotSC, SelfRefine
from microagents.systems.questions.tree_of_thoughts import ForestOfThoughts, TreeOfThoughts
from microagents.tasks.code import Code
from microagents.tasks.reasoning import Gsm8k, MultiHop, MultipleChoice
from microagents.tasks.requirements import Met, requirements_in
from microagents.tasks.word_problems import WordProblem
from microagents.tasks.writing import Writing
from tests.benchmarks import aot, documents, swarm
from tests.papers.exact import Math
from tests.papers.figures import Figure, Lab, Line, by_law, share, word_of
from tests.papers.maker_equations import k_min, p_full
from tests.papers.relay import Relay

BRIEFS = sorted((Path(__file__).parents[2] / "docs" / "examples" / "briefs").glob("*.md"))
ENDINGS = {"compiles": ".tex", "opens in a browser without errors": ".html", "parses": ".py"}
"""File of a text by the check that executes it."""
EXECUTED, FORBIDS = tuple(ENDINGS), ("lacks", "no placeholder", "at most")
DIFFERENT = "SeqCV, several models"
DATA: dict[str, type[Task]] = {
    "MATH": Math,
    "GSM8K": Gsm8k,
    "MBPP": Code,
    "BBH": MultiHop,
    "MMLU-CF": MultipleChoice,
    "HotpotQA": MultiHop,
    "LongBench": MultiHop,
}
"""Kind of question of a data set, whose file is its name in lower case with ``.jsonl``."""


# -- the swarm -----------------------------------------------------------------------------------------------------------


async def _swarmed(lab: Lab, name: str) -> tuple[float, int]:
    """Return the mean share of right steps with a few workers, and the number of relays."""
    tasks = [Relay(length=20, instance=number) for number in range(lab.size(20))]
    model = lab.models[0] if lab.models else None
    make = partial(swarm.measured, tasks, swarm.EXPERIMENTS[name], 1, swarm.HARD, model, **lab.given)
    return fmean((await lab.once(name, make)).carried), len(tasks)


async def workers(lab: Lab) -> list[Line]:
    """3 workers beside 6."""
    spec, found = lab.spec(swarm.MODEL), {count: await _swarmed(lab, f"{count} workers, by role") for count in (3, 6)}
    lines = [share(f"steps right, {count} workers", rate * n, n, spec) for count, (rate, n) in found.items()]
    gain = found[6][0] / found[3][0] - 1
    return [
        *lines,
        Line(
            what="gain of 6 over 3", published="a tie", ours=f"{gain:+.0%}", model=word_of(spec), holds=abs(gain) < 0.1
        ),
    ]


async def roles(lab: Lab) -> list[Line]:
    """Personas beside temperature."""
    spec, names = lab.spec(swarm.MODEL), {what: f"3 workers, by {what}" for what in ("temperature", "role")}
    found = {what: await _swarmed(lab, name) for what, name in names.items()}
    lines = [share(f"steps right, 3 workers by {what}", rate * n, n, spec) for what, (rate, n) in found.items()]
    gain = found["role"][0] / found["temperature"][0] - 1
    said = Line(
        what="gain of roles",
        published="+15 to 25 %",
        ours=f"{gain:+.0%}",
        model=word_of(spec),
        holds=0.15 <= gain <= 0.25,
    )
    return [*lines, said]


async def margin(_: Lab) -> list[Line]:
    """The table of k."""
    k, needed = 3, k_min(0.99, 10**6, 0.95)
    return [
        by_law("k for p = .99, 100 steps, .95", f"{k_min(0.99, 100, 0.95)}", "2", holds=k_min(0.99, 100, 0.95) == 2),
        by_law("k for p = .99, a million steps, .95", f"{needed}", f"{k}", holds=needed == k),
        by_law("chance at k = 3; at k = 4", f"{p_full(0.99, k, 10**6):.3f}; {p_full(0.99, k + 1, 10**6):.3f}"),
    ]


# -- SeqCV ---------------------------------------------------------------------------------------------------------------

WRITERS: dict[str, Strategy] = {"one reply": SingleShot(), "sequential": Sequential(), "SeqCV": SeqCV()}


async def _texts(lab: Lab) -> dict[str, Any]:
    """Write a text to each brief by every strategy."""
    found, texts = {}, [brief.read_text(encoding="utf-8") for brief in BRIEFS[: lab.size(len(BRIEFS))]]
    for name, of_several in WRITERS.items():
        is_alone = isinstance(of_several, SeqCV) and len(lab.models) == 1
        strategy, tasks = SeqCV(same_model=True) if is_alone else of_several, []
        for brief, text in zip(BRIEFS, texts, strict=False):
            ending = next((end for check, end in ENDINGS.items() if f"- check: {check}" in text), ".md")
            tasks.append(Writing(brief=text, output=f"{lab.runs_dir}/{brief.stem}-{name.replace(' ', '-')}{ending}"))
        found[name] = await lab.results(tasks, "sim:perfect", strategy)
    return found


def _kind(asked: str) -> str:
    return "ES" if asked in EXECUTED else "CA" if asked.startswith(FORBIDS) else "HR"


async def briefs(lab: Lab) -> list[Line]:
    """Table 1: hard requirements, execution, and constraints, each judged by code."""
    published = {"one reply": {"HR": 81, "ES": 100, "CA": 70}, "SeqCV": {"HR": 83, "ES": 100, "CA": 100}}
    lines = []
    for name, result in (await lab.once("texts", partial(_texts, lab))).items():
        met: dict[str, list[bool]] = {"HR": [], "ES": [], "CA": []}
        for brief, value in zip(BRIEFS, result.value, strict=False):
            checks: dict[str, Met] = requirements_in(brief.read_text(encoding="utf-8"), "")
            text = value["answer"]["text"] if value else ""
            for asked, check in checks.items():
                if (verdict := check(text)) is not None:
                    met[_kind(asked)].append(verdict)
        for kind, verdicts in met.items():
            said = published.get(name, {}).get(kind)
            lines.append(
                share(
                    f"{name}: {kind}",
                    sum(verdicts),
                    len(verdicts),
                    lab.spec("sim:perfect"),
                    f"{said} %" if said else "-",
                )
            )
    return lines


async def writing_times(lab: Lab) -> list[Line]:
    """Table 3."""
    published = {"one reply": "54 s (o4-mini)", "SeqCV": "523 s"}
    return [
        Line(
            what=f"{name}: seconds a text",
            published=published.get(name, "-"),
            ours=f"{result.wall_s / len(result.value):.1f}",
            n=len(result.value),
            model=word_of(lab.spec("sim:perfect")),
        )
        for name, result in (await lab.once("texts", partial(_texts, lab))).items()
    ]


async def misalignment(lab: Lab) -> list[Line]:
    """Table 2: documents that are consistent."""
    published, lines, found = {"parallel": "52.3 %", "sequential": "58.4 %"}, [], dict[str, float]()
    pool = list(lab.models) or documents.MODELS
    for name in documents.STRATEGIES:
        n = lab.size(30)
        faults = await documents.written(name, n, 0.02, 0, pool, **lab.given)
        found[name] = faults.count(0) / n
        lines.append(share(f"{name}: consistent documents", faults.count(0), n, pool[0], published.get(name, "-")))
    is_above = found["sequential"] > found["parallel"]
    said = Line(
        what="sequential above parallel",
        published="yes",
        ours="yes" if is_above else "no",
        model=word_of(pool[0]),
        holds=is_above,
    )
    return [*lines, said]


# -- data sets -----------------------------------------------------------------------------------------------------------


def questions(lab: Lab, name: str, count: int) -> list[Task]:
    """Read the first questions of a data set; none if its file is not there."""
    assert lab.data is not None
    file = lab.data / f"{name.lower()}.jsonl"
    if not file.is_file():
        return []
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()][:count]
    return [validated(DATA[name], f"line {at} of {file}", json.decode(line)) for at, line in enumerate(lines, 1)]


async def on_data(lab: Lab, published: dict[str, dict[str, float]], strategies: dict[str, Strategy]) -> list[Line]:
    """Compare strategies on every data set that is there."""
    lines = []
    for name, rates in published.items():
        tasks = questions(lab, name, lab.size(300))
        if not tasks:
            lines.append(Line(what=name, ours=f"no {name.lower()}.jsonl in --data", model="-"))
            continue
        rows = dict(zip(strategies, await lab.rows(tasks, "", [*strategies.values()]), strict=True))
        if DIFFERENT in rates and len(lab.models) > 1:
            (rows[DIFFERENT],) = await lab.rows(tasks, "", [SeqCV()], pooled=True)
        for title, row in rows.items():
            said = rates.get(title)
            right = row.f1 * row.repeat if name in ("HotpotQA", "LongBench") and row.f1 is not None else row.solved or 0
            what = f"{name}, {title}"
            lines.append(
                share(
                    what,
                    right,
                    row.repeat,
                    lab.spec(""),
                    f"{said} %" if said else "-",
                    expected=said / 100 if said else None,
                )
            )
    return lines


def _published(names: str, rows: dict[str, str]) -> dict[str, dict[str, float]]:
    """Return the rates by data set and method; ``-`` stands for none."""
    return {
        data: {title: float(row.split()[at]) for title, row in rows.items() if row.split()[at] != "-"}
        for at, data in enumerate(names.split())
    }


async def reasoned(lab: Lab) -> list[Line]:
    """Table 12 of SeqCV."""
    published = _published(
        "MATH GSM8K BBH MMLU-CF HotpotQA LongBench",
        {
            "CoT": "78.3 90.9 78.3 69.6 67.2 57.6",
            "CoT-SC": "81.8 92.0 83.4 71.1 66.2 58.6",
            "Self-Refine": "78.7 91.7 80.0 69.7 68.3 58.2",
            "Analogical": "65.4 87.2 72.5 65.8 64.7 52.9",
            "FoT": "82.5 94.0 82.4 70.6 66.7 59.1",
            "SeqCV": "80.5 92.0 84.5 70.8 76.5 66.8",
            DIFFERENT: "86.5 94.3 87.3 71.5 77.8 62.0",
        },
    )
    baselines = {"CoT": Cot(), "CoT-SC": CotSC(), "Self-Refine": SelfRefine(), "Analogical": Analogical()}
    return await on_data(lab, published, {**baselines, "FoT": ForestOfThoughts(), "SeqCV": SeqCV(same_model=True)})


# -- Atom of Thoughts ----------------------------------------------------------------------------------------------------


async def benchmarks(lab: Lab) -> list[Line]:
    """Table 1 of Atom of Thoughts."""
    published = _published(
        "MATH GSM8K MBPP LongBench",
        {
            "CoT": "78.3 90.9 72.4 57.6",
            "CoT-SC": "81.8 92.0 73.2 58.6",
            "Self-Refine": "78.7 91.7 72.8 58.2",
            "Analogical": "65.4 87.2 70.1 52.9",
            "ToT": "82.0 91.8 73.5 59.0",
            "FoT": "82.6 94.2 74.8 60.8",
            "AoT": "83.6 95.0 75.2 68.5",
        },
    )
    baselines = {"CoT": Cot(), "CoT-SC": CotSC(), "Self-Refine": SelfRefine(), "Analogical": Analogical()}
    others = {"ToT": TreeOfThoughts(), "FoT": ForestOfThoughts(), "AoT": Aot()}
    return await on_data(lab, published, {**baselines, **others})


async def _solved(lab: Lab, strategies: dict[str, Strategy]) -> tuple[list[Line], dict[str, aot.Row]]:
    spec = lab.spec(aot.MODEL)
    tasks = [WordProblem(instance=instance) for instance in range(lab.size(60))]
    rows = {name: await aot.solved(tasks, strategy, 0, spec, **lab.given) for name, strategy in strategies.items()}
    lines = [share(f"{name}; {row.tokens:,.0f} tokens", row.right, row.problems, spec) for name, row in rows.items()]
    return lines, rows


async def over_tokens(lab: Lab) -> list[Line]:
    """Figure 3, with its ablations."""
    chains: dict[str, Strategy] = {f"AoT, {count} transitions": Aot(transitions=count) for count in (1, 2, 3)}
    ablations: dict[str, Strategy] = {f"without {what}": Aot(without=what) for what in ("decomposition", "guidance")}
    baselines: dict[str, Strategy] = {
        "CoT": Cot(),
        "CoT-SC, 12 samples": CotSC(samples=12),
        "Self-Refine": SelfRefine(),
    }
    lines, rows = await _solved(lab, {**baselines, **chains, **ablations})
    right = {name: row.right for name, row in rows.items()}
    best = right["AoT, 3 transitions"]
    return [
        *lines,
        _claim(lab, "AoT above all baselines", holds=best > max(right[name] for name in baselines)),
        _claim(lab, "both ablations below AoT", holds=best > max(right[name] for name in ablations)),
    ]


def _claim(lab: Lab, what: str, *, holds: bool) -> Line:
    ours = "yes" if holds else "no"
    model = word_of(lab.spec(aot.MODEL))
    return Line(what=what, published="yes", ours=ours, n=lab.size(60), model=model, holds=_if_asked(lab, holds=holds))


def _if_asked(lab: Lab, *, holds: bool) -> bool | None:
    """Return whether a claim on contractions holds; None of the simulated model, whose contractions always shorten."""
    return holds if lab.models else None


async def trees(lab: Lab) -> list[Line]:
    """Figure 4."""
    forests: dict[str, Strategy] = {f"forest of {kind.trees}": kind() for kind in aot.FORESTS}
    lines, rows = await _solved(lab, {"AoT": Aot(), "AoT in a tree of 3 branches": AotTree(), **forests})
    right = [row.right for name, row in rows.items() if name.startswith("forest")]
    return [
        *lines,
        _claim(lab, "more trees solve more", holds=right == sorted(right) and right[-1] > rows["AoT"].right),
    ]


async def _walks(lab: Lab) -> list[aot.Walk]:
    make = partial(aot.walks, lab.size(60), 0, 3, lab.spec(aot.MODEL), **lab.given)
    return await lab.once("walks", make)


async def transitions(lab: Lab) -> list[Line]:
    """Table 2: what becomes of states."""
    found, spec = await _walks(lab), lab.spec(aot.MODEL)
    pairs = [
        (WordProblem(instance=at), *pair)
        for at, walk in enumerate(found)
        for pair in zip(walk.questions, walk.questions[1:], strict=False)
    ]
    same = sum(task.correct(task.expert_answer(after)) is True for task, _, after in pairs)
    less = sum(task.steps_of(after) < task.steps_of(before) for task, before, after in pairs)
    taken = sum(len(walk.questions) > 1 for walk in found)
    return [
        share("the answer is kept", same, len(pairs), spec, "99.2 to 99.7 %", expected=0.992),
        share("fewer steps", less, len(pairs), spec, "74.8 to 82.1 %", expected=0.821),
        share("the first transition is taken", taken, len(found), spec, "83.1 to 95.8 %", expected=0.915),
    ]


async def depths(lab: Lab) -> list[Line]:
    """Figure 5."""
    return _counted(
        lab, "depth", [walk.depth for walk in await _walks(lab)], "2 to 4, mostly 3", ends=(2, 4), modes={3}
    )


async def sizes(lab: Lab) -> list[Line]:
    """Figure 6."""
    counts = [walk.subquestions for walk in await _walks(lab)]
    return _counted(lab, "subquestions", counts, "2 to 5, mostly 3 or 4", ends=(2, 5), modes={3, 4})


def _counted(
    lab: Lab, what: str, values: list[int], said: str, *, ends: tuple[int, int], modes: set[int]
) -> list[Line]:
    counts, (low, high) = Counter(values), ends
    inside = sum(low <= value <= high for value in values) / len(values)
    most = {value for value, count in counts.items() if count == max(counts.values())}
    return [
        Line(
            what=f"problems with {what} {', '.join(map(str, sorted(counts)))}",
            published=said,
            ours=", ".join(f"{counts[each]}" for each in sorted(counts)),
            n=len(values),
            model=word_of(lab.spec(aot.MODEL)),
            holds=inside > 0.5 and most <= modes,
        )
    ]


async def by_complexity(lab: Lab) -> list[Line]:
    """Figure 7."""
    found, spec, lines = await _walks(lab), lab.spec(aot.MODEL), []
    for name, field in (("7a, subquestions", "subquestions"), ("7b, depth", "depth")):
        values = [getattr(walk, field) for walk in found]
        for value in sorted({*values}):
            right = [walk.correct for walk in found if getattr(walk, field) == value]
            lines.append(share(f"{name} {value}: solved", sum(right), len(right), spec))
        middle = median(values)
        halves = [
            [walk.correct for walk in found if (getattr(walk, field) > middle) is above] for above in (False, True)
        ]
        less, more = (fmean(half) if half else 0.0 for half in halves)
        what, ours = f"{name} to {middle:g}, above: solved", f"{less:.3f}, {more:.3f}"
        holds = _if_asked(lab, holds=more < less)
        said = Line(what=what, published="falls", ours=ours, n=len(found), model=word_of(spec), holds=holds)
        lines.append(said)
    return lines


_ROLES = (
    "Simulated: relays of 20 steps; a persona finds a fifth of them hard, and errs at nine of ten of these in one way. The document "
    "asks open questions and gives times (21 and 20 s, 46 and 49 s)."
)
_DATA = "A file for each data set, in its published format. 300 questions each, and F1 for HotpotQA and LongBench."
_WORD = "Simulated: word problems of 2 to 9 steps, with the error rates of `word-problems`, instead of MATH and others."
_SHORTER = (
    f"{_WORD} No evidence for the paper's figure: simulated contractions always shorten, and in its table 2 a fifth to a quarter do not. "
    "--model asks a model."
)
_CODE = "Our nine briefs, judged by code; the paper's seven were judged by people. AFlow, AoT and Flow are programs of others."
FIGURES = [
    Figure(paper="swarm", name="workers", subject="3 and 6 workers", compute=workers, why=_ROLES),
    Figure(paper="swarm", name="roles", subject="roles and temperature", compute=roles, why=_ROLES),
    Figure(
        paper="swarm",
        name="k-table",
        subject="least k",
        compute=margin,
        why="The document's 3 for a million steps does not follow from its own formula.",
    ),
    Figure(paper="seqcv", name="table-1", subject="texts to briefs", compute=briefs, needs="model", why=_CODE),
    Figure(
        paper="seqcv",
        name="table-2",
        subject="parallel and sequential",
        compute=misalignment,
        why="Simulated: eight sections whose terms must agree, error .02 a term; a whole document counts, the paper scores parts.",
    ),
    Figure(paper="seqcv", name="table-3", subject="seconds a text", compute=writing_times, needs="model", why=_CODE),
    Figure(
        paper="seqcv",
        name="table-12",
        subject="six data sets",
        compute=reasoned,
        needs="data and model",
        why=f"{_DATA} One --model gives the row of the same model, several that of different ones.",
    ),
    Figure(
        paper="aot",
        name="table-1",
        subject="four data sets",
        compute=benchmarks,
        needs="data and model",
        why=f"{_DATA} AFlow and GoT are not part of the package.",
    ),
    Figure(paper="aot", name="3", subject="success over tokens", compute=over_tokens, why=_SHORTER),
    Figure(paper="aot", name="4", subject="trees and forests", compute=trees, why=_SHORTER),
    Figure(
        paper="aot",
        name="table-2",
        subject="quality of transitions",
        compute=transitions,
        why=f"{_WORD} Code judges what a model judges in the paper, and simulated contractions always take steps away.",
    ),
    Figure(paper="aot", name="5", subject="depths", compute=depths, why=_WORD),
    Figure(paper="aot", name="6", subject="subquestions", compute=sizes, why=_WORD),
    Figure(paper="aot", name="7", subject="success over complexity", compute=by_complexity, why=_SHORTER),
]
