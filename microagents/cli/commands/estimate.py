"""`microagents estimate`."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Annotated

import msgspec
import typer

from microagents.actors.registry import Registry, unknown
from microagents.base.errors import InvalidUsage, MicroagentsError
from microagents.base.user_code import described
from microagents.cli.options import RUNS, AsJson, RunsDir, pairs
from microagents.cli.reporting import json_text
from microagents.cli.views.tables import wrapped
from microagents.elections.estimates import AgentEstimate, Estimate, RuleAtK, estimate, estimate_agent
from microagents.elections.laws import expected_bill
from microagents.elections.rules import Rule, portable
from microagents.runs.settings import validated
from microagents.runs.words.money import money
from microagents.studies.analysis import Proportion
from microagents.studies.calibration import calibration_from
from microagents.studies.measured import ModelCalibration
from microagents.systems.agents.act import Act

RULE_HELP = (
    "`ahead-by`, `first-to` (`run -s rule=first-to`), `best-of` (the most frequent of K), or one of your own as path/file.py:Class or "
    "package.module:Class, with options behind it: FILE:Class@NAME=VALUE,..."
)
MAX_DIGITS = 31
"""Number of digits of the largest count, 10^30."""


def count(text: str) -> int:
    """A whole number, which may be written as 1e6."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or number.adjusted() >= MAX_DIGITS or number != int(number):
        raise typer.BadParameter(f"{text!r} is not a whole number up to 10^30")
    return int(number)


def command(
    p: Annotated[
        float | None, typer.Option("--p", metavar="P", help="Probability that a valid reply is right.")
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="RUN", help="Run of a calibration, which gives --p, --valid and --steps if not given."
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="S", parser=count, help="Number of steps of the task, such as 1000000 or 1e6.")
    ] = None,
    actions: Annotated[
        str | None,
        typer.Option(
            metavar="KIND=N,...",
            help="Of an agent, in place of --steps: number of its actions by kind, as in read=6,write=2,end=1.",
        ),
    ] = None,
    set_: Annotated[
        list[str],
        typer.Option(
            "-s", "--set", metavar="NAME=VALUE", help="Margin of a kind of action, as in `run -s k_read=1`. Repeatable."
        ),
    ] = [],  # noqa: B006 - typer copies it
    call_usd: Annotated[
        float | None, typer.Option("--call-usd", metavar="USD", help="Price of one call; shows the bill.")
    ] = None,
    target: Annotated[
        float | None, typer.Option(metavar="T", help="Wanted probability that all steps are decided right.")
    ] = None,
    valid: Annotated[
        float | None,
        typer.Option(metavar="V", help="Probability that a reply is valid: no red flag discards it. [default: 1]"),
    ] = None,
    steps_per_call: Annotated[int, typer.Option(metavar="M", help="Number of steps that one call does.")] = 1,
    k: Annotated[
        int | None,
        typer.Option("-k", metavar="K", help="Margin to judge. [default: the smallest that reaches the target]"),
    ] = None,
    max_draws: Annotated[
        int,
        typer.Option(
            "--max-draws",
            metavar="N",
            parser=count,
            help="Cap of each election, as in `run -s max_draws=N`.",
        ),
    ] = 100,
    rule: Annotated[str, typer.Option(metavar="RULE", help=RULE_HELP)] = "ahead-by",
    rivals: Annotated[int, typer.Option(metavar="N", help="Number of wrong replies, all equally likely.")] = 1,
    runs_dir: RunsDir = RUNS,
    as_json: AsJson = False,
) -> None:
    """Estimate the k, the cap, the chance and the calls of a task.

    Prints the smallest k that reaches the target, and for this k, or for the given one, the cap of draws that it needs; and at the cap of
    a run the probability that all steps are decided right, and the expected number of calls (MAKER, equations 9 to 19).

    One rival (all wrong replies are equal) is the worst case for the chance, but not for the calls. With several steps a call it has all
    errors of all steps; the chance by the paper's law, in which it has one of them, is printed beside. Several rivals are computed exactly
    if that takes seconds, else simulated, with intervals of 95 %.

    For an agent, --actions says how many actions of each kind (read, write, destructive, end) it takes, and -s the margins. Its chance is
    for the worst case, in which all wrong replies are one action that does harm; a wrong read costs no more than its calls.
    """
    measured = None if from_ is None else calibration_from(runs_dir, from_)
    p, valid = _shares(p, valid, measured)
    if actions is not None:
        if (steps, target, k, steps_per_call, rule, rivals) != (None, None, None, 1, "ahead-by", 1):
            raise InvalidUsage("--actions takes margins by -s, as in -s k_read=1; leave out the options of --steps")
        agent = _agent(p, actions, set_, valid, call_usd)
        typer.echo(json_text(agent) if as_json else "\n".join(_agent_lines(agent)))
        return
    if set_:
        raise InvalidUsage(
            "-s sets the margins of an agent's actions; say how many it takes: --actions read=6,write=2,end=1"
        )
    steps = measured.total if steps is None and measured is not None else steps
    if steps is None:
        raise InvalidUsage(
            "give the number of steps, --steps S, or the actions of an agent, --actions read=6,write=2,end=1"
        )
    try:
        chosen = _rule_of_ones_own(rule) if ":" in rule or ".py" in rule else rule
        found = estimate(
            p,
            steps,
            target,
            valid=valid,
            steps_per_call=steps_per_call,
            k=k,
            max_draws=max_draws,
            rule=chosen,
            rivals=rivals,
        )
    except MicroagentsError:
        raise
    except Exception as error:
        raise InvalidUsage(f"rule {rule!r} failed: {described(error)}") from error
    asked = measured if steps_per_call == 1 else None  # a calibration asks single steps
    chances = None if asked is None or found.k is None else asked.chances(found.k, steps)
    if as_json:
        typer.echo(
            json_text(found if chances is None else {**msgspec.structs.asdict(found), "measured": chances.measured})
        )
        return
    typer.echo("\n".join(_lines(found, steps, target)))
    if measured is not None and chances is not None:
        typer.echo("\n".join(_measured_lines(measured, chances.measured, steps)))
    if call_usd is not None:
        typer.echo(_bill(expected_bill(call_usd, found.expected_calls)))


