"""`microagents graph`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import structs

from microagents.base.errors import InvalidUsage, read_failure
from microagents.cli.options import (
    DEFAULT_MODEL,
    AsJson,
    Config,
    Options,
    StrategyName,
    StrategyOptions,
    TaskName,
    Tools,
    strategy_named,
    task_of,
    with_settings,
    with_tools,
)
from microagents.cli.reporting import echo, json_text
from microagents.runs.driver.role_pictures import lines_of, svg_of
from microagents.runs.plan import RunPlan
from microagents.runs.settings import Settings, check_for_ray, model_pools, validated


@partial(with_settings, only=("runtime", "deploy", "spread", "lanes"), short=("k",))
def command(
    task: TaskName,
    *,
    option: Options = [],  # noqa: B006 - typer copies it
    tool: Tools = [],  # noqa: B006
    strategy: StrategyName = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE.svg", help="Draw the graph into a file.")
    ] = None,
    as_json: AsJson = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
    options: StrategyOptions,
    changed: dict[str, Any],
) -> None:
    """Show the actor graph of a strategy: roles, replicas, the typed messages between them, and the process of each replica.

    Nothing is started: `view` shows the nodes and the pids of a run.

    Exit codes: 0 shown, 2 wrong usage.
    """
    if output is not None and output.suffix != ".svg":
        raise InvalidUsage(f"a graph is drawn as SVG; name a file that ends with .svg, not {str(output)!r}")
    from microagents.runs.driver.graph import graph_of, placement_of

    work = task_of(task, with_tools(option, tool))
    chosen = strategy_named(strategy, options, work)
    pools = model_pools({"": [DEFAULT_MODEL]}, [chosen]).pools
    settings = validated(Settings, "the graph", {"models": pools, "run_id": "graph", **changed})
    check_for_ray(changed, settings.runtime)
    plan = RunPlan(tasks=[work], listed=False, strategy=chosen, settings=settings)
    graph = structs.replace(graph_of(plan), placement=placement_of(plan))
    if output is not None:
        try:
            output.write_text(svg_of(graph), encoding="utf-8")
        except OSError as error:
            raise InvalidUsage(f"{str(output)!r} cannot be written: {read_failure(error)}") from None
    if as_json:
        echo(json_text(graph))
    elif output is None:
        echo("\n".join(lines_of(graph)))
