"""`microagents serve`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Annotated, Any

import typer

from microagents.actors.registry import TASKS
from microagents.base.errors import InvalidUsage
from microagents.base.printing import printable
from microagents.cli.options import DEFAULT_MODEL, AsJson, Config, Options, Seed, complete_task, task_of
from microagents.cli.reporting import echo
from microagents.runs.words.verdict import counted

MAX_PORT = 65_535
SERVE_PORT = 8399
"""Port if no other is named."""


def command(
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]",
            help=f"The task whose questions a simulated model answers: {', '.join(TASKS.addresses)}, or a file. Other models need none.",
            autocompletion=complete_task,
        ),
    ] = None,
    *,
    option: Options = [],  # noqa: B006 - typer copies it
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="SPEC", envvar="MICROAGENTS_MODEL", help="Model, as provider:model[@key=value,...]."
        ),
    ] = DEFAULT_MODEL,
    seed: Seed = 0,
    fault: Annotated[
        list[str],
        typer.Option(
            "--fault",
            metavar="KIND:SHARE",
            help="Let a share of the requests fail, as in 429:0.05. Kinds are 400 to 599, reset, hang, garbage. Repeatable.",
        ),
    ] = [],  # noqa: B006
    port: Annotated[
        str,
        typer.Option(
            metavar="[HOST:]N",
            help="Port to listen on, on this machine or on HOST; 0 takes a free one. Others than loopback need --token-env.",
        ),
    ] = str(SERVE_PORT),
    token_env: Annotated[
        str | None,
        typer.Option(
            "--token-env",
            metavar="NAME",
            help="Environment variable with a token that requests must have as their key.",
        ),
    ] = None,
    as_json: AsJson = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
) -> None:
    """Serve a model on the wires of OpenAI (chat, responses) and Anthropic (messages).

    With a simulated model it stands in for a real provider: point any client at it. --json prints one line with the addresses once it
    is ready. Ctrl-C ends it.
    """
    from microagents.web.serving.faults import Fault

    if task is None and model.startswith("sim:"):
        raise InvalidUsage(
            f"a simulated model answers the questions of one task; name it: microagents serve hanoi --model {model}"
        )
    if task is None and option:
        raise InvalidUsage("-o gives options of a task, and no task is named")
    given = {
        "model": model,
        "task": None if task is None else task_of(task, option),
        "seed": seed,
        "faults": [Fault.parse(each) for each in fault],
        **_place(port),
        "token": _token(token_env),
    }
    asyncio.run(_serve(given, as_json=as_json))


def _place(port: str) -> dict[str, Any]:
    host, _, number = port.rpartition(":")
    if not number.isdecimal() or int(number) > MAX_PORT:
        raise InvalidUsage(f"--port must be a number up to {MAX_PORT}, perhaps behind HOST:, not {port!r:.100}")
    return {"host": host.strip("[]") or "127.0.0.1", "port": int(number)}


def _token(name: str | None) -> str | None:
    if name is None:
        return None
    token = os.environ.get(name, "").strip()
    if not token:
        raise InvalidUsage(f"the environment variable {name} has no token")
    return token


async def _serve(given: dict[str, Any], *, as_json: bool) -> None:
    from microagents.web.serving.server import Endpoint, serving

    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with serving(Endpoint(**given)) as served:
        if as_json:
            line = {
                "model": given["model"],
                "url": served.url,
                "openai": f"{served.url}/v1",
                "anthropic": served.url,
                "pid": os.getpid(),
            }
            echo(json.dumps(line))
        else:
            echo(printable(f"serving {given['model']} until Ctrl-C"))
            echo(f"    --model openai:NAME@base_url={served.url}/v1")
            echo(f"    --model anthropic:NAME@base_url={served.url}")
        await ended.wait()
    faults = ", ".join(f"{count} x {kind}" for kind, count in sorted(served.faults.items()))
    note = f"; faults: {faults}" if faults else ""
    typer.echo(f"served {counted(served.requests, 'request')}, {counted(served.samples, 'sample')}{note}", err=True)
