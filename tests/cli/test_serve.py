"""`microagents serve`: the endpoint as a process, from its first line to Ctrl-C."""

from __future__ import annotations

import json
import signal

import aiohttp
import pytest

from tests.cli.commands import COMPLETED, WAIT_S, WRONG_USAGE, microagents, write
from tests.doubles.acting import acting
from tests.forking import Forked


@pytest.mark.slow
async def test_it_prints_its_addresses_elects_and_ends_cleanly_with_ctrl_c() -> None:
    async with acting(lambda _: [("read", {"path": "a"})]) as double:
        spec = f"openai:m@base_url={double.url}/v1"
        write("prices.toml", '["openai:m"]\ninput = 1\noutput = 1\n')
        with Forked(
            "serve", "--model", spec, "--prices", "prices.toml", "--max-cost", "5/day", "--port", "0", "--json"
        ) as process:
            assert process.stdout is not None
            line = json.loads(process.stdout.readline())
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{line['openai']}/chat/completions", json={"model": "m", "messages": []}) as response,
            ):
                assert response.headers["x-microagents-votes"] == "3 of 3"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=WAIT_S)
    assert (line["models"], line["pid"], "anthropic" in line) == ([spec], process.pid, False)
    assert (process.returncode, out) == (COMPLETED, "")
    assert err.strip() == "answered 1 of 1 request, $0.0003"
    shown = microagents("show", line["run"], "--json").json
    assert (shown["outcome"], shown["calls"], shown["steps"]) == ("completed", 3, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the model that requests go on to"),
        (["--model", "sim:perfect"], "cannot be served: requests go on as they came"),
        (["--model", "openai:m@batch=file"], "batch in 'openai:m@batch=file' shapes requests"),
        (["--model", "openai:m@base_url=http://127.0.0.1:9", "--port", "0.0.0.0:0"], "with --tokens"),
        (
            ["--model", "openai:m", "--tokens", "NO_SUCH_TOKEN"],
            "the environment variable NO_SUCH_TOKEN has no token",
        ),
        (
            ["--model", "openai:m", "--port", "any"],
            "--port must be a number up to 65535, perhaps behind HOST:, not 'any'",
        ),
        (["--model", "openai:m", "--prices", "none.toml"], "the prices file 'none.toml' cannot be read"),
        (
            ["--model", "openai:m@base_url=http://127.0.0.1:9/v1", "--max-cost", "5"],
            "is unknown, so no cap can be kept",
        ),
        (["--model", "openai:m", "--max-cost", "5/week"], "such as 5 or 20/day, not '5/week'"),
        (["--model", "openai:m", "--policy", "nothing"], "shipped policies are claude-code, codex"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_sentence(words: list[str], said: str) -> None:
    ended = microagents("serve", *words)
    assert (ended.code, ended.out) == (WRONG_USAGE, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1
