"""`python -m tests.doubles`: a simulated model as a provider, until Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Annotated, Any

import typer

from microagents.base.errors import InvalidUsage
from microagents.cli.options import DEFAULT_MODEL, task_of
from microagents.cli.reporting import exit_on_error, log_to_stderr
from microagents.runs.words.verdict import counted
from microagents.web.listening import ended_by_signal
from tests.doubles.simulated.faults import Fault
from tests.doubles.simulated.server import Endpoint, serving


def command(
    task: Annotated[str | None, typer.Argument(help="Task whose questions a simulated model answers.")] = None,
    *,
    option: Annotated[list[str], typer.Option("-o", "--option", metavar="NAME=VALUE", help="Option of the task.")] = [],  # noqa: B006
    model: Annotated[str, typer.Option(metavar="SPEC", help="Model behind it.")] = DEFAULT_MODEL,
    seed: Annotated[int, typer.Option(help="Seed of simulated replies and of faults.")] = 0,
    fault: Annotated[
        list[str],
        typer.Option(metavar="KIND:SHARE", help="Share of requests that fail: 400 to 599, reset, hang, garbage."),
    ] = [],  # noqa: B006
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8399,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Serve a simulated model on the wires of OpenAI (chat, responses) and Anthropic (messages)."""
    log_to_stderr()
    with exit_on_error():
        if task is None and model.startswith("sim:"):
            raise InvalidUsage(
                f"a simulated model answers the questions of one task; name it: python -m tests.doubles hanoi --model {model}"
            )
        if task is None and option:
            raise InvalidUsage("-o gives options of a task, and no task is named")
        given = {
            "model": model,
            "task": None if task is None else task_of(task, option),
            "seed": seed,
            "faults": [Fault.parse(each) for each in fault],
            "port": port,
        }
        asyncio.run(_serve(given, as_json=as_json))


async def _serve(given: dict[str, Any], *, as_json: bool) -> None:
    ended = ended_by_signal()
    async with serving(Endpoint(**given)) as served:
        addresses = {"url": served.url, "openai": f"{served.url}/v1", "anthropic": served.url}
        if as_json:
            typer.echo(json.dumps({"model": given["model"], **addresses, "pid": os.getpid()}))
        else:
            typer.echo(f"serving {given['model']} at {served.url} until Ctrl-C")
        await ended.wait()
    faults = ", ".join(f"{count} x {kind}" for kind, count in sorted(served.faults.items()))
    note = f"; faults: {faults}" if faults else ""
    typer.echo(f"served {counted(served.requests, 'request')}, {counted(served.samples, 'sample')}{note}", err=True)


def main() -> None:
    """Run the command."""
    typer.run(command)


if __name__ == "__main__":
    main()
