"""`python -m tests.doubles`: a simulated provider as a process, from its first line to Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.cli.commands import COMPLETED, WAIT_S, WRONG_USAGE, microagents

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
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "a simulated model answers the questions of one task; name it: python -m tests.doubles hanoi"),
        (["-o", "disks=3", "--model", "scripted:x.jsonl"], "-o gives options of a task, and no task is named"),
        (["hanoi", "--fault", "often"], "write a fault as KIND:SHARE, such as 429:0.05, not 'often'"),
        (["hanoi", "--fault", "429:0.9", "--fault", "500:0.9"], "must add up to at most 1, not 1.8"),
        (["ask", "-o", "text=hi"], "has no `expert`"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_sentence(words: list[str], said: str) -> None:
    ended = subprocess.run([*DOUBLE, *words], capture_output=True, text=True, cwd=HOUSE, check=False)
    assert (ended.returncode, ended.stdout) == (WRONG_USAGE, "")
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
