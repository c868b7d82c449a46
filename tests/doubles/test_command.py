"""`python -m tests.doubles`: a simulated provider as a process, from its first line to Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from microagents import run_sync
from microagents.base.errors import ModelUnavailable
from microagents.runs.strategies import strategy_of
from microagents.tasks.word_problems import WordProblem
from tests.cli.commands import COMPLETED, WAIT_S, WRONG_USAGE, microagents
from tests.doubles.test_decisions import OF_PROBLEMS, OPTIONS

HOUSE = Path(__file__).parents[2]
DOUBLE = (sys.executable, "-m", "tests.doubles")


@pytest.mark.slow
def test_it_prints_its_addresses_serves_a_run_and_ends_cleanly_with_ctrl_c() -> None:
    words = ("drift", "--model", "sim:perfect", "--port", "0", "--fault", "429:0.2", "--json")
    with subprocess.Popen([*DOUBLE, *words], stdout=PIPE, stderr=PIPE, text=True, cwd=HOUSE) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        spec = f"openai:m@base_url={line['openai']},price_in=1,price_out=1"
        result = microagents(
            "run", "drift", "-o", "length=5", "--model", spec, "-k", "1", "--no-speculate", "--json"
        ).json
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_S)
    assert (result["outcome"], result["errors"]) == ("completed", 0)
    assert (line["model"], line["anthropic"], line["pid"]) == ("sim:perfect", line["url"], process.pid)
    assert (process.returncode, out) == (COMPLETED, "")
    busy = result["repeated"].get("busy", 0)
    assert err.strip() == f"served {5 + busy} requests, 5 samples" + (f"; faults: {busy} x 429" if busy else "")


@pytest.mark.slow
def test_a_process_of_its_own_answers_the_questions_of_every_strategy_for_problems() -> None:
    """In this process a run defines the classes of its replies. The server has to know them without it."""
    command = [*DOUBLE, "word-problems", "-o", "depth=2", "--model", "sim:perfect", "--port", "0", "--json"]
    ended: dict[str, str] = {}
    with subprocess.Popen(command, stdout=PIPE, stderr=subprocess.DEVNULL, text=True, cwd=HOUSE) as process:
        assert process.stdout is not None
        spec = f"openai:m@base_url={json.loads(process.stdout.readline())['openai']}"
        for name in OF_PROBLEMS:
            try:
                strategy = strategy_of(name, WordProblem(depth=2), OPTIONS.get(name, {}))
                ended[name] = run_sync(WordProblem(depth=2), models=spec, strategy=strategy, runs_dir=None).outcome
            except ModelUnavailable as error:
                ended[name] = str(error)
        process.send_signal(signal.SIGINT)
    assert "no instructions" not in ended.pop("swarm"), (
        "the reply is known, though the expert of the task does not know the question"
    )
    assert ended == dict.fromkeys(ended, "completed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "a simulated model answers the questions of one task; name it: python -m tests.doubles hanoi"),
        (["-o", "disks=3", "--model", "scripted:x.jsonl"], "-o gives options of a task, and no task is named"),
        (["hanoi", "--fault", "often"], "write a fault as KIND:SHARE, such as 429:0.05, not 'often'"),
        (["hanoi", "--fault", "429:0.9", "--fault", "500:0.9"], "must add up to at most 1, not 1.8"),
        (["hanoi", "--port", "0.0.0.0:8399"], "name the environment variable of a token with --token-env"),
        (["hanoi", "--token-env", "NO_SUCH_TOKEN"], "the environment variable NO_SUCH_TOKEN has no token"),
        (
            ["hanoi", "--port", "no.such.host.invalid:8399", "--token-env", "SOME_TOKEN"],
            "nothing can be served on no.such.host.invalid port 8399",
        ),
        (["hanoi", "--port", "any"], "--port must be a number up to 65535, perhaps behind HOST:, not 'any'"),
        (["ask", "-o", "text=hi"], "has no `expert`"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_sentence(words: list[str], said: str) -> None:
    environment = {**os.environ, "SOME_TOKEN": "t"}
    ended = subprocess.run([*DOUBLE, *words], capture_output=True, text=True, cwd=HOUSE, env=environment, check=False)
    assert (ended.returncode, ended.stdout) == (WRONG_USAGE, "")
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
