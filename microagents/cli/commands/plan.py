"""`microagents plan`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer
from msgspec import structs

from microagents.base.errors import InvalidUsage
from microagents.cli.options import RUNS, AsJson, Options, RunsDir, Set, pairs, task_of
from microagents.cli.reporting import echo, json_text
from microagents.cli.views.tables import Columns, clock, report_text
from microagents.runs.words.money import are_simulated, money
from microagents.runs.words.summary import options_text
from microagents.runs.words.verdict import counted
from microagents.studies.measure import measured_from
from microagents.studies.planning import PlannedRun, PlannedRuns, Rates, plan
from microagents.studies.simulation import Simulation
from microagents.task import Task

ALPHABET = 26
NO_RUN = 1
"""Exit code if no run reaches the target."""
MAX_DIGITS = 31
"""Number of digits of the largest count, 10^30."""
EXTRAPOLATED = (
    "lead and ladders: the calls, and the chance at hard steps, are those of 400 simulated steps with the measured errors; a rollout errs "
    "at a hard step in .1, as in LEAD (`microagents measure TASK --rollouts N` measures it), and is paid as so many calls as it has steps"
)


def count(text: str) -> int:
    """A whole number, which may be written as 1e6."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or number.adjusted() >= MAX_DIGITS or number != int(number):
        raise typer.BadParameter(f"{text!r} is not a whole number up to 10^30")
    return int(number)


PlannedTask = Annotated[
    str | None, typer.Argument(metavar="[TASK]", help="Task; not needed with --p and --steps or --actions.")
]
From = Annotated[
    list[str], typer.Option("--from", metavar="RUN", help="Run of a measurement. Repeatable: one for each model.")
]
GivenP = Annotated[
    float | None,
    typer.Option("--p", metavar="P", help="In place of --from: probability that a valid reply is right."),
]
GivenValid = Annotated[
    float, typer.Option(metavar="V", help="With --p: probability that no red flag discards a reply.")
]
CallUsd = Annotated[float | None, typer.Option("--call-usd", metavar="USD", min=0, help="With --p: price of one call.")]
Actions = Annotated[
    str | None,
    typer.Option(
        metavar="KIND=N,...",
        help="With --p: number of an agent's actions by kind, as in read=6,write=2,end=1.",
    ),
]
StepCount = Annotated[
    int | None, typer.Option(metavar="N", parser=count, help="Number of steps, such as 1e6. [default: the task's]")
]
Target = Annotated[float, typer.Option(metavar="T", help="Wanted probability that all steps are decided right.")]
OnlyK = Annotated[int | None, typer.Option("-k", metavar="K", min=1, help="Plan only this k.")]
Simulated = Annotated[
    str | None, typer.Option(metavar="NAME", help="Strategy that is simulated. [default: the marked row's]")
]
Simulate = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="Simulate N runs: the engine in virtual time with the measured errors."),
]
Budget = Annotated[float | None, typer.Option(metavar="USD", min=0, help="Expected cost that a run may have.")]
Deadline = Annotated[
    float | None, typer.Option(metavar="S", min=0, help="Expected duration that a run may have, in seconds.")
]
Concurrency = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Maximum number of calls in flight, for the duration.")
]


def command(
    task: PlannedTask = None,
    *,
    from_: From = [],  # noqa: B006 - typer copies it
    p: GivenP = None,
    valid: GivenValid = 1.0,
    call_usd: CallUsd = None,
    actions: Actions = None,
    option: Options = [],  # noqa: B006
    steps: StepCount = None,
    target: Target = 0.95,
    k: OnlyK = None,
    strategy: Simulated = None,
    set_: Set = [],  # noqa: B006
    simulate: Simulate = 0,
    budget: Budget = None,
    deadline: Deadline = None,
    concurrency: Concurrency = None,
    runs_dir: RunsDir = RUNS,
    as_json: AsJson = False,
) -> None:
    """Plan a run from measurements or from given rates: the chance, the calls, the cost and the duration of each k and strategy.

    Of measured models there are rows for each model and k, for pools of two models, for a ladder and for lead; of an agent for its margins.
    The cheapest run that is surely enough for the target is marked, with the command that begins it. The chance has a condition, which the
    plan shows: few samples exclude no rare hard steps. With --budget and --deadline only runs within them are marked.

    With --p every step has the same rate and one rival, the worst case for the chance (MAKER, equations 9 to 16); -s steps=M is as in
    `run`. With --actions it is the chance of an agent, with margins as in -s k_read=2.

    --simulate does the marked row, or -k, --strategy and -s, in virtual time: each step has an error rate drawn from the measured ones.

    Exit codes: 0 a run reaches the target, 1 none does, 2 wrong usage.
    """
    if (p is None) == (not from_):
        raise InvalidUsage("give either what was measured, --from RUN, or rates: --p P [--valid V]")
    if p is None and (valid, call_usd, actions) != (1.0, None, None):
        raise InvalidUsage("--valid, --call-usd and --actions belong to --p; a measurement knows them")
    if actions is not None and (steps, k, strategy, simulate) != (None, None, None, 0):
        raise InvalidUsage("--actions takes margins by -s, as in -s k_read=1; leave out the options of steps")
    work = None if task is None else task_of(task, option)
    measured = [measured_from(runs_dir, each, work) for each in dict.fromkeys(from_)]
    found = plan(
        work,
        measured if p is None else Rates(p=p, valid=valid, call_usd=call_usd),
        target=target,
        steps=steps,
        actions=None if actions is None else _numbers(actions),
        k=k,
        strategy=strategy,
        options=pairs("-s", set_),
        budget_usd=budget,
        deadline_s=deadline,
        concurrency=concurrency,
        simulations=simulate,
    )
    command_line, chosen = None, found.best or found.assumed
    if task is not None and work is not None and chosen is not None and chosen.models:
        command_line = command_of(task, work.default_strategy, option, chosen, concurrency)
    if as_json:
        notes = {" + ".join(models): said for models, said in found.notes.items()}
        echo(json_text({**structs.asdict(found), "notes": notes, "command": command_line}))
    else:
        limits = {
            "cost": None if budget is None else money(budget),
            "duration": None if deadline is None else clock(deadline),
        }
        within = [f" with a known {name} of at most {most}" for name, most in limits.items() if most is not None]
        echo(report_text([*_report(task, work, found), *_end(found, command_line, " and".join(within))]))
    raise typer.Exit(NO_RUN if found.best is None else 0)


