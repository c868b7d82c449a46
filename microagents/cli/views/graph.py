"""The actor graph of a strategy as lines, as JSON, or as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage, refusing
from microagents.cli.options import DEFAULT_MODEL
from microagents.cli.reporting import echo, json_text
from microagents.runs.driver.begin import new_plan
from microagents.runs.driver.graph import graph_of, placement_of
from microagents.runs.driver.role_pictures import lines_of, svg_of
from microagents.task import Task


def show_graph(
    task: Task, strategy: Strategy, changed: Mapping[str, Any], output: Path | None, *, as_json: bool
) -> None:
    """Show the roles of a strategy, the messages between them, and the process of each replica.

    Args:
        task: the task.
        strategy: the strategy.
        changed: settings that change deployments and places.
        output: SVG file into which the graph is drawn; None for none.
        as_json: whether to print one object.
    """
    if output is not None and output.suffix != ".svg":
        raise InvalidUsage(f"a graph is drawn as SVG; name a file that ends with .svg, not {str(output)!r}")
    given: Any = {"strategy": strategy, "run_id": "graph", **changed}
    plan = new_plan(task, DEFAULT_MODEL, given)
    graph = structs.replace(graph_of(plan), placement=placement_of(plan))
    if output is not None:
        with refusing(f"{str(output)!r} cannot be written"):
            output.write_text(svg_of(graph), encoding="utf-8")
    if as_json:
        echo(json_text(graph))
    elif output is None:
        echo("\n".join(lines_of(graph)))
