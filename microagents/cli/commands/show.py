"""`microagents show`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.options import (
    RUNS,
    AsJson,
    Options,
    RunsDir,
    StrategyName,
    StrategyOptions,
    Tools,
    WithCode,
    check_typed,
    complete_run,
    strategy_named,
    task_of,
    with_settings,
    with_tools,
)

OF_RUN = ("path", "runs_dir", "live", "verify", "of_input", "trust_journal")
"""Parameters of a recorded run alone."""
OF_PLACES = ("runtime", "deploy", "lanes")
OF_GRAPH = ("option", "tool", "strategy", "set_", "k", *OF_PLACES, "output")
"""Parameters of --graph alone."""


@partial(with_settings, only=OF_PLACES, short=("k",))
def command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Name of the run; `microagents list` shows all runs. With --graph: TASK, as for `run`.",
            autocompletion=complete_run,
        ),
    ],
    *,
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH]",
            help="Path of one decision to show in full, such as 0/step/17; `microagents export` lists all.",
        ),
    ] = None,
    runs_dir: RunsDir = RUNS,
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="Watch a run that another process does until it ends, then print and exit as `run` does."
        ),
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every record, and check the recorded totals and digests.")
    ] = False,
    of_input: Annotated[
        int | None,
        typer.Option(
            "--input",
            min=0,
            metavar="N",
            help="Show the tree, or the steps that climbed, of this one of many inputs, from 0.",
        ),
    ] = None,
    graph: Annotated[
        bool,
        typer.Option(
            "--graph",
            help="Show the roles of TASK's strategy, their typed messages, and the process of each replica. Nothing is started.",
        ),
    ] = False,
    option: Options = [],  # noqa: B006 - typer copies it
    tool: Tools = [],  # noqa: B006
    strategy: StrategyName = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE.svg", help="Draw the graph into a file.")
    ] = None,
    trust_journal: WithCode = False,
    as_json: AsJson = False,
    context: typer.Context,
    options: StrategyOptions,
    changed: dict[str, Any],
) -> None:
    """Show the recorded state of a run, one of its decisions, or with --graph the roles of a strategy.

    This works while the run is running, too. With PATH it shows one decision: its prompt, replies, flags, votes and price. Ctrl-C ends
    --live and not the run, which `microagents ctl RUN stop` ends.

    Exit codes: 0 shown, 1 the records are damaged (--verify), 2 wrong usage.
    """
    if graph:
        from microagents.cli.views.graph import show_graph

        check_typed(context, "without --graph", *OF_RUN)
        work = task_of(run, with_tools(option, tool))
        show_graph(work, strategy_named(strategy, options, work), changed, output, as_json=as_json)
        return
    from microagents.cli.addresses import at_hand
    from microagents.cli.views.recorded import show_decision, show_run, watch

    check_typed(context, "with --graph", *OF_GRAPH)
    of_whole_run = verify or of_input is not None
    if live and (path is not None or of_whole_run):
        raise InvalidUsage("--live shows the progress of a whole run; leave out PATH, --verify and --input")
    if path is not None and of_whole_run:
        raise InvalidUsage("--verify and --input are about a whole run; leave them out, or the PATH of the decision")
    if live:
        watch(run, runs_dir, as_json=as_json)
    with at_hand(runs_dir, run) as folder:
        if path is not None:
            show_decision(run, path, folder, code=trust_journal, as_json=as_json)
            return
        show_run(run, folder, of_input, verify=verify, code=trust_journal, as_json=as_json)