def _numbers(actions: str) -> dict[str, int]:
    return {kind: count(number) for kind, number in pairs("--actions", actions.split(",")).items()}


def _report(task: str | None, work: Task | None, found: PlannedRuns) -> Iterator[str | Columns]:
    named = "" if work is None else f"{task}{options_text(work.model_dump(exclude_defaults=True))}: "
    size = counted(found.steps, "step") if found.unit == "steps" else f"one {found.unit}"
    yield f"{named}{size}"
    models = list(dict.fromkeys(model for run in found.runs for model in run.models))
    letters = {name: chr(65 + at) if at < ALPHABET else f"model {at + 1}" for at, name in enumerate(models)}
    letters = letters if len(models) > 1 else dict(zip(models, models, strict=True))
    for model, letter in letters.items():
        if letter != model:
            yield f"{letter} is {model}"
    yield Columns([*_rows(found, letters)], to_the_left=(0, 1, 2) if models else (0, 1))
    for names, notes in found.notes.items():
        of = f"{' + '.join(letters[each] for each in names)}: " if names else ""
        for note in notes:
            yield f"{of}{note}"
    if models and any(run.independent is None for run in found.runs) and found.unit == "steps":
        yield EXTRAPOLATED
    if found.simulation is not None:
        yield from _simulation(found.simulation)
    if models and are_simulated(models):
        yield "simulated: costs are what the real model would have cost at list prices"


def _rows(found: PlannedRuns, letters: dict[str, str]) -> Iterator[list[str]]:
    if not letters:  # given rates have no interval
        is_priced = any(run.cost_usd.mid is not None for run in found.runs)
        yield ["", "strategy", "chance", "calls", *["cost"] * is_priced]
        for run in found.runs:
            row = ["*" if run.is_best else "", _named(run), f"{run.chance.share:.6f}", f"{run.calls:,.0f}"]
            yield [*row, *[money(run.cost_usd.mid)] * is_priced]
        return
    yield ["", "model", "strategy", "if independent", "as measured", "interval", "calls", "cost", "range", "time"]
    for run in found.runs:
        named = " + ".join(letters[each] for each in run.models)
        independent = "-" if run.independent is None else f"{run.independent:.4f}"
        chance = [f"{run.chance.share:.4f}", f"{run.chance.low:.4f} to {run.chance.high:.4f}"]
        cost = run.cost_usd
        spread = "" if cost.mid is None else f"{money(cost.low)} to {money(cost.high)}"
        time = "-" if run.duration_s is None else clock(run.duration_s)
        calls = f"{run.calls:,.0f}" if found.unit == "steps" else f"{run.calls:,.1f}"
        mark = "*" if run.is_best else ""
        yield [mark, named, _named(run), independent, *chance, calls, money(cost.mid), spread, time]


def _simulation(found: Simulation) -> Iterator[str | Columns]:
    share = found.success
    yield f"{counted(found.runs, 'run')} in virtual time, each step with an error rate drawn from the measured ones:"
    rows = [
        ["  all steps right", f"{share.share:.3f} ({share.low:.3f} to {share.high:.3f} with 95 %)"],
        ["  undecided", f"{found.undecided:,} of {found.runs:,}"],
        ["  calls of a run", f"{found.calls:,.0f}"],
        ["  duration of a run", f"{found.duration_s:,.1f} s"],
    ]
    yield Columns(rows, to_the_left=(0, 1))


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
    given = [word for each in options for word in ("-o", each)]
    limit = [] if concurrency is None else ["--concurrency", str(concurrency)]
    models = [word for each in run.models for word in ("--model", each)]
    k = [] if run.k is None else ["-k", str(run.k)]
    chosen = [word for name, value in run.options.items() for word in ("-s", f"{name}={value}")]
    strategy = [] if run.strategy == default else ["--strategy", run.strategy]
    return shlex.join(["microagents", "run", task, *given, *models, *strategy, *k, *chosen, *limit])


def _named(run: PlannedRun) -> str:
    """Name a row: its k, or its strategy, with the options that make it another."""
    shown = {name: value for name, value in run.options.items() if name != "p"}
    return ", ".join([run.strategy if run.k is None else f"k = {run.k}", *[f"{name} {shown[name]}" for name in shown]])