def _shares(p: float | None, valid: float | None, measured: ModelCalibration | None) -> tuple[float, float]:
    """Take the given shares of right and of valid replies, else the measured ones."""
    if measured is not None:
        p, valid = measured.p.share if p is None else p, measured.valid.share if valid is None else valid
    if p is None:
        raise typer.BadParameter(
            "give the probability that a valid reply is right, or a calibration that knows it: --from RUN",
            param_hint="--p",
        )
    return p, 1.0 if valid is None else valid


def _measured_lines(measured: ModelCalibration, chance: Proportion, steps: int) -> Iterator[str]:
    yield f"  by the errors as they differ      {chance.share:.6f}  ({chance.low:.6f} to {chance.high:.6f} with 95 %)"
    yield from wrapped(f"as they differ: {measured.condition(steps)}")


def _agent(p: float, actions: str, options: list[str], valid: float, call_usd: float | None) -> AgentEstimate:
    strategy = validated(Act, "strategy 'act'", pairs("-s", options), flag="-s")
    margins = {
        name.removeprefix("k_"): margin for name, margin in strategy.model_dump().items() if name.startswith("k_")
    }
    numbers = {kind: count(number) for kind, number in pairs("--actions", actions.split(",")).items()}
    return estimate_agent(p, numbers, margins, valid=valid, call_usd=call_usd)


def _agent_lines(found: AgentEstimate) -> Iterator[str]:
    margins = ", ".join(f"k_{kind} = {found.margins[kind]}" for kind in found.actions)
    yield f"{sum(found.actions.values()):,} actions, {margins}, where all wrong replies are one that does harm (the worst case):"
    yield f"  chance that a trial succeeds      {found.p_success:.6f}"
    for k, chance in found.pass_k.items():
        yield f"  that {k} of {k} trials succeed        {chance:.6f}   (pass^{k})"
    yield f"  calls                             {found.expected_calls:,.1f}"
    if found.expected_cost_usd is not None:
        yield _bill(found.expected_cost_usd)


def _bill(cost_usd: float) -> str:
    return f"  bill                              {money(cost_usd)}"


def _rule_of_ones_own(given: str) -> RuleAtK:
    name, _, words = given.partition("@")
    kind = Registry(kind="rule", group="microagents.rules", shipped={}).find(name, Rule)
    options = pairs("--rule", [word for word in words.split(",") if word])
    for option in options:
        if option not in kind.__struct_fields__:
            raise InvalidUsage(unknown(f"option of rule {name!r} named", option, kind.__struct_fields__))

    def at(k: int) -> Rule:
        try:
            return portable(msgspec.convert({**options, **({"k": k} if has_k else {})}, kind, strict=False))
        except msgspec.ValidationError as error:
            raise InvalidUsage(f"rule {given!r}: {error}") from None

    has_k = "k" in kind.__struct_fields__ and "k" not in options
    return RuleAtK(name=given, at=at, has_k=has_k)


def _lines(found: Estimate, steps: int, target: float | None) -> Iterator[str]:
    if found.k is not None and target is not None:
        smallest = "too large to be computed here" if found.k_min is None else found.k_min
        yield f"the smallest k that does {steps:,} steps with a chance of {target:g}, where no cap ends an election: {smallest}"
    worst = "one rival (the worst case for the chance, not for the calls: try --rivals 5)"
    against = worst if found.rivals == 1 else f"{found.rivals:,} rivals"
    k = "" if found.k is None else f"at k = {found.k}, "
    yield f"{k}rule {found.rule}, at most {found.max_draws:,} draws a step, against {against}:"
    yield f"  chance that all steps are right   {found.p_success:.6f}{_interval(found.p_success_interval, '.6f')}"
    if found.p_success_of_paper is not None:
        rival = f"its rival has one of {found.steps_per_call} steps wrong"
        yield f"  by the paper's law, without a cap {found.p_success_of_paper:.6f}  ({rival})"
    yield f"  chance of ending undecided        {found.p_undecided:.6f}"
    each = "votes a step    " if found.steps_per_call == 1 else "votes of a group"
    yield f"  {each}                  {found.expected_votes_per_step:.4f}"
    yield f"  calls                             {found.expected_calls:,.0f}{_interval(found.expected_calls_interval, ',.0f')}"
    if found.steps_per_call > 1:
        yield f"  steps asked for, the paper's unit {found.expected_calls * found.steps_per_call:,.0f}"
    if target is None:
        return
    where = "with this rule" if found.k is None else "at this k"
    if found.max_draws_min is not None:
        cap = found.max_draws_min
        remedy = (
            f"so {found.max_draws:,} is enough"
            if cap <= found.max_draws
            else f"so more than {found.max_draws:,}: -s max_draws={cap}"
        )
        yield f"a chance of {target:g} {where} needs a cap of {cap:,} draws a step, {remedy}"
    elif found.k is None or (found.k_min is not None and found.k < found.k_min):
        yield f"a chance of {target:g} is not reached {where}, whatever the cap"
    else:
        yield f"the cap that a chance of {target:g} needs {where} is too large to be computed here"


def _interval(interval: tuple[float, float] | None, digits: str) -> str:
    return "" if interval is None else f"  (simulated; {interval[0]:{digits}} to {interval[1]:{digits}} with 95 %)"
