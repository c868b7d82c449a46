"""`microagents estimate`."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated

import typer

from microagents.cli.options import AsJson
from microagents.cli.reporting import exit_on_error, json_text

if TYPE_CHECKING:
    from microagents.elections.estimates import Estimate

MAX_DIGITS = 31
"""Number of digits of the largest count, 10^30."""


def count(text: str) -> int:
    """A whole number, which may be written as 1e6."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or number.adjusted() >= MAX_DIGITS or number != int(number):
        raise typer.BadParameter(f"{text!r} is no whole number up to 10^30")
    return int(number)


def command(
    p: Annotated[float, typer.Option("--p", metavar="P", help="Probability that a valid reply is right.")],
    steps: Annotated[int, typer.Option(metavar="S", parser=count, help="Number of steps of the task, such as 1000000 or 1e6.")],
    target: Annotated[float, typer.Option(metavar="T", help="Wanted probability that all steps are decided right.")],
    valid: Annotated[float, typer.Option(metavar="V", help="Probability that a reply is valid: no red flag discards it.")] = 1.0,
    steps_per_call: Annotated[int, typer.Option(metavar="M", help="Number of steps that one call does.")] = 1,
    k: Annotated[
        int | None, typer.Option("-k", metavar="K", help="Margin to judge. [default: the smallest that reaches the target]")
    ] = None,
    max_draws: Annotated[int, typer.Option(metavar="N", parser=count, help="Cap of each election, as in `run -s max_draws=N`.")] = 100,
    rule: Annotated[
        str, typer.Option(metavar="RULE", help="`ahead-by`, `first-to` (`run -s rule=first-to`) or `best-of` (the most frequent of K).")
    ] = "ahead-by",
    rivals: Annotated[int, typer.Option(metavar="N", help="Number of wrong replies, all equally likely.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Estimate the k, the cap, the chance and the calls of a task.

    Prints the smallest k that reaches the target, and for this k, or for the given one, the cap of draws that it needs; and at the cap of
    a run the probability that all steps are decided right, and the expected number of calls (MAKER, equations 9 to 19).

    One rival (all wrong replies are equal) is the worst case for the chance, but not for the calls. Several rivals are computed exactly
    where that takes seconds, else simulated, with intervals of 95 %.
    """
    from microagents.elections.estimates import estimate  # noqa: PLC0415

    with exit_on_error():
        found = estimate(p, steps, target, valid=valid, steps_per_call=steps_per_call, k=k, max_draws=max_draws, rule=rule, rivals=rivals)
    if as_json:
        typer.echo(json_text(found))
        return
    smallest = "too large to be computed here" if found.k_min is None else found.k_min
    typer.echo(f"the smallest k that does {steps:,} steps with a chance of {target:g}, where no cap ends an election: {smallest}")
    typer.echo("\n".join(_lines(found, target)))


def _lines(found: Estimate, target: float) -> Iterator[str]:
    worst = "one rival (the worst case for the chance, not for the calls: try --rivals 5)"
    against = worst if found.rivals == 1 else f"{found.rivals:,} rivals"
    yield f"at k = {found.k}, rule {found.rule}, at most {found.max_draws:,} draws a step, against {against}:"
    yield f"  chance that all steps are right   {found.p_success:.6f}{_interval(found.p_success_interval, '.6f')}"
    yield f"  chance of ending undecided        {found.p_undecided:.6f}"
    yield f"  votes a step                      {found.expected_votes_per_step:.4f}"
    yield f"  calls                             {found.expected_calls:,.0f}{_interval(found.expected_calls_interval, ',.0f')}"
    if found.max_draws_min is not None:
        cap = found.max_draws_min
        remedy = f"so {found.max_draws:,} is enough" if cap <= found.max_draws else f"so more than {found.max_draws:,}: -s max_draws={cap}"
        yield f"a chance of {target:g} at this k needs a cap of {cap:,} draws a step, {remedy}"
    elif found.k_min is not None and found.k < found.k_min:
        yield f"a chance of {target:g} is not reached at this k, whatever the cap"
    else:
        yield f"the cap that a chance of {target:g} needs at this k is too large to be computed here"


def _interval(interval: tuple[float, float] | None, digits: str) -> str:
    return "" if interval is None else f"  (simulated; {interval[0]:{digits}} to {interval[1]:{digits}} with 95 %)"
