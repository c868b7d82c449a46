"""`microagents estimate`."""

from __future__ import annotations

from typing import Annotated

import typer

from microagents.cli.options import AsJson
from microagents.cli.reporting import exit_on_error


def command(
    p: Annotated[float, typer.Option("--p", metavar="P", help="Probability that a valid reply is right.")],
    steps: Annotated[int, typer.Option(metavar="S", help="Number of steps of the task.")],
    target: Annotated[float, typer.Option(metavar="T", help="Wanted probability that all steps are decided right.")],
    valid: Annotated[float, typer.Option(metavar="V", help="Probability that a reply is valid: no red flag discards it.")] = 1.0,
    steps_per_call: Annotated[int, typer.Option(metavar="M", help="Number of steps that one call does.")] = 1,
    k: Annotated[
        int | None, typer.Option("-k", metavar="K", help="Margin to judge. [default: the smallest that reaches the target]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the k, the chance and the calls of a task.

    Prints the smallest k that reaches the target, and for this k, or for the given one, the probability that no step is wrong and the
    expected number of calls (MAKER, equations 9 to 19).
    """
    import msgspec  # noqa: PLC0415 - only this command needs msgspec and the laws

    from microagents.elections.laws import estimate  # noqa: PLC0415

    with exit_on_error():
        found = estimate(p, steps, target, valid=valid, steps_per_call=steps_per_call, k=k)
    if as_json:
        typer.echo(msgspec.json.encode(found))
        return
    typer.echo(
        f"the smallest k that does {steps:,} steps with a chance of {target:g}: {found.k_min}\n"
        f"at k = {found.k}:\n"
        f"  chance that no step is wrong  {found.p_success:.6f}\n"
        f"  votes a step                  {found.expected_votes_per_step:.4f}\n"
        f"  calls                         {found.expected_calls:,.0f}"
    )
