"""`microagents serve`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import secrets
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from microagents.base.errors import InvalidUsage
from microagents.base.printing import printable
from microagents.cli.options import RUNS, AsJson, Config, RunsDir
from microagents.cli.reporting import echo
from microagents.runs.words.money import money
from microagents.runs.words.verdict import counted

MAX_PORT = 65_535
SERVE_PORT = 8399
"""Port if no other is named."""


def command(
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            metavar="SPEC",
            envvar="MICROAGENTS_MODEL",
            help="Model that requests go on to: openai:NAME or anthropic:NAME[@base_url=...]. Repeatable: those of one wire take turns.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    *,
    fallback: Annotated[
        list[str],
        typer.Option(metavar="SPEC", help="Model of the same wire, asked while one of --model is out. Repeatable."),
    ] = [],  # noqa: B006 - as above
    k: Annotated[
        int, typer.Option("-k", min=1, help="Lead that elects a text, and a call of a tool without an effect.")
    ] = 3,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="TOML file with a table for each tool; or claude-code or codex, which ship with it."
        ),
    ] = None,
    max_output_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Most output tokens of a reply, whatever the client asks for."),
    ] = None,
    max_cost: Annotated[
        str | None,
        typer.Option(
            metavar="USD[/day]",
            help="Most that all samples may cost: since the server began, or each day (UTC), also over restarts. Further requests get 402.",
        ),
    ] = None,
    prices: Annotated[str | None, typer.Option(metavar="FILE", help="Your own prices, as for `run`.")] = None,
    port: Annotated[
        str,
        typer.Option(
            metavar="[HOST:]N",
            help="Port to listen on, on this machine or on HOST; 0 takes a free one. Others than loopback need --tokens.",
        ),
    ] = str(SERVE_PORT),
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Environment variable with a token that requests must have as their key; or a TOML file with a table for each caller: "
            "token_env, max_cost, policy.",
        ),
    ] = None,
    runs_dir: RunsDir = RUNS,
    as_json: AsJson = False,
    config: Config = None,  # noqa: ARG001 - read by `Command`
) -> None:
    """Serve a model whose every reply is elected, on its own wire: point an agent at it.

    Requests go on to the model as they came, k or more times, and the client gets one of the model's own replies: the first of those
    that do the same and lead by k votes. --json prints one line with the addresses once it is ready. Ctrl-C ends it.
    """
    from microagents.models.prices import read_prices
    from microagents.web.endpoint.callers import Caller, CostLimit, read_callers, token_in
    from microagents.web.endpoint.policy import read_policy

    if not model:
        raise InvalidUsage("name the model that requests go on to: microagents serve --model openai:NAME")
    default = read_policy(policy)
    callers = [Caller(policy=default)]
    if tokens is not None and tokens.endswith(".toml"):
        callers = read_callers(tokens, default)
    elif tokens is not None:
        callers = [Caller(token=token_in(tokens), policy=default)]
    stamp = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
    given = {
        "models": model,
        "k": k,
        "ceiling": max_output_tokens,
        "fallbacks": fallback,
        "run_id": f"serve-{stamp}",
        "runs_dir": runs_dir,
        **place_in(port),
        "callers": callers,
    }
    if prices is not None:
        given["settings"] = {"prices": read_prices(prices)}
    if max_cost is not None:
        given["limit"] = CostLimit.parse(max_cost)
    asyncio.run(_serve(given, as_json=as_json))


def place_in(port: str) -> dict[str, Any]:
    """Read the value of --port."""
    host, _, number = port.rpartition(":")
    if not number.isdecimal() or int(number) > MAX_PORT:
        raise InvalidUsage(f"--port must be a number up to {MAX_PORT}, perhaps behind HOST:, not {port!r:.100}")
    return {"host": host.strip("[]") or "127.0.0.1", "port": int(number)}


async def _serve(given: dict[str, Any], *, as_json: bool) -> None:
    from microagents.runs.driver.execute import rare_garbage_collection
    from microagents.web.endpoint.server import Endpoint, serving
    from microagents.web.listening import ended_by_signal

    ended = ended_by_signal()
    async with serving(Endpoint(**given)) as served:
        # A full collection looked at the modules for 0.2 s after each 250 requests.
        gc.freeze()
        if as_json:
            echo(
                json.dumps(
                    {
                        "url": served.url,
                        **served.base_urls,
                        "models": given["models"],
                        "run": given["run_id"],
                        "pid": os.getpid(),
                    }
                )
            )
        else:
            echo(
                printable(
                    f"serving {', '.join(given['models'])} at k = {given['k']} until Ctrl-C, as run {given['run_id']}"
                )
            )
            for sdk, url in served.base_urls.items():
                echo(f"    {sdk.upper()}_BASE_URL={url}")
        with rare_garbage_collection():
            await ended.wait()
    counts, cost = served.counts, money(served.caps.cost_usd)
    said = f"answered {counts['answered']} of {counted(counts['requests'], 'request')}, {cost}"
    if counts["not elected"]:
        said += f"; {counts['not elected']} not elected"
    typer.echo(said, err=True)
