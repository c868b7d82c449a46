"""`microagents estimate`."""

from __future__ import annotations

from typing import Annotated

import typer

from microagents.cli.options import AsJson
from microagents.cli.reporting import one_sentence


def command(
    p: Annotated[float, typer.Option("--p", metavar="P", help="Share of right replies among valid ones.")],
    steps: Annotated[int, typer.Option(metavar="S", help="Steps of the whole task.")],
    target: Annotated[float, typer.Option(metavar="T", help="Wanted probability that all of them are right.")],
    valid: Annotated[float, typer.Option(metavar="V", help="Share of replies that no red flag discards.")] = 1.0,
    steps_per_call: Annotated[int, typer.Option(metavar="M", help="Steps that one call does.")] = 1,
    k: Annotated[int | None, typer.Option("-k", metavar="K", help="Judge this margin instead of the smallest one that will do.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say beforehand which k a task needs, how likely it then succeeds, and how many calls that takes (MAKER, equations 9 to 19)."""
    import msgspec  # noqa: PLC0415 - with the laws, only here

    from microagents.elections.laws import estimate  # noqa: PLC0415

    with one_sentence():
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
