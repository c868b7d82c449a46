"""A plan on the terminal: its rows, its conditions, and the command that begins the marked run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import chain
from string import ascii_uppercase

from msgspec import structs

from microagents.cli.views.tables import Columns, Facts, Part, figure, print_found
from microagents.runs.words.money import money, prices_of
from microagents.runs.words.summary import known, options_text
from microagents.runs.words.verdict import clock, counted
from microagents.studies.planned_runs import PlannedRun, PlannedRuns
from microagents.studies.simulation import Simulation
from microagents.task import Task

OTHERS = 5
"""Number of rows beside the marked one."""


def print_plan(
    found: PlannedRuns,
    task: str | None,
    work: Task | None,
    option: list[str],
    concurrency: int | None,
    max_cost: float | None,
    max_time: float | None,
    *,
    as_json: bool,
) -> None:
    """Print a plan.

    Args:
        found: the plan.
        task: name of the task, with its instance and its options.
        work: the task; None for given rates.
        option: words NAME=VALUE of the task.
        concurrency: maximum number of calls in flight.
        max_cost: expected cost that a run may have, in US dollars.
        max_time: expected duration that a run may have, in seconds.
        as_json: whether to print one object.
    """
    command_line, chosen = None, found.best or found.assumed
    if task is not None and work is not None and chosen is not None and chosen.models:
        command_line = command_of(task, work.default_strategy, option, chosen, concurrency)
    limits = {}
    if max_cost is not None:
        limits["cost"] = money(max_cost)
    if max_time is not None:
        limits["duration"] = clock(max_time)
    within = [f" with a known {name} of at most {most}" for name, most in limits.items()]
    end = _end(found, command_line, " and".join(within))
    notes = {" + ".join(models): said for models, said in found.notes.items()}
    facts = {**structs.asdict(found), "notes": notes, "command": command_line}
    print_found(facts, chain(_report(task, work, found), end), as_json=as_json)


def _report(task: str | None, work: Task | None, found: PlannedRuns) -> Iterator[Part]:
    if work is None:
        named = ""
    else:
        named = f"{task}{options_text(work.model_dump(exclude_defaults=True))}: "
    size = f"one {found.unit}"
    if found.unit == "steps":
        size = counted(found.steps, "step")
    every = chain.from_iterable(run.models for run in found.runs)
    models = list(dict.fromkeys(every))
    letters = dict[str, str]()
    if len(models) == 1:
        yield f"{named}{size}; {models[0]}"
    else:
        letters = dict(zip(models, ascii_uppercase, strict=False))
        yield f"{named}{size}"
    if letters:
        yield Facts([(letter, model) for model, letter in letters.items()])
    shown = _shown(found)
    if models:
        yield _measured(found, shown, letters)
    else:
        yield _by_rates(shown)
    if len(shown) < len(found.runs):
        yield f"{len(found.runs) - len(shown):,} other runs are in --json"
    for names in dict.fromkeys(run.models for run in shown):
        of = f"{_pool(names, letters)}: " * bool(letters)
        yield from [f"{of}{note}" for note in found.notes.get(names, ())]
    if found.simulation is not None:
        yield from _simulation(found.simulation)
    note = prices_of(models).note
    if note:
        yield note


def _by_rates(shown: Sequence[PlannedRun]) -> Columns:
    """Lay out runs by given rates, which have no interval."""
    rows = [["", "strategy", "chance", "calls"]]
    rows += [["*" * run.is_best, _named(run), f"{run.chance.share:.6f}", f"{run.calls:,.0f}"] for run in shown]
    return Columns(rows, to_the_left=(0, 1))


def _measured(found: PlannedRuns, shown: Sequence[PlannedRun], letters: dict[str, str]) -> Columns:
    """Lay out runs by measured errors; of one model without its name."""
    digits = {"steps": ",.0f"}.get(found.unit, ",.1f")
    rows = [["", "models", "strategy", "if independent", "measured (95 %)", "calls", "cost", "time"]]
    for run in shown:
        independent = figure(run.independent, ".4f")
        chance = known(run.chance.low, run.chance.high)
        time = "-"
        if run.duration_s is not None:
            time = clock(run.duration_s)
        calls = figure(run.calls, digits)
        cells = [_pool(run.models, letters), _named(run), independent, chance, calls, money(run.cost_usd), time]
        rows.append(["*" * run.is_best, *cells])
    if not letters:
        rows = [[mark, *cells] for mark, _, *cells in rows]
    return Columns(rows, to_the_left=(0, 1, 2)[: 2 + bool(letters)], least=("if independent", "time", "calls"))


def _pool(names: Sequence[str], letters: dict[str, str]) -> str:
    return " + ".join(letters.get(name, name) for name in names)


def _shown(found: PlannedRuns) -> Sequence[PlannedRun]:
    """Choose the rows: the marked one, then the cheapest that reach the target, then those with the best chance."""
    if not any(run.models for run in found.runs):
        return found.runs

    def rank(run: PlannedRun) -> tuple[bool, bool, float]:
        is_enough = run.chance.low >= found.target
        if is_enough:
            least = run.calls
        else:
            least = -run.chance.share
        return run not in (found.best, found.assumed), not is_enough, least

    chosen = sorted(found.runs, key=rank)[: 1 + OTHERS]
    return [run for run in found.runs if run in chosen]


def _simulation(found: Simulation) -> Iterator[Part]:
    share = found.success
    yield f"{counted(found.runs, 'run')} in virtual time, each step with an error rate drawn from the measured ones:"
    rows = [
        ("  all steps right", f"{share.share:.3f} ({share.low:.3f} to {share.high:.3f} with 95 %)"),
        ("  undecided", f"{found.undecided:,} of {found.runs:,}"),
        ("  calls of a run", f"{found.calls:,.0f}"),
        ("  duration of a run", f"{found.duration_s:,.1f} s"),
    ]
    yield Facts(rows)


def _end(found: PlannedRuns, command_line: str | None, within: str) -> Iterator[str]:
    if found.needed is not None:
        yield found.needed
    elif found.best is not None and command_line is not None:
        yield f"* the cheapest that is enough for {found.target:g}: {command_line}"
    elif found.best is not None:
        yield f"* the least that reaches {found.target:g}"
    elif found.assumed is not None:
        yield f"no run reaches {found.target:g} for sure{within}"
        yield f"{_named(found.assumed)} is enough {found.assumed.enough_if}"
        yield f"or else, at that risk: {command_line}"
    else:
        yield f"no run reaches {found.target:g} for sure{within}"


def command_of(task: str, default: str, options: list[str], run: PlannedRun, concurrency: int | None) -> str:
    """Write the command that begins a planned run.

    Args:
        task: name of the task.
        default: its default strategy.
        options: its options.
        run: the planned run.
        concurrency: maximum number of calls in flight.
    """
    words = [word for each in run.models for word in ("--model", each)]
    if run.strategy != default:
        words += ["--strategy", run.strategy]
    if run.k is not None:
        words += ["-k", str(run.k)]
    for name, value in run.options.items():
        words += ["-s", f"{name}={value}"]
    if concurrency is not None:
        words += ["--concurrency", str(concurrency)]
    return run_command(task, options, words)


def run_command(task: str, options: list[str], words: Sequence[str]) -> str:
    """Write the command that runs a task with options and further words."""
    given = [word for each in options for word in ("-o", each)]
    return shlex.join(["microagents", "run", task, *given, *words])


def _named(run: PlannedRun) -> str:
    """Name a row: its k, or its strategy, with the options that make it another."""
    name = run.strategy
    if run.k is not None:
        name = f"k = {run.k}"
    options = [f"{option} {value}" for option, value in run.options.items() if option != "p"]
    return ", ".join([name, *options])
