"""`microagents step`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

import typer

from microagents.cli.options import (
    OF_ONE_STEP,
    SERVE_PORT,
    AsJson,
    Config,
    ModelSpecs,
    Options,
    Seed,
    StrategyName,
    StrategyOptions,
    TaskName,
    Tools,
    models_of,
    strategy_named,
    task_of,
    with_settings,
    with_tools,
)
from microagents.cli.reporting import EXIT_CODES, echo, json_text
from microagents.cli.views.requests import requests_of
from microagents.elections.election import OPEN_OUTCOMES
from microagents.runs.plan import RunPlan
from microagents.runs.settings import Settings, model_pools, validated
from microagents.runs.words.money import prices_of
from microagents.runs.words.verdict import counted
from microagents.studies.preview import ShownReply, ShownStep, question_of_step, show_step

OPEN = (*OPEN_OUTCOMES, "argmax")
"""Outcomes of a vote that decides no step."""


@partial(with_settings, only=OF_ONE_STEP, short=("k", "max_draws"))
def command(
    task: TaskName,
    *,
    option: Options = [],  # noqa: B006 - typer copies it
    tool: Tools = [],  # noqa: B006
    strategy: StrategyName = None,
    model: ModelSpecs = [],  # noqa: B006
    seed: Seed = 0,
    step: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Number of a chain's step, from 0. The task's oracle does the steps before it."
        ),
    ] = 0,
    request: Annotated[
        bool,
        typer.Option(
            "--request",
            help="Ask no model: print the question as a request to `serve`, for curl and the packages of OpenAI and Anthropic.",
        ),
    ] = False,
    as_json: AsJson = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
    options: StrategyOptions,
    changed: dict[str, Any],
) -> None:
    """Show one question in full: prompt, replies, flags, votes and price.

    Of a chain it is step N, of other work the first question that its strategy asks. Exit codes: 0 decided, 1 failed, 2 wrong usage, 3
    stopped by an outage or since all replies are flagged, 4 undecided.
    """
    work = task_of(task, with_tools(option, tool))
    chosen = strategy_named(strategy, options, work)
    named = {"models": model_pools(models_of(model), [chosen]).pools, "seed": seed, "run_id": "step"}
    settings = validated(Settings, "the step", {**named, **changed})
    plan = RunPlan(tasks=[work], listed=False, strategy=chosen, settings=settings)
    if request:
        forms = requests_of(asyncio.run(question_of_step(plan, step)), f"http://127.0.0.1:{SERVE_PORT}")
        echo(json_text(forms) if as_json else "\n".join(f"# {name}\n{text}" for name, text in forms.items()))
        return
    shown = asyncio.run(show_step(plan, step))
    if as_json:
        echo(json_text(shown))
    else:
        _print(shown)
    raise typer.Exit(
        EXIT_CODES["undecided" if shown.outcome in OPEN else "stopped" if shown.outcome == "stopped" else "completed"]
    )


def _print(shown: ShownStep) -> None:
    from microagents.cli.views.parts import Sections

    parts, price = Sections(), prices_of(reply.model for reply in shown.replies)
    parts.add(f"{shown.path}: system prompt", shown.system)
    parts.add("user prompt", shown.user)
    for reply in shown.replies:
        temperature = "provider's temperature" if reply.temperature is None else f"temperature {reply.temperature:g}"
        tokens = "tokens unknown" if reply.output_tokens is None else f"{reply.output_tokens} tokens"
        parts.add(
            f"reply {reply.seq}: {reply.model}, {temperature}, {tokens}, {reply.finish}, {price(reply.cost_usd)}",
            reply.text,
            f"=> {_read(reply)}",
        )
    votes = "\n".join(f"{count} x {json_text(value)}" for value, count in shown.tally) or "no valid reply"
    checked = {None: "", True: "right by the task's own oracle", False: "WRONG by the task's own oracle"}[
        shown.leader_correct
    ]
    ending = shown.outcome + (f", {checked}" if checked else "")
    if shown.outcome in OPEN:
        ending = f"{shown.outcome}: not decided by the vote"
        climbs = [f"a run would climb to {shown.climbs_to}"] * (shown.climbs_to is not None)
        leader = [f"the leader is {checked}"] * bool(checked)
        votes = "\n".join([votes, *climbs, *leader])
    if shown.reason is not None:
        ending, votes = "stopped", shown.reason
    parts.add(f"{ending}; {counted(shown.calls, 'call')}, {price(shown.cost_usd)}", "", votes)


def _read(reply: ShownReply) -> str:
    if not reply.counted:
        return "drawn, but not counted: the vote was over"
    if reply.flag:
        return f"RED FLAG {reply.flag}{f': {reply.why}' if reply.why else ''}"
    return f"vote {json_text(reply.vote)}"
